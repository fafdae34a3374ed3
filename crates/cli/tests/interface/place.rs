//! A project in a folder of its own, and the interface opened in it.

use std::fs;
use std::ops::Deref;
use std::process::{Command, Output};

use azureal_testkit::project::{ProjectFolder, assistant, user};
use azureal_testkit::pty::PtyProgram;
use serde_json::{Value, json};

/// A project with a home.
pub(crate) struct Place {
    folder: ProjectFolder,
    /// The store, if it is not the file of the project.
    store: Option<String>,
}

impl Deref for Place {
    type Target = ProjectFolder;

    fn deref(&self) -> &ProjectFolder {
        &self.folder
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with_store(None)
    }

    /// Creates a project whose sessions are in this store.
    pub(crate) fn with_store(store: Option<String>) -> Self {
        let place = Self { folder: ProjectFolder::new(), store };
        fs::create_dir(place.path("home")).unwrap();
        place
    }

    /// Returns the program, ready to run in the project.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.folder.command(env!("CARGO_BIN_EXE_azureal"), arguments);
        command
            .env("HOME", self.path("home"))
            .env("PATH", self.programs())
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .envs(self.store.iter().map(|store| ("AZUREAL_STORE", store)));
        command
    }

    /// Returns the program as on another machine, in a clone of the project: only the store is shared.
    pub(crate) fn command_elsewhere(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        self.file("elsewhere/p/.git/HEAD", "ref: refs/heads/main\n");
        command.current_dir(self.path("elsewhere/p")).env("HOME", self.path("elsewhere"));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Opens the interface on a terminal of 80 columns and 24 rows, and waits until it is there.
    pub(crate) fn open(&self, arguments: &[&str]) -> PtyProgram {
        let program = PtyProgram::start(&self.command(arguments), 80, 24);
        program.wait_for("›");
        program
    }

    /// Returns the events of a session, oldest first.
    pub(crate) fn events(&self, session: &str) -> Vec<Value> {
        let output = self.run(&["show", session, "--json"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the prompts of a session.
    pub(crate) fn prompts(&self, session: &str) -> Vec<String> {
        let prompts = self.events(session).into_iter().filter(|event| event["kind"] == "UserMessage");
        prompts.map(|event| event["data"]["content"].as_str().unwrap().to_owned()).collect()
    }

    /// Imports a session with these prompts and answers, alternating.
    pub(crate) fn session(&self, name: &str, messages: &[&str]) {
        let events = messages.iter().enumerate().map(|(index, text)| match index % 2 {
            0 => user(text),
            _ => assistant(text),
        });
        self.session_of(name, &events.collect::<Vec<_>>());
    }

    /// Imports a session with exactly these events.
    pub(crate) fn session_of(&self, name: &str, events: &[Value]) {
        let file = self.session_file(name, events);
        let output = self.run(&["import", "--yes", file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
    }

    /// Puts an agent on the path that answers `Answer 1.`, `Answer 2.`, … It says `Working on N.` first, and waits for
    /// [`let_answer`](Self::let_answer).
    pub(crate) fn agent(&self) {
        let line = |value: Value| value.to_string();
        let begin = line(json!({
            "type": "system", "subtype": "init", "session_id": "5f2a1c0e-0000-4000-8000-000000000001",
            "model": "claude-opus-4-5", "cwd": "/", "tools": [], "apiKeySource": "none",
        }));
        let says = |id: &str, text: &str| {
            line(json!({"type": "assistant", "message": {
                "id": id, "role": "assistant", "model": "claude-opus-4-5",
                "content": [{"type": "text", "text": text}],
            }}))
        };
        let end = line(json!({
            "type": "result", "subtype": "success", "is_error": false, "duration_ms": 1, "num_turns": 1,
            "result": "Answer NUMBER.", "session_id": "5f2a1c0e-0000-4000-8000-000000000001",
        }));
        let folder = self.path("gate");
        fs::create_dir_all(&folder).unwrap();
        // The wait has a limit, so that a test that fails ends.
        let script = format!(
            "if [ \"$1\" = --version ]; then echo '2.1.197 (Claude Code)'; exit; fi\n\
             cat > /dev/null\n\
             cd '{folder}'; n=1; while ! mkdir turn-$n 2> /dev/null; do n=$((n+1)); done\n\
             say() {{ printf '%s\\n' \"$1\" | sed \"s/NUMBER/$n/g\"; }}\n\
             say '{begin}'\n\
             say '{working}'\n\
             i=0; while [ ! -e answer-$n ] && [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done\n\
             say '{answer}'\n\
             say '{end}'",
            folder = folder.display(),
            working = says("m1", "Working on NUMBER."),
            answer = says("m2", "Answer NUMBER."),
        );
        self.program("claude", &script);
    }

    /// Lets the agent answer its turn of this number.
    pub(crate) fn let_answer(&self, turn: usize) {
        self.file(&format!("gate/answer-{turn}"), "");
    }

    /// Puts an agent on the path that writes so many lines a second, for some seconds. Then it says that the stream is over.
    pub(crate) fn stream(&self, lines: usize, seconds: usize) {
        let text = |text: &str| {
            json!({"type": "stream_event", "event": {
                "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text},
            }})
            .to_string()
        };
        // Twenty bursts a second.
        let (mut whole, mut script) = (String::new(), String::new());
        for burst in 0..seconds * 20 {
            let numbers = burst * lines / 20..(burst + 1) * lines / 20;
            let burst: String = numbers
                .map(|number| {
                    format!("streamed line {number} of a long text, with **words** and `code` in it\n")
                })
                .collect();
            whole.push_str(&burst);
            script.push_str(&format!("printf '%s\\n' '{}'\nsleep 0.05\n", text(&burst)));
        }
        whole.push_str("The stream is over.");
        let begin = json!({
            "type": "system", "subtype": "init", "session_id": "5f2a1c0e-0000-4000-8000-000000000002",
            "model": "claude-opus-4-5", "cwd": "/", "tools": [], "apiKeySource": "none",
        });
        let answer = json!({"type": "assistant", "message": {
            "id": "m1", "role": "assistant", "model": "claude-opus-4-5",
            "content": [{"type": "text", "text": whole}],
        }});
        let end = json!({
            "type": "result", "subtype": "success", "is_error": false, "duration_ms": 1, "num_turns": 1,
            "result": "The stream is over.", "session_id": "5f2a1c0e-0000-4000-8000-000000000002",
        });
        let script = format!(
            "if [ \"$1\" = --version ]; then echo '2.1.197 (Claude Code)'; exit; fi\n\
             cat > /dev/null\nprintf '%s\\n' '{begin}'\n{script}\nprintf '%s\\n' '{answer}' '{end}'"
        );
        self.program("claude", &script);
    }
}
