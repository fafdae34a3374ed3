//! Checks of snapshots.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use azureal_snapshots::SnapshotCheck;

use crate::place::{Place, take};

#[test]
fn notes_that_cannot_be_read_and_lost_objects_are_found() {
    let place = Place::new();
    let worktree = place.worktree();
    assert_eq!(worktree.check_snapshots().unwrap(), SnapshotCheck::default());
    assert!(!worktree.folder().exists(), "a check creates nothing");
    place.write("a", "one");
    take(&worktree);
    place.write("a", "two");
    take(&worktree);
    let sound = worktree.check_snapshots().unwrap();
    assert_eq!((sound.snapshots, sound.unreadable.len(), sound.lost.len()), (2, 0, 0));
    assert_eq!(sound.size, worktree.size());
    let session = fs::read_dir(worktree.folder().join("sessions")).unwrap().next().unwrap().unwrap().path();
    let note = |name: &str, text: &str| {
        let path = session.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    };
    let unreadable = note("1-x", "no tree");
    let lost = note("2-x", &"1".repeat(40));
    let check = worktree.check_snapshots().unwrap();
    assert_eq!((check.unreadable, check.lost), (vec![unreadable], vec![lost]));
}
