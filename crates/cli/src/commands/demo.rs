use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azureal_core::{ContextFrame, NewSession, read_context, visible};
use futures_executor::block_on;
use serde_json::json;

use super::list;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::open::open_workspace;
use crate::output::Output;
use crate::screen::places;
use crate::turn::TurnView;
use azureal::config::Config;
use azureal::{Project, Prompt, TurnSettings, Workspace};

const FIRST: &str = "The login fails when the token is older than a day. Please keep that in mind.";
const SECOND: &str = "What did I ask before you came?";
const THIRD: &str = "What was asked so far, and did anything fail?";

/// Take a tour: one session across two agents, offline, in a few seconds
///
/// Runs in a new folder, or in the given one, and leaves its store there to be explored. The two agents are built in:
/// they need no network and no key, and answer from the history of the session alone. With `--json`, prints the events
/// of the turns, and last `{"folder","store","session"}`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal demo
  azureal demo ./tour")]
pub(crate) struct Args {
    /// Folder to run in; a new temporary folder by default
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The tour as it goes.
struct Tour<'a> {
    place: Workspace,
    config: Arc<Config>,
    interrupts: Interrupts,
    out: &'a mut Output,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let folder = folder(args.folder.as_deref())?;
    let store = folder.join(".azureal").join("sessions.azs");
    if store.exists() {
        return Err(Failure::refused("exists", format!("{} has sessions already", folder.display()))
            .with_hint("name a folder that is new, or none"));
    }
    std::env::set_current_dir(&folder).map_err(|error| Failure::file(&folder, &error))?;
    let place = open_workspace(Some(&store))?;
    // The tour is the same for everybody.
    let config = Arc::new(Config::empty());
    let mut tour = Tour { place, config, interrupts: Interrupts::listen()?, out };
    let as_json = tour.out.is_json();
    tour.play(&folder, &store)?;
    if as_json {
        out.json(&json!({
            "folder": folder.display().to_string(),
            "store": store.display().to_string(),
            "session": "S1",
        }))?;
    }
    out.flush()
}

/// Makes the folder, and returns it in full: we are about to go there.
fn folder(chosen: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = match chosen {
        Some(folder) => {
            fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
            folder.to_owned()
        }
        None => tempfile::Builder::new()
            .prefix("azureal-demo-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(std::env::temp_dir())
            .map_err(|error| Failure::file(&std::env::temp_dir(), &error))?
            .keep(),
    };
    fs::canonicalize(&folder).map_err(|error| Failure::file(&folder, &error))
}

impl Tour<'_> {
    fn play(&mut self, folder: &Path, store: &Path) -> Result<(), Failure> {
        self.say(
            "azureal: one conversation, any agent.\n\n\
             A coding agent forgets you when it ends, and no agent knows what you told another. azureal keeps the\n\
             conversation itself, so that any agent can go on where the last one stopped.\n\n\
             Two small agents that are built in play that for you now: Ada and Ben. There is no model behind them and\n\
             no network; they only read the record of the session. Everything else is real: each answer is a\n\
             program of its own that is started, watched, and stored. With Claude Code or Codex installed, `-a claude`\n\
             and `-a codex` take their places.\n",
        )?;
        let new = NewSession { worktree: self.place.project.worktree(), ..NewSession::default() };
        let session = block_on(self.place.store.create(new))?;

        self.step("1. You ask Ada. That begins a session, S1.")?;
        self.turn(session, "azureal run", "offline/ada", FIRST)?;

        self.step("2. The same session continues with Ben, who has never heard of you or of Ada.")?;
        let context = block_on(read_context(&*self.place.store, session))?;
        self.turn(session, "azureal run -c", "offline/ben", SECOND)?;

        self.step(
            "3. How could Ben know? azureal put the record in front of your prompt. This is all he was sent:",
        )?;
        let sent = ContextFrame::new(context, "", SECOND).into_text();
        let quoted: String =
            sent.lines().map(|line| format!("   | {line}").trim_end().to_owned() + "\n").collect();
        self.say(&visible(&quoted))?;
        self.say("\nOnly your words and theirs are stored, never the wrapper, so it cannot pile up.\n")?;

        self.step("4. And back to Ada, who receives Ben's answers too.")?;
        self.turn(session, "azureal run -c", "offline/ada", THIRD)?;

        self.step("5. The session is yours, in one file.")?;
        self.say("$ azureal list\n")?;
        if !self.out.is_json() {
            block_on(list::run(&list::Args::default(), &self.place, &[], self.out))?;
        }
        let azureal = call(folder, store);
        self.say(&format!(
            "\nLook around:\n\n\
             {azureal} show S1\n    its messages and tool calls\n\
             {azureal} context S1\n    the context that the next agent receives\n\
             {azureal} run -s S1 -a offline/ben \"Your turn\"\n    continue; with `-a claude` or `-a codex` if \
             `azureal agents` shows them\n\n\
             Then try `azureal run --help` in a project of your own.\n\
             The store of this tour is {}; delete its folder when you are done.\n",
            visible(&store.display().to_string())
        ))
    }

    fn step(&mut self, text: &str) -> Result<(), Failure> {
        let text = self.out.paint().heading(text);
        self.say(&format!("\n{text}\n\n"))
    }

    /// Takes a turn, under the command that would do the same.
    fn turn(
        &mut self,
        session: azureal_core::SessionId,
        command: &str,
        agent: &str,
        prompt: &str,
    ) -> Result<(), Failure> {
        self.say(&format!("$ {command} -a {agent} \"{prompt}\"\n"))?;
        let view = TurnView {
            prompt,
            found: &[],
            is_kept: true,
            threshold: None,
            permission: None,
            timeout: None,
            places: places(&self.place),
        };
        let prompt = Prompt::new(session, prompt);
        let settings = TurnSettings { agent: Some(agent.to_owned()), ..TurnSettings::default() };
        let handle = self.place.submit(&self.config, prompt, settings)?;
        view.show(handle, &self.interrupts, self.out, |_, _, _| Ok(()))?;
        Ok(())
    }

    /// Explains, to people.
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        if !self.out.is_json() {
            self.out.text(text)?;
            self.out.flush()?;
        }
        Ok(())
    }
}

/// Returns how azureal is called so that it finds this store.
fn call(folder: &Path, store: &Path) -> String {
    let found = Project::of_any_owner(folder).store_path();
    let is_found = found == store && std::env::var_os("AZUREAL_STORE").is_none();
    let (option, path) = if is_found { ("-C", folder) } else { ("--store", store) };
    let path = path.display().to_string();
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let path = if is_plain { path } else { format!("'{}'", path.replace('\'', "'\\''")) };
    format!("azureal {option} {}", visible(&path))
}
