//! The changes of a turn and their undo, in a real git repository.

use std::fs;

use azureal::changes::ChangesOf;
use azureal::desk::{FileChanges, News, Request, UndoQuestion};
use azureal::{Error, Seq};
use azureal_testkit::project::git_repository;
use azureal_testkit::until;

use super::{Listener, PANE, World};

/// Changes files, and waits for the file `release` if the file `wait` is there.
const CHANGING: &str = r#"
[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
echo '{"type":"system","subtype":"init","session_id":"a","model":"opus","cwd":"'"$PWD"'","tools":[]}'
touch "$FOLDER/running"
while [ -e "$FOLDER/wait" ] && [ ! -e "$FOLDER/release" ]; do sleep 0.02; done
echo three >> a.txt
rm -f b.txt
printf 'new\n' > "$(printf 'evil\033[2J\nname')"
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Fixed."}'"#;

/// A world whose project is a git repository with two files.
fn repository() -> World {
    let world = World::new(CHANGING);
    let project = world.path("project");
    fs::write(project.join("a.txt"), "one\ntwo\n").unwrap();
    fs::write(project.join("b.txt"), "b\n").unwrap();
    fs::write(project.join(".gitignore"), ".azureal\n").unwrap();
    git_repository(&project);
    world
}

impl Listener {
    fn changes(&self, at: Option<u64>) -> Result<Box<FileChanges>, Error> {
        self.desk.perform(Request::Changes { pane: PANE, at: at.map(Seq) });
        self.until("the changes", |news| match news {
            News::Changes { pane: PANE, at: of, changes } if of == at.map(Seq) => Some(changes),
            _ => None,
        })
    }

    fn plan(&self, of: ChangesOf) -> Result<Box<UndoQuestion>, Error> {
        self.desk.perform(Request::PlanUndo { pane: PANE, of });
        self.until("the question", |news| match news {
            News::UndoPlanned { pane: PANE, question } => Some(Ok(question)),
            News::Failed { pane: Some(PANE), error, .. } => Some(Err(error)),
            _ => None,
        })
    }

    fn undo(&self, question: Box<UndoQuestion>, force: bool) -> Result<String, Error> {
        self.desk.perform(Request::Undo { pane: PANE, question, force });
        self.until("the end of the undo", |news| match news {
            News::Undone { pane: PANE, summary } => Some(Ok(summary)),
            News::Failed { pane: Some(PANE), error, .. } => Some(Err(error)),
            _ => None,
        })
    }
}

#[test]
fn a_turn_is_undone_and_the_undo_taken_back() {
    let world = repository();
    let read = |name: &str| fs::read_to_string(world.path("project").join(name)).ok();
    let evil = "evil\u{1b}[2J\nname";
    let desk = world.desk();
    desk.send("Change it");
    desk.turn();
    assert_eq!(read("a.txt").as_deref(), Some("one\ntwo\nthree\n"));

    let shown = desk.changes(None).unwrap();
    assert_eq!(shown.of, ChangesOf::Turn(1));
    assert_eq!(shown.changes.summary(), "3 files changed, +2 −1");
    let paths: Vec<&str> = shown.changes.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a.txt", "b.txt", evil]);
    let diff = shown.diff.as_ref().unwrap();
    assert!(diff.text().contains("\n+three\n") && diff.text().contains("\n-b\n"), "{}", diff.text());
    // An event of the turn names it too.
    assert_eq!(desk.changes(Some(2)).unwrap().of, ChangesOf::Turn(1));

    let question = desk.plan(shown.undo_of()).unwrap();
    assert_eq!((question.turn, question.restored, question.deleted), (1, 2, 1));
    assert!(question.obstacles.is_empty() && question.conflicts.is_empty(), "{question:?}");
    assert_eq!(desk.undo(question, false).unwrap(), "undid turn 1: 3 files changed, +1 −2");
    assert_eq!(read("a.txt").as_deref(), Some("one\ntwo\n"));
    assert_eq!((read("b.txt").as_deref(), read(evil)), (Some("b\n"), None));
    // The pane may have heard of the event before the answer came, so the store is asked.
    let seq = desk.changes(None).unwrap().changes.undone_by.unwrap();

    let shown = desk.changes(None).unwrap();
    assert_eq!((shown.of, shown.undo_of()), (ChangesOf::Turn(1), ChangesOf::Event(seq)));
    let of_undo = desk.changes(Some(seq.0)).unwrap();
    assert!(of_undo.is_undo() && of_undo.of == ChangesOf::Event(seq), "{of_undo:?}");
    let question = desk.plan(shown.undo_of()).unwrap();
    assert_eq!(desk.undo(question, false).unwrap(), "took back the undo of turn 1: 3 files changed, +2 −1");
    assert_eq!(read("a.txt").as_deref(), Some("one\ntwo\nthree\n"));
    assert_eq!((read("b.txt"), read(evil).as_deref()), (None, Some("new\n")));
    assert_eq!(desk.changes(None).unwrap().changes.undone_by, None);
}

#[test]
fn an_undo_does_what_the_user_has_seen_or_nothing() {
    let world = repository();
    let file = world.path("project/a.txt");
    let desk = world.desk();
    desk.send("Change it");
    desk.turn();
    let question = desk.plan(ChangesOf::Turn(1)).unwrap();
    fs::write(&file, "mine\n").unwrap();
    assert_eq!(desk.undo(question, false).unwrap_err().kind(), "changed");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine\n");

    let question = desk.plan(ChangesOf::Turn(1)).unwrap();
    assert_eq!(question.conflicts, [("a.txt".to_owned(), "changed since the turn")]);
    assert_eq!(question.obstacles.len(), 1);
    assert_eq!((question.restored, question.deleted), (2, 1), "with the file that is overwritten");
    assert_eq!(desk.undo(question.clone(), false).unwrap_err().kind(), "conflict");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine\n");
    desk.undo(question, true).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\n");
}

#[test]
fn no_turn_is_undone_while_one_runs_in_the_worktree() {
    let world = repository();
    let desk = world.desk();
    desk.send("Change it");
    desk.turn();
    fs::remove_file(world.path("running")).unwrap();
    fs::write(world.path("wait"), "").unwrap();
    desk.send("Change it again");
    until("the agent runs", || world.path("running").exists().then_some(()));
    let error = desk.plan(ChangesOf::Turn(1)).unwrap_err();
    assert_eq!(error.kind(), "busy");
    assert!(error.hint().is_some());
    // What it has changed so far can be read meanwhile.
    assert_eq!(desk.changes(None).unwrap().changes.turn, 1);
    world.release();
    desk.turn();
}

#[test]
fn changes_that_are_not_recorded_are_an_error_with_a_hint() {
    let world = World::new(CHANGING);
    let desk = world.desk();
    desk.send("Change it");
    desk.turn();
    for at in [None, Some(1)] {
        let error = desk.changes(at).unwrap_err();
        assert_eq!(error.kind(), "not_recorded");
        assert!(error.hint().is_some());
    }
}

#[test]
fn the_whole_diff_is_shown_in_the_pager_without_control_characters() {
    let world = repository();
    let desk = world.desk();
    desk.send("Change it");
    desk.turn();
    azureal_testkit::programs::script(&world.path("bin/less"), "cp \"$1\" \"$FOLDER/shown.diff\"");
    desk.desk.perform_in_terminal(Request::ReadChanges { pane: PANE, of: ChangesOf::Turn(1) });
    let text = fs::read_to_string(world.path("shown.diff")).unwrap();
    assert!(text.starts_with("S1 turn 1: 3 files changed, +2 −1\n\ndiff --git a/a.txt b/a.txt\n"), "{text}");
    assert!(text.contains("\n+three\n") && !text.contains('\u{1b}'), "{text}");
}
