//! The sessions that agents' programs keep themselves: finding and importing them.
//!
//! A session belongs to the project around the directory that it ran in. Its file is only read. A copy of it becomes the
//! original of the imported session, because the programs delete their files after a while.
//!
//! `find` finds sessions, `import` imports them, `originals` keeps their files, and `count` counts them for a hint.

mod count;
mod find;
mod import;
mod originals;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use azureal_agents::native::NativeSource;
use azureal_agents::native::{NativeHead, NativeHome, NativeSession};
pub use azureal_exchange::StoredRuns;

pub use count::{CountedSessions, count_sessions, find_importable};
pub use import::NativeTarget;
pub use originals::OriginalWriter;

use crate::project::Project;
use crate::workspace::Workspace;

/// The sources of all agents.
pub fn sources() -> &'static [&'static dyn NativeSource] {
    azureal_exchange::native_sources()
}

/// Native sessions that were found, and what was left out.
#[derive(Default)]
pub struct NativeSessions {
    homes: Vec<OpenHome>,
    found: Vec<FoundSession>,
    left_out: Vec<LeftOutSession>,
    /// The ids of the sessions that begin with the same entry, by its id: forks and their origin. The ones that were used last are last.
    families: HashMap<String, Vec<String>>,
    /// The number of sessions of other projects.
    elsewhere: u64,
}

struct OpenHome {
    source: &'static dyn NativeSource,
    home: Box<dyn NativeHome>,
}

/// A native session.
pub struct FoundSession {
    home: usize,
    session: NativeSession,
    head: NativeHead,
    /// The project around its directory; `None` if the directory is not known or gone.
    project: Option<Project>,
    /// Whether the user named its file.
    is_named: bool,
}

/// A native session that cannot be imported.
#[derive(Debug)]
pub struct LeftOutSession {
    /// Its file, or the folder.
    pub path: PathBuf,
    /// The reason, for people.
    pub reason: LeftOutReason,
}

/// The reason why a native session is left out before it is imported.
#[derive(Debug)]
pub enum LeftOutReason {
    /// It cannot be read, for this reason.
    Unreadable(String),
    /// It has no message.
    NoConversation,
    /// It does not say in which directory it ran, and only the sessions of one project are wanted.
    NoDirectory,
}

impl fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable(reason) => reason,
            Self::NoConversation => "it has no conversation",
            Self::NoDirectory => "it does not say in which folder it ran",
        })
    }
}

/// A selection of native sessions.
#[derive(Clone, Copy)]
pub enum NativeScope<'a> {
    /// Those of a project.
    Project(&'a Project),
    /// All of them.
    All,
}

impl NativeSessions {
    /// Returns the sessions.
    pub fn found(&self) -> &[FoundSession] {
        &self.found
    }

    /// Returns what cannot be imported.
    pub fn left_out(&self) -> &[LeftOutSession] {
        &self.left_out
    }

    /// Returns the number of sessions of other projects, which were not asked for.
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// Adds other sessions.
    pub fn extend(&mut self, other: Self) {
        let before = self.homes.len();
        self.homes.extend(other.homes);
        self.found
            .extend(other.found.into_iter().map(|found| FoundSession { home: found.home + before, ..found }));
        self.left_out.extend(other.left_out);
        for (first, ids) in other.families {
            self.families.entry(first).or_default().extend(ids);
        }
        self.elsewhere += other.elsewhere;
    }

    /// Returns the agent's source of a session.
    pub fn source_of(&self, found: &FoundSession) -> Option<&'static dyn NativeSource> {
        self.homes.get(found.home).map(|home| home.source)
    }
}

impl FoundSession {
    /// Returns its file or database.
    pub fn path(&self) -> &Path {
        &self.session.path
    }

    /// Returns the agent's own id of the session.
    pub fn id(&self) -> &str {
        &self.head.id
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.session.size
    }

    /// Returns when it was last used: the time of its last entry, because a copied file has another time.
    fn last_used(&self) -> Option<SystemTime> {
        self.head.ended.map(SystemTime::from).or(self.session.changed)
    }

    /// Returns the directory that it ran in.
    pub fn directory(&self) -> Option<&Path> {
        self.head.cwd.as_deref()
    }

    /// Returns the project around that directory; `None` if the directory is not known or gone.
    pub fn project(&self) -> Option<&Project> {
        self.project.as_ref()
    }

    /// Returns whether azureal itself may have run it.
    pub fn may_be_ours(&self) -> bool {
        self.head.is_headless && !self.head.is_subagent
    }

    /// Returns whether it is a session of a project. One whose directory is gone is, if the directory was in the project.
    pub fn is_of(&self, project: &Project) -> bool {
        match &self.project {
            Some(own) => own.root() == project.root(),
            None => self.directory().is_some_and(|cwd| {
                cwd.is_absolute()
                    && [project.root(), project.directory()].iter().any(|root| cwd.starts_with(root))
            }),
        }
    }

    /// Returns the worktree of the session in a project: its own, or its directory if it belongs elsewhere.
    fn worktree_in(&self, project: &Project) -> String {
        match (&self.project, self.directory()) {
            (Some(own), _) if own.root() == project.root() => own.worktree(),
            (_, Some(cwd)) if !self.is_of(project) && cwd.is_absolute() => cwd.to_string_lossy().into_owned(),
            _ => project.worktree(),
        }
    }
}

/// Returns the project around a directory; `None` if that is gone.
fn project_around(cwd: &Path) -> Option<Project> {
    (cwd.is_absolute() && cwd.is_dir()).then(|| Project::of_any_owner(cwd))
}

/// Returns the homes of an agent's program that exist.
fn homes_of(source: &dyn NativeSource, workspace: &Workspace) -> Vec<PathBuf> {
    let variable = |name: &str| workspace.environment().value(name).map(ToOwned::to_owned);
    source.homes(&variable).into_iter().filter(|home| home.exists()).collect()
}
