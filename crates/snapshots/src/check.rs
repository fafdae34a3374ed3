//! Checks of snapshots, which change nothing, and their repair.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use azureal_files::Folder;

use crate::durable::{damaged, remove_indexes};
use crate::error::{At, Error};
use crate::git::{Deadline, args};
use crate::import::NAME;
use crate::loose::{Loose, loose};
use crate::notes::{Notes, Pin, replace};
use crate::packs::{Effort, Pack, packs, remove_pack};
use crate::scratch::Scratch;
use crate::worktree::{Home, Worktree};

/// The time limit of the check.
const TIME: Duration = Duration::from_secs(60);
const ERRORS: &str = "errors";

/// The result of [`Worktree::check_snapshots`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotCheck {
    /// The number of snapshots whose note can be read.
    pub snapshots: usize,
    /// The size of all objects, in bytes.
    pub size: u64,
    /// Files of notes that cannot be read.
    pub unreadable: Vec<PathBuf>,
    /// Files of notes with lines that are no notes.
    pub damaged_notes: Vec<PathBuf>,
    /// Indexes of worktrees that are damaged.
    pub indexes: Vec<PathBuf>,
    /// Objects that are empty, cut or damaged.
    pub objects: Vec<PathBuf>,
    /// Packs that are damaged, or whose index is.
    pub packs: Vec<PathBuf>,
    /// The sessions with snapshots whose objects are gone, and their number: their changes cannot be shown or undone.
    pub lost: Vec<(String, usize)>,
}

/// The result of [`Worktree::repair_snapshots`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairedSnapshots {
    /// Indexes that were removed. The next snapshot creates them again.
    pub indexes: usize,
    /// Damaged objects that were removed.
    pub objects: usize,
    /// Packs whose index was created again.
    pub indexed: usize,
    /// Damaged packs, of which the objects that can be read were kept.
    pub salvaged: usize,
    /// Snapshots that were given up: their objects are gone.
    pub lost: usize,
    /// Files of notes that were freed from other lines.
    pub notes: usize,
}

impl Worktree {
    /// Checks the snapshots of all worktrees of the repository.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory, or git, cannot be used.
    pub fn check_snapshots(&self) -> Result<SnapshotCheck, Error> {
        let Ok(home) = Folder::open(&self.home) else { return Ok(SnapshotCheck::default()) };
        let Ok(objects) = home.open_folder(OsStr::new("objects")) else {
            return Ok(SnapshotCheck::default());
        };
        let packed = objects.open_folder(OsStr::new("pack")).at(&objects.join("pack"))?;
        let Notes { pins, unreadable, damaged: damaged_notes } = Notes::read(&packed)?;
        let path = |object: Loose| object.folder.join(&object.name);
        Ok(SnapshotCheck {
            snapshots: pins.len(),
            size: self.size(),
            unreadable,
            damaged_notes,
            indexes: self.damaged_indexes(&home)?,
            objects: damaged(&objects, Deadline::after(TIME))?.into_iter().map(path).collect(),
            packs: self
                .damaged_packs(&packed)?
                .iter()
                .map(|pack| packed.join(format!("{}.pack", pack.name)))
                .collect(),
            lost: counted(&self.lost(&pins)?),
        })
    }

    /// Repairs what [`check_snapshots`](Self::check_snapshots) finds: what is damaged and can be created again is removed, and what can be
    /// read of the rest is kept.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a snapshot is being taken.
    pub fn repair_snapshots(&self) -> Result<RepairedSnapshots, Error> {
        let mut repaired = RepairedSnapshots::default();
        if !self.home.exists() {
            return Ok(repaired);
        }
        let home = self.open_home()?;
        let _lock = self.lock_packs(&home)?;
        let _worktrees = self.lock_all(&home)?;
        for path in self.damaged_indexes(&home.repository)? {
            std::fs::remove_file(&path).at(&path)?;
            repaired.indexes += 1;
        }
        for object in damaged(&home.objects, Deadline::after(TIME))? {
            object.remove()?;
            repaired.objects += 1;
        }
        for pack in self.damaged_packs(&home.packs)? {
            if self.index_pack(&home, &pack)? {
                repaired.indexed += 1;
            } else {
                self.salvage(&home, &pack)?;
                repaired.salvaged += 1;
            }
        }
        if repaired.objects + repaired.salvaged > 0 {
            remove_indexes(&home)?;
        }
        let notes = Notes::read(&home.packs)?;
        let lost = self.lost(&notes.pins)?;
        let of_lost: BTreeSet<&str> = lost.iter().map(|pin| pin.session.as_str()).collect();
        let of_damaged = notes.pins.iter().filter(|pin| notes.damaged.contains(&pin.path(&home.packs)));
        let sessions: BTreeSet<&str> = of_damaged.map(|pin| pin.session.as_str()).chain(of_lost).collect();
        for session in sessions {
            let of_session = notes.pins.iter().rev().filter(|pin| pin.session == session);
            let kept: Vec<&Pin> = of_session.filter(|pin| !lost.contains(pin)).collect();
            replace(&home.packs, session, &kept)?;
        }
        for path in
            notes.damaged.iter().filter(|path| !notes.pins.iter().any(|pin| pin.path(&home.packs) == **path))
        {
            std::fs::remove_file(path).at(path)?;
        }
        (repaired.lost, repaired.notes) = (lost.len(), notes.damaged.len());
        Ok(repaired)
    }

    /// Finds indexes of worktrees that are damaged.
    fn damaged_indexes(&self, repository: &Folder) -> Result<Vec<PathBuf>, Error> {
        let Ok(worktrees) = repository.open_folder(OsStr::new("worktrees")) else { return Ok(Vec::new()) };
        let names = worktrees.names().at(&worktrees.join(""))?;
        let indexes = names.iter().map(|name| worktrees.join(name).join(NAME));
        Ok(indexes.filter(|index| index.exists() && self.index_ids(index).is_none()).collect())
    }

    /// Finds packs that are damaged, or whose index is.
    fn damaged_packs(&self, folder: &Folder) -> Result<Vec<Pack>, Error> {
        let mut damaged = Vec::new();
        for pack in packs(folder)? {
            let mut command = args(["verify-pack", "--"]);
            command.push(folder.join(format!("{}.idx", pack.name)).into());
            match self.git.run(&command, Vec::new(), Deadline::after(TIME)) {
                // It was removed meanwhile.
                Err(Error::Git { .. }) if !folder.join(format!("{}.pack", pack.name)).exists() => {}
                Err(Error::Git { .. }) => damaged.push(pack),
                verified => drop(verified?),
            }
        }
        Ok(damaged)
    }

    /// Finds snapshots whose tree, or whose record of ignore rules, is gone.
    fn lost(&self, pins: &[Pin]) -> Result<Vec<Pin>, Error> {
        if pins.is_empty() {
            return Ok(Vec::new());
        }
        let needed = |pin: &Pin| [Some(pin.tree.clone()), pin.rules.clone()].into_iter().flatten();
        let ids: BTreeSet<String> = pins.iter().flat_map(needed).collect();
        let missing = self.sizes(&self.borrowing(), ids, Deadline::after(TIME))?.missing;
        Ok(pins.iter().filter(|pin| needed(pin).any(|id| missing.contains(&id))).cloned().collect())
    }

    /// Creates the index of a pack again. Returns whether the pack is whole.
    fn index_pack(&self, home: &Home, pack: &Pack) -> Result<bool, Error> {
        let scratch = Scratch::new(home)?;
        let mut command = args(["index-pack", "-o"]);
        command.push(scratch.join("idx").into());
        command.push(home.packs.join(format!("{}.pack", pack.name)).into());
        match self.git.run(&command, Vec::new(), Deadline::after(TIME)) {
            Err(Error::Git { .. }) => return Ok(false),
            indexed => drop(indexed?),
        }
        let folder = Folder::open(&scratch.join("")).at(&scratch.join(""))?;
        let name = OsString::from(format!("{}.idx", pack.name));
        let new = File::open(folder.join("idx")).at(&home.packs.join(&name))?;
        // With `-o`, git does not heed `core.sharedRepository`.
        new.set_permissions(Permissions::from_mode(0o400))
            .and_then(|()| new.sync_all())
            .and_then(|()| folder.move_to(OsStr::new("idx"), &home.packs, &name))
            .and_then(|()| home.packs.sync())
            .at(&home.packs.join(&name))?;
        Ok(true)
    }

    /// Replaces a damaged pack by the objects that git can read of it.
    fn salvage(&self, home: &Home, pack: &Pack) -> Result<(), Error> {
        let scratch = Scratch::new(home)?;
        let name = OsString::from(format!("{}.pack", pack.name));
        let folder = Folder::open(&scratch.join("")).at(&scratch.join(""))?;
        // Git writes no object again that it sees in a pack.
        home.packs.move_to(&name, &folder, OsStr::new("pack")).at(&home.packs.join(&name))?;
        remove_pack(&home.packs, &pack.name)?;
        let errors = scratch.join(ERRORS);
        let (input, errors) =
            (File::open(scratch.join("pack")).at(&errors)?, File::create(&errors).at(&errors)?);
        let command = args(["unpack-objects", "-q", "-r"]);
        let running = self.git.start_apart(&command, input, errors)?;
        if !running.ends_within(Deadline::after(TIME)) {
            running.child.kill();
        }
        // Its errors are those of the objects that are lost.
        running.child.wait();
        let found = loose(&home.objects)?;
        self.write_pack(home, found.iter().map(|object| object.id.as_str()), Effort::Quick)?;
        home.packs.sync().at(&home.packs.join(""))?;
        crate::loose::remove(&found)
    }
}

impl Pin {
    fn path(&self, packs: &Folder) -> PathBuf {
        crate::notes::path(packs, &self.session)
    }
}

/// Counts the snapshots of each session.
fn counted(pins: &[Pin]) -> Vec<(String, usize)> {
    let sessions: BTreeSet<&str> = pins.iter().map(|pin| pin.session.as_str()).collect();
    let count = |session: &str| pins.iter().filter(|pin| pin.session == session).count();
    sessions.into_iter().map(|session| (session.to_owned(), count(session))).collect()
}
