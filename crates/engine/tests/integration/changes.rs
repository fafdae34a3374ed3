//! What a turn changes in the files of a git worktree.

use std::fs;

use azureal_core::event::{Changes, FileStatus, Outcome};
use azureal_core::{Event, NewSession, build_context};
use azureal_engine::{ChangeRecorder, RecordChanges, SpooledProcess, TurnEvent, TurnOptions, TurnRequest};
use azureal_snapshots::GitProgram;
use azureal_testkit::project::git_repository;
use azureal_testkit::until;
use futures_executor::block_on;

use crate::harness::{CancelOnPanic, DONE, Project, Script, own_environment, says, waits_for};

/// A project that is a git repository with two files.
fn repository() -> Project {
    let project = Project::new();
    fs::write(project.path("a.txt"), "one\ntwo\n").unwrap();
    fs::write(project.path("b.txt"), "b\n").unwrap();
    fs::write(project.path(".gitignore"), ".azureal\ntarget\ngate*\nbegun*\n").unwrap();
    git_repository(&project.directory);
    let git = GitProgram { program: "git".into(), environment: own_environment().clone() };
    let changes = Some(ChangeRecorder::new(&project.directory, git));
    Project { changes, ..project }
}

fn changes(project: &Project) -> Vec<Changes> {
    let changes = |event| match event {
        Event::Changes(changes) => Some(changes),
        _ => None,
    };
    project.events().into_iter().filter_map(changes).collect()
}

/// Returns the files of a change, for comparing.
fn files(changes: &Changes) -> Vec<String> {
    changes.files.iter().map(ToString::to_string).collect()
}

#[test]
fn the_files_that_change_during_a_turn_are_an_event_before_its_end() {
    let project = repository();
    let script = "echo three >> a.txt; rm b.txt; mkdir d; echo new > d/c.txt; mkdir target; touch target/x";
    let mut handle = project.submit("go", Script::options(format!("{script}; {}; {DONE}", says("done"))));
    let mut reported = Vec::new();
    while let Some(event) = handle.next_event() {
        if let TurnEvent::Output(output) = event {
            reported.push(format!("{output:?}").contains("Changes"));
        }
    }
    handle.result().unwrap();
    let kinds: Vec<String> = project.events().iter().map(|event| event.kind().to_owned()).collect();
    assert_eq!(kinds, ["UserMessage", "AssistantText", "Init", "Changes", "Complete"]);
    assert_eq!(reported.iter().filter(|is_changes| **is_changes).count(), 1, "reported as it is stored");
    let [changes] = &changes(&project)[..] else { panic!() };
    assert_eq!(files(changes), ["modified a.txt +1 −0", "deleted b.txt +0 −1", "added d/c.txt +1 −0"]);
    assert_eq!(changes.files[1].status, FileStatus::Deleted);
    assert!(changes.during.is_empty() && !changes.late && changes.before != changes.after, "{changes:?}");
    let context = build_context(None, None, &project.events());
    assert!(context.contains("## Changes during this turn\n- modified a.txt"), "{context}");
    assert!(
        context.contains("+three") && context.contains("+new"),
        "the next agent sees the lines: {context}"
    );
}

#[test]
fn a_turn_that_changes_nothing_has_no_such_event() {
    let project = repository();
    project.run(&format!("{}; {DONE}", says("just talk")), "go");
    assert_eq!(changes(&project), []);
    // Nor one outside git, or if the user does not want it.
    let outside = Project { changes: repository().changes, ..Project::new() };
    outside.run(&format!("echo x > x; {DONE}"), "go");
    assert_eq!(changes(&outside), []);
    let options =
        TurnOptions { changes: RecordChanges::Off, ..Script::options(format!("echo x > x; {DONE}")) };
    project.submit("go", options).result().unwrap();
    assert_eq!(changes(&project), []);
    project.run(&format!("echo y > y; {DONE}"), "go");
    let [changes] = &changes(&project)[..] else { panic!() };
    assert_eq!(files(changes), ["added y +1 −0"], "what changed between turns is not in it");
}

#[test]
fn sessions_that_ran_in_the_worktree_meanwhile_are_named() {
    let project = repository();
    let engine = project.engine();
    let other = block_on(project.store.create(NewSession::default())).unwrap();
    let script = format!("touch begun; {}; echo a > by-a; {DONE}", waits_for("gate"));
    let first = engine.submit(TurnRequest::new(project.session, "go", Script::options(script)));
    let _guard = CancelOnPanic(first.controls());
    until("the first turn runs", || project.path("begun").exists().then_some(()));
    let script = format!("echo b > by-b; {DONE}");
    engine.submit(TurnRequest::new(other, "go", Script::options(script))).result().unwrap();
    fs::write(project.path("gate"), "").unwrap();
    first.result().unwrap();
    let uuid = |id| block_on(project.store.get(id)).unwrap().uuid.unwrap().to_string();
    let [of_first] = &changes(&project)[..] else { panic!() };
    assert_eq!(of_first.during, [uuid(other)]);
    assert_eq!(files(of_first), ["added by-a +1 −0", "added by-b +1 −0"], "whoever changed them");
    let page = block_on(project.store.read(other, azureal_core::Page::last(100))).unwrap();
    let of_other = page.iter().find(|stored| stored.kind == "Changes").unwrap().event().unwrap();
    let Event::Changes(of_other) = of_other else { panic!() };
    assert_eq!(
        (files(&of_other), of_other.during),
        (vec!["added by-b +1 −0".to_owned()], vec![uuid(project.session)])
    );
}

#[test]
fn a_cancelled_turn_has_its_changes_too() {
    let project = repository();
    let handle = project.submit("go", Script::options("echo half > half; touch begun; sleep 1000"));
    let _guard = CancelOnPanic(handle.controls());
    until("the turn runs", || project.path("begun").exists().then_some(()));
    handle.cancel();
    handle.result().unwrap();
    assert_eq!(project.outcomes(), [Outcome::Cancelled]);
    let [changes] = &changes(&project)[..] else { panic!() };
    assert_eq!(files(changes), ["added half +1 −0"]);
}

#[test]
fn the_changes_of_a_recovered_turn_are_those_until_its_recovery() {
    let project = repository();
    // A turn whose azureal died: its header has the snapshot.
    project.run(&format!("echo x >> a.txt; {DONE}"), "go");
    let [first] = &changes(&project)[..] else { panic!() };
    let root = fs::canonicalize(&project.directory).unwrap();
    let mut spool = project.spools.begin(project.spooled("dead")).unwrap();
    let before = azureal_engine::SpooledSnapshot { root, tree: first.after.clone() };
    let process = SpooledProcess { pid: 999_999, began: "long ago".into(), before: Some(before) };
    spool.note_process(process).unwrap();
    std::io::Write::write_all(&mut spool.output().unwrap(), b"").unwrap();
    drop(spool);
    fs::write(project.path("late.txt"), "late\n").unwrap();
    assert_eq!(project.recover().len(), 1);
    let [_, recovered] = &changes(&project)[..] else { panic!("{:?}", project.events()) };
    assert!(recovered.late);
    assert_eq!(files(recovered), ["added late.txt +1 −0"]);
}

#[test]
fn a_git_that_cannot_be_used_is_a_notice_and_the_turn_runs() {
    let project = repository();
    let git = GitProgram { program: "no-such-git".into(), environment: own_environment().clone() };
    let project = Project { changes: Some(ChangeRecorder::new(&project.directory, git)), ..project };
    let mut handle = project.submit("go", Script::options(format!("echo x > x; {DONE}")));
    let mut notices = Vec::new();
    while let Some(event) = handle.next_event() {
        if let TurnEvent::Notice(notice) = event {
            notices.push(notice);
        }
    }
    handle.result().unwrap();
    assert_eq!(project.outcomes(), [Outcome::Done]);
    assert!(matches!(&notices[..], [notice] if notice.contains("`no-such-git`")), "{notices:?}");
    assert_eq!(changes(&project), []);
}

#[test]
fn more_files_than_are_named_are_counted_by_directory() {
    let project = repository();
    let script = "mkdir m n; for i in $(seq 150); do echo $i > m/$i; echo $i > n/$i; done";
    project.run(&format!("{script}; {DONE}"), "go");
    let [changes] = &changes(&project)[..] else { panic!() };
    assert_eq!(changes.files.len(), Changes::MOST_FILES);
    let further: u64 = changes.directories.iter().map(|directory| directory.files).sum();
    assert_eq!((further, changes.directories[0].path.as_str()), (100, "n"));
    assert!(changes.summary().starts_with("300 files changed, +"), "{}", changes.summary());
}

#[test]
fn a_result_gets_the_diff_of_its_own_file() {
    let project = repository();
    fs::create_dir(project.path("a")).unwrap();
    // Their order by folders is another than that of their bytes.
    fs::write(project.path("a/b"), "1\n").unwrap();
    fs::write(project.path("a-b"), "1\n").unwrap();
    let root = fs::canonicalize(&project.directory).unwrap();
    let init = format!(r#"{{"Init":{{"cwd":"{}"}}}}"#, root.display());
    let result = r#"{"ToolResult":{"tool_name":"Edit","file_path":"a/b","content":"file changed"}}"#;
    let script = "echo in folder > a/b; echo beside > a-b; rm b.txt; ln -s x b.txt";
    project.run(&format!("{script}; printf '%s\\n' '{init}' '{result}'; {DONE}"), "go");
    let detail = project.events().into_iter().find_map(|event| match event {
        Event::ToolResult(result) => Some(result.detail.unwrap_or_default()),
        _ => None,
    });
    let detail = detail.unwrap();
    assert!(detail.contains("+in folder") && !detail.contains("beside"), "{detail}");
    let [changes] = &changes(&project)[..] else { panic!() };
    assert_eq!(files(changes), ["modified a-b +1 −1", "modified a/b +1 −1", "modified b.txt +1 −1"]);
    let rest = changes.detail.as_deref().unwrap();
    assert!(rest.contains("+beside") && rest.contains("+x") && !rest.contains("in folder"), "{rest}");
}

/// Records with a git that sleeps before a comparison with one of these options.
fn with_slow_git(project: Project, options: &str) -> Project {
    use std::os::unix::fs::PermissionsExt;
    let program = project.path(".azureal/slow-git");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let script = format!(
        "#!/bin/sh\nfor word; do case \"$word\" in {options}) exec sleep 1000;; esac; done\nexec git \"$@\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let git = GitProgram { program, environment: own_environment().clone() };
    Project { changes: Some(ChangeRecorder::new(&project.directory, git)), ..project }
}

#[test]
fn files_are_recorded_though_their_lines_take_too_long() {
    for (options, expected) in [("--numstat|-p", "modified a.txt"), ("-p", "modified a.txt +1 −0")] {
        let project = with_slow_git(repository(), options);
        project.run(&format!("echo three >> a.txt; {DONE}"), "go");
        let [changes] = &changes(&project)[..] else { panic!("{options}: {:?}", project.events()) };
        assert_eq!(files(changes), [expected], "{options}");
        assert_eq!(changes.detail, None);
    }
}

#[test]
fn many_files_that_were_ignored_make_no_large_event() {
    let project = repository();
    fs::create_dir(project.path("target")).unwrap();
    for number in 0..3_000 {
        fs::write(project.path(&format!("target/{number:04}")), "SECRET\n").unwrap();
    }
    project.run(&format!("echo .azureal > .gitignore; {DONE}"), "go");
    let [changes] = &changes(&project)[..] else { panic!("{:?}", project.events()) };
    assert_eq!(files(changes), ["modified .gitignore +0 −3"]);
    let skipped: Vec<_> = changes.skipped.iter().map(|it| (it.path.as_str(), it.reason.as_str())).collect();
    assert_eq!(skipped.len(), 20);
    assert_eq!(skipped[0], ("target/0000", "ignored before the turn"));
    assert_eq!(skipped[19], ("2981 more files", "ignored before the turn"));
    assert!(Event::Changes(changes.clone()).to_json().len() < 4_000);
    assert!(!build_context(None, None, &project.events()).contains("SECRET"));
}
