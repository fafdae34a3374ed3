//! The cache of rendered ledgers: one file per session in the folder of the spools.
//!
//! It is not durable and not shared: a file that is missing, of another key or damaged is written again. On a server every machine has
//! its own.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use azureal_core::{LedgerCache, LedgerKey, SessionId};
use azureal_files::Folder;
use rustix::fs::OFlags;
use tracing::debug;

use crate::spool::{SpoolError, Spools, UNFINISHED, at};

const LEDGER: &str = "ledger";
/// Reads at most this much of a file. A ledger has 12,000 characters at most.
const LARGEST: u64 = 256 * 1024;
/// A file that is older is removed: its session may have been deleted on another machine.
const LASTS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl LedgerCache for Spools {
    fn get(&self, key: &LedgerKey) -> Option<String> {
        let folder = Folder::open(&self.folder).ok()?;
        let file = folder.open_file(&name_for(key.session), OFlags::RDONLY).ok()?;
        let mut text = String::new();
        file.take(LARGEST).read_to_string(&mut text).ok()?;
        let (found, rest) = text.split_once('\n')?;
        let (sum, ledger) = rest.split_once('\n')?;
        (found == key.text && sum == checksum(ledger)).then(|| ledger.to_owned())
    }

    fn put(&self, key: &LedgerKey, ledger: &str) {
        if let Err(error) = write(&self.folder, key, ledger) {
            debug!(session = %key.session, error = ?error.to_string(), "ignored: a ledger is not cached");
        }
    }
}

impl Spools {
    /// Removes the cached ledger of a session that is deleted.
    pub fn remove_ledger(&self, session: SessionId) -> Result<(), SpoolError> {
        let name = name_for(session);
        match Folder::open(&self.folder).and_then(|folder| folder.remove(&name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&self.folder.join(&name))(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Removes the ledgers that were not written for long. A file that cannot be removed is left for the next time.
pub(crate) fn remove_old(folder: &Folder, names: &[OsString]) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    for name in names.iter().filter(|name| Path::new(name).extension() == Some(OsStr::new(LEDGER))) {
        let written = u64::try_from(folder.modified(name)).unwrap_or(0);
        // A time in the future counts as old.
        if now.checked_sub(written).is_none_or(|age| age > LASTS.as_secs()) {
            drop(folder.remove(name));
        }
    }
}

fn name_for(session: SessionId) -> OsString {
    format!("{session}.{LEDGER}").into()
}

/// Writes the file under another name first, so that no reader finds half of it.
fn write(folder: &Path, key: &LedgerKey, ledger: &str) -> io::Result<()> {
    let folder = Folder::open(folder)?;
    let name = name_for(key.session);
    // If the writer dies, it is removed with unfinished spools.
    let new = Path::new(&name).with_extension(format!("{LEDGER}.{UNFINISHED}"));
    let mut file = folder.create_file(new.as_os_str(), OFlags::WRONLY)?;
    let written = file
        .write_all(format!("{}\n{}\n{ledger}", key.text, checksum(ledger)).as_bytes())
        .and_then(|()| folder.rename(new.as_os_str(), &name));
    if written.is_err() {
        drop(folder.remove(new.as_os_str()));
    }
    written
}

/// Returns a checksum that finds a truncated or damaged file (FNV-1a).
fn checksum(text: &str) -> String {
    let sum = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{sum:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;

    fn key(session: u32, text: &str) -> LedgerKey {
        LedgerKey { session: SessionId::new(session).unwrap(), text: text.to_owned() }
    }

    /// Returns spools in a folder of their own, and the path of the ledger of S1.
    fn spools() -> (tempfile::TempDir, Spools, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        drop(spools.open_folder().unwrap());
        let path = folder.path().join("spool/S1.ledger");
        (folder, spools, path)
    }

    #[test]
    fn a_ledger_is_found_under_its_own_key_only() {
        let (_folder, spools, path) = spools();
        assert_eq!(spools.get(&key(1, "a")), None);
        spools.put(&key(1, "a"), "Files touched:\n- x");
        assert_eq!(spools.get(&key(1, "a")).as_deref(), Some("Files touched:\n- x"));
        assert_eq!((spools.get(&key(1, "b")), spools.get(&key(2, "a"))), (None, None));
        spools.put(&key(1, "b"), "");
        assert_eq!((spools.get(&key(1, "a")), spools.get(&key(1, "b")).as_deref()), (None, Some("")));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        spools.remove_ledger(SessionId::new(1).unwrap()).unwrap();
        assert_eq!(spools.get(&key(1, "b")), None);
        spools.remove_ledger(SessionId::new(1).unwrap()).unwrap();
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none_and_is_replaced() {
        let (_folder, spools, path) = spools();
        let key = key(1, "a");
        spools.put(&key, "- read x\n- read y");
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(spools.get(&key), None, "{length} bytes of it");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x11;
            fs::write(&path, damaged).unwrap();
            assert_eq!(spools.get(&key), None, "byte {place}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(spools.get(&key), None, "a link");
        spools.put(&key, "- read z");
        assert_eq!(spools.get(&key).as_deref(), Some("- read z"));
    }

    #[test]
    fn a_ledger_that_was_not_written_for_a_month_is_removed() {
        let (_folder, spools, path) = spools();
        for session in 1..=3 {
            spools.put(&key(session, "a"), "x");
        }
        let age = |path: &Path, time| File::options().write(true).open(path).unwrap().set_modified(time);
        age(&path, SystemTime::now() - LASTS - Duration::from_secs(60)).unwrap();
        age(&path.with_file_name("S3.ledger"), SystemTime::now() + Duration::from_secs(3_600)).unwrap();
        let folder = spools.open_folder().unwrap();
        remove_old(&folder, &folder.names().unwrap());
        assert_eq!(folder.names().unwrap(), ["S2.ledger"]);
    }
}
