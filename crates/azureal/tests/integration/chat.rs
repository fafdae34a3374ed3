//! The example `chat`: a front end that uses the library alone, through its standard input and output.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use azureal::{
    Environment, Event, Options, Outcome, Page, Seq, SessionId, SessionRecord, Workspace, block_on,
};
use azureal_testkit::programs::script;
use azureal_testkit::until;

/// The source of the example.
const SOURCE: &str = include_str!("../../examples/chat.rs");
/// How long a line of the example may take on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the example, which cargo builds with the tests of this package.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/chat");
    assert!(program.exists(), "`cargo build -p azureal --example chat` builds {}", program.display());
    program
}

/// A project, and the example running in it.
struct Chat {
    folder: tempfile::TempDir,
    process: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    /// All that it has printed so far.
    printed: Vec<String>,
}

impl Chat {
    /// Starts it in a new project, with these files in there and this script as Claude Code.
    fn start(files: &[(&str, &str)], claude: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("project")).unwrap();
        for (name, content) in files {
            let file = path("project").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        fs::create_dir(path("bin")).unwrap();
        if let Some(claude) = claude {
            script(&path("bin/claude"), claude);
        }
        let mut process = Command::new(program())
            .current_dir(path("project"))
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", path("bin").display()))
            .env("HOME", path("user"))
            .env("FOLDER", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { folder, process, input, output, printed: Vec::new() }
    }

    fn types(&self, line: &str) {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Waits for a line with this text, and returns it.
    #[track_caller]
    fn sees(&mut self, text: &str) -> String {
        loop {
            let line = self.output.recv_timeout(LIMIT);
            assert!(line.is_ok(), "no `{text}` in:\n{}", self.printed.join("\n"));
            let line = line.unwrap();
            self.printed.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits until it has ended, and returns all that it has printed.
    fn end(&mut self) -> String {
        drop(self.input.take());
        assert!(self.process.wait().unwrap().success());
        self.printed.extend(self.output.iter());
        self.printed.join("\n")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Opens the same project.
    fn workspace(&self) -> Workspace {
        let home = ("HOME".into(), self.path("user").into());
        Workspace::open(&self.path("project"), &Environment::new([home]), &Options::default()).unwrap()
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        // A test that has failed must not leave it waiting.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn session(number: u32) -> SessionId {
    SessionId::new(number).unwrap()
}

fn record(workspace: &Workspace, number: u32) -> SessionRecord {
    block_on(workspace.store.get(session(number))).unwrap()
}

/// Returns the texts of a session, and how its last turn ended.
fn stored(workspace: &Workspace, number: u32) -> (Vec<String>, Option<Outcome>) {
    let events = block_on(workspace.store.read(session(number), Page::After(Seq::START, 100))).unwrap();
    let (mut texts, mut outcome) = (Vec::new(), None);
    for stored in events {
        match stored.event().unwrap() {
            Event::UserMessage(message) => texts.push(message.content),
            Event::AssistantText(said) => texts.push(said.text),
            Event::Complete(complete) => outcome = complete.outcome,
            _ => {}
        }
    }
    (texts, outcome)
}

/// Answers when the file `release` is there. A file with its arguments says that it runs.
const WAITING_CLAUDE: &str = r#"
[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
echo "$@" > "$FOLDER/running-$$"
echo '{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"Half."}]}}'
while [ ! -e "$FOLDER/release" ]; do sleep 0.02; done
echo '{"type":"assistant","message":{"id":"n","role":"assistant","content":[{"type":"text","text":"Whole."}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Whole."}'"#;

/// Returns the arguments of the agents that were started.
fn running(chat: &Chat) -> Vec<String> {
    let files = fs::read_dir(chat.folder.path()).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with("running-"));
    files.map(|file| fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn two_turns_run_at_once_one_is_cancelled_and_the_other_followed_to_its_end() {
    let mut chat = Chat::start(&[], Some(WAITING_CLAUDE));
    chat.types("/new first");
    chat.types("Question one");
    chat.types("/new second");
    chat.types("/in S2 Question two");
    until("both agents run", || (running(&chat).len() == 2).then_some(()));
    chat.types("/list");
    // In any order: both have just begun.
    let lines = [chat.sees("* S"), chat.sees("* S")];
    for expected in [" * S1 first", ">* S2 second"] {
        assert!(lines.iter().any(|line| line == expected), "{expected:?} in {lines:?}");
    }
    // A turn is running there.
    chat.types("/in S1 Too early");
    chat.sees("error (busy)");
    chat.types("/follow S2");
    chat.types("/cancel S1");
    chat.sees("S1 | (cancelled)");
    chat.types("/cancel S1");
    chat.sees("no turn is running");
    fs::write(chat.path("release"), "").unwrap();
    chat.sees("S2 | Whole.");
    chat.sees("S2 | (done)");
    chat.types("/quit");
    let printed = chat.end();
    assert!(!printed.contains("S1 | Whole."), "{printed}");

    let workspace = chat.workspace();
    let (texts, outcome) = stored(&workspace, 1);
    assert_eq!((texts[0].as_str(), outcome), ("Question one", Some(Outcome::Cancelled)));
    assert!(!texts.contains(&"Whole.".to_owned()), "{texts:?}");
    let (texts, outcome) = stored(&workspace, 2);
    assert_eq!((texts.join(" "), outcome), ("Question two Half. Whole.".to_owned(), Some(Outcome::Done)));
    assert_eq!(record(&workspace, 2).name, "second");
    assert!(block_on(workspace.recover()).unwrap().is_empty(), "no turn is left behind");
}

#[test]
fn a_front_end_without_a_recall_service_is_not_started_as_the_server_of_an_agent() {
    let recall = ("../user/.config/azureal/azufig.toml", "[recall]\nenabled = true\n");
    let mut chat = Chat::start(&[recall], Some(WAITING_CLAUDE));
    fs::write(chat.path("release"), "").unwrap();
    chat.types("/new");
    chat.types("Hello");
    chat.sees("no recall in this turn: this program does not answer agents");
    chat.sees("S1 | (done)");
    let running = running(&chat);
    assert!(running.len() == 1 && !running[0].contains("mcp"), "{running:?}");
    chat.end();
}

#[test]
fn the_program_is_its_own_built_in_agent_and_the_end_of_the_input_waits_for_it() {
    let mut chat = Chat::start(&[], None);
    chat.types("Hello");
    chat.sees("error (usage): `/new` creates a session");
    chat.types("/new");
    chat.types("Hello");
    let printed = chat.end();
    assert!(printed.contains("S1 | (offline is asked)") && printed.contains("S1 | (done)"), "{printed}");
    assert!(printed.contains("no agent is installed"), "notices are shown: {printed}");
    let (texts, outcome) = stored(&chat.workspace(), 1);
    assert_eq!((texts[0].as_str(), outcome), ("Hello", Some(Outcome::Done)));
    assert!(texts.len() > 1 && printed.contains(texts[1].lines().next().unwrap()), "{texts:?} {printed}");
}

#[test]
fn files_of_the_project_take_effect_only_if_the_user_trusts_them() {
    let file = (".azureal/azufig.toml", "default_system_message = \"Be brief.\"\n");
    for (answer, expected) in [("y", 1), ("n", 0)] {
        let mut chat = Chat::start(&[file], None);
        chat.sees("Be brief.");
        chat.types(answer);
        chat.types("/new");
        chat.types("Hello");
        chat.sees("S1 | (done)");
        chat.end();
        let workspace = chat.workspace();
        let events = block_on(workspace.store.read(session(1), Page::After(Seq::START, 100))).unwrap();
        let systems = events.iter().filter(|stored| stored.kind == "SystemMessage").count();
        assert_eq!(systems, expected, "after the answer {answer}");
    }
}

#[test]
fn the_example_is_short_and_uses_the_library_alone() {
    assert!(SOURCE.lines().count() <= 150, "{} lines", SOURCE.lines().count());
    let uses = SOURCE.lines().filter_map(|line| line.trim_start().strip_prefix("use "));
    for used in uses {
        assert!(used.starts_with("azureal::{") || used.starts_with("std::"), "{used}");
    }
    assert!(!SOURCE.contains("azureal_"));
}
