//! One compaction of a session: where it ends, who writes the summary, and whether it is worth keeping.
//!
//! The summary is written by an agent in a process of its own, without tools, from the earlier summary and
//! the events since. An agent that fails is not asked again: the next one is, and in the end the digest,
//! which needs no model. An agent whose program continues to call its model is stopped. So it always ends, with a bounded number of
//! calls. Nothing of these runs is kept but what they used: no spool, no event. While one runs, there is a note of it (`summary_note.rs`).

use std::ffi::OsString;
use std::fs::File;
use std::time::{Duration, Instant};

use azureal_core::agent::{Agent, AgentOutput, AgentRequest, Ending, Permission, PromptCache};
use azureal_core::bridge::BridgeLimits;
use azureal_core::event::Outcome;
use azureal_core::{
    Boundary, Compaction, Context, ContextBuilder, ContextFrame, Digest, Event, Holder, Ledger,
    OpeningLimits, PAGE_EVENTS, Page, SUMMARY_PROMPT, Seq, SessionId, SessionStore, StoreError, Threshold,
    Tokens, boundary, read_context_for, read_context_under, rendered_chars,
};
use azureal_process::Stream;
use futures_executor::block_on;
use rustix::fs::OFlags;
use tracing::info;

use crate::clock::until_now;
use crate::engine::EngineOptions;
use crate::header::{SpooledProcess, SpooledTurn};
use crate::launch::{AgentRun, Launch, STDERR_BYTES};
use crate::lease::{Leased, this_process};
use crate::request::{CompactionOptions, Summariser};
use crate::spool::{SpoolError, Spools, at};
use crate::summary_note::{ANSWER, AT_ONCE};
use crate::turn_event::TurnEvent;
use crate::watch::{Look, Watcher};

/// How long a summary may be for a model that is not told otherwise, in characters.
const MOST_CHARS: usize = 4_000;
/// What must be there to be saved, in characters, before anybody is asked for a summary.
const LEAST_GAIN: usize = 1_000;
/// A summary of fewer characters than this is none, for a record of more than [`LONG_RECORD`].
const LEAST_CHARS: usize = 500;
/// The length from which a record cannot be summarised in a sentence or two, in characters.
const LONG_RECORD: usize = 50_000;
/// How much an agent is told in characters; what is older is told as its digest. A model takes so much.
const RECORD_CHARS: u64 = 800_000;
/// How much an agent may print before it is stopped.
const MOST_OUTPUT: u64 = 16 << 20;
/// How often an agent's program may turn to its model again, be it because of a tool or because a request failed.
const MOST_AGAIN: u32 = 1;
/// How many texts an agent may say. Not all that a program asks its model again for is told, but what it says then is.
const MOST_TEXTS: usize = 3;
/// How often a running agent is looked after.
const PACE: Duration = Duration::from_millis(20);

/// The author of a summary that no agent wrote.
pub const DIGEST: &str = "digest";

/// A session that is compacted, and how.
#[derive(Clone, Copy)]
pub(crate) struct Compactor<'a> {
    pub(crate) engine: &'a EngineOptions,
    pub(crate) session: SessionId,
    pub(crate) options: &'a CompactionOptions,
    /// Returns whether the user wants it to stop.
    pub(crate) is_cancelled: &'a dyn Fn() -> bool,
}

/// A summary, and what it is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summarised {
    /// Where it ends.
    pub boundary: Boundary,
    /// The summary.
    pub summary: String,
    /// The agent that wrote it; `None` if it is the digest.
    pub agent: Option<String>,
    /// The author as it is stored: an agent, `agent/model`, or [`DIGEST`].
    pub writer: String,
    /// The agents that were asked before and gave none, with the reason.
    pub failed: Vec<(String, String)>,
    /// What the next agent was told before, in characters.
    pub chars_before: usize,
    /// What the next agent is told with it.
    pub chars_after: usize,
    /// The part of it that stands for the covered events.
    pub opening_chars: u64,
    /// What was used to write it, also by those who gave none, as far as they said.
    pub used: Tokens,
}

impl Summarised {
    /// Says whether so little was gained that another compaction is not worth trying: less than a fifth.
    pub fn frees_little(&self) -> bool {
        let freed = self.chars_before.saturating_sub(self.chars_after);
        freed.saturating_mul(5) < self.chars_before
    }
}

/// Why a session was not compacted. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder of the spools cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Another process compacts this session right now.
    #[error("{session} is being compacted{}", who(.holder.as_ref()))]
    Busy {
        /// The session.
        session: SessionId,
        /// Who does.
        holder: Option<Holder>,
    },
    /// The person did not want to wait.
    #[error("the compaction was cancelled")]
    Cancelled,
}

fn who(holder: Option<&Holder>) -> String {
    holder
        .map_or_else(String::new, |holder| format!(" by process {} {}", holder.pid, until_now(&holder.since)))
}

/// Compacts a session, and returns the summary that is now laid over it; nothing if there is nothing to gain.
///
/// One at a time: while another process does it, this is [`CompactionError::Busy`].
pub(crate) fn compact(
    setup: &Compactor<'_>,
    report: &mut dyn FnMut(TurnEvent),
) -> Result<Option<Summarised>, CompactionError> {
    let session = setup.session;
    let holder = this_process(setup.options.summarisers.first().map_or(DIGEST, |first| first.agent.name()));
    let _lease = match setup.engine.spools.lease_compaction(session, &holder)? {
        Leased::Ours(lease) => lease,
        Leased::Theirs(holder) => return Err(CompactionError::Busy { session, holder }),
    };
    let summarised = summarise(setup, report)?;
    if (setup.is_cancelled)() {
        return Err(CompactionError::Cancelled);
    }
    if let Some(Summarised { boundary, summary, writer, used, opening_chars, .. }) = &summarised {
        let compaction = Compaction {
            writer: Some(writer.clone()),
            opening_chars: Some(*opening_chars),
            ..Compaction::new(boundary.after_seq, summary)
        };
        block_on(setup.engine.store.add_compaction(session, &compaction))?;
        // The summary is laid, whether this is counted or not.
        drop(block_on(setup.engine.store.add_tokens(session, *used)));
    }
    Ok(summarised)
}

/// Writes the summary that [`compact`] would lay over the session, and changes nothing.
pub(crate) fn summarise(
    setup: &Compactor<'_>,
    report: &mut dyn FnMut(TurnEvent),
) -> Result<Option<Summarised>, CompactionError> {
    let Some(work) = Work::find(setup)? else { return Ok(None) };
    let (mut failed, mut used) = (Vec::new(), Tokens::default());
    for summariser in &setup.options.summarisers {
        if (setup.is_cancelled)() {
            return Err(CompactionError::Cancelled);
        }
        let agent = summariser.agent.name();
        report(TurnEvent::Summarising { agent: agent.to_owned() });
        let why = match work.ask(setup, summariser, &mut used) {
            Ok(Written { summary, model }) => {
                let after = work.context_with(setup, &summary)?;
                if after.chars().count() < work.chars_before {
                    let author = Author { agent, model: model.as_deref() };
                    return Ok(Some(work.summarised(summary, Some(author), failed, &after, used)));
                }
                "its summary would not make the context smaller".to_owned()
            }
            Err(Unusable::Cancelled) => return Err(CompactionError::Cancelled),
            Err(Unusable::Because(why)) => why,
        };
        // Not why: that may be text of the agent.
        info!(session = %setup.session, agent, "a summary cannot be used");
        report(TurnEvent::NotSummarised { agent: agent.to_owned(), why: why.clone() });
        failed.push((agent.to_owned(), why));
    }
    let digest = work.digest();
    let after = work.context_with(setup, &digest)?;
    let is_worth_it = !digest.is_empty() && after.chars().count() < work.chars_before;
    Ok(is_worth_it.then(|| work.summarised(digest, None, failed, &after, used)))
}

/// What there is to summarise.
struct Work {
    boundary: Boundary,
    earlier: Option<String>,
    covered: Vec<(Seq, Event)>,
    chars_before: usize,
    /// How long the summary may be.
    most: usize,
}

/// A summary by an agent.
struct Written {
    summary: String,
    /// The model, if it is known.
    model: Option<String>,
}

/// An agent that wrote a summary, and its model if that is known.
struct Author<'a> {
    agent: &'a str,
    model: Option<&'a str>,
}

/// Why an agent's answer is not taken.
enum Unusable {
    Cancelled,
    Because(String),
}

impl Work {
    /// Finds what a summary would cover; nothing if there is nothing to gain.
    fn find(setup: &Compactor<'_>) -> Result<Option<Self>, CompactionError> {
        let earlier = block_on(setup.engine.store.compactions(setup.session))?.pop();
        let after = earlier.as_ref().map_or(Seq::START, |earlier| earlier.after_seq);
        let mut events = read_events(&*setup.engine.store, setup.session, after)?;
        let Some(boundary) = boundary(&events, setup.options.threshold, setup.options.keep) else {
            return Ok(None);
        };
        let threshold = setup.options.threshold;
        let context = block_on(read_context_for(&*setup.engine.store, setup.session, threshold))?;
        let chars_before = context.chars().count();
        events.truncate(events.partition_point(|(seq, _)| *seq <= boundary.after_seq));
        // The system message stays as it is. To the writer of the summary it would be an instruction.
        let is_told = |event: &Event| !matches!(event, Event::SystemMessage(_));
        events.retain(|(_, event)| is_told(event));
        let mut work = Self {
            boundary,
            earlier: earlier.map(|earlier| earlier.summary),
            covered: events,
            chars_before,
            most: 0,
        };
        let gain = chars_before.saturating_sub(work.context_with(setup, "")?.chars().count());
        work.most = (gain / 2).min(OpeningLimits::of(threshold).summary);
        Ok((gain >= LEAST_GAIN).then_some(work))
    }

    /// Returns the context of the next agent with this summary.
    fn context_with(&self, setup: &Compactor<'_>, summary: &str) -> Result<Context, CompactionError> {
        let compaction = Compaction::new(self.boundary.after_seq, summary);
        let (store, threshold) = (&*setup.engine.store, setup.options.threshold);
        Ok(block_on(read_context_under(store, setup.session, Some(&compaction), threshold))?)
    }

    fn summarised(
        &self,
        summary: String,
        author: Option<Author<'_>>,
        failed: Vec<(String, String)>,
        after: &Context,
        used: Tokens,
    ) -> Summarised {
        let writer = match &author {
            None => DIGEST.to_owned(),
            Some(Author { agent, model: None }) => (*agent).to_owned(),
            Some(Author { agent, model: Some(model) }) => format!("{agent}/{model}"),
        };
        Summarised {
            boundary: self.boundary,
            summary,
            agent: author.map(|author| author.agent.to_owned()),
            writer,
            failed,
            chars_before: self.chars_before,
            chars_after: after.chars().count(),
            opening_chars: after.opening_chars(),
            used,
        }
    }

    fn digest(&self) -> String {
        digest_of(self.earlier.as_deref(), &self.covered, self.most)
    }

    /// Returns what an agent is told: the earlier summary, and the events since. Where that is more than a
    /// model takes, the oldest are told as their digest.
    fn record(&self) -> String {
        let mut room = RECORD_CHARS;
        let fitting = self.covered.iter().rev().take_while(|(_, event)| {
            match room.checked_sub(rendered_chars(event)) {
                Some(left) => {
                    room = left;
                    true
                }
                None => false,
            }
        });
        let (older, newer) = self.covered.split_at(self.covered.len() - fitting.count());
        let limits = OpeningLimits::of(Threshold::default());
        let summary = if older.is_empty() {
            self.earlier.clone()
        } else {
            Some(digest_of(self.earlier.as_deref(), older, limits.summary))
        };
        let mut record = ContextBuilder::new(None, summary.as_deref());
        let newest_first = older.iter().rev().map(|(seq, event)| (*seq, event));
        record.ledger(&Ledger::of(newest_first, limits.ledger).render(limits.ledger));
        newer.iter().for_each(|(_, event)| record.push(event));
        record.finish().into_string()
    }

    /// Asks one agent, once, and adds what that took.
    fn ask(
        &self,
        setup: &Compactor<'_>,
        summariser: &Summariser,
        used: &mut Tokens,
    ) -> Result<Written, Unusable> {
        let record = self.record();
        let mut prompt = SUMMARY_PROMPT.to_owned();
        if self.most < MOST_CHARS {
            prompt.push_str(&format!(" This record is short: write at most {} characters.", self.most));
        }
        let request = AgentRequest {
            // A question that is asked once: nothing of it is worth a place in a cache.
            frame: ContextFrame::new(record.as_str(), "", &prompt),
            cache: PromptCache::Off,
            model: summariser.model.clone(),
            permission: Some(Permission::Answer),
            in_git: setup.engine.in_git,
            settings: summariser.settings.clone(),
            arguments: Vec::new(),
            is_ephemeral: true,
            recall: None,
        };
        let answer = run(setup, summariser, &request)?;
        *used = *used + answer.used;
        let model = answer.model.clone().or_else(|| summariser.model.clone());
        let said = answer.finish().map_err(Unusable::Because)?;
        let summary = judge(&said, &record).map_err(Unusable::Because)?;
        Ok(Written { summary: within(summary, self.most), model })
    }
}

fn read_events(
    store: &dyn SessionStore,
    session: SessionId,
    mut after: Seq,
) -> Result<Vec<(Seq, Event)>, StoreError> {
    let mut events = Vec::new();
    loop {
        let page = block_on(store.read(session, Page::After(after, PAGE_EVENTS)))?;
        let Some(last) = page.last() else { return Ok(events) };
        after = last.seq;
        events.extend(page.into_iter().map(|stored| {
            // As in the context: a hole is told, and does not pass for nothing.
            let event = stored.event().unwrap_or_else(|damage| Event::error("damaged", damage.to_string()));
            (stored.seq, event)
        }));
    }
}

fn digest_of(earlier: Option<&str>, events: &[(Seq, Event)], most: usize) -> String {
    let mut digest = earlier.map(Digest::after).unwrap_or_default();
    events.iter().for_each(|(_, event)| digest.push(event));
    digest.finish_within(most)
}

/// Runs an agent and returns what it said.
fn run(setup: &Compactor<'_>, who: &Summariser, request: &AgentRequest) -> Result<Answer, Unusable> {
    let because = |why: String| Unusable::Because(why);
    let run = uuid::Uuid::new_v4().simple().to_string();
    let noted = SpooledTurn {
        run: run.clone(),
        session: setup.session.number(),
        session_made: String::new(),
        after: 0,
        generation: None,
        prompt: String::new(),
        goes_on: false,
        agent: who.agent.name().to_owned(),
        model: who.model.clone(),
        switches_model: false,
        used_in: None,
        directory: setup.engine.directory.clone(),
        started_at: crate::clock::now_text(),
    };
    // An agent that cannot be noted is not started: nobody would find it if this process were killed.
    let mut note = setup.engine.spools.note_summary(noted).map_err(|error| because(error.to_string()))?;
    let mut output = Output::open(&setup.engine.spools, who.agent, &run).map_err(because)?;
    let stdout = output.file.try_clone().map_err(|error| because(error.to_string()))?;
    let launch = Launch {
        agent: who.agent,
        program: &who.program,
        directory: &setup.engine.directory,
        environment: &setup.engine.environment,
        spools: &setup.engine.spools,
        run: &run,
        session: None,
        limits: BridgeLimits::default(),
    };
    let started = Instant::now();
    let agent = launch
        .start(request, stdout, Stream::Keep(STDERR_BYTES))
        .map_err(|error| because(error.to_string()))?;
    let process = agent.process().clone();
    // If this fails, it is found by the variable that it carries.
    note.note_process(SpooledProcess { pid: process.pid, began: process.started, before: None }).ok();
    let mut answer = Answer::default();
    let stopped = attend(setup, &agent, &mut output, &mut answer, started);
    // Also when it ended by itself: what it started ends with it.
    agent.cancel(&AT_ONCE);
    drop(note);
    let exit = agent.exit();
    stopped?;
    output.check_size().map_err(Unusable::Because)?;

    let mut watcher = output.watcher;
    let fragment =
        watcher.read_to_end(|output| answer.take(output)).map_err(|error| because(error.to_string()))?;
    let ending =
        Ending { exit, stderr: agent.stderr(), fragment, duration: started.elapsed(), stopped: None };
    watcher.end(&ending).into_iter().for_each(|output| answer.take(output));
    Ok(answer)
}

/// Waits for an agent and reads what it prints, and says why it must be stopped if it must.
///
/// One read, then all checks: an agent that prints faster than this reads would otherwise never be stopped.
fn attend(
    setup: &Compactor<'_>,
    agent: &AgentRun,
    output: &mut Output,
    answer: &mut Answer,
    started: Instant,
) -> Result<(), Unusable> {
    let because = |why: String| Err(Unusable::Because(why));
    let mut cancel_checked: Option<Instant> = None;
    loop {
        // The answer may be in a file.
        if cancel_checked.is_none_or(|checked| checked.elapsed() >= PACE) {
            cancel_checked = Some(Instant::now());
            if (setup.is_cancelled)() {
                return Err(Unusable::Cancelled);
            }
        }
        if started.elapsed() > setup.options.timeout {
            return because(format!("it took longer than {} seconds", setup.options.timeout.as_secs_f64()));
        }
        output.check_size().map_err(Unusable::Because)?;
        match output.watcher.look() {
            Ok(Look::Outputs(outputs)) => outputs.into_iter().for_each(|output| answer.take(output)),
            Ok(Look::Reading) => {}
            Ok(Look::Waiting) => {
                if agent.has_ended_within(PACE) {
                    return Ok(());
                }
            }
            Err(error) => return because(error.to_string()),
        }
        if answer.again > MOST_AGAIN || answer.said.len() > MOST_TEXTS {
            return because(
                answer.error.take().unwrap_or_else(|| "it asks its model again and again".to_owned()),
            );
        }
    }
}

/// What an agent said, as far as it can be a summary.
#[derive(Default)]
struct Answer {
    /// What it said since it last used a tool.
    said: Vec<String>,
    /// The model that the agent says it uses.
    model: Option<String>,
    error: Option<String>,
    is_done: bool,
    used: Tokens,
    /// How often its program has turned to the model again.
    again: u32,
}

impl Answer {
    fn take(&mut self, output: AgentOutput) {
        match output {
            AgentOutput::Event(Event::AssistantText(said)) if said.subagent.is_none() => {
                self.said.push(said.text);
            }
            AgentOutput::Event(Event::Init(init)) => {
                self.model = Some(init.model).filter(|model| !model.is_empty());
            }
            AgentOutput::Event(Event::ToolCall(_)) => {
                self.said.clear();
                self.again += 1;
            }
            AgentOutput::Event(Event::ToolResult(_)) => self.said.clear(),
            AgentOutput::Retry(why) => {
                self.error = Some(why);
                self.again += 1;
            }
            AgentOutput::Event(Event::Error(error)) => self.error = Some(error.message),
            AgentOutput::Event(Event::Complete(complete)) => {
                self.is_done = complete.success && matches!(complete.outcome, None | Some(Outcome::Done));
                let usage = complete.usage.unwrap_or_default();
                self.used = usage.into();
            }
            AgentOutput::Event(_)
            | AgentOutput::Delta(_)
            | AgentOutput::Usage(_)
            | AgentOutput::Notice(_)
            | AgentOutput::Cache(_)
            | AgentOutput::Refused(_)
            | AgentOutput::Question(_)
            | AgentOutput::Answered(_) => {}
        }
    }

    fn finish(self) -> Result<String, String> {
        if self.is_done {
            return Ok(self.said.join("\n\n"));
        }
        Err(self.error.unwrap_or_else(|| "it did not finish".to_owned()))
    }
}

/// Takes an answer for a summary, or says why it is none.
fn judge<'a>(answer: &'a str, record: &str) -> Result<&'a str, String> {
    let summary = answer.trim();
    if summary.is_empty() {
        return Err("it said nothing".to_owned());
    }
    if summary == record.trim() {
        return Err("it gave the record back".to_owned());
    }
    let (length, odd) = summary.chars().fold((0_usize, 0_usize), |(length, odd), c| {
        let is_odd = c == char::REPLACEMENT_CHARACTER || (c.is_control() && !c.is_whitespace());
        (length + 1, odd + usize::from(is_odd))
    });
    if odd * 10 > length {
        return Err("what it said is no text".to_owned());
    }
    let covered = record.chars().count();
    if length >= covered {
        return Err("its summary is longer than the record".to_owned());
    }
    if length < LEAST_CHARS && covered > LONG_RECORD {
        return Err(format!("its summary is too short: {length} characters for {covered}"));
    }
    Ok(summary)
}

/// Returns a text of at most `most` characters, cut where a line or a sentence ends, and saying so.
fn within(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    const MARK: &str = "\n[the summary was longer and was cut here]";
    let room = most.saturating_sub(MARK.len());
    let end = text.char_indices().nth(room).map_or(text.len(), |(end, _)| end);
    let head = text.get(..end).unwrap_or(text);
    // Only the last part is looked at: a text without any break is cut where it must be.
    let sentence = head.rfind(". ").map(|end| end + 1);
    let cut = head.rfind('\n').max(sentence).filter(|cut| *cut > head.len() / 2).unwrap_or(head.len());
    format!("{}{MARK}", head.get(..cut).unwrap_or(head).trim_end())
}

/// What an agent prints while it writes a summary: a file that has lost its name before the agent begins, so
/// that it is gone with the two who hold it, however they end.
struct Output {
    file: File,
    watcher: Watcher,
}

impl Output {
    fn open(spools: &Spools, agent: &dyn Agent, run: &str) -> Result<Self, String> {
        let folder = spools.open_folder().map_err(|error| error.to_string())?;
        let name = OsString::from(format!("{run}.{ANSWER}"));
        let path = folder.join(&name);
        let file = folder.create_file(&name, OFlags::WRONLY | OFlags::APPEND);
        let file = file.map_err(|error| at(&path)(error).to_string())?;
        let watcher = Watcher::growing(&path, agent.parser()).map_err(|error| error.to_string());
        folder.remove(&name).map_err(|error| at(&path)(error).to_string())?;
        Ok(Self { file, watcher: watcher? })
    }

    /// Says whether the agent printed too much.
    fn check_size(&self) -> Result<(), String> {
        if self.file.metadata().is_ok_and(|output| output.len() > MOST_OUTPUT) {
            return Err(format!("it printed more than {} MiB", MOST_OUTPUT >> 20));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_summary_is_refused() {
        let record = "The record of a session, which is long enough to be summarised.";
        let refused = |answer: &str| judge(answer, record).unwrap_err();
        assert_eq!(refused(" \n"), "it said nothing");
        assert_eq!(refused(&format!("\n{record} ")), "it gave the record back");
        assert_eq!(refused(&record.repeat(2)), "its summary is longer than the record");
        assert_eq!(refused("\u{1}\u{2}\u{fffd} x"), "what it said is no text");
        assert_eq!(judge(" short\n", record), Ok("short"));
        let long = "word ".repeat(10_001);
        assert_eq!(
            judge("All is done.", &long).unwrap_err(),
            "its summary is too short: 12 characters for 50005"
        );
        let least = "x".repeat(LEAST_CHARS);
        assert_eq!(judge(&least, &long), Ok(least.as_str()));
        assert_eq!(judge("All is done.", &"x".repeat(LONG_RECORD)), Ok("All is done."));
    }

    #[test]
    fn what_is_too_long_is_cut_where_a_sentence_ends_and_says_so() {
        assert_eq!(within("short", 10), "short");
        let text = "One sentence. ".repeat(400);
        let cut = within(&text, 4_000);
        assert!(cut.chars().count() <= 4_000);
        assert!(cut.ends_with("One sentence.\n[the summary was longer and was cut here]"), "{cut}");
        assert_eq!(within(&"ü".repeat(5_000), 4_000).chars().count(), 4_000);
        assert!(within(&"ü".repeat(5_000), 10).chars().count() <= 45, "the mark is there in any case");
    }
}
