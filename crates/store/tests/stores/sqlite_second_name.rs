//! The second name of a store's file: what becomes of history when the folder of the store is deleted.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::scratch::{Project, append, new_session, options, read_all, wait};
use azureal_store::core::{CrashNotes, Event, ListQuery, NewMark, NewTurn, SessionStore, StoreError};
use azureal_store::sqlite::rusqlite::Connection;
use azureal_store::sqlite::{FileNotice, Journal, SqliteOptions, SqliteStore};

/// Deletes what `git clean -fdx` deletes.
fn clean(project: &Project) {
    fs::remove_dir_all(project.path().parent().unwrap()).unwrap();
}

fn links(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().nlink()
}

fn count(store: &SqliteStore) -> usize {
    wait(store.list(&ListQuery::default())).unwrap().len()
}

fn open(project: &Project) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(project.path(), options(&project.path()))
}

fn error_of(project: &Project) -> String {
    open(project).err().map(|error| error.to_string()).unwrap()
}

/// Returns the files in azureal's folder in the git directory.
fn in_git(project: &Project) -> Vec<String> {
    let folder = project.second_name().parent().unwrap().to_owned();
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_store_has_its_second_name_and_survives_the_removal_of_its_folder() {
    let project = Project::in_git();
    assert!(!project.second_name().parent().unwrap().exists(), "nothing is created before the first session");
    let store = project.store();
    assert_eq!(count(&store), 0);
    assert!(!project.second_name().exists());
    let id = new_session(&store);
    append(&store, id, [Event::user("Hello")]);
    assert_eq!((links(&project.path()), links(&project.second_name())), (2, 2));
    assert_eq!(fs::metadata(project.second_name().parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    assert_eq!(store.notices().take(), []);
    drop(store);

    clean(&project);
    let store = project.store();
    let file = project.path();
    assert_eq!(store.notices().take(), [FileNotice::PutBack { file, lacks_log: false }]);
    assert_eq!(read_all(&store, id).len(), 1);
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
    drop(store);
    assert_eq!(project.store().notices().take(), [], "it is said once");
}

#[test]
fn a_store_that_was_there_before_gets_its_second_name_with_its_first_change() {
    let project = Project::new();
    let id = new_session(&project.store());
    fs::create_dir(project.folder.path().join(".git")).unwrap();
    let store = project.store();
    assert_eq!(count(&store), 1);
    assert!(!project.second_name().exists(), "reading changes nothing");
    append(&store, id, [Event::user("Hello")]);
    assert_eq!(links(&project.second_name()), 2);
    // A name that is lost, as with a `.git` that was created again, comes back.
    fs::remove_file(project.second_name()).unwrap();
    append(&project.store(), id, [Event::user("Hello")]);
    assert_eq!(links(&project.second_name()), 2);
}

#[test]
fn a_caller_that_does_not_say_where_git_is_uses_the_store_all_the_same() {
    let project = Project::in_git();
    let id = new_session(&project.store());
    let store = SqliteStore::open(project.path(), SqliteOptions::default()).unwrap();
    append(&store, id, [Event::user("Hello")]);
    assert_eq!(read_all(&project.store(), id).len(), 1);
    drop(store);
    // Not behind a link.
    let (git, elsewhere) = (project.folder.path().join(".git"), project.folder.path().join("elsewhere"));
    fs::rename(&git, &elsewhere).unwrap();
    symlink(&elsewhere, &git).unwrap();
    let refused = SqliteStore::open(project.path(), SqliteOptions::default()).err().unwrap();
    assert!(matches!(refused, StoreError::Unsafe { .. }), "{refused}");
}

#[test]
fn an_append_that_finds_its_file_gone_puts_it_back() {
    for project in [Project::in_git(), Project::new()] {
        let store = project.store();
        let id = new_session(&store);
        for number in 1..=5 {
            append(&store, id, [Event::user(number.to_string())]);
            clean(&project);
        }
        assert_eq!(read_all(&store, id).len(), 5);
        assert_eq!(store.notices().take().len(), 5);
        clean(&project);
        let other = new_session(&store);
        assert_ne!(other, id);
        assert_eq!(read_all(&store, id).len(), 5);
        drop(store);
        assert_eq!(count(&project.store()), 2);
        assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
    }
}

#[test]
fn a_folder_that_is_deleted_all_the_time_loses_no_acknowledged_turn() {
    for project in [Project::in_git(), Project::new()] {
        let store = project.store();
        let id = new_session(&store);
        let is_done = AtomicBool::new(false);
        let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    // May meet a file that was created meanwhile, or none at all.
                    fs::remove_dir_all(project.path().parent().unwrap()).ok();
                    while !is_done.load(Ordering::Relaxed) && !project.path().exists() {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                    // At another point of an append each time.
                    std::thread::sleep(Duration::from_micros(round * 370 % 9_000));
                }
            });
            for number in 0..150 {
                let turn =
                    NewTurn::verbatim([Event::user(number.to_string()), Event::user("x".repeat(9000))]);
                match wait(store.append(id, turn)) {
                    Ok(_) => acknowledged.push(number.to_string()),
                    Err(error) => refused.push(format!("{number}: {error}")),
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        // The folder was deleted between two steps of every attempt to put it back.
        assert!(!refused.iter().any(|error| error.contains("no session")), "{refused:?}");
        let texts: Vec<String> = read_all(&store, id)
            .iter()
            .step_by(2)
            .map(|stored| match stored.event().unwrap() {
                Event::UserMessage(message) => message.content,
                other => panic!("{other:?}"),
            })
            .collect();
        let missing: Vec<_> = acknowledged.iter().filter(|number| !texts.contains(number)).collect();
        assert!(missing.is_empty(), "{missing:?} of {}", acknowledged.len());
        let mut once = texts.clone();
        once.dedup();
        assert_eq!(once.len(), texts.len(), "a turn stands twice");
        assert!(acknowledged.len() > 20, "only {} turns were stored", acknowledged.len());
    }
}

#[test]
fn many_that_find_the_first_name_missing_put_it_back_once() {
    for _ in 0..10 {
        let project = Project::in_git();
        let id = new_session(&project.store());
        append(&project.store(), id, [Event::user("Hello")]);
        clean(&project);
        let notices: Vec<FileNotice> = std::thread::scope(|scope| {
            let openers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let store = project.store();
                        assert_eq!(read_all(&store, id).len(), 1);
                        append(&store, id, []);
                        store.notices().take()
                    })
                })
                .collect();
            openers.into_iter().flat_map(|opener| opener.join().unwrap()).collect()
        });
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert_eq!(links(&project.path()), 2);
        assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
    }
}

#[test]
fn two_names_of_two_files_are_both_kept() {
    let project = Project::in_git();
    let id = new_session(&project.store());
    append(&project.store(), id, [Event::user("Hello")]);
    // As after `cp -r`, and as after a clean and an older azureal that began a new store.
    let copy = fs::read(project.path()).unwrap();
    fs::remove_file(project.path()).unwrap();
    fs::write(project.path(), copy).unwrap();
    let old = fs::metadata(project.second_name()).unwrap().ino();
    // Reading settles it: otherwise a clean would put the other file back.
    let store = project.store();
    assert_eq!(count(&store), 1);
    let notices = store.notices().take();
    let [FileNotice::OtherFile { kept, .. }] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!(fs::metadata(kept).unwrap().ino(), old);
    assert_eq!((links(kept), links(&project.path())), (1, 2));
    assert_eq!(count(&SqliteStore::open(kept, SqliteOptions::default()).unwrap()), 1);

    // A name that is taken is not taken from its file.
    for number in 0..3 {
        fs::remove_file(project.second_name()).unwrap();
        fs::write(project.second_name(), format!("other {number}")).unwrap();
        append(&project.store(), id, [Event::user("More")]);
    }
    assert_eq!(in_git(&project).len(), 5);
}

#[test]
fn a_second_name_of_another_file_that_cannot_be_changed_is_told() {
    let project = Project::in_git();
    new_session(&project.store());
    let copy = fs::read(project.path()).unwrap();
    fs::remove_file(project.path()).unwrap();
    fs::write(project.path(), copy).unwrap();
    let folder = project.second_name().parent().unwrap().to_owned();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let notices = project.store().notices().take();
    let [FileNotice::NotNamed { other, why, .. }] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!(*other, project.second_name());
    assert!(why.starts_with(folder.to_str().unwrap()) && why.contains("is open to others"), "{why}");
    assert_eq!(in_git(&project), ["sessions.azs"]);
}

#[test]
fn sessions_that_are_gone_with_a_replaced_file_are_told() {
    let [project, other] = [Project::new(), Project::new()];
    let (store, other_store) = (project.store(), other.store());
    let id = new_session(&store);
    append(&store, id, [Event::user("Hello")]);
    assert_eq!(new_session(&other_store), id);
    drop(other_store);
    let replaced = |sessions| FileNotice::Replaced { file: project.path(), sessions: Some(sessions) };
    let copy = fs::read(project.path()).unwrap();
    let replace = |content: &[u8]| {
        let new = project.path().with_extension("other");
        fs::write(&new, content).unwrap();
        fs::rename(new, project.path()).unwrap();
    };
    // A file with all its turns loses none.
    replace(&copy);
    assert_eq!((count(&store), store.notices().take()), (1, vec![]));
    append(&store, id, [Event::user("More")]);
    replace(&copy);
    assert_eq!((count(&store), store.notices().take()), (1, vec![replaced(1)]));
    // Another session has the same number.
    replace(&fs::read(other.path()).unwrap());
    assert_eq!((count(&store), store.notices().take()), (1, vec![replaced(1)]));
    assert!(replaced(1).to_string().contains("was replaced by another file while it was open: 1 session"));
    // The second name keeps the former file, and the notice is that of its new name.
    let project = Project::in_git();
    let store = project.store();
    new_session(&store);
    fs::copy(other.path(), project.path().with_extension("other")).unwrap();
    fs::rename(project.path().with_extension("other"), project.path()).unwrap();
    assert_eq!(count(&store), 1);
    let notices = store.notices().take();
    assert!(matches!(&notices[..], [FileNotice::OtherFile { .. }]), "{notices:?}");
}

#[test]
fn any_other_name_is_refused_with_the_commands_that_help() {
    let project = Project::in_git();
    new_session(&project.store());
    let other = project.folder.path().join("other");
    fs::hard_link(project.path(), &other).unwrap();
    let error = error_of(&project);
    assert!(error.contains("another name elsewhere (a hard link), as after `cp -al`"), "{error}");
    let commands = error.split('`').nth(3).unwrap();
    assert!(std::process::Command::new("sh").args(["-c", commands]).status().unwrap().success());
    let store = project.store();
    assert_eq!(count(&store), 1);
    assert!(!project.second_name().exists());
    new_session(&store);
    assert_eq!((links(&project.path()), links(&other)), (2, 1));
    drop(store);

    // Exactly two names, and not those two.
    fs::remove_file(project.second_name()).unwrap();
    fs::remove_file(&other).unwrap();
    fs::hard_link(project.path(), &other).unwrap();
    assert!(error_of(&project).contains("another name elsewhere"), "{}", error_of(&project));
    // The first name is gone, and the second has a third.
    fs::rename(&other, project.second_name()).unwrap();
    fs::hard_link(project.second_name(), &other).unwrap();
    clean(&project);
    assert!(error_of(&project).contains("another name elsewhere"), "{}", error_of(&project));
}

#[test]
fn what_is_in_the_place_of_the_second_name_is_not_followed() {
    let project = Project::in_git();
    let id = new_session(&project.store());
    let precious = project.folder.path().join("precious");
    fs::write(&precious, "keep").unwrap();
    // Beside a store: a link is set aside like any other file, and never followed.
    fs::remove_file(project.second_name()).unwrap();
    symlink(&precious, project.second_name()).unwrap();
    let store = project.store();
    append(&store, id, [Event::user("Hello")]);
    assert!(matches!(&store.notices().take()[..], [FileNotice::OtherFile { .. }]));
    drop(store);
    assert_eq!(
        (links(&project.second_name()), fs::read_to_string(&precious).unwrap()),
        (2, "keep".to_owned())
    );

    // Without a store.
    let kept = project.folder.path().join("kept");
    fs::rename(project.second_name(), &kept).unwrap();
    clean(&project);
    let refused = |what: &str| {
        let error = error_of(&project);
        assert!(error.contains("is missing, and cannot be put back from") && error.contains(what), "{error}");
        assert!(!project.path().exists());
    };
    symlink(&kept, project.second_name()).unwrap();
    refused("it is no plain file");
    fs::remove_file(project.second_name()).unwrap();
    fs::create_dir(project.second_name()).unwrap();
    refused("it is no plain file");
    fs::remove_dir(project.second_name()).unwrap();
    fs::rename(&kept, project.second_name()).unwrap();
    let folder = project.second_name().parent().unwrap().to_owned();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    refused("is open to others");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let elsewhere = project.folder.path().join("elsewhere");
    fs::rename(&folder, &elsewhere).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    refused("is no folder");
    fs::remove_file(&folder).unwrap();
    fs::rename(&elsewhere, &folder).unwrap();
    if is_root() {
        std::os::unix::fs::chown(project.second_name(), Some(12345), None).unwrap();
        refused("it belongs to another user");
        std::os::unix::fs::chown(project.second_name(), Some(0), None).unwrap();
    }
    assert_eq!(read_all(&project.store(), id).len(), 1);
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[test]
fn a_folder_that_cannot_be_used_is_no_reason_not_to_store() {
    let project = Project::in_git();
    let folder = project.second_name().parent().unwrap().to_owned();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let store = project.store();
    let id = new_session(&store);
    append(&store, id, [Event::user("Hello")]);
    assert_eq!(links(&project.path()), 1);
    assert_eq!(store.notices().take(), []);
}

#[test]
fn a_git_directory_of_another_user_gets_no_folder_of_ours() {
    if !is_root() {
        return;
    }
    let project = Project::in_git();
    let git = project.folder.path().join(".git");
    std::os::unix::fs::chown(&git, Some(12345), None).unwrap();
    new_session(&project.store());
    assert_eq!(links(&project.path()), 1);
    assert_eq!(fs::read_dir(git).unwrap().count(), 0);
}

#[test]
fn a_journal_that_is_still_there_is_applied_before_the_check() {
    let project = Project::in_git();
    let id = new_session(&project.store());
    append(&project.store(), id, [Event::user("Hello")]);
    // A change in its middle, with its journal, as a killed process leaves them.
    let (file, journal) = (project.path(), with_suffix(&project.path(), "-journal"));
    let mut raw = project.raw();
    raw.execute_batch("PRAGMA cache_size = 1; PRAGMA synchronous = OFF;").unwrap();
    let change = raw.transaction().unwrap();
    let id_number = i64::from(id.number());
    for seq in 2..400 {
        let row = (id_number, seq, "UserMessage", "x".repeat(3000));
        change
            .execute("INSERT INTO events (session_id, seq, kind, data) VALUES (?1, ?2, ?3, ?4)", row)
            .unwrap();
    }
    let (half_file, half_journal) = (fs::read(&file).unwrap(), fs::read(&journal).unwrap());
    change.rollback().unwrap();
    drop(raw);
    // Written in place: both names are those of the half-written file.
    fs::write(&file, &half_file).unwrap();
    fs::remove_file(&file).unwrap();
    fs::write(&journal, &half_journal).unwrap();
    fs::set_permissions(&journal, Permissions::from_mode(0o600)).unwrap();
    let store = project.store();
    let notices = store.notices().take();
    assert!(matches!(&notices[..], [FileNotice::PutBack { .. }]), "{notices:?}");
    assert_eq!(read_all(&store, id).len(), 1);
    append(&store, id, [Event::user("More")]);
    drop(store);
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
}

#[test]
fn a_temporary_name_that_a_killed_process_has_left_does_not_keep_the_file_from_being_put_back() {
    let project = Project::in_git();
    let id = new_session(&project.store());
    append(&project.store(), id, [Event::user("Hello")]);
    clean(&project);
    // Process 1 always lives.
    let temporary = with_suffix(&project.path(), ".new-1-0");
    fs::create_dir(temporary.parent().unwrap()).unwrap();
    fs::set_permissions(temporary.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
    fs::hard_link(project.second_name(), &temporary).unwrap();
    fs::write(with_suffix(&temporary, "-journal"), "").unwrap();
    // A store that process 1 creates is its own.
    let other = with_suffix(&project.path(), ".new-1-1");
    fs::write(&other, "x").unwrap();
    assert_eq!(read_all(&project.store(), id).len(), 1);
    assert_eq!(links(&project.path()), 2);
    fs::remove_file(other).unwrap();
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
}

#[test]
fn a_change_whose_journal_is_deleted_ends_before_the_file_is_checked() {
    let project = Project::in_git();
    new_session(&project.store());
    let raw = project.raw();
    // Not written to the file yet: others may read it.
    raw.execute_batch("BEGIN IMMEDIATE; UPDATE sessions SET name = 'renamed';").unwrap();
    assert!(with_suffix(&project.path(), "-journal").exists());
    clean(&project);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| {
            let store = project.store();
            assert!(has_ended.load(Ordering::SeqCst), "checked in the middle of a change");
            wait(store.list(&ListQuery::default())).unwrap().remove(0).name
        });
        std::thread::sleep(Duration::from_millis(300));
        assert!(!project.path().exists());
        has_ended.store(true, Ordering::SeqCst);
        // An error, since its journal is gone; the change is in the file.
        drop(raw.execute_batch("COMMIT"));
        drop(raw);
        assert_eq!(opened.join().unwrap(), "renamed");
    });
}

/// SQLite writes the pages of a change in their order. Git deletes the journal, and the process is killed in between.
#[test]
fn a_half_written_change_without_its_journal_never_passes_for_a_whole_one() {
    let project = Project::in_git();
    let store = project.store();
    let ids: Vec<_> = (0..30).map(|_| new_session(&store)).collect();
    for id in &ids {
        append(&store, *id, (0..8).map(|number| Event::user("x".repeat(number * 700))));
    }
    let id = ids[11];
    let (mut damaged, mut whole) = (0, 0);
    for events in [1, 3, 40] {
        let before = fs::read(project.path()).unwrap();
        let events_before = read_all(&store, id).len();
        let turn = NewTurn {
            mark: Some(NewMark { name: "run:abc".to_owned(), note: String::new() }),
            ..NewTurn::verbatim((0..events).map(|_| Event::user("y".repeat(900))))
        };
        wait(store.append(id, turn)).unwrap();
        let after = fs::read(project.path()).unwrap();
        assert!(wait(store.remove_mark("run:abc")).unwrap());
        let page = |content: &[u8], number: usize| {
            content.get(number * 4096..(number + 1) * 4096).map(<[u8]>::to_vec)
        };
        let changed: Vec<usize> = (0..after.len() / 4096)
            .filter(|number| page(&before, *number) != page(&after, *number))
            .collect();
        assert!(changed.len() > 4, "{changed:?}");
        for written in 0..=changed.len() {
            let mut half = before.clone();
            for number in &changed[..written] {
                half.resize(half.len().max((number + 1) * 4096), 0);
                half[number * 4096..(number + 1) * 4096].copy_from_slice(&page(&after, *number).unwrap());
            }
            let other = Project::in_git();
            new_session(&other.store());
            fs::write(other.path(), half).unwrap();
            clean(&other);
            let opened = other.store();
            match &opened.notices().take()[..] {
                [FileNotice::Damaged { kept, .. }] => {
                    damaged += 1;
                    assert!(written > 0 && written < changed.len(), "a whole change is not damaged");
                    assert_eq!(count(&opened), 0);
                    assert_eq!(links(kept), 1);
                    new_session(&opened);
                    assert_eq!((links(&other.second_name()), in_git(&other).len()), (2, 2));
                }
                [FileNotice::PutBack { .. }] => {
                    whole += 1;
                    let found = read_all(&opened, id).len();
                    let mark = wait(opened.mark("run:abc")).unwrap();
                    let expected = if mark.is_some() { events_before + events } else { events_before };
                    assert_eq!(found, expected, "{written} of {changed:?}");
                    assert_eq!(
                        wait(opened.get(id)).unwrap().counts.events as usize,
                        found,
                        "{written} of {changed:?}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
    eprintln!("{damaged} damaged, {whole} whole");
    assert!(damaged > 10 && whole >= 6, "{damaged} damaged, {whole} whole");
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

#[test]
fn a_file_that_is_not_sound_is_set_aside() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage); 3] = [
        ("no SQLite file", |file| fs::write(file, "x".repeat(5000)).unwrap()),
        ("does not have the events that it counts", |file| {
            Connection::open(file)
                .unwrap()
                .execute("UPDATE sessions SET event_count = 9, counted_seq = 9", [])
                .unwrap();
        }),
        ("events without their session", |file| {
            let raw = Connection::open(file).unwrap();
            raw.execute_batch("PRAGMA foreign_keys = OFF; UPDATE events SET session_id = 77").unwrap();
        }),
    ];
    for (why, damage) in cases {
        let project = Project::in_git();
        let id = new_session(&project.store());
        append(&project.store(), id, [Event::user("Hello")]);
        damage(&project.path());
        clean(&project);
        let store = project.store();
        let notices = store.notices().take();
        let [FileNotice::Damaged { why: found, kept, .. }] = &notices[..] else { panic!("{notices:?}") };
        assert!(found.contains(why), "{found}");
        assert!(kept.file_name().unwrap().to_str().unwrap().starts_with("sessions-damaged-2"));
        assert_eq!(count(&store), 0);
    }
}

#[test]
fn a_deleted_write_ahead_log_is_told() {
    let project = Project::in_git();
    let with_log = || {
        let options = SqliteOptions { journal: Journal::Wal, ..options(&project.path()) };
        SqliteStore::open(project.path(), options).unwrap()
    };
    let store = with_log();
    let id = new_session(&store);
    append(&store, id, [Event::user("Hello")]);
    // The one that has the log open saves it.
    clean(&project);
    append(&store, id, [Event::user("More")]);
    assert_eq!(read_all(&store, id).len(), 2);
    let notices = store.notices().take();
    assert!(matches!(&notices[..], [FileNotice::PutBack { lacks_log: false, .. }]), "{notices:?}");
    // Its process is gone: what the log held is lost, and that is said.
    let copy = fs::read(project.path()).unwrap();
    drop(store);
    fs::write(project.path(), copy).unwrap();
    clean(&project);
    let store = project.store();
    let notices = store.notices().take();
    assert!(matches!(&notices[..], [FileNotice::PutBack { lacks_log: true, .. }]), "{notices:?}");
    assert!(notices[0].to_string().contains("the newest changes may be missing"));
}

#[test]
fn a_project_that_is_moved_or_copied_with_its_links_keeps_its_second_name() {
    let project = Project::in_git();
    let id = new_session(&project.store());
    append(&project.store(), id, [Event::user("Hello")]);
    let top = project.folder.path();
    for (command, to) in [("cp -a", "copied"), ("mv", "moved")] {
        let parts: Vec<&str> = command.split(' ').collect();
        fs::create_dir(top.join(to)).unwrap();
        let status = std::process::Command::new(parts[0])
            .args(&parts[1..])
            .args([top.join(".azureal"), top.join(".git"), top.join(to)])
            .status();
        assert!(status.unwrap().success());
        let file = top.join(to).join(".azureal/sessions.azs");
        let store = SqliteStore::open(&file, options(&file)).unwrap();
        append(&store, id, [Event::user("Hello")]);
        assert_eq!((links(&file), store.notices().take()), (2, Vec::new()), "{command}");
    }
}
