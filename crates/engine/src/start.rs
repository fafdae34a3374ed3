//! Starting the agent of a turn, and watching over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use azureal_core::agent::{AgentOutput, AgentRequest, Exit, PromptCache};
use azureal_core::bridge::BridgeLimits;
use azureal_core::{ContextFrame, Event};
use azureal_process::Stream;
use tracing::info;

use crate::drive::{Driver, Message, Observed, Run, TurnTask};
use crate::engine::RunningTurn;
use crate::growth::Growth;
use crate::header::SpooledProcess;
use crate::launch::Launch;
use crate::output_limit::guard;
use crate::spool::SpoolError;
use crate::turn_event::{Began, TurnEvent};
use crate::turn_machine::Input;
use crate::watch::Watcher;

/// The longest output that is looked at for a refusal. A program whose first request is refused prints a few lines.
const REFUSED_BYTES: u64 = 1 << 20;

/// The prompt of an agent that continues after a compaction. Nobody typed it, so it is never stored.
pub(crate) const GO_ON: &str = "Go on with the work where the record ends. This is no new request: you were interrupted in the middle \
    of it, to summarise the older part of a session that had become long. Do not begin again, and do not repeat what is done.";

impl Driver {
    pub(crate) fn start(&mut self, frame: ContextFrame) -> Result<(), String> {
        let TurnTask { engine, options, .. } = &self.task;
        let Some(run) = &mut self.run else { return Err("there is no run to start".to_owned()) };
        let request = AgentRequest {
            frame,
            recall: run.recall.as_ref().map(|recall| recall.server.clone()),
            ..options.request(engine.in_git)
        };
        let has_breakpoint =
            matches!(request.cache, PromptCache::Breakpoint(_)) && !request.frame.sealed.is_empty();
        run.with_breakpoint = has_breakpoint.then(|| request.clone());
        self.launch(&request)
    }

    /// Sends the same without a breakpoint. The output goes to the same spool, whose parser knows.
    pub(crate) fn start_again(&mut self) -> Result<(), String> {
        let request = self.run.as_mut().and_then(|run| run.with_breakpoint.take());
        let Some(request) = request else { return Err("there is nothing to send again".to_owned()) };
        self.notice("the provider refused a cache breakpoint; asking again without it");
        if let Some(run) = &self.run {
            if let Some(agent) = &run.agent {
                // What it left behind would write into the same output.
                self.cancel(agent);
                self.task.slots.lock().free(agent.process().pid);
            }
            // A reader of the first start reads no further: a slow one comes to it when the second has printed.
            run.output_end.store(run.spool.output_length(), Ordering::SeqCst);
        }
        self.launch(&AgentRequest { cache: PromptCache::Segments, ..request })
    }

    /// Says whether the agent's program ended because its first request was refused for our breakpoint.
    pub(crate) fn is_refused(&self) -> bool {
        let Some(Run { spool, agent: Some(ended), with_breakpoint: Some(_), .. }) = &self.run else {
            return false;
        };
        if !matches!(ended.exit(), Some(Exit::Code(1..))) || spool.printed() > REFUSED_BYTES {
            return false;
        }
        let agent = self.task.options.agent;
        let Ok(mut watcher) = Watcher::of_turn(spool.output_path(), agent, spool.turn(), None) else {
            return false;
        };
        let (mut is_refused, mut has_begun) = (false, false);
        let read = watcher.read_to_end(|output| match output {
            AgentOutput::Cache(seen) => is_refused |= seen.refusal.is_some(),
            AgentOutput::Event(Event::Init(_) | Event::ModelSwitch(_) | Event::Hook(_)) => {}
            AgentOutput::Event(_) => has_begun = true,
            _ => {}
        });
        // A line that was cut off would take the first one of the second start along.
        read.is_ok_and(|fragment| fragment.is_empty()) && is_refused && !has_begun
    }

    /// Returns what watches over how much a turn adds; `None` where that is not to be stopped, or there was no room
    /// to begin with.
    fn growth(&self, frame: &ContextFrame) -> Option<Growth> {
        let compaction = self.task.options.compaction.as_ref().filter(|_| !self.was_compacted)?;
        let (_, record_chars) = self.run.as_ref()?.session.as_ref()?;
        let told = record_chars.saturating_add(frame.prompt.chars().count() as u64);
        let room = compaction.threshold.chars().checked_sub(told)?;
        Some(Growth::new(room))
    }

    /// Starts the agent's program.
    fn launch(&mut self, request: &AgentRequest) -> Result<(), String> {
        let growth = self.growth(&request.frame);
        let (controls, sender) = (self.task.controls.clone(), self.sender.clone());
        let TurnTask { engine, options, slots, session, .. } = &self.task;
        let Some(run) = &mut self.run else { return Err("there is no run to start".to_owned()) };
        let from = run.spool.output_length();
        let text = |error: SpoolError| error.to_string();
        let limit = options.output_limit.on_disk_of(engine.spools.folder());
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let output = [run.spool.output().map_err(text)?, run.spool.errors().map_err(text)?];
        let launch = Launch {
            agent: options.agent,
            program: &options.program,
            directory: &engine.directory,
            environment: &engine.environment,
            spools: &engine.spools,
            run: &run.spool.turn().run,
            session: Some(*session),
            limits: BridgeLimits {
                // As long as we live, we are the first to notice.
                output_bytes: limit.kill(),
                turn_ms: left.map_or(BridgeLimits::default().turn_ms, |left| {
                    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
                }),
                ..BridgeLimits::default()
            },
        };
        // A file, because it is there after us: the agent may outlive us and continue to write.
        let errors = Stream::File(run.spool.errors().map_err(text)?);
        let agent = launch
            .start(request, run.spool.output().map_err(text)?, errors)
            .map_err(|error| error.with_hint())?;
        let process = agent.process().clone();
        info!(
            %session,
            run = run.spool.turn().run,
            agent = options.agent.name(),
            program = ?options.program,
            pid = process.pid,
            "started the agent"
        );
        slots
            .lock()
            .take(process.pid, RunningTurn { session: *session, agent: options.agent.name(), controls });
        if run.agent.replace(agent.clone()).is_none() {
            run.started = Instant::now();
        }
        run.output_end = Arc::new(AtomicU64::new(u64::MAX));
        let before = engine.changes.as_ref().zip(run.before.as_ref());
        let before = before.and_then(|(recorder, before)| recorder.note(before));
        let noted = SpooledProcess { pid: process.pid, began: process.started.clone(), before };
        // If this fails it runs all the same, and can be found by the variable that it carries.
        let noted = run.spool.note_process(noted);
        if run.spool.cancel_sign().is_set_by_another() {
            // It saw no agent that could be ended. If it has not noted that yet, it finds the agent in the header.
            drop(sender.send(Message::Input(Input::Cancel)));
        }
        let turn = run.spool.turn();
        let watch = |process| {
            Watcher::of_run(run.spool.output_path(), from, options.agent, turn, Some(process))
                .map(|watcher| watcher.ending_at(&run.output_end))
        };
        let began = run.session.as_ref().map(|(record, _)| Began {
            run: turn.run.clone(),
            prompt: turn.prompt.clone(),
            process: process.clone(),
            control: agent.control().cloned(),
            continues: turn.goes_on,
            record: record.clone(),
        });
        let (watched, observed) = (watch(process.clone()), watch(process));
        let name = turn.run.clone();
        if let Err(error) = noted {
            self.notice(error.to_string());
        }
        if let Some(began) = began {
            self.post(TurnEvent::Began(Box::new(began)));
        }
        match watched {
            Ok(watcher) => self.post_watcher(watcher),
            // Not being able to watch does not stop the turn.
            Err(error) => self.notice(error.to_string()),
        }
        // Threads of their own, so that prompts and cancels are received meanwhile. Two, because an agent may print faster
        // than it can be read: its end must not wait for that. A driver that has gone needs neither.
        if let Ok(watcher) = observed {
            let (sender, run) = (sender.clone(), name.clone());
            thread::spawn(move || {
                observe(watcher, growth, &mut |what| {
                    drop(sender.send(Message::Observed { run: run.clone(), what }));
                });
            });
        }
        thread::spawn(move || {
            guard(&agent, &output, limit, |printed| {
                let what = Observed::Printed(printed, limit);
                drop(sender.send(Message::Observed { run: name.clone(), what }));
            });
            drop(sender.send(Message::Input(Input::Exited)));
        });
        Ok(())
    }
}

/// Reads the output along, until the agent has named the run and, where that is watched, the session has become too long.
fn observe(mut watcher: Watcher, mut growth: Option<Growth>, report: &mut dyn FnMut(Observed)) {
    let mut is_named = false;
    while !is_named || growth.is_some() {
        // An output that cannot be read is not worth an error here: it is read again when it is stored.
        let Ok(Some(outputs)) = watcher.next_outputs() else { return };
        for output in outputs {
            let AgentOutput::Event(event) = output else { continue };
            if let Event::Init(init) = &event
                && !is_named
            {
                is_named = true;
                init.agent_session.clone().map(Observed::Named).into_iter().for_each(&mut *report);
            }
            if growth.as_mut().is_some_and(|growth| growth.is_full_with(&event)) {
                growth = None;
                report(Observed::Full);
            }
        }
    }
}
