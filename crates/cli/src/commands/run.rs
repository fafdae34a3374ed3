use std::time::Duration;

use azureal_core::agent::{Permission, Program};
use azureal_core::{
    Beginning, Counts, Event, NewSession, Page, Seq, SessionId, SessionRecord, check_name, read_beginning,
    visible_line,
};
use azureal_engine::{AutoCompaction, Recovered, Spools, Summariser};
use futures_executor::block_on;
use serde_json::json;

use crate::confirm::{Answer, ask};
use crate::context_settings::{ContextArgs, ContextSettings, load_config};
use crate::dashed_prompt;
use crate::environment::environment;
use crate::failure::{Failure, quoted};
use crate::interrupts::Interrupts;
use crate::one_turn::{lease, wait_for_lease};
use crate::orphan;
use crate::output::{Output, tell};
use crate::prompt;
use crate::recovery::{recover_again, recover_original_run, warn_of_lost};
use crate::temporary::TemporaryFolder;
use crate::turn::{Ask, Keep, take_turn};
use azureal::Workspace;
use azureal::agents::{AgentChoice, Wanted, choose};
use azureal::agents::{PATIENCE, Writer, writers};
use azureal::config::{Config, seconds};
use azureal::sessions::{called, check_new_name, find, keep_name, last_session, similar};

/// Send a prompt to an agent, and keep what it says and does
///
/// Starts a new session, unless `-c` or `-s` names one to continue. The agent first receives the whole history of the
/// session, whichever agents wrote it. Without `-a` and `-m`, the session's last agent answers with the model that was
/// last asked for, else the configured agent, else the first that is installed, else the built-in offline agent.
///
/// The prompt is the argument, or standard input, or both: what is piped in becomes a block after the
/// argument. With an argument, a pipe that stays open and silent is not waited for.
///
/// The agent's text and tool calls go to standard output, everything else to standard error. With `--json`, one
/// line says session, agent and model, then comes one event per line as it happens, `{"kind","data"}`, text as it
/// is being written as `{"delta":"…"}`, and last, when the turn is stored, `Complete` with `first_seq`,
/// `seq` and `context`, the size of the session's context. A session over the threshold is compacted automatically.
///
/// Context commands tell the agent what the project looks like: those that are configured, then those of `--exec`, all
/// run at the same time in the top folder of the worktree. They are static unless configured as `dynamic`.
/// Static ones run once, when the session is made: their output is stored in its system message, and every agent
/// of the session is told it at every turn, even when it is stale by then. Dynamic ones run at every
/// turn, and so does what `--exec` gives to a session that goes on; their output is not stored. To
/// take everything anew, begin a new session.
///
/// `--ephemeral` stores nothing, neither prompt nor answer, and puts the output of all commands in front of the
/// prompt: for a question that needs no memory.
///
/// One turn runs in a session at a time, on all machines that share its store. While somebody runs one there, this says
/// who and ends, or waits for it with `--wait`; `azureal fork` goes on beside it.
///
/// Ctrl-C cancels the turn: what came is kept, and the exit code is 130.
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
    /// What to ask; `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// A prompt that begins with a dash
    #[arg(long = dashed_prompt::OPTION, hide = true, conflicts_with = "prompt")]
    dashed_prompt: Option<String>,
    /// Continue the session that was last used in this worktree
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    go_on: bool,
    /// Continue the session of exactly this number or name; a new name creates one
    #[arg(short = 's', long, value_name = "SESSION")]
    session: Option<String>,
    /// Name the new session
    #[arg(long, value_name = "NAME", conflicts_with_all = ["go_on", "session"])]
    name: Option<String>,
    /// Who answers: claude, codex or offline, or with a model, claude/opus
    #[arg(short = 'a', long, value_name = "AGENT")]
    agent: Option<String>,
    /// Model to use; implies its agent (`opus`: claude). `default` is the agent's own choice
    #[arg(short = 'm', long, value_name = "MODEL")]
    model: Option<String>,
    /// Stop the turn after so many seconds; also `AZUREAL_TIMEOUT`, or `[turn] timeout` in a configuration file
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Wait while somebody else runs a turn in the session
    #[arg(long)]
    wait: bool,
    /// What the agent may do without asking; also `AZUREAL_PERMISSION`, or `[turn] permission` in your own
    /// configuration file; else the agent's own default
    #[arg(long, value_name = "LEVEL")]
    permission: Option<Level>,
    /// Store nothing, neither the prompt nor the answer
    #[arg(long, conflicts_with_all = ["go_on", "session", "name"])]
    ephemeral: bool,
    #[command(flatten)]
    context: ContextArgs,
    /// Arguments for the agent's own program, after `--`, as they are
    #[arg(last = true, value_name = "AGENT_ARGUMENTS")]
    arguments: Vec<String>,
}

/// What an agent may do.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Level {
    /// Look
    Read,
    /// Look, and change files of the project
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
    let config = load_config(&args.context, &place.project)?;
    let settings = ContextSettings::new(&args.context, &config);
    let ephemeral = args.ephemeral.then(|| place.ephemeral());
    // What was found belongs to sessions of the store, which then are not these.
    let (place, found) = ephemeral.as_ref().map_or((place, found), |place| (place, &[]));
    let known = block_on(known_session(args, place, found))?;
    let mut choice = choose(&wanted(args, &config, known.as_ref()), &environment())?;
    if choice.is_fallback {
        tell("no agent is installed, so the built-in offline agent answers; it has no model behind it");
    }
    block_on(return_to_model(args, place, known.as_ref(), &mut choice))?;
    if !args.arguments.is_empty() && choice.agent.program() == Program::Ourselves {
        return Err(Failure::usage(format!("{} takes no arguments", choice.agent.name()))
            .with_hint("leave out what stands after `--`, or name another agent with `-a`"));
    }
    // What is wrong with the context is said before a session is made for it.
    let briefing = match &known {
        _ if args.ephemeral => settings.ephemeral()?,
        Some(record) => settings.briefing(block_on(read_beginning(&*place.store, record.id))?)?,
        None => settings.briefing(Beginning::Nothing)?,
    };
    // Kept until the turn is over: a store in memory has no folder of its own.
    let temporary;
    let spools = match place.spools() {
        Some(spools) => {
            place.prepare_spools()?;
            spools
        }
        None => {
            temporary = TemporaryFolder::create()?;
            Spools::new(temporary.path().join("spool"))
                .without_prompts()
                .with_bridges(place.environment().bridges())
        }
    };
    let interrupts = Interrupts::listen()?;
    let session = match &known {
        Some(record) => record.id,
        None => block_on(new_session(args, place))?,
    };
    let agent = choice.agent.name();
    let lease = match args.wait {
        true => wait_for_lease(place, &spools, &interrupts, session, agent)?,
        false => block_on(lease(place, &spools, session, agent))?,
    };
    let found = if args.ephemeral { Vec::new() } else { block_on(recover_again(place, found)) };
    let output_limit = config.output_limit();
    orphan::follow(place, &spools, &interrupts, &found, session, output_limit, out)?;
    warn_of_lost(&found, session);
    block_on(recover_original_run(place, session, lease.id()))?;
    // A turn that ended meanwhile may have had another agent or model.
    let before = known;
    let known = before.as_ref().map(|record| block_on(place.store.get(record.id))).transpose()?;
    let last = |record: &Option<SessionRecord>| {
        record.as_ref().map(|record| (record.counts.agent.clone(), record.counts.requested_model.clone()))
    };
    let choice = match last(&known) == last(&before) {
        true => choice,
        false => {
            let mut choice = choose(&wanted(args, &config, known.as_ref()), &environment())?;
            block_on(return_to_model(args, place, known.as_ref(), &mut choice))?;
            choice
        }
    };
    let (keep, briefing) = match block_on(read_beginning(&*place.store, session))? {
        _ if args.ephemeral => (Keep::Nothing, briefing),
        Beginning::Nothing if known.is_none() => (Keep::NewSession, briefing),
        // Somebody else may have made or begun the session meanwhile.
        beginning => (Keep::Session, settings.briefing(beginning)?),
    };
    introduce(args, session, known.as_ref(), keep, &choice, out)?;
    let mut writers = writers(None, Some(choice.agent.name()), &environment())?;
    // Who answers also writes, with the model that answers.
    if let Some(first) = writers.first_mut().filter(|first| first.agent.name() == choice.agent.name()) {
        first.model.clone_from(&choice.model);
    }
    let summarisers: Vec<Summariser<'_>> = writers.iter().map(Writer::summariser).collect();
    let compaction = AutoCompaction {
        threshold: config.compaction_threshold(),
        summarisers: &summarisers,
        timeout: PATIENCE,
    };
    let used_in = place.used_in();
    let request = Ask {
        session,
        expected_model: expected_model(known.as_ref(), &choice),
        used_in: Some(used_in.as_str()).filter(|_| !args.ephemeral),
        switches_model: switches_model(known.as_ref(), &choice),
        lease: lease.id(),
        choice: &choice,
        prompt: &prompt,
        permission: args.permission.map(Permission::from).or(config.permission()),
        timeout: args.timeout.or(config.timeout()),
        output_limit,
        briefing: &briefing,
        compaction: Some(&compaction).filter(|_| !args.ephemeral),
        keep,
        arguments: &args.arguments,
        claude_cache: config.claude_cache(),
    };
    take_turn(place, &spools, &interrupts, &request, out)?;
    out.flush()
}

/// Returns which agent and model are asked for, by the arguments, the session and the configuration.
fn wanted<'a>(args: &'a Args, config: &'a Config, known: Option<&'a SessionRecord>) -> Wanted<'a> {
    let counts = known.map(|record| &record.counts);
    Wanted {
        agent: args.agent.as_deref(),
        model: args.model.as_deref(),
        last_agent: counts.and_then(|counts| counts.agent.as_deref()),
        last_model: counts.and_then(|counts| counts.requested_model.as_deref()),
        configured_agent: config.agent(),
        configured_model: config.model(),
    }
}

/// How many events are searched for the last turn of an agent.
const FAR_ENOUGH: usize = 5_000;

/// Lets an agent that comes back to a session after another one use the model that it was last asked for there.
async fn return_to_model(
    args: &Args,
    place: &Workspace,
    known: Option<&SessionRecord>,
    choice: &mut AgentChoice,
) -> Result<(), Failure> {
    let agent = Some(choice.agent.name());
    let names_model = args.model.is_some() || args.agent.as_deref().is_some_and(|agent| agent.contains('/'));
    let Some(record) = known.filter(|record| record.counts.agent.as_deref() != agent && !names_model) else {
        return Ok(());
    };
    let (mut before, mut searched) = (Seq::END, 0);
    while searched < FAR_ENOUGH {
        let page = place.store.read(record.id, Page::Before(before, PAGE)).await?;
        let Some(first) = page.first() else { break };
        before = first.seq;
        searched += page.len();
        let starts = page.iter().rev().filter(|stored| stored.kind == "Init");
        for stored in starts {
            if let Ok(Event::Init(init)) = stored.event()
                && init.agent.as_deref() == agent
            {
                choice.model = init.requested_model.or(choice.model.take());
                return Ok(());
            }
        }
    }
    Ok(())
}

/// How many events are read at once.
const PAGE: usize = 200;

/// Finds the session to continue; `None` for a new one.
async fn known_session(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
) -> Result<Option<SessionRecord>, Failure> {
    if args.go_on {
        if let Some(running) = running_here(place, found) {
            return Ok(Some(place.store.get(running).await?));
        }
        return last_session(place).await?.map(Some).ok_or_else(|| {
            Failure::new("not_found", "there is no session in this worktree to continue")
                .with_hint("leave out `-c` to start one")
        });
    }
    if let Some(name) = &args.name {
        check_new_name(&*place.store, name, None).await?;
    }
    let Some(text) = &args.session else { return Ok(None) };
    let found = find(&*place.store, text).await?;
    if found.is_none() {
        check_name(text)?;
        confirm_new(text, similar(&*place.store, text).await?.as_ref())?;
    }
    Ok(found)
}

/// Returns the session of the turn that was started last of those that still run in this worktree: the store does not know
/// of it yet.
fn running_here(place: &Workspace, found: &[Recovered]) -> Option<SessionId> {
    let used_in = place.used_in();
    let running = found.iter().filter_map(|found| match found {
        Recovered::Running(turn, _) | Recovered::Orphan(turn, _) => Some(turn),
        _ => None,
    });
    running
        .filter(|turn| turn.used_in.as_deref() == Some(&used_in))
        .max_by(|one, other| one.started_at.cmp(&other.started_at))?
        .session_id()
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

/// Says whether the turn asks the session's agent for another model than the turn before.
fn switches_model(known: Option<&SessionRecord>, choice: &AgentChoice) -> bool {
    known.is_some_and(|record| {
        record.counts.agent.as_deref() == Some(choice.agent.name())
            && record.counts.requested_model != choice.model
    })
}

async fn new_session(args: &Args, place: &Workspace) -> Result<SessionId, Failure> {
    let name = args.session.clone().or_else(|| args.name.clone());
    let new = NewSession { name, worktree: place.project.worktree(), ..NewSession::default() };
    // However many ask for a new name at once, there is one session of it.
    if args.session.is_some() {
        return Ok(place.store.find_or_create(new).await?);
    }
    let id = place.store.create(new).await?;
    if let Some(name) = &args.name {
        keep_name(&*place.store, name, id).await?;
    }
    Ok(id)
}

/// Returns the model that probably answers a turn that asks for none: the one that answered last without a request.
fn expected_model<'a>(known: Option<&'a SessionRecord>, choice: &AgentChoice) -> Option<&'a str> {
    let is_alike = |counts: &&Counts| {
        counts.agent.as_deref() == Some(choice.agent.name())
            && (&counts.requested_model, &choice.model) == (&None, &None)
    };
    known.map(|record| &record.counts).filter(is_alike)?.model.as_deref()
}

/// Says which session this is, which agent answers and with which model.
fn introduce(
    args: &Args,
    session: SessionId,
    known: Option<&SessionRecord>,
    keep: Keep,
    choice: &AgentChoice,
    out: &mut Output,
) -> Result<(), Failure> {
    let agent = choice.agent.name();
    let model = choice.model.as_deref().or(expected_model(known, choice));
    let is_kept = keep != Keep::Nothing;
    if out.is_json() {
        let session = is_kept.then(|| session.to_string());
        out.json(&json!({ "session": session, "agent": agent, "model": model }))?;
        return out.flush();
    }
    let new_name = args.session.as_deref().or(args.name.as_deref());
    let name = match (known, new_name) {
        (Some(record), _) => called(record),
        (None, Some(name)) if is_kept => format!("{session} {}", visible_line(name)),
        (None, _) if is_kept => session.to_string(),
        (None, _) => "not stored".to_owned(),
    };
    let model = model.map(|model| format!(" · {}", visible_line(model)));
    tell(&format!("{name} · {agent}{}", model.unwrap_or_default()));
    Ok(())
}
