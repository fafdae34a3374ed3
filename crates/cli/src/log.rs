//! The log: what azureal decided and what it ignored, for the search of a fault. Written only if `AZUREAL_LOG` is set.
//!
//! The file is private and bounded, and holds no text of prompts, answers or context: names, numbers and outcomes only.
//! Secrets are masked.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::OFlags;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use azureal::Environment;
use azureal_core::{Redactor, io_error_text};

use crate::failure::{Failure, quoted};
use crate::output::warn;

const VARIABLE: &str = "AZUREAL_LOG";
const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];
/// The level if only a file is named.
const USUAL: LevelFilter = LevelFilter::DEBUG;
/// A file that is longer becomes the previous one, of which there is one.
const LONGEST: u64 = 4 << 20;

/// Starts to log, if the environment asks for it. A file that cannot be written is a warning, since the command works
/// without it.
pub(crate) fn start(environment: &Environment) -> Result<(), Failure> {
    let Some(wanted) = Wanted::of(environment)? else { return Ok(()) };
    let Some(path) = wanted.path.or_else(|| Some(environment.state()?.join("azureal.log"))) else {
        warn(&format!(
            "nothing is logged: neither HOME nor XDG_STATE_HOME is set, and {VARIABLE} names no file"
        ));
        return Ok(());
    };
    let redactor = match azureal::config::redactor(environment) {
        Ok(redactor) => redactor,
        Err(error) => {
            warn(&format!("nothing is logged: {}", error.message()));
            return Ok(());
        }
    };
    let file = match LogFile::open(&path, LONGEST) {
        Ok(file) => MaskedLog { file, redactor },
        Err(error) => {
            warn(&format!("nothing is logged: {}: {}", path.display(), io_error_text(&error)));
            return Ok(());
        }
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        // A full disk is no news for every line.
        .log_internal_errors(false)
        .with_writer(Mutex::new(file));
    // What other libraries say is not known to be free of secrets.
    let ours = Targets::new().with_target("azureal", wanted.level);
    // It fails if there is one already, which there is not.
    drop(tracing::subscriber::set_global_default(tracing_subscriber::registry().with(ours).with(lines)));
    tracing::info!(version = env!("AZUREAL_VERSION"), pid = std::process::id(), "azureal starts");
    Ok(())
}

/// The value of the variable: a level, an absolute path, or both as `debug:/path`.
#[derive(Debug, PartialEq)]
struct Wanted {
    level: LevelFilter,
    path: Option<PathBuf>,
}

impl Wanted {
    fn of(environment: &Environment) -> Result<Option<Self>, Failure> {
        let Some(text) = environment.variable(VARIABLE).filter(|text| !text.trim().is_empty()) else {
            return Ok(None);
        };
        let (level, path) = match text.split_once(':') {
            _ if text.starts_with('/') => (None, Some(text)),
            Some((level, path)) => (Some(level), Some(path)),
            None => (Some(text), None),
        };
        let level = match level {
            None => Some(USUAL),
            Some(word) => LEVELS.iter().find(|(name, _)| *name == word.trim()).map(|(_, level)| *level),
        };
        let path = path.map(Path::new);
        match level {
            Some(level) if path.is_none_or(Path::is_absolute) => {
                Ok(Some(Self { level, path: path.map(Path::to_owned) }))
            }
            _ => Err(Failure::usage(format!(
                "`{VARIABLE}` is {}; allowed is one of {}, an absolute path, or both as `debug:/path`",
                quoted(text),
                LEVELS.map(|(name, _)| name).join(", "),
            ))),
        }
    }
}

/// A log in which secrets are masked. No line should have one; this is for the line that has one by mistake.
struct MaskedLog {
    file: LogFile,
    redactor: Redactor,
}

impl Write for MaskedLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let written = self.file.write(self.redactor.redact(&text).as_bytes());
        written.map(|_| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A private file that lines are appended to, and the one before it. Several processes may write the same one.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    longest: u64,
}

impl LogFile {
    fn open(path: &Path, longest: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        Ok(Self { path: path.to_owned(), file: open_private(path)?, longest })
    }

    /// Begins a new file, if this one is long enough.
    fn rotate(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() < self.longest {
            return Ok(());
        }
        // One process at a time. Another may have been faster: then the name leads to a new file already.
        self.file.lock()?;
        let identity = |found: &fs::Metadata| (found.dev(), found.ino());
        let is_named = fs::symlink_metadata(&self.path)
            .is_ok_and(|named| self.file.metadata().is_ok_and(|open| identity(&named) == identity(&open)));
        if is_named {
            let mut previous = self.path.clone().into_os_string();
            previous.push(".1");
            fs::rename(&self.path, previous)?;
        }
        self.file = open_private(&self.path)?;
        Ok(())
    }
}

impl Write for LogFile {
    /// Writes one line, which comes as a whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.rotate()?;
        self.file.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a file that only its user can read, and creates it if there is none.
fn open_private(path: &Path) -> io::Result<File> {
    let careful = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().create(true).append(true).mode(0o600).custom_flags(careful).open(path)?;
    let found = file.metadata()?;
    let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !found.is_file() {
        return refused("is no plain file");
    }
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return refused("others can read it; remove it, or close it with `chmod go=`");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_variable_is_a_level_a_path_or_both() {
        let wanted = |text: &str| Wanted::of(&Environment::new([(VARIABLE.into(), text.into())]));
        let is = |level, path: Option<&str>| Some(Wanted { level, path: path.map(PathBuf::from) });
        for (text, expected) in [
            ("", None),
            (" ", None),
            ("warn", is(LevelFilter::WARN, None)),
            ("/a:b/c.log", is(USUAL, Some("/a:b/c.log"))),
            ("trace:/tmp/x.log", is(LevelFilter::TRACE, Some("/tmp/x.log"))),
        ] {
            assert_eq!(wanted(text).unwrap(), expected, "{text}");
        }
        assert_eq!(Wanted::of(&Environment::default()).unwrap(), None);
        for wrong in ["verbose", "1", "debug:", "debug:x.log", "x.log", ":/x", "WARN"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn several_writers_keep_two_bounded_private_files() {
        const LONGEST: u64 = 1_000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/x.log");
        std::thread::scope(|scope| {
            for number in 0..4 {
                let mut file = LogFile::open(&path, LONGEST).unwrap();
                scope.spawn(move || {
                    for line in 0..500 {
                        file.write_all(format!("writer {number} line {line:03}\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let mut names: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names, [path.clone(), folder.path().join("new/x.log.1")]);
        for name in names {
            assert_eq!(fs::metadata(&name).unwrap().mode() & 0o777, 0o600);
            let text = fs::read_to_string(&name).unwrap();
            assert!(text.len() as u64 <= LONGEST + 4 * 30, "{}", text.len());
            assert!(text.lines().all(|line| line.starts_with("writer ") && line.len() == 17), "{text}");
        }
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_a_link_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("open"), "").unwrap();
        fs::set_permissions(path("open"), fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("/dev/null", path("link")).unwrap();
        for name in ["open", "link", "."] {
            assert!(LogFile::open(&path(name), LONGEST).is_err(), "{name}");
        }
        assert!(LogFile::open(Path::new("/dev/null"), LONGEST).is_err());
    }
}
