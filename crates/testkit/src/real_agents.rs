//! The real coding agents, Claude Code and Codex, in homes of their own in front of a [`ModelServer`].
//!
//! `cargo xtask agents` installs them from npm, in the versions that `agents/package.json` names, into
//! `target/agents`; `AZUREAL_AGENTS_DIR` names another folder that has them.
//!
//! ```no_run
//! use std::process::Stdio;
//!
//! use azureal_testkit::model_server::ModelServer;
//! use azureal_testkit::real_agents::{AgentHome, Agents};
//!
//! # fn test() {
//! let Some(agents) = Agents::find() else { return };
//! let server = ModelServer::always("Hello.");
//! let home = AgentHome::new(&agents, &server);
//! let said = home.command("claude").args(["-p", "Hello?"]).stdin(Stdio::null()).output().unwrap();
//! assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "Hello.");
//! # }
//! ```

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::model_server::ModelServer;

/// A key that no service would accept.
const KEY: &str = "dummy-key-for-tests";
/// The variable that Codex reads its key from.
const CODEX_KEY: &str = "AZUREAL_TEST_KEY";

/// Returns whether the real agents are there. If they are required and missing, the test fails; otherwise it is
/// skipped with a clear message.
pub fn have_agents() -> bool {
    Agents::find().is_some()
}

/// The folder of the real agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    folder: PathBuf,
}

impl Agents {
    /// Finds the agents. `None` means that the test has been reported as skipped, and should return.
    ///
    /// # Panics
    ///
    /// If they are missing, or do not run, where `AZUREAL_REQUIRE_TOOLS` is set.
    pub fn find() -> Option<Self> {
        // Starting both takes a while, and every test asks.
        static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        match FOUND.get_or_init(find) {
            Ok(folder) => Some(Self { folder: folder.clone() }),
            Err(why) => {
                assert!(
                    std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_none(),
                    "{why}, and this run may skip nothing: `cargo xtask agents` installs them"
                );
                eprintln!("\n*** SKIPPED: {why}, so this test was not run (`cargo xtask agents`) ***\n");
                None
            }
        }
    }

    /// Returns the agents that npm has installed in this folder, without a check. One of them may be missing.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder with the programs `claude` and `codex`, to stand first in a `PATH`.
    pub fn bin(&self) -> PathBuf {
        bin(&self.folder)
    }

    /// Returns the program `claude`.
    pub fn claude(&self) -> PathBuf {
        self.bin().join("claude")
    }

    /// Returns the program `codex`: a script that Node runs, whose child is the native program.
    pub fn codex(&self) -> PathBuf {
        self.bin().join("codex")
    }
}

fn bin(folder: &Path) -> PathBuf {
    folder.join("node_modules").join(".bin")
}

fn find() -> Result<PathBuf, String> {
    let folder = std::env::var_os("AZUREAL_AGENTS_DIR").unwrap_or_else(|| "target/agents".into());
    // From the workspace on: the tests of each crate run in a folder of their own.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    for program in ["claude", "codex"] {
        // Asked in an empty home, so that not even this leaves something in that of the person.
        let home = tempfile::tempdir().map_err(|error| error.to_string())?;
        let answer = Command::new(bin(&folder).join(program))
            .arg("--version")
            .env("HOME", home.path())
            .env("CLAUDE_CONFIG_DIR", home.path())
            .env("CODEX_HOME", home.path())
            .stdin(Stdio::null())
            .output();
        match answer {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Err(format!("the real {program} does not run ({})", output.status)),
            Err(error) => return Err(format!("the real {program} is missing ({error})")),
        }
    }
    fs::canonicalize(&folder).map_err(|error| error.to_string())
}

/// An empty home and project of one test; both are removed when it is dropped.
///
/// The agents in it know a dummy key and the model server, retry once or twice, and neither update themselves nor
/// send reports. If one of them tries to reach another host, its request goes to the model server as a proxy, which
/// refuses: see [`assert_nobody_else_was_asked`].
#[derive(Debug)]
pub struct AgentHome {
    folder: TempDir,
    agents: Agents,
    url: String,
}

impl AgentHome {
    /// Creates a home whose agents talk to `server`.
    pub fn new(agents: &Agents, server: &ModelServer) -> Self {
        let folder = tempfile::Builder::new().prefix("azureal-agents-").tempdir().unwrap();
        let mut home = Self { folder, agents: agents.clone(), url: String::new() };
        for folder in [home.home(), home.claude_config_dir(), home.codex_home(), home.temp(), home.project()]
        {
            fs::create_dir(folder).unwrap();
        }
        home.talk_to(&server.url());
        home
    }

    /// Makes the agents talk to the server at this URL, as [`ModelServer::url`] returns it.
    pub fn talk_to(&mut self, url: &str) {
        fs::write(self.codex_home().join("config.toml"), codex_config(url)).unwrap();
        url.clone_into(&mut self.url);
    }

    /// Returns what `HOME` is.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns the folder that Claude Code has instead of `~/.claude`.
    pub fn claude_config_dir(&self) -> PathBuf {
        self.folder.path().join("claude")
    }

    /// Returns the folder that Codex has instead of `~/.codex`.
    pub fn codex_home(&self) -> PathBuf {
        self.folder.path().join("codex")
    }

    /// Returns the folder to work in. It is no repository: Codex wants `--skip-git-repo-check` or a `git init`.
    pub fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// Returns the folder for temporary files. It is beside the others because Codex does not accept a home below it.
    fn temp(&self) -> PathBuf {
        self.folder.path().join("temp")
    }

    /// Returns the whole environment to run an agent with, or a program that runs agents.
    ///
    /// It is complete (`env_clear`): keys, settings and session markers of the user who runs the tests must not reach
    /// the agents.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.agents.bin()).chain(std::env::split_paths(&inherited));
        let mut environment: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), std::env::join_paths(path).unwrap()),
            ("HOME".into(), self.home().into()),
            ("TMPDIR".into(), self.temp().into()),
            ("CLAUDE_CODE_TMPDIR".into(), self.temp().into()),
            ("CLAUDE_CONFIG_DIR".into(), self.claude_config_dir().into()),
            ("CODEX_HOME".into(), self.codex_home().into()),
        ];
        let settings = [
            ("LANG", "C.UTF-8"),
            ("SHELL", "/bin/sh"),
            ("TERM", "dumb"),
            ("USER", "tester"),
            ("ANTHROPIC_BASE_URL", &self.url),
            ("ANTHROPIC_API_KEY", KEY),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_MAX_RETRIES", "2"),
            ("DISABLE_AUTOUPDATER", "1"),
            // Lets root, which is what tests in a container run as, bypass permissions.
            ("IS_SANDBOX", "1"),
            (CODEX_KEY, KEY),
            ("HTTP_PROXY", &self.url),
            ("HTTPS_PROXY", &self.url),
            ("NO_PROXY", "127.0.0.1"),
        ];
        environment.extend(settings.map(|(name, value)| (name.into(), value.into())));
        environment
    }

    /// Returns a command for a program in this home and project: `claude`, `codex`, or a path.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        // Without a folder it would be looked for in the `PATH` of the test.
        let ours = self.agents.bin().join(program);
        let mut command = Command::new(if ours.exists() { &ours } else { program });
        command.env_clear().envs(self.environment()).current_dir(self.project());
        command
    }
}

/// Asserts that the agents made only requests to the model since `server` was started.
///
/// # Panics
///
/// If an agent in an [`AgentHome`] of this server has wanted to talk to another host.
#[track_caller]
pub fn assert_nobody_else_was_asked(server: &ModelServer) {
    for request in server.all_requests() {
        // A request to a proxy names the host: `CONNECT host:443` or `GET http://host/`.
        assert!(
            request.path.starts_with('/'),
            "an agent wanted to talk to another host: {} {}",
            request.method,
            request.path
        );
    }
}

fn codex_config(url: &str) -> String {
    // `gpt-5.5` is a model that Codex knows and gives its plain tools to.
    format!(
        r#"model = "gpt-5.5"
model_provider = "testkit"
check_for_update_on_startup = false

[model_providers.testkit]
name = "testkit"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "{CODEX_KEY}"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false

[otel]
exporter = "none"
metrics_exporter = "none"
trace_exporter = "none"

[features]
plugins = false
apps = false
"#
    )
}
