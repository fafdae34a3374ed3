//! A project of another user does not get our history.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::world::{Ran, World};

/// Nobody, on most systems: anybody but us.
const OTHER: u32 = 65534;

/// A folder for everybody, in which another user has laid a repository with a store around our own folder `p/mine`.
/// `None` if this user cannot create files of another.
fn shared_folder() -> Option<World> {
    let world = World::new();
    fs::create_dir_all(world.path("p/mine")).unwrap();
    fs::create_dir(world.path("p/.azureal")).unwrap();
    fs::set_permissions(world.path("p"), fs::Permissions::from_mode(0o1777)).unwrap();
    for path in ["p/.git/HEAD", "p/.git", "p/.azureal"] {
        if chown(world.path(path), Some(OTHER), Some(OTHER)).is_err() {
            assert!(
                std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_none(),
                "only root can create files of another user"
            );
            eprintln!(
                "\n*** SKIPPED: only root can create files of another user, so this test was not run ***\n"
            );
            return None;
        }
    }
    Some(world)
}

fn run_in(world: &World, folder: &str, arguments: &[&str]) -> Ran {
    let mut command = world.command(arguments);
    world.ran(command.env("HOME", world.path("own")).current_dir(world.path(folder)).output().unwrap())
}

fn holds_nothing(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_repository_of_another_user_is_refused_and_gets_nothing() {
    let Some(world) = shared_folder() else { return };
    insta::assert_snapshot!(run_in(&world, "p/mine", &["run", "-a", "offline", "a secret"]), @r"
    exit code 3
    --- stderr
    error: `[folder]/p/.git` belongs to another user (uid 65534); this project is not used
    hint: `azureal trust --owner` allows `[folder]/p` all the same
    ");
    for arguments in [&["list"][..], &["config"], &["trust", "--yes"], &["list", "--store", "memory:"]] {
        let ran = run_in(&world, "p/mine", arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {ran}");
    }
    let ran = run_in(&world, "p/mine", &["list", "--json"]);
    assert!(ran.stderr.starts_with(r#"{"error":{"kind":"owner","#), "{ran}");
    assert!(holds_nothing(&world.path("p/.azureal")));
}

#[test]
fn a_store_of_another_user_is_refused_in_a_repository_of_our_own_and_outside_git() {
    for in_git in [true, false] {
        let Some(world) = shared_folder() else { return };
        if in_git {
            chown(world.path("p/.git"), Some(0), None).unwrap();
        } else {
            fs::remove_dir_all(world.path("p/.git")).unwrap();
        }
        world.file("p/.azureal/sessions.azs", "");
        for folder in ["p/mine", "p"] {
            let ran = run_in(&world, folder, &["run", "-a", "offline", "a secret"]);
            assert_eq!(ran.code, 3, "{ran}");
            assert!(ran.stderr.contains("`[folder]/p/.azureal` belongs to another user"), "{ran}");
        }
        assert_eq!(fs::read(world.store()).unwrap(), b"");
        // Where they have laid no store, one of our own is made.
        fs::remove_dir_all(world.path("p/.azureal")).unwrap();
        assert_eq!(run_in(&world, "p/mine", &["run", "-a", "offline", "a secret"]).code, 0);
    }
}

#[test]
fn the_user_can_allow_it_and_take_that_back() {
    let Some(world) = shared_folder() else { return };
    let list = || run_in(&world, "p/mine", &["list"]).code;
    assert_eq!(run_in(&world, "p/mine", &["trust", "--owner"]).code, 3, "nobody can be asked");
    insta::assert_snapshot!(run_in(&world, "p/mine", &["trust", "--owner", "--yes"]), @r"
    exit code 0
    --- stdout
    [folder]/p (uid 65534): trusted
    ");
    assert_eq!(list(), 0);
    let shown = run_in(&world, "p/mine", &["trust", "--owner", "--show", "--json"]).json();
    assert_eq!((&shown["folders"][0]["uid"], &shown["folders"][0]["trusted"]), (&OTHER.into(), &true.into()));
    let ran = run_in(&world, "p/mine", &["trust", "--owner", "--revoke"]);
    assert_eq!(ran.quiet(), "took back 1 approval\n");
    assert_eq!(list(), 3);

    world.file("own/.gitconfig", "[user]\n\tname = x\n[safe]\n\tdirectory = *\n");
    assert_eq!(list(), 0);
    fs::remove_file(world.path("own/.gitconfig")).unwrap();
    assert_eq!(list(), 3);

    let sudo = |uid: u32| {
        let mut command = world.command(&["list"]);
        command.current_dir(world.path("p/mine")).env("SUDO_UID", uid.to_string());
        command.output().unwrap().status.code()
    };
    assert_eq!((sudo(OTHER), sudo(OTHER - 1)), (Some(0), Some(3)));
}

#[test]
fn a_project_of_ones_own_needs_no_trust() {
    let world = World::new();
    assert_eq!(run_in(&world, "p", &["trust", "--owner", "--yes"]).quiet(), "this project is your own\n");
    assert!(!world.path("own").exists());
}
