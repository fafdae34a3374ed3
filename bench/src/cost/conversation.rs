//! Conversations with the real agents, in front of a model server that caches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use azureal_testkit::model_server::{Answer, Cache, CacheKeys, Clock, ModelServer, Usage};
use azureal_testkit::real_agents::{AgentHome, Agents, assert_nobody_else_was_asked};
use serde_json::json;

use crate::text::text;

/// The programs that are measured.
pub(crate) struct Programs {
    pub(crate) azureal: PathBuf,
    /// The folder with an installation of Codex.
    pub(crate) codex: PathBuf,
    /// The folder with an installation of Claude Code.
    pub(crate) claude: PathBuf,
}

/// The most characters that a prompt can have: an answer of some length must be left.
pub(crate) const LONGEST_PROMPT: usize = WORK_CHARACTERS - 500;
/// The characters of a prompt and an answer.
const TALK_CHARACTERS: usize = 20_000;
/// The same, where two commands and two short answers are in the turn as well.
const WORK_CHARACTERS: usize = TALK_CHARACTERS - 2 * (PRINTED_CHARACTERS + CALL_CHARACTERS);
/// The text before a call.
const CALL_CHARACTERS: usize = 500;
/// The files that the commands of a turn print.
const PRINTED: [&str; 2] = ["first.txt", "second.txt"];
const PRINTED_CHARACTERS: usize = 6_000;

/// The size of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) turns: usize,
    /// The characters of a prompt, up to [`LONGEST_PROMPT`].
    pub(crate) prompt: usize,
}

/// A kind of turn. Each adds 20,000 characters to a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A long prompt and a long answer: one request.
    Talk,
    /// A prompt, two commands with their output, and an answer: three requests.
    Work,
}

/// A program that continues a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `claude -c`: Claude Code keeps the history itself.
    ClaudeContinue,
    /// azureal with `cache = "off"`: the history is one block, after a git status that changes.
    AzurealOff,
    /// azureal as it is installed.
    Azureal,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::ClaudeContinue, Self::AzurealOff, Self::Azureal];

    fn configuration(self) -> &'static str {
        // A compaction would start a new cache, in azureal alone.
        match self {
            Self::ClaudeContinue | Self::Azureal => "[compaction]\nthreshold_characters = 2000000\n",
            Self::AzurealOff => "[compaction]\nthreshold_characters = 2000000\n\n[claude]\ncache = \"off\"\n",
        }
    }
}

/// A measured conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    /// The input of each turn, all of its requests together.
    pub(crate) turns: Vec<Usage>,
    pub(crate) most_breakpoints: usize,
    /// Requests that the model server refused.
    pub(crate) refused: usize,
}

/// Returns the version of the Claude Code in a folder.
pub(crate) fn version_of(claude: &Path) -> Result<String> {
    let home = tempfile::tempdir()?;
    let program = Agents::at(claude).claude();
    let output = Command::new(&program)
        .arg("--version")
        .env("HOME", home.path())
        .env("CLAUDE_CONFIG_DIR", home.path())
        .stdin(Stdio::null())
        .output()
        .with_context(|| program.display().to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let version = printed.split_whitespace().next().filter(|_| output.status.success());
    Ok(version.with_context(|| format!("{} does not tell its version", program.display()))?.to_owned())
}

/// Holds a conversation of this many turns with Claude Code and measures it.
pub(crate) fn converse(programs: &Programs, way: Way, shape: Shape, size: Size) -> Result<Measured> {
    let world = World::new(programs, way.configuration(), CacheKeys::Separate)?;
    let mut measured = Measured::default();
    for turn in 1..=size.turns {
        world.change_files(turn)?;
        let (prompt, answers) = shape.script(turn, size.prompt);
        let command = match way {
            Way::ClaudeContinue => {
                let mut command = world.command(&Agents::at(&programs.claude).claude());
                command.args(["-p", "--permission-mode", "bypassPermissions"]);
                if turn > 1 {
                    command.arg("-c");
                }
                command.arg(prompt);
                command
            }
            Way::AzurealOff | Way::Azureal => world.azureal(programs, "claude", &prompt),
        };
        let usage = world.run(command, answers).with_context(|| format!("turn {turn}"))?;
        measured.turns.push(usage);
    }
    world.finish(&mut measured);
    Ok(measured)
}

/// The agents of one session in turns: Claude Code first, then Codex.
pub(crate) fn agent_of(turn: usize) -> &'static str {
    if turn % 2 == 1 { "claude" } else { "codex" }
}

/// Holds a conversation in which Claude Code and Codex answer in turns.
pub(crate) fn take_turns(programs: &Programs, keys: CacheKeys, size: Size) -> Result<Measured> {
    let world = World::new(programs, Way::Azureal.configuration(), keys)?;
    let mut measured = Measured::default();
    for turn in 1..=size.turns {
        world.change_files(turn)?;
        let (prompt, answers) = Shape::Talk.script(turn, size.prompt);
        let agent = agent_of(turn);
        let usage = world
            .run(world.azureal(programs, agent, &prompt), answers)
            .with_context(|| format!("turn {turn}, {agent}"))?;
        measured.turns.push(usage);
    }
    world.finish(&mut measured);
    Ok(measured)
}

impl Shape {
    pub(crate) const ALL: [Self; 2] = [Self::Talk, Self::Work];

    /// Returns the prompt of a turn and the answers of the model.
    fn script(self, turn: usize, prompt: usize) -> (String, Vec<Answer>) {
        let part = |part: usize, characters| text(seed(turn, part), characters);
        let last = |characters: usize| Answer::new().text(&part(1, characters.saturating_sub(prompt)));
        let answers = match self {
            Self::Talk => vec![last(TALK_CHARACTERS)],
            Self::Work => {
                let call = |index: usize, file: &str| {
                    let input = json!({"command": format!("cat {file}"), "description": "Print a file"});
                    Answer::new().text(&part(index, CALL_CHARACTERS)).tool("Bash", input)
                };
                let [first, second] = PRINTED;
                vec![call(2, first), call(3, second), last(WORK_CHARACTERS)]
            }
        };
        (part(0, prompt), answers)
    }
}

/// Returns a number that no other part of any turn has.
fn seed(turn: usize, part: usize) -> u64 {
    (turn * 16 + part) as u64
}

/// A repository in a home of the real agents, and the model that they talk to.
struct World {
    server: ModelServer,
    home: AgentHome,
    codex: PathBuf,
}

impl World {
    fn new(programs: &Programs, configuration: &str, keys: CacheKeys) -> Result<Self> {
        let server = ModelServer::scripted::<Answer>([]).with_cache(Cache::new(&Clock::new()).keys(keys));
        let home = AgentHome::new(&Agents::at(&programs.claude), &server);
        let folder = home.home().join(".config/azureal");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("azufig.toml"), configuration)?;
        let world = Self { server, home, codex: Agents::at(&programs.codex).bin() };
        world.git(&["init", "--quiet", "--initial-branch=main"])?;
        world.git(&["config", "user.name", "tester"])?;
        world.git(&["config", "user.email", "tester@example.com"])?;
        fs::write(world.home.project().join("README.md"), "A project.\n")?;
        world.commit("The first commit")?;
        Ok(world)
    }

    /// Does what people do between two turns: some files change, and at times there is a commit.
    fn change_files(&self, turn: usize) -> Result<()> {
        let project = self.home.project();
        for (index, name) in PRINTED.iter().enumerate() {
            fs::write(project.join(name), text(seed(turn, 8 + index), PRINTED_CHARACTERS))?;
        }
        fs::write(project.join(format!("step-{turn}.txt")), format!("{turn}\n"))?;
        if turn.is_multiple_of(4) {
            self.commit(&format!("Step {turn}"))?;
        }
        Ok(())
    }

    fn commit(&self, message: &str) -> Result<()> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", message])
    }

    fn git(&self, arguments: &[&str]) -> Result<()> {
        let output = self.home.command("git").args(arguments).stdin(Stdio::null()).output().context("git")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {}: {error}", arguments.join(" "));
        Ok(())
    }

    /// Returns a command in the repository, with both agents in its `PATH`.
    fn command(&self, program: &Path) -> Command {
        let mut command = self.home.command(program);
        for (name, value) in self.home.environment() {
            if name == "PATH" {
                let folders = std::env::split_paths(&value).chain([self.codex.clone()]);
                // Only a folder with a colon in its name cannot be joined, and these were.
                if let Ok(path) = std::env::join_paths(folders) {
                    command.env("PATH", path);
                }
            }
        }
        command
    }

    fn azureal(&self, programs: &Programs, agent: &str, prompt: &str) -> Command {
        let mut command = self.command(&programs.azureal);
        command.args(["run", "-s", "cost", "-a", agent, "--permission", "all", prompt]);
        command
    }

    /// Runs a turn to its end. Returns the input of its requests.
    fn run(&self, mut command: Command, answers: Vec<Answer>) -> Result<Usage> {
        let before = self.server.served().len();
        let expected = answers.len();
        for answer in answers {
            self.server.push(answer);
        }
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
        let printed = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            text.lines().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        if !output.status.success() {
            bail!("{}\n{}\n{}", output.status, printed(&output.stdout), printed(&output.stderr));
        }
        let served = self.server.served();
        let used: Vec<Usage> = served.iter().skip(before).filter_map(|served| served.usage).collect();
        // Another number means that what is measured is not the conversation that was meant.
        ensure!(used.len() == expected, "{expected} requests were expected, {} were answered", used.len());
        Ok(used.into_iter().sum())
    }

    fn finish(&self, measured: &mut Measured) {
        assert_nobody_else_was_asked(&self.server);
        measured.most_breakpoints = self.server.most_breakpoints();
        measured.refused = self.server.served().iter().filter(|served| served.usage.is_none()).count();
    }
}
