//! How a turn is run: by the request, the configuration and the session.

use std::path::PathBuf;
use std::sync::Arc;

use azureal_core::agent::{Permission, Program};
use azureal_core::{Event, Keep, PAGE_EVENTS, Page, Seq, SessionRecord, SessionStore, StoredEvent};
use azureal_engine::{CompactionOptions, Recall, RecordChanges, TurnOptions, TurnStart};
use futures_executor::block_on;
use std::time::Duration;

use super::context::ContextSettings;
use crate::agents::prompt_cache::{self, CacheChoice};
use crate::agents::{AgentChoice, SUMMARY_TIMEOUT, Wanted, choose, ephemeral, summarisers};
use crate::config::Config;
use crate::environment::Environment;
use crate::error::Error;

/// How many events are searched for the last turn of an agent.
const FAR_ENOUGH: usize = 5_000;

/// How a turn is to be run. What is `None` is as configured, or as in the turn before.
#[derive(Debug, Clone, Default)]
pub struct TurnSettings {
    /// The agent, such as `claude`, also with a model, `claude/opus`.
    pub agent: Option<String>,
    /// The model; `default` for the agent's own choice.
    pub model: Option<String>,
    /// What the agent may do without asking.
    pub permission: Option<Permission>,
    /// The longest time that the turn may take.
    pub timeout: Option<Duration>,
    /// What the agent receives besides the history.
    pub context: ContextSettings,
    /// Further arguments for the agent's program.
    pub arguments: Vec<String>,
    /// Stores nothing, neither the prompt nor the answer, and has the agent's program keep no transcript.
    pub is_ephemeral: bool,
}

/// Chooses the options of a turn.
pub(super) struct Planner {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) environment: Environment,
    /// The directory that the agent runs in.
    pub(super) directory: PathBuf,
    pub(super) config: Arc<Config>,
    pub(super) settings: TurnSettings,
    /// How agents look things up in the stored sessions, if that is possible.
    pub(super) recall: Option<Recall>,
}

impl Planner {
    pub(super) fn options(&self, start: &TurnStart<'_>) -> Result<TurnOptions, Error> {
        let Self { environment, config, settings, .. } = self;
        let mut choice = choose(&self.wanted(start.record()), environment)?;
        self.return_to_model(start, &mut choice)?;
        if !settings.arguments.is_empty() && choice.agent.program() == Program::Ourselves {
            return Err(Error::usage(format!("{} takes no arguments", choice.agent.name()))
                .with_hint("leave out what stands after `--`, or name another agent with `-a`"));
        }
        let AgentChoice { agent, model, program, is_fallback } = choice;
        let CacheChoice { cache, moves_git_status } = match agent.name() {
            "claude" => {
                prompt_cache::choose(config.claude_cache(), &program, &settings.arguments, environment)
            }
            _ => CacheChoice::OFF,
        };
        let mut options = TurnOptions {
            permission: settings.permission.or(config.permission()),
            timeout: settings.timeout.or(config.timeout()),
            output_limit: config.output_limit(),
            briefing: match settings.is_ephemeral {
                true => settings.context.ephemeral(config)?,
                false => settings.context.briefing(config, start.beginning())?,
            },
            compaction: match settings.is_ephemeral {
                true => None,
                false => Some(self.compaction(agent.name(), model.as_ref())?),
            },
            arguments: settings.arguments.clone(),
            cache,
            moves_git_status,
            changes: match config.find_record_changes().map(|found| *found.value) {
                Some(true) => RecordChanges::Always,
                Some(false) => RecordChanges::Off,
                None => RecordChanges::On,
            },
            recall: self.recall.clone().filter(|_| config.recall() && !settings.is_ephemeral),
            model,
            ..TurnOptions::new(agent, program)
        };
        if config.recall() && options.recall.is_none() && !settings.is_ephemeral {
            let why = "no recall in this turn: this program does not answer agents";
            options.notices.push(why.to_owned());
        }
        if is_fallback {
            let why =
                "no agent is installed, so the built-in offline agent answers; it has no model behind it";
            options.notices.push(why.to_owned());
        }
        if settings.is_ephemeral {
            options.notices.extend(ephemeral::check(agent, &options.program, &self.directory, environment)?);
        }
        if agent.name() == "claude" {
            let (program, arguments) = (options.program.clone(), options.arguments.clone());
            let environment = environment.clone();
            options.learn_cache = Some(Arc::new(move |seen| {
                prompt_cache::learn(&program, cache, seen, &arguments, &environment);
            }));
        }
        Ok(options)
    }

    /// Returns the agent and model that are asked for, by the settings, the session and the configuration.
    fn wanted<'a>(&'a self, record: Option<&'a SessionRecord>) -> Wanted<'a> {
        let counts = record.map(|record| &record.counts);
        Wanted {
            agent: self.settings.agent.as_deref(),
            model: self.settings.model.as_deref(),
            last_agent: counts.and_then(|counts| counts.agent.as_deref()),
            last_model: counts.and_then(|counts| counts.requested_model.as_deref()),
            configured_agent: self.config.agent(),
            configured_model: self.config.model(),
        }
    }

    fn compaction(&self, agent: &str, model: Option<&String>) -> Result<CompactionOptions, Error> {
        let mut summarisers = summarisers(None, Some(agent), &self.environment)?;
        // The agent that answers also writes the summary, with the model that answers.
        if let Some(first) = summarisers.first_mut().filter(|first| first.agent.name() == agent) {
            first.model = model.cloned();
        }
        Ok(CompactionOptions {
            threshold: self.config.compaction_threshold(),
            keep: Keep::Usual,
            summarisers,
            timeout: SUMMARY_TIMEOUT,
        })
    }

    /// Lets an agent that comes back to a session after another one use the model that it was last asked for there.
    fn return_to_model(&self, start: &TurnStart<'_>, choice: &mut AgentChoice) -> Result<(), Error> {
        let agent = choice.agent.name();
        let names_model = self.settings.model.is_some()
            || self.settings.agent.as_deref().is_some_and(|agent| agent.contains('/'));
        let Some(record) = start.record() else { return Ok(()) };
        let is_last = record.counts.agent.as_deref() == Some(agent);
        if names_model || is_last || record.counts.agent.is_none() {
            return Ok(());
        }
        let last_run = match start.events() {
            Some(events) => last_run(agent, events),
            None => block_on(self.read_last_run(agent, record))?,
        };
        if let Some(requested) = last_run {
            choice.model = requested.or(choice.model.take());
        }
        Ok(())
    }

    /// Reads back to the last run of an agent.
    async fn read_last_run(
        &self,
        agent: &str,
        record: &SessionRecord,
    ) -> Result<Option<Option<String>>, Error> {
        let (mut before, mut searched) = (Seq::END, 0);
        while searched < FAR_ENOUGH {
            let page = self.store.read(record.id, Page::Before(before, PAGE_EVENTS)).await?;
            let Some(first) = page.first() else { break };
            before = first.seq;
            searched += page.len();
            if let Some(requested) = last_run(agent, &page) {
                return Ok(Some(requested));
            }
        }
        Ok(None)
    }
}

/// Returns the model that the last of these runs of an agent asked for; `None` without such a run.
fn last_run(agent: &str, events: &[StoredEvent]) -> Option<Option<String>> {
    let starts = events.iter().rev().filter(|stored| stored.kind == "Init");
    starts.filter_map(|stored| stored.event().ok()).find_map(|event| match event {
        Event::Init(init) if init.agent.as_deref() == Some(agent) => Some(init.requested_model),
        _ => None,
    })
}
