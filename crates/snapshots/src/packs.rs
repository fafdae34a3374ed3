//! Packs of objects: written so that none is cut after a power loss, and combined when there are many.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use azureal_files::{Folder, HeldFolder};
use rustix::fs::OFlags;

use crate::error::{At, Error};
use crate::git::{Deadline, args};
use crate::loose::{Condition, loose};
use crate::places::ObjectFormat;
use crate::project_index::hex;
use crate::scratch::Scratch;
use crate::worktree::{Home, Worktree};

/// Packs up to this number stay as they are. Git looks into each for an object.
const PACKS: usize = 20;
/// At least so many packs are combined at once.
const STEP: usize = PACKS / 2;
/// Loose objects up to this number, and this size, are put into the pack of a turn. More are packed when nobody waits.
const LOOSE: usize = 2_000;
const LOOSE_SIZE: u64 = 64 * 1024 * 1024;
/// Loose objects up to this number stay as they are until a turn needs them. Each process checks them.
const FEW: usize = 32;
/// The time limit of a command that nobody waits for.
const TIME: Duration = Duration::from_secs(300);
/// The time to wait for another process that changes packs.
const WAIT: Duration = Duration::from_secs(2);
/// The bound on an index: 20 million objects.
const INDEX: u64 = 1 << 30;

/// How much work is put into the size of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A turn waits.
    Quick,
    /// Versions of a file are stored as differences.
    Small,
}

/// A pack, by the name of its file without the ending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pack {
    pub(crate) size: u64,
    pub(crate) name: String,
}

/// Lists the packs, the smallest first.
pub(crate) fn packs(folder: &Folder) -> Result<Vec<Pack>, Error> {
    let mut packs = Vec::new();
    for name in folder.names().at(&folder.join(""))? {
        let stem = name.to_str().and_then(|name| name.strip_suffix(".pack"));
        if let Some(stem) = stem.filter(|stem| stem.starts_with("pack-")) {
            packs.push(Pack { size: folder.size(&name), name: stem.to_owned() });
        }
    }
    packs.sort();
    Ok(packs)
}

/// Returns the ids in the index of a pack. `None` if it cannot be read.
pub(crate) fn ids(folder: &Folder, pack: &Pack, format: ObjectFormat) -> Option<Vec<String>> {
    let name = OsString::from(format!("{}.idx", pack.name));
    let mut file = folder.open_shared_file(&name).ok()?;
    let length = file.metadata().ok()?.len();
    // Version 2: a mark, the number of objects up to each first byte, and the ids in their order.
    let mut head = [0; 8 + 256 * 4];
    file.read_exact(&mut head).ok()?;
    let count = head.strip_prefix(b"\xfftOc\0\0\0\x02")?.last_chunk::<4>()?;
    let (count, size) = (u64::from(u32::from_be_bytes(*count)), format.length() as u64);
    // After the ids a checksum and an offset of each object, and two checksums of all.
    if length > INDEX || length < 8 + 256 * 4 + count * (size + 8) + 2 * size {
        return None;
    }
    let mut ids = Vec::new();
    file.seek(SeekFrom::Start(head.len() as u64)).ok()?;
    file.take(count * size).read_to_end(&mut ids).ok()?;
    Some(ids.chunks_exact(format.length()).map(hex).collect())
}

/// Chooses the packs to combine: the smallest, and those that are not much larger than all smaller ones together. So an object is
/// written again only when its pack doubles.
fn combined(packs: &[Pack]) -> &[Pack] {
    if packs.len() <= PACKS {
        return &[];
    }
    let (mut count, mut sum) = (0, 0u64);
    for pack in packs {
        if count >= STEP && pack.size >= sum.saturating_mul(2) {
            break;
        }
        count += 1;
        sum = sum.saturating_add(pack.size);
    }
    packs.get(..count).unwrap_or_default()
}

impl Worktree {
    /// Puts objects into one pack, which is durable when this returns, but for the names of its files: these need a sync of their folder.
    /// Returns the name of the pack.
    pub(crate) fn write_pack<'a>(
        &self,
        home: &Home,
        ids: impl IntoIterator<Item = &'a str>,
        effort: Effort,
    ) -> Result<Option<String>, Error> {
        if packs(&home.packs)?.is_empty() {
            // Before the first pack has its name: later ones find the folders durable.
            self.sync_folders(home)?;
        }
        let list: String = ids.into_iter().flat_map(|id| [id, "\n"]).collect();
        if list.is_empty() {
            return Ok(None);
        }
        let scratch = Scratch::new(home)?;
        let mut command = args(["pack-objects", "-q"]);
        if effort == Effort::Quick {
            command.extend(args(["--window=0", "--compression=1"]));
        }
        command.push(scratch.join("pack").into());
        let output = self.git.run(&command, list.into_bytes(), Deadline::after(TIME))?;
        let name = format!("pack-{}", String::from_utf8_lossy(&output).trim());
        let folder = Folder::open(&scratch.join("")).at(&scratch.join(""))?;
        // Under their names only when they are whole: git would take a file that a power loss cut for the pack.
        let names = ["pack", "idx"].map(|ending| OsString::from(format!("{name}.{ending}")));
        for name in &names {
            let file = folder.open_file(name, OFlags::RDONLY).at(&folder.join(name))?;
            file.sync_all().at(&folder.join(name))?;
        }
        for name in &names {
            folder.move_to(name, &home.packs, name).at(&home.packs.join(name))?;
        }
        Ok(Some(name))
    }

    /// Locks the packs of the repository. Only what removes packs takes the lock: a turn adds one without it.
    pub(crate) fn lock_packs(&self, home: &Home) -> Result<HeldFolder, Error> {
        let path = home.packs.join("");
        let again = home.objects.open_folder(OsStr::new("pack")).at(&path)?;
        match again.hold(WAIT) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Error::Busy),
            held => held.at(&path),
        }
    }

    /// Combines packs if there are many, and packs objects that no turn has packed. Turns continue meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if another process does the same. Git reports an error.
    pub fn combine(&self) -> Result<(), Error> {
        let Ok(repository) = Folder::open(&self.home) else { return Ok(()) };
        let Ok(objects) = repository.open_folder(OsStr::new("objects")) else { return Ok(()) };
        let Ok(packed) = objects.open_folder(OsStr::new("pack")) else { return Ok(()) };
        let has_few = packs(&packed)?.len() <= PACKS;
        let found = loose(&objects)?;
        if has_few && found.len() <= FEW {
            return Ok(());
        }
        let home = self.open_home()?;
        let _lock = self.lock_packs(&home)?;
        if found.len() > FEW {
            let checked =
                found.into_iter().map(|object| Ok((object.condition(Deadline::after(TIME))?, object)));
            let mut sound = checked.collect::<Result<Vec<_>, Error>>()?;
            sound.retain(|(condition, _)| *condition == Condition::Sound);
            let sound: Vec<_> = sound.into_iter().map(|it| it.1).collect();
            self.write_pack(&home, sound.iter().map(|object| object.id.as_str()), Effort::Quick)?;
            home.packs.sync().at(&home.packs.join(""))?;
            crate::loose::remove(&sound)?;
        }
        let mut all = packs(&home.packs)?;
        // A process died between the names of a pack and of its index, or is there now. Nothing is read from such a pack.
        all.retain(|pack| home.packs.join(format!("{}.idx", pack.name)).exists());
        let old = combined(&all);
        let mut listed = BTreeSet::new();
        for pack in old {
            // A damaged index: `doctor` repairs it.
            let Some(ids) = ids(&home.packs, pack, self.places.format) else { return Ok(()) };
            listed.extend(ids);
        }
        let Some(new) = self.write_pack(&home, listed.iter().map(String::as_str), Effort::Small)? else {
            return Ok(());
        };
        home.packs.sync().at(&home.packs.join(""))?;
        for pack in old.iter().filter(|pack| pack.name != new) {
            remove_pack(&home.packs, &pack.name)?;
        }
        tracing::debug!(packs = old.len(), objects = listed.len(), "combined packs");
        Ok(())
    }
}

/// Returns whether objects are too many for the pack of a turn.
pub(crate) fn is_much(objects: &[crate::loose::Loose]) -> bool {
    objects.len() > LOOSE || objects.iter().map(crate::loose::Loose::size).sum::<u64>() > LOOSE_SIZE
}

/// Removes a pack. Its index goes first: a pack without one is no longer used.
pub(crate) fn remove_pack(folder: &Folder, name: &str) -> Result<(), Error> {
    for ending in ["idx", "rev", "pack"] {
        let name = OsString::from(format!("{name}.{ending}"));
        folder.remove(&name).at(&folder.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_packs_of_a_turn_are_combined_in_steps_and_no_object_is_written_often() {
        let (mut packs, mut written, mut longest) = (Vec::new(), 0, 0);
        for turn in 0..1_000u64 {
            packs.push(Pack { size: 1_000 + turn % 7, name: turn.to_string() });
            packs.sort();
            let count = combined(&packs).len();
            let sum: u64 = packs.drain(..count).map(|pack| pack.size).sum();
            if count > 0 {
                written += sum;
                longest = longest.max(count);
                packs.push(Pack { size: sum, name: format!("sum {turn}") });
            }
            assert!(packs.len() <= PACKS);
        }
        // A repack of all at each twentieth turn would write 25 times as much.
        assert!(written < 8 * 1_000_000 && longest <= PACKS + 1, "{written} {longest}");
    }
}
