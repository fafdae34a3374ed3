use std::sync::Arc;
use std::time::Duration;

use azureal_core::agent::Permission;
use azureal_core::{SessionId, SessionRecord, check_name, visible_line};
use azureal_engine::{Accepted, Recovered, SessionTarget};
use futures_executor::block_on;

use crate::confirm::{Answer, ask};
use crate::context_settings::{ContextArgs, load_config};
use crate::dashed_prompt;
use crate::failure::{Failure, quoted};
use crate::interrupts::Interrupts;
use crate::output::{Output, tell};
use crate::prompt;
use crate::screen::places;
use crate::turn::TurnView;
use azureal::config::seconds;
use azureal::sessions::{called, check_new_name, find, similar};
use azureal::{Prompt, TurnSettings, Workspace};

/// Send a prompt to an agent, and store its answer
///
/// Starts a new session, unless `-c` or `-s` names one to continue. The agent first receives the whole history of the
/// session, whichever agents wrote it. Without `-a` and `-m`, the session's last agent answers with the last requested
/// model, else the configured agent, else the first that is installed, else the built-in offline agent.
///
/// The prompt is the argument, or standard input, or both: piped input becomes a block after the argument. With an
/// argument, azureal does not wait for a pipe that stays open and silent.
///
/// The agent's text and tool calls go to standard output, everything else to standard error. A session over the
/// threshold is compacted automatically.
///
/// With `--json`, the first line has session, agent and model. Then comes one event per line as it happens,
/// `{"kind","data"}`, and text while it is being written as `{"delta":"…"}`. The last line, when the turn is stored, is
/// `Complete` with `first_seq`, `seq` and `context`, the size of the session's context.
///
/// Context commands describe the project to the agent: those that are configured, then those of `--exec`. All run at
/// the same time in the top folder of the worktree. They are static unless configured as `dynamic`. Static commands run
/// once, when the session is created. Their output is stored in its system message, which every agent receives at every
/// turn, even if it is stale. Dynamic commands run at every turn, and so does `--exec` in an existing session; their
/// output is not stored. To run the static commands again, start a new session.
///
/// `--ephemeral` stores neither prompt nor answer, and puts the output of all commands in front of the prompt: for a
/// question that needs no memory. The agent's own program keeps no transcript; a version that cannot do that is not
/// started.
///
/// One turn runs in a session at a time, on all machines that share its store. If another process runs one, this prints
/// the holder and exits, or waits for it with `--wait`; `azureal fork` continues in a copy.
///
/// Ctrl-C cancels the turn: the output so far is stored, and the exit code is 130.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal run \"Why does the login test fail?\"
  azureal run -c -a codex \"Fix it\"
  git diff | azureal run -s review -m opus \"Review this\"
  azureal run --system \"Be brief.\" --exec \"git status --short\" \"What is left to do?\"
  azureal run --ephemeral --exec \"git diff --staged\" \"Write a commit message\"
  azureal run --permission edit --timeout 600 \"Update the changelog\"
  azureal run -a claude \"Summarise the design\" -- --max-turns 3")]
pub(crate) struct Args {
    /// The prompt; `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// A prompt that begins with a dash
    #[arg(long = dashed_prompt::OPTION, hide = true, conflicts_with = "prompt")]
    dashed_prompt: Option<String>,
    /// Continue the session that was last used or tried in this worktree
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    go_on: bool,
    /// Continue the session of exactly this number or name; a new name creates one
    #[arg(short = 's', long, value_name = "SESSION")]
    session: Option<String>,
    /// Name the new session
    #[arg(long, value_name = "NAME", conflicts_with_all = ["go_on", "session"])]
    name: Option<String>,
    /// Agent to use: claude, codex or offline, or with a model, claude/opus
    #[arg(short = 'a', long, value_name = "AGENT")]
    agent: Option<String>,
    /// Model to use; implies its agent (`opus`: claude). `default` is the agent's own choice
    #[arg(short = 'm', long, value_name = "MODEL")]
    model: Option<String>,
    /// Stop the turn after this many seconds; also `AZUREAL_TIMEOUT`, or `[turn] timeout` in a configuration file
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Wait while another process runs a turn in the session
    #[arg(long)]
    wait: bool,
    /// What the agent may do without asking; also `AZUREAL_PERMISSION`, or `[turn] permission` in your own
    /// configuration file; else the agent's own default
    #[arg(long, value_name = "LEVEL")]
    permission: Option<Level>,
    /// Store neither the prompt nor the answer
    #[arg(long, conflicts_with_all = ["go_on", "session", "name"])]
    ephemeral: bool,
    #[command(flatten)]
    context: ContextArgs,
    /// Arguments for the agent's own program, after `--`, passed on unchanged
    #[arg(last = true, value_name = "AGENT_ARGUMENTS")]
    arguments: Vec<String>,
}

/// What an agent may do.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Level {
    /// Read only
    Read,
    /// Read, and change files of the project
    Edit,
    /// Everything
    All,
}

impl From<Level> for Permission {
    fn from(level: Level) -> Self {
        match level {
            Level::Read => Self::Read,
            Level::Edit => Self::Edit,
            Level::All => Self::All,
        }
    }
}

pub(crate) fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let prompt = args.prompt.as_ref().or(args.dashed_prompt.as_ref());
    let prompt = prompt::gather(prompt.map(String::as_str)).map_err(|failure| {
        if args.arguments.is_empty() || failure.kind() != "usage" {
            return failure;
        }
        failure.with_hint("the prompt stands before `--`; what follows it goes to the agent's program")
    })?;
    let config = Arc::new(load_config(&args.context, &place.project)?);
    let session = block_on(session(args, place, found))?;
    let settings = TurnSettings {
        agent: args.agent.clone(),
        model: args.model.clone(),
        permission: args.permission.map(Permission::from),
        timeout: args.timeout,
        context: args.context.settings(),
        arguments: args.arguments.clone(),
        is_ephemeral: args.ephemeral,
    };
    let view = TurnView {
        prompt: &prompt,
        // What was found belongs to sessions of the store.
        found: if args.ephemeral { &[] } else { found },
        is_kept: !args.ephemeral,
        threshold: Some(config.compaction_threshold()).filter(|_| !args.ephemeral),
        permission: settings.permission.or(config.permission()),
        timeout: settings.timeout.or(config.timeout()),
        places: places(place),
    };
    let interrupts = Interrupts::listen()?;
    let prompt = Prompt { text: prompt.clone(), session, waits: args.wait };
    let handle = place.submit(&config, prompt, settings)?;
    view.show(handle, &interrupts, out, |accepted, line, out| {
        if out.is_json() {
            out.json(line)?;
            return out.flush();
        }
        introduce(accepted, view.is_kept);
        Ok(())
    })?;
    out.flush()
}

/// Returns the session of the turn.
async fn session(args: &Args, place: &Workspace, found: &[Recovered]) -> Result<SessionTarget, Failure> {
    if args.go_on {
        let session = place.session_to_continue(found).await?;
        return session.map(SessionTarget::Existing).ok_or_else(|| {
            Failure::new("not_found", "there is no session in this worktree to continue")
                .with_hint("leave out `-c` to start one")
        });
    }
    let new = |name: Option<&String>| place.new_session(name.map_or("", String::as_str));
    if let Some(name) = &args.name {
        check_new_name(&*place.store, name, None).await?;
    }
    let Some(text) = &args.session else { return Ok(SessionTarget::New(new(args.name.as_ref()))) };
    if let Ok(number) = text.parse::<SessionId>() {
        return Ok(SessionTarget::Existing(number));
    }
    if let Some(record) = find(&*place.store, text).await? {
        return Ok(SessionTarget::Existing(record.id));
    }
    check_name(text)?;
    confirm_new(text, similar(&*place.store, text).await?.as_ref())?;
    // However many ask for a new name at once, there is one session of it.
    Ok(SessionTarget::Named(new(Some(text))))
}

/// Says that a name is new. One that may be a typing error is asked about on a terminal, so that it does not start an
/// empty session with a paid agent.
fn confirm_new(name: &str, similar: Option<&SessionRecord>) -> Result<(), Failure> {
    let new = format!("no session is called {}", quoted(name));
    let Some(similar) = similar else {
        tell(&format!("{new}: creating it"));
        return Ok(());
    };
    let other = called(similar);
    match ask(&format!("{new}, but {other} has a similar name. Create a new session? [y/N] ")) {
        Answer::Yes => Ok(()),
        Answer::No => Err(Failure::cancelled("no session was created and your prompt was not sent")
            .with_hint(format!("`azureal run -s {}` continues {other}", similar.id))),
        Answer::Nobody => {
            tell(&format!("{new}: creating it"));
            tell(&format!("hint: {other} has a similar name; `azureal run -s {}` continues it", similar.id));
            Ok(())
        }
    }
}

/// Says which session this is, which agent answers and with which model.
fn introduce(accepted: &Accepted, is_kept: bool) {
    let Accepted { record, agent, model, expected_model, is_new } = accepted;
    let model = model.as_deref().or(expected_model.as_deref());
    let name = if is_kept { called(record) } else { "not stored".to_owned() };
    let model = model.map(|model| format!(" · {}", visible_line(model)));
    tell(&format!("{name} · {agent}{}", model.unwrap_or_default()));
    if !is_new && record.counts.events > 0 && !record.counts.answered {
        // With `-c` the user may have meant an older session.
        tell(&format!("no agent has answered in {} yet: its earlier turns failed", record.id));
    }
}
