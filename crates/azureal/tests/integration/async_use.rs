//! The library on an executor with one thread: nothing that waits keeps another task from running.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use azureal::core::NewTurn;
use azureal::{Environment, Event, Options, Outcome, Prompt, TurnEvent, TurnHandle, TurnSettings, Workspace};
use azureal_testkit::programs::script;
use futures_executor::block_on;
use futures_util::{StreamExt, future};

/// Opens a new project whose Claude Code answers when the file of that name is there.
fn open(folder: &tempfile::TempDir) -> Workspace {
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("project")).unwrap();
    let claude = r#"
[ "$1" = --version ] && echo 2.1.197 && exit
grep -q slow && while [ ! -e "$FOLDER/release" ]; do sleep 0.02; done
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Done."}'"#;
    script(&path("bin/claude"), claude);
    let environment = Environment::new(
        [
            ("PATH", format!("{}:/usr/bin:/bin", path("bin").display())),
            ("HOME", path("home").display().to_string()),
            ("FOLDER", folder.path().display().to_string()),
        ]
        .map(|(name, value)| (name.into(), value.into())),
    );
    Workspace::open(&path("project"), &environment, &Options::default()).unwrap()
}

#[test]
fn a_call_of_a_store_in_a_file_blocks_no_other_task() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = open(&folder);
    let session = block_on(workspace.create_session("")).unwrap();
    let other = rusqlite::Connection::open(workspace.project.store_path()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // It waits for the other connection.
    let append = workspace.store.append(session, NewTurn::verbatim([Event::user("Hello")]));
    let release = async { other.execute_batch("COMMIT") };
    let (appended, released) = block_on(future::join(append, release));
    released.unwrap();
    appended.unwrap();
    assert_eq!(block_on(workspace.store.get(session)).unwrap().counts.events, 1);
}

async fn outcome(mut turn: TurnHandle) -> Outcome {
    let mut stored = None;
    while let Some(event) = turn.next().await {
        if let TurnEvent::Stored(finished) = event {
            stored = Some(finished.complete.ending());
        }
    }
    // The turn is over, so this does not wait.
    assert_eq!(Some(turn.result().unwrap().complete.ending()), stored);
    stored.unwrap()
}

#[test]
fn turns_are_streams_that_one_thread_follows_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = open(&folder);
    let config = Arc::new(workspace.load_config().unwrap());
    let submit = |text: &str| {
        let settings = TurnSettings { timeout: Some(Duration::from_secs(60)), ..TurnSettings::default() };
        workspace.submit(&config, Prompt::new(workspace.new_session(text), text), settings).unwrap()
    };
    let (slow, quick) = (submit("slow"), submit("quick"));
    // The first turn ends only because the second one was followed to its end meanwhile.
    let release = async {
        let outcome = outcome(quick).await;
        fs::write(folder.path().join("release"), "").unwrap();
        outcome
    };
    let outcomes = block_on(future::join(outcome(slow), release));
    assert_eq!(outcomes, (Outcome::Done, Outcome::Done));
    assert_eq!(block_on(workspace.list_sessions()).unwrap().len(), 2);
}
