//! Slots: the turns that run in a worktree, and which of them is the active one.

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
    /// Takes a slot for a process, and makes it the active one.
    pub fn take(&mut self, pid: u32, turn: T) {
        self.slots.retain(|(taken, _)| *taken != pid);
        self.slots.push((pid, turn));
        self.active = Some(pid);
    }

    /// Frees the slot of a process. If it was the active one, the last one left becomes active.
    pub fn free(&mut self, pid: u32) -> Option<T> {
        let at = self.slots.iter().position(|(taken, _)| *taken == pid)?;
        let (_, turn) = self.slots.remove(at);
        if self.active == Some(pid) {
            self.active = self.slots.last().map(|(pid, _)| *pid);
        }
        Some(turn)
    }

    /// Makes the slot of this process the active one; returns whether there is one.
    pub fn activate(&mut self, pid: u32) -> bool {
        let found = self.get(pid).is_some();
        if found {
            self.active = Some(pid);
        }
        found
    }

    /// Returns the process of the active slot.
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
        assert!(slots.activate(20));
        assert_eq!(slots.free(20), Some(()));
        assert_eq!(slots.active(), Some(30));
        assert_eq!(slots.free(10), Some(()));
        assert_eq!(slots.active(), Some(30), "another one was freed");
        assert_eq!(slots.free(30), Some(()));
        assert_eq!((slots.active(), slots.free(30)), (None, None));
    }

    #[test]
    fn a_process_without_a_slot_cannot_be_active() {
        let mut slots = Slots::default();
        slots.take(10, ());
        assert!(!slots.activate(11));
        assert_eq!(slots.active(), Some(10));
    }
}
