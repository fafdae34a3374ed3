//! The state of a worktree's snapshots between two of them.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use azureal_files::Folder;

use crate::error::{At, Error};
use crate::places::Directories;
use crate::worktree::{Home, Worktree, read, write};

const FILE: &str = "state";
/// The time to wait for a process that takes a snapshot.
const WAIT: Duration = Duration::from_secs(2);

/// The state, in a file of lines `name value`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// The tree of the last snapshot.
    pub(crate) tree: Option<String>,
    /// The index has exactly the files of that tree.
    pub(crate) is_current: bool,
    /// The number of snapshots in a row that took too long.
    pub(crate) slow: u32,
    /// No snapshots are taken in this worktree.
    pub(crate) is_off: bool,
    /// The trouble with git that the user was told of.
    pub(crate) told: Option<String>,
    /// The project's index and the ignore rules that our index was last aligned with.
    pub(crate) aligned: Option<String>,
    /// The [stamp](crate::durable::stamp) of the index that this state is about.
    pub(crate) index: Option<String>,
    /// All objects that the index refers to survive a power loss.
    pub(crate) is_durable: bool,
}

impl State {
    pub(crate) fn read(home: &Home) -> Self {
        Self::of(&home.read(FILE).unwrap_or_default())
    }

    /// Parses the state.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut state = Self::default();
        for line in String::from_utf8_lossy(bytes).lines() {
            match line.split_once(' ') {
                Some(("tree", tree)) if crate::is_id(tree) => state.tree = Some(tree.to_owned()),
                Some(("current", value)) => state.is_current = value == "1",
                Some(("slow", count)) => state.slow = count.parse().unwrap_or(0),
                Some(("off", value)) => state.is_off = value == "1",
                Some(("told", trouble)) => state.told = Some(trouble.to_owned()),
                Some(("aligned", stamp)) => state.aligned = Some(stamp.to_owned()),
                Some(("index", stamp)) => state.index = Some(stamp.to_owned()),
                Some(("durable", value)) => state.is_durable = value == "1",
                _ => {}
            }
        }
        state.is_current &= state.tree.is_some();
        state
    }

    pub(crate) fn write(&self, home: &Home) -> Result<(), Error> {
        self.write_in(&home.own)
    }

    /// Writes the state of the worktree with this folder.
    pub(crate) fn write_in(&self, folder: &Folder) -> Result<(), Error> {
        let tree = self.tree.as_ref().map_or_else(String::new, |tree| format!("tree {tree}\n"));
        let (current, slow, off) = (u8::from(self.is_current), self.slow, u8::from(self.is_off));
        let told = self.told.as_ref().map_or_else(String::new, |told| format!("told {told}\n"));
        let aligned = self.aligned.as_ref().map_or_else(String::new, |stamp| format!("aligned {stamp}\n"));
        let index = self.index.as_ref().map_or_else(String::new, |stamp| format!("index {stamp}\n"));
        let durable = u8::from(self.is_durable);
        let text = format!(
            "{tree}current {current}\nslow {slow}\noff {off}\n{told}{aligned}durable {durable}\n{index}"
        );
        write(folder, FILE, text.as_bytes()).at(&folder.join(FILE))
    }
}

impl Worktree {
    /// Returns whether to tell the user of an error of [`open`](Self::open), and notes that it was told: a missing or old git is told
    /// once in a worktree, and only there. `snapshots` is the folder of the snapshots, which may not exist yet.
    pub fn tell_once(root: &Path, snapshots: &Path, error: &Error) -> bool {
        let trouble = match error {
            Error::NoGit { .. } => "no git".to_owned(),
            Error::OldGit { version } => format!("git {}", version.escape_default()),
            _ => return true,
        };
        let Some(found) = Directories::find(root) else { return false };
        // What cannot be noted is told again.
        note_told(snapshots, &found.name(), trouble).unwrap_or(true)
    }
}

/// Notes a trouble in the state of a worktree. Returns whether it is another one than before.
fn note_told(snapshots: &Path, worktree: &OsStr, trouble: String) -> Result<bool, Error> {
    let folder = Folder::open_or_create(snapshots).at(snapshots)?;
    let folder = folder.open_or_create_folder(OsStr::new("worktrees")).at(&folder.join("worktrees"))?;
    let path = folder.join(worktree);
    let own = folder.open_or_create_folder(worktree).at(&path)?;
    let _lock = folder.open_folder(worktree).at(&path)?.hold(WAIT).at(&path)?;
    let state = State::of(&read(&own, FILE).unwrap_or_default());
    if state.told.as_ref() == Some(&trouble) {
        return Ok(false);
    }
    State { told: Some(trouble), ..state }.write_in(&own).map(|()| true)
}
