//! The desk, as an interface uses it: requests in, news out, with scripted agents.

mod away;
mod changes;
mod following;
mod leaving;
mod requests;
mod turns;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use azureal::desk::{Desk, News, PaneId, Request, TurnNews};
use azureal::{AgentOutput, Environment, Event, Options, Page, Seq, SessionId, Workspace, block_on};
use azureal_testkit::programs::script;

/// How long news may take on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a test listens to find that nothing comes.
const SILENCE: Duration = Duration::from_millis(400);

/// The pane of most tests.
const PANE: PaneId = PaneId(1);

/// Answers when the file `release` is there, and says by a file that it runs.
const WAITING_CLAUDE: &str = r#"
[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
echo '{"type":"system","subtype":"init","session_id":"a","model":"opus","cwd":"/x","tools":[]}'
echo '{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"Half."}]}}'
echo $$ > "$FOLDER/running"
while [ ! -e "$FOLDER/release" ]; do sleep 0.02; done
echo '{"type":"assistant","message":{"id":"n","role":"assistant","content":[{"type":"text","text":"Whole."}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Whole."}'"#;

/// Answers at once.
const CLAUDE: &str = r#"
[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
echo '{"type":"system","subtype":"init","session_id":"a","model":"opus","cwd":"/x","tools":[]}'
echo '{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"Fixed."}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Fixed."}'"#;

/// A project, and the script that is its Claude Code.
struct World {
    folder: tempfile::TempDir,
    environment: Environment,
}

impl World {
    fn new(claude: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        script(&folder.path().join("bin/claude"), claude);
        let environment = Self::environment_in(folder.path());
        Self { folder, environment }
    }

    fn environment_in(folder: &Path) -> Environment {
        let variables = [
            ("PATH", format!("{}:/usr/bin:/bin", folder.join("bin").display())),
            ("HOME", folder.join("home").display().to_string()),
            ("FOLDER", folder.display().to_string()),
        ];
        Environment::new(variables.map(|(name, value)| (name.into(), value.into())))
    }

    /// Opens the project of a world in this folder.
    fn workspace_in(folder: &Path) -> Workspace {
        Workspace::open(&folder.join("project"), &Self::environment_in(folder), &Options::default()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn workspace(&self) -> Workspace {
        Self::workspace_in(self.folder.path())
    }

    fn desk(&self) -> Listener {
        Listener::of(self.workspace())
    }

    fn desk_in_memory(&self) -> Listener {
        let options = Options { store: Some("memory:".into()), ..Options::default() };
        Listener::of(Workspace::open(&self.path("project"), &self.environment, &options).unwrap())
    }

    /// Lets the agent that waits continue.
    fn release(&self) {
        fs::write(self.path("release"), "").unwrap();
    }
}

/// A desk, and what it has sent.
struct Listener {
    desk: Desk,
    workspace: Arc<Workspace>,
    news: Receiver<News>,
    /// What has come so far, for a test that fails.
    log: Mutex<Vec<String>>,
}

impl Listener {
    fn of(workspace: Workspace) -> Self {
        let workspace = Arc::new(workspace);
        let config = Arc::new(workspace.load_config().unwrap());
        let (sender, news) = mpsc::channel();
        let desk = Desk::new(Arc::clone(&workspace), config, move |news| drop(sender.send(news)));
        Self { desk, workspace, news, log: Mutex::default() }
    }

    fn send(&self, prompt: &str) {
        self.desk.perform(Request::Send { pane: PANE, prompt: prompt.into(), agent: None, model: None });
    }

    fn open(&self, session: SessionId) {
        self.desk.perform(Request::Open { pane: PANE, session, last: 100 });
    }

    /// Waits for news that `look` wants.
    #[track_caller]
    fn until<T>(&self, what: &str, mut look: impl FnMut(News) -> Option<T>) -> T {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let news = self.news.recv_timeout(left);
            assert!(news.is_ok(), "no {what} in:\n{}", self.log.lock().unwrap().join("\n"));
            let news = news.unwrap();
            self.log.lock().unwrap().push(format!("{news:?}").chars().take(300).collect());
            if let Some(found) = look(news) {
                return found;
            }
        }
    }

    /// Waits for news of the turn of the pane that `look` wants.
    #[track_caller]
    fn until_turn<T>(&self, what: &str, mut look: impl FnMut(TurnNews) -> Option<T>) -> T {
        self.until(what, |news| match news {
            News::Turn { pane: PANE, news } => look(*news),
            _ => None,
        })
    }

    /// Waits until the turn is over, and returns the news of it, one word each.
    #[track_caller]
    fn turn(&self) -> Vec<String> {
        let mut told: Vec<String> = Vec::new();
        self.until_turn("end of the turn", |news| {
            let (word, is_over) = (word(&news), matches!(news, TurnNews::Over { .. }));
            if told.last() != Some(&word) {
                told.push(word);
            }
            is_over.then_some(())
        });
        told
    }

    /// Returns what comes within a while.
    fn rest(&self) -> Vec<String> {
        let mut rest = Vec::new();
        loop {
            match self.news.recv_timeout(SILENCE) {
                Ok(news) => rest.push(format!("{news:?}").chars().take(200).collect()),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return rest,
            }
        }
    }

    /// Returns the texts of a session.
    fn texts(&self, session: SessionId) -> Vec<String> {
        texts(&self.workspace, session)
    }
}

/// Returns the texts of a session as it is stored, and its ends.
fn texts(workspace: &Workspace, session: SessionId) -> Vec<String> {
    let events = block_on(workspace.store.read(session, Page::After(Seq::START, 100))).unwrap();
    let text = |event: Event| match event {
        Event::UserMessage(message) => Some(message.content),
        Event::AssistantText(said) => Some(said.text),
        Event::Complete(complete) => Some(format!("({})", complete.ending())),
        _ => None,
    };
    events.into_iter().filter_map(|stored| text(stored.event().unwrap())).collect()
}

/// Returns the texts in an output.
fn said(outputs: &[AgentOutput]) -> Vec<String> {
    let text = |output: &AgentOutput| match output {
        AgentOutput::Event(Event::AssistantText(said)) => Some(said.text.clone()),
        _ => None,
    };
    outputs.iter().filter_map(text).collect()
}

fn word(news: &TurnNews) -> String {
    match news {
        TurnNews::Began { prompt, first, is_ours, .. } => {
            let who = if *is_ours { "ours" } else { "foreign" };
            format!("began at {first}, {who}: {}", prompt.as_deref().unwrap_or("-"))
        }
        TurnNews::Accepted { record, agent, .. } => format!("accepted {} {agent}", record.id),
        TurnNews::Output(_) => "output".to_owned(),
        TurnNews::Meter(_) => "meter".to_owned(),
        TurnNews::Stored { session, first, last, complete, .. } => {
            let place = first.zip(*last).map(|(first, last)| format!(" {first}-{last}")).unwrap_or_default();
            format!("stored {session}{place} {}", complete.ending())
        }
        TurnNews::Over { error: None, .. } => "over".to_owned(),
        TurnNews::Over { error: Some(error), unsent, .. } => {
            format!("over: {} {}", error.kind(), unsent.as_deref().unwrap_or("-"))
        }
        TurnNews::Notice(text) => format!("notice {text}"),
        other => format!("{other:?}"),
    }
}

fn session(number: u32) -> SessionId {
    SessionId::new(number).unwrap()
}
