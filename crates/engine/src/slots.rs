//! Slots: the turns that run in a worktree, and which of them is looked at.

/// The running turns of a worktree, by the number of their process, in the order in which they began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots<T> {
    slots: Vec<(u32, T)>,
    active: Option<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), active: None }
    }
}

impl<T> Slots<T> {
    /// Takes a slot for a process, and looks at it.
    pub fn take(&mut self, pid: u32, turn: T) {
        self.slots.retain(|(taken, _)| *taken != pid);
        self.slots.push((pid, turn));
        self.active = Some(pid);
    }

    /// Frees the slot of a process. If it was the one that is looked at, that becomes the last one left.
    pub fn free(&mut self, pid: u32) -> Option<T> {
        let at = self.slots.iter().position(|(taken, _)| *taken == pid)?;
        let (_, turn) = self.slots.remove(at);
        if self.active == Some(pid) {
            self.active = self.slots.last().map(|(pid, _)| *pid);
        }
        Some(turn)
    }

    /// Looks at the slot of this process; says whether there is one.
    pub fn look_at(&mut self, pid: u32) -> bool {
        let found = self.get(pid).is_some();
        if found {
            self.active = Some(pid);
        }
        found
    }

    /// Returns the process that is looked at.
    pub fn active(&self) -> Option<u32> {
        self.active
    }

    /// Returns the turn of a process.
    pub fn get(&self, pid: u32) -> Option<&T> {
        self.slots.iter().find(|(taken, _)| *taken == pid).map(|(_, turn)| turn)
    }

    /// Returns all slots, in the order in which they were taken.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().map(|(pid, turn)| (*pid, turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_the_active_slot_is_freed_the_last_one_left_becomes_active() {
        let mut slots = Slots::default();
        for pid in [10, 20, 30] {
            slots.take(pid, ());
        }
        assert!(slots.look_at(20));
        assert_eq!(slots.free(20), Some(()));
        assert_eq!(slots.active(), Some(30));
        assert_eq!(slots.free(10), Some(()));
        assert_eq!(slots.active(), Some(30), "another one was freed");
        assert_eq!(slots.free(30), Some(()));
        assert_eq!((slots.active(), slots.free(30)), (None, None));
    }

    #[test]
    fn a_process_that_is_not_there_cannot_be_looked_at() {
        let mut slots = Slots::default();
        slots.take(10, ());
        assert!(!slots.look_at(11));
        assert_eq!(slots.active(), Some(10));
    }
}
