//! What reaches the processes that are started: exactly the environment that the front end passed in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use azureal::agents::version::{Answer, ask};
use azureal::config::Config;
use azureal::core::event::Outcome;
use azureal::core::{Event, NewSession, NewTurn, SessionId};
use azureal::{ContextSettings, Environment, Options, Prompt, TurnSettings, Workspace};
use azureal_testkit::programs::script;
use futures_executor::block_on;

/// A variable of the process that is passed to nobody.
const SECRET: &str = "AZUREAL_TEST_SECRET";

/// Runs a test again in a process that has the secret in its environment. Returns whether this is that process, which then does
/// the work. The name starts with the module.
fn has_secret(test: &str) -> bool {
    if std::env::var_os(SECRET).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(SECRET, "leaked")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // A name that no test has would pass without a test.
    assert!(output.status.success() && text[0].contains("1 passed"), "{}\n{}", text[0], text[1]);
    false
}

/// A project in a git repository whose programs write their environment to files: `claude`, and `git`.
struct World {
    folder: tempfile::TempDir,
    environment: Environment,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("project/.git")).unwrap();
        fs::write(path("project/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let (agent, git) = (path("agent"), path("git"));
        let result =
            r#"{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Done."}"#;
        let claude = format!(
            "env > '{}'\n[ \"$1\" = --version ] && echo 2.1.197 && exit\ncat > /dev/null\necho '{result}'",
            agent.display()
        );
        script(&path("bin/claude"), &claude);
        script(&path("bin/git"), &format!("env > '{}'\necho '## main'", git.display()));
        let environment = Environment::new(
            [
                ("PATH", format!("{}:/usr/bin:/bin", path("bin").display())),
                ("HOME", path("home").display().to_string()),
                ("GIVEN", "yes".to_owned()),
            ]
            .map(|(name, value)| (name.into(), value.into())),
        );
        Self { folder, environment }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self) -> Workspace {
        Workspace::open(&self.path("project"), &self.environment, &Options::default()).unwrap()
    }

    /// Runs a turn with the fake `claude` in a session with a long history, and returns how it ended.
    fn run_turn(&self, workspace: &Workspace, commands: Vec<String>) -> Option<Outcome> {
        let prompt = Prompt::new(self.long_session(workspace), "Continue");
        let context = ContextSettings { commands, ..ContextSettings::default() };
        let settings = TurnSettings { agent: Some("claude".into()), context, ..TurnSettings::default() };
        let handle = workspace.submit(&Arc::new(Config::empty()), prompt, settings).unwrap();
        handle.result().unwrap().complete.outcome
    }

    fn long_session(&self, workspace: &Workspace) -> SessionId {
        let session = block_on(workspace.store.create(NewSession::default())).unwrap();
        let long = NewTurn::verbatim([Event::user("Hello"), Event::assistant("word ".repeat(10_000))]);
        block_on(workspace.store.append(session, long)).unwrap();
        session
    }

    /// Checks that a process had the variables that were passed, and not the one that was not.
    #[track_caller]
    fn check(&self, who: &str) {
        // Empty if it did not run.
        let seen = fs::read_to_string(self.path(who)).unwrap_or_default();
        assert!(seen.lines().any(|line| line == "GIVEN=yes"), "{who}: {seen}");
        assert!(!seen.contains(SECRET), "{who}: {seen}");
    }
}

fn writing_environment(file: &Path) -> String {
    format!("env > '{}'", file.display())
}

#[test]
fn a_variable_that_was_not_passed_in_reaches_no_child() {
    if !has_secret("environment::a_variable_that_was_not_passed_in_reaches_no_child") {
        return;
    }
    let world = World::new();
    let workspace = world.open();
    let commands = vec![writing_environment(&world.path("command"))];
    assert_eq!(world.run_turn(&workspace, commands), Some(Outcome::Done));
    for who in ["agent", "command", "git"] {
        world.check(who);
    }
}

#[test]
fn a_program_that_is_asked_for_its_version_has_what_was_passed_in() {
    if !has_secret("environment::a_program_that_is_asked_for_its_version_has_what_was_passed_in") {
        return;
    }
    let world = World::new();
    let answer = ask(&world.path("bin/claude"), world.folder.path(), &world.environment, &|| false);
    assert_eq!(answer, Answer::Version("2.1.197".to_owned()));
    world.check("agent");
}
