//! The state of a worktree's snapshots between two of them.

use azureal_files::Folder;

use crate::error::{At, Error};
use crate::worktree::{Home, write};

const FILE: &str = "state";

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
    /// The project's index and the ignore rules that our index was last aligned with.
    pub(crate) aligned: Option<String>,
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
                Some(("aligned", stamp)) => state.aligned = Some(stamp.to_owned()),
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
        let aligned = self.aligned.as_ref().map_or_else(String::new, |stamp| format!("aligned {stamp}\n"));
        let text = format!("{tree}current {current}\nslow {slow}\noff {off}\n{aligned}");
        write(folder, FILE, text.as_bytes()).at(&folder.join(FILE))
    }
}
