//! The real coding agents, Claude Code, Codex, Gemini CLI, Qwen Code and opencode, in homes of their own in front of a
//! [`ModelServer`].
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
//! let Some(agents) = Agents::find(&["claude"]) else { return };
//! let server = ModelServer::always("Hello.");
//! let home = AgentHome::new(&agents, &server);
//! let said = home.command("claude").args(["-p", "Hello?"]).stdin(Stdio::null()).output().unwrap();
//! assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "Hello.");
//! # }
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use tempfile::TempDir;

use crate::model_server::ModelServer;

/// A key that no service would accept.
pub const KEY: &str = "dummy-key-for-tests";
/// The variable that Codex reads its key from.
const CODEX_KEY: &str = "AZUREAL_TEST_KEY";

/// The folder of the real agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    folder: PathBuf,
}

impl Agents {
    /// Finds the agents that a test runs, by the names of their programs: `claude`, `codex`, `gemini`, `qwen`,
    /// `opencode`. `None` means that the test has been reported as skipped, and should return.
    ///
    /// # Panics
    ///
    /// If one of them is missing, or does not run, where `AZUREAL_REQUIRE_TOOLS` is set.
    pub fn find(programs: &[&'static str]) -> Option<Self> {
        let agents = Self::at(folder());
        for program in programs {
            if let Err(why) = agents.check_once(program) {
                assert!(
                    std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_none(),
                    "{why}, and this run may skip nothing: `cargo xtask agents` installs it"
                );
                eprintln!("\n*** SKIPPED: {why}, so this test was not run (`cargo xtask agents`) ***\n");
                return None;
            }
        }
        Some(Self { folder: fs::canonicalize(&agents.folder).ok()? })
    }

    /// Returns the agents that npm has installed in this folder, without a check. One of them may be missing.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder with the programs, to stand first in a `PATH`.
    pub fn bin(&self) -> PathBuf {
        self.folder.join("node_modules").join(".bin")
    }

    /// Returns the program `claude`.
    pub fn claude(&self) -> PathBuf {
        self.bin().join("claude")
    }

    /// Returns the program `codex`: a script that Node runs, whose child is the native program.
    pub fn codex(&self) -> PathBuf {
        self.bin().join("codex")
    }

    /// Checks that a program runs, once in this process: starting it takes up to some seconds, and every test asks.
    fn check_once(&self, program: &'static str) -> Result<(), String> {
        static CHECKED: Mutex<BTreeMap<&str, Result<(), String>>> = Mutex::new(BTreeMap::new());
        let mut checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
        checked.entry(program).or_insert_with(|| self.check(program)).clone()
    }

    fn check(&self, program: &str) -> Result<(), String> {
        // Asked in an empty home, so that not even this leaves something in that of the person.
        let home = tempfile::tempdir().map_err(|error| error.to_string())?;
        let answer = Command::new(self.bin().join(program))
            .arg("--version")
            .env("PATH", self.path())
            .env("HOME", home.path())
            .env("CLAUDE_CONFIG_DIR", home.path())
            .env("CODEX_HOME", home.path())
            .stdin(Stdio::null())
            .output();
        match answer {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(format!("the real {program} does not run ({})", output.status)),
            Err(error) => Err(format!("the real {program} is missing ({error})")),
        }
    }

    /// Returns the `PATH` of the test, with the programs in front.
    fn path(&self) -> OsString {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        std::env::join_paths(std::iter::once(self.bin()).chain(std::env::split_paths(&inherited))).unwrap()
    }
}

/// Returns the folder that `cargo xtask agents` fills.
fn folder() -> PathBuf {
    let folder = std::env::var_os("AZUREAL_AGENTS_DIR").unwrap_or_else(|| "target/agents".into());
    // From the workspace on: the tests of each crate run in a folder of their own.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
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
        // Both read the address from the environment.
        for (program, auth) in [("gemini", "gemini-api-key"), ("qwen", "openai")] {
            let folder = home.home().join(format!(".{program}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("settings.json"), gemini_settings(auth)).unwrap();
        }
        home.talk_to(&server.url());
        home
    }

    /// Makes the agents talk to the server at this URL, as [`ModelServer::url`] returns it.
    pub fn talk_to(&mut self, url: &str) {
        fs::write(self.codex_home().join("config.toml"), codex_config(url)).unwrap();
        // A folder in which the package for plugins seems to be installed: otherwise opencode fetches it.
        fs::create_dir_all(self.opencode_config_dir().join("node_modules")).unwrap();
        let lock = json!({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}});
        fs::write(self.opencode_config_dir().join("package-lock.json"), lock.to_string()).unwrap();
        fs::write(self.opencode_config_dir().join("opencode.json"), opencode_config(url)).unwrap();
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

    /// Returns the folder with the settings of opencode.
    pub fn opencode_config_dir(&self) -> PathBuf {
        self.home().join(".config/opencode")
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
        let openai_url = format!("{}/v1", self.url);
        let mut environment: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), self.agents.path()),
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
            ("GOOGLE_GEMINI_BASE_URL", &self.url),
            ("GEMINI_API_KEY", KEY),
            // Without a model Gemini CLI first asks another model which one to take.
            ("GEMINI_MODEL", "gemini-2.5-pro"),
            ("OPENAI_BASE_URL", &openai_url),
            ("OPENAI_API_KEY", KEY),
            ("OPENAI_MODEL", "qwen3-coder-plus"),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("HTTP_PROXY", &self.url),
            ("HTTPS_PROXY", &self.url),
            ("NO_PROXY", "127.0.0.1"),
        ];
        environment.extend(settings.map(|(name, value)| (name.into(), value.into())));
        environment
    }

    /// Returns a command for a program in this home and project: `claude`, `codex`, `gemini`, …, or a path.
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

/// Returns the settings of Gemini CLI, which those of Qwen Code follow.
fn gemini_settings(auth: &str) -> String {
    json!({
        // Only Qwen Code has it: after a prompt it asks a model what to remember.
        "memory": {"enableManagedAutoMemory": false, "enableManagedAutoDream": false},
        "security": {"auth": {"selectedType": auth}},
        "privacy": {"usageStatisticsEnabled": false},
        "general": {"disableAutoUpdate": true, "disableUpdateNag": true, "enableAutoUpdate": false},
    })
    .to_string()
}

fn opencode_config(url: &str) -> String {
    let model = json!({"name": "m1", "tool_call": true, "limit": {"context": 128_000, "output": 8_192}});
    json!({
        "model": "testkit/m1",
        "small_model": "testkit/m1",
        "provider": {"testkit": {
            // Part of the program: no package is fetched for it.
            "npm": "@ai-sdk/openai-compatible",
            "name": "testkit",
            "options": {"baseURL": format!("{url}/v1"), "apiKey": KEY},
            "models": {"m1": model},
        }},
        // The title of a session is a request of its own, which would use up an answer.
        "agent": {"title": {"disable": true}},
        "autoupdate": false,
        "share": "disabled",
    })
    .to_string()
}
