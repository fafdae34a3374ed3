use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use azureal_core::agent::Permission;
use azureal_core::{
    Beginning, ListQuery, NewSession, SessionId, SessionRecord, read_beginning, visible_line,
};
use azureal_engine::{AutoCompaction, Recovered, Spools, Summariser};
use azureal_process::ProcessIdentity;
use futures_executor::block_on;
use serde_json::json;
use tempfile::TempDir;

use crate::agent_choice::{AgentChoice, Wanted, choose};
use crate::context_settings::{ContextArgs, ContextSettings, load_config};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::one_turn::{lease, wait_for_lease};
use crate::orphan;
use crate::output::{Output, tell};
use crate::place::Place;
use crate::prompt;
use crate::recovery::{recover_again, warn_of_lost};
use crate::resolve::{called, resolve};
use crate::turn::{Ask, Keep, take_turn};
use crate::writers::{PATIENCE, Writer, writers};

/// Send a prompt to an agent, and keep what it says and does
///
/// A new session, unless `-c` or `-s` says which one goes on. Whoever answers is told the history of the session
/// first, whichever agents it was with. Without `-a` and `-m` that is the session's last agent, else the
/// configured one, else the first that is installed, else the built-in offline agent.
///
/// The prompt is the argument, or standard input, or both: what is piped in becomes a block after the
/// argument. With an argument, a pipe that stays open and silent is not waited for.
///
/// The agent's text and tool calls go to standard output, everything else to standard error. With `--json`, one
/// line says session, agent and model, then comes one event per line as it happens, `{"kind","data"}`, text as it
/// is being written as `{"delta":"…"}`, and last, when the turn is stored, `Complete` with `first_seq`,
/// `seq` and `context`, which says how full the session is. One that becomes too full is compacted by itself.
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
  azureal run --permission edit --timeout 600 \"Update the changelog\"")]
pub(crate) struct Args {
    /// What to ask
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Go on with the session of this worktree that was active last
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    go_on: bool,
    /// Go on with this session; a name that is new makes one
    #[arg(short = 's', long, value_name = "SESSION")]
    session: Option<String>,
    /// Name the new session
    #[arg(long, value_name = "NAME", conflicts_with_all = ["go_on", "session"])]
    name: Option<String>,
    /// Who answers: claude, codex or offline, or with a model, claude/opus
    #[arg(short = 'a', long, value_name = "AGENT")]
    agent: Option<String>,
    /// The model, which also says whose it is
    #[arg(short = 'm', long, value_name = "MODEL")]
    model: Option<String>,
    /// Stop the turn after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Wait while somebody else runs a turn in the session
    #[arg(long)]
    wait: bool,
    /// What the agent may do without asking; its own default without it
    #[arg(long, value_name = "LEVEL")]
    permission: Option<Level>,
    /// Store nothing, neither the prompt nor the answer
    #[arg(long, conflicts_with_all = ["go_on", "session", "name"])]
    ephemeral: bool,
    #[command(flatten)]
    context: ContextArgs,
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

fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "not a number of seconds above 0".to_owned())
}

pub(crate) fn run(args: &Args, place: &Place, found: &[Recovered], out: &mut Output) -> Result<(), Failure> {
    let prompt = prompt::gather(args.prompt.as_deref())?;
    let config = load_config(&args.context, &place.project)?;
    let settings = ContextSettings::new(&args.context, &config);
    let ephemeral = args.ephemeral.then(|| place.ephemeral());
    // What was found belongs to sessions of the store, which then are not these.
    let (place, found) = ephemeral.as_ref().map_or((place, found), |place| (place, &[]));
    let known = block_on(known_session(args, place))?;
    let last_agent = known.as_ref().and_then(|record| record.counts.agent.as_deref());
    let wanted = Wanted {
        agent: args.agent.as_deref(),
        model: args.model.as_deref(),
        last_agent,
        configured_agent: config.agent(),
        configured_model: config.model(),
    };
    let choice = choose(&wanted)?;
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
            temporary = temporary_folder()?;
            Spools::new(temporary.path().join("spool")).without_prompts()
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
    orphan::follow(place, &spools, &interrupts, &found, session, out)?;
    warn_of_lost(&found, session);
    let (keep, briefing) = match block_on(read_beginning(&*place.store, session))? {
        _ if args.ephemeral => (Keep::Nothing, briefing),
        Beginning::Nothing if known.is_none() => (Keep::NewSession, briefing),
        // Somebody else may have made or begun the session meanwhile.
        beginning => (Keep::Session, settings.briefing(beginning)?),
    };
    introduce(session, known.as_ref(), keep, &choice, out)?;
    let mut writers = writers(None, Some(choice.agent.name()))?;
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
    let ask = Ask {
        session,
        lease: lease.id(),
        choice: &choice,
        prompt: &prompt,
        permission: args.permission.map(Permission::from),
        timeout: args.timeout,
        briefing: &briefing,
        compaction: Some(&compaction).filter(|_| !args.ephemeral),
        keep,
    };
    take_turn(place, &spools, &interrupts, &ask, out)?;
    out.flush()
}

/// What the folders of turns that are not kept begin with; the process that made one follows.
const TEMPORARY: &str = "azureal-";

/// Makes a folder for a turn of which nothing is kept, and removes those that others could not remove because they were
/// killed.
fn temporary_folder() -> Result<TempDir, Failure> {
    let parent = std::env::temp_dir();
    for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let maker = name.strip_prefix(TEMPORARY).and_then(|rest| rest.split('-').next());
        let is_left = maker
            .and_then(|pid| pid.parse().ok())
            .is_some_and(|pid| ProcessIdentity::of(pid).is_none_or(|maker| !maker.is_alive()));
        let is_ours = |found: &fs::Metadata| {
            found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0
        };
        if is_left && entry.metadata().is_ok_and(|found| is_ours(&found)) {
            // What does not go now goes another time.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    let mut builder = tempfile::Builder::new();
    let prefix = format!("{TEMPORARY}{}-", std::process::id());
    builder.prefix(&prefix).permissions(fs::Permissions::from_mode(0o700));
    builder.tempdir().map_err(|error| Failure::file(&parent, &error))
}

/// Finds the session that goes on; nothing if it is to be made.
async fn known_session(args: &Args, place: &Place) -> Result<Option<SessionRecord>, Failure> {
    if args.go_on {
        let query = ListQuery { worktree: Some(place.project.worktree_filter()), limit: Some(1) };
        let newest = place.store.list(&query).await?.pop();
        return newest.map(Some).ok_or_else(|| {
            Failure::new("not_found", "there is no session in this worktree that could go on")
                .with_hint("leave `-c` out to begin one")
        });
    }
    let Some(text) = &args.session else { return Ok(None) };
    match resolve(&*place.store, text).await {
        Ok(record) => Ok(Some(record)),
        // Numbers are given, not chosen.
        Err(failure) if failure.kind() == "not_found" && text.parse::<SessionId>().is_err() => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn new_session(args: &Args, place: &Place) -> Result<SessionId, Failure> {
    let name = args.session.clone().or_else(|| args.name.clone());
    let new = NewSession { name, worktree: place.project.worktree(), ..NewSession::default() };
    // However many ask for a new name at once, there is one session of it.
    Ok(if args.session.is_some() {
        place.store.find_or_create(new).await?
    } else {
        place.store.create(new).await?
    })
}

/// Says which session this is and who answers.
fn introduce(
    session: SessionId,
    known: Option<&SessionRecord>,
    keep: Keep,
    choice: &AgentChoice,
    out: &mut Output,
) -> Result<(), Failure> {
    let agent = choice.agent.name();
    let is_kept = keep != Keep::Nothing;
    if out.is_json() {
        let session = is_kept.then(|| session.to_string());
        out.json(&json!({ "session": session, "agent": agent, "model": choice.model }))?;
        return out.flush();
    }
    let name = match known {
        Some(record) => called(record),
        None if is_kept => session.to_string(),
        None => "not stored".to_owned(),
    };
    let model = choice.model.as_deref().map(|model| format!(" · {}", visible_line(model)));
    tell(&format!("{name} · {agent}{}", model.unwrap_or_default()));
    Ok(())
}
