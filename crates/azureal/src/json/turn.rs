//! A running turn as JSON, one line for each fact:
//!
//! ```json
//! {"session":"S3","agent":"claude","model":"opus"}
//! {"kind":"UserMessage","data":{"content":"…"},"context":{…}}
//! {"delta":"text as it is being written"}
//! {"kind":"AssistantText","data":{"text":"…"},"context":{…}}
//! {"seq":9,"first_seq":4,"kind":"Complete","data":{…},"context":{…}}
//! ```

use azureal_core::agent::AgentOutput;
use azureal_core::{Event, Seq, StoredEvent, Threshold};
use azureal_engine::{Accepted, FinishedTurn, TurnEvent};
use serde::{Serialize, Serializer};

use super::{Content, EventLine};
use crate::meter::{Meter, TurnMeter};

/// One line of a running turn.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum TurnLine<'a> {
    /// The first line: who answers, and where.
    Accepted {
        /// The session; `None` if nothing is stored.
        session: Option<String>,
        /// The agent.
        agent: &'a str,
        /// The model that is asked for, or will probably answer; `None` if neither is known.
        model: Option<&'a str>,
    },
    /// Text as it is being written. The finished text follows as an event.
    Delta {
        /// The text.
        delta: &'a str,
    },
    /// An event. The last one is `Complete`, when the turn is stored.
    Event(TurnEventLine),
}

/// An event of a running turn: its kind and data like in an [`EventLine`], and the context usage with it.
#[derive(Debug)]
pub struct TurnEventLine {
    event: StoredEvent,
    /// The first and the last event of a turn that is stored.
    stored: Option<(Seq, Seq)>,
    context: Option<Meter>,
}

impl TurnEventLine {
    /// Describes an event of a turn that is not stored yet.
    pub fn live(event: &Event) -> Self {
        let event = StoredEvent::new(Seq::START, event.kind(), Ok(event.to_json()));
        Self { event, stored: None, context: None }
    }

    /// Describes the end of a turn that is stored, and whose first event has this number.
    pub fn complete(event: &StoredEvent, first: Seq) -> Self {
        Self { stored: Some((first, event.seq)), event: event.clone(), context: None }
    }
}

impl Serialize for TurnEventLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            seq: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            first_seq: Option<u64>,
            kind: &'a str,
            #[serde(flatten)]
            content: Content<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            context: Option<&'a Meter>,
        }
        let EventLine { kind, content, .. } = EventLine::of(&self.event);
        let (first_seq, seq) = self.stored.map(|(first, last)| (first.0, last.0)).unzip();
        Shape { seq, first_seq, kind, content, context: self.context.as_ref() }.serialize(serializer)
    }
}

impl<'a> TurnLine<'a> {
    fn accepted(accepted: &'a Accepted, is_kept: bool) -> Self {
        let Accepted { record, agent, model, expected_model, .. } = accepted;
        let model = model.as_deref().or(expected_model.as_deref());
        Self::Accepted { session: is_kept.then(|| record.id.to_string()), agent, model }
    }

    fn event(event: &Event, stored: Option<(Seq, Seq)>, meter: Option<&Meter>) -> Self {
        Self::Event(TurnEventLine { stored, context: meter.cloned(), ..TurnEventLine::live(event) })
    }
}

/// Turns the events of a turn into lines.
#[derive(Debug)]
pub struct TurnLines {
    prompt: String,
    is_kept: bool,
    meter: Option<TurnMeter>,
    /// The last turn that was stored, if its line is not returned yet.
    finished: Option<Box<FinishedTurn>>,
}

impl TurnLines {
    /// Creates the lines of a turn. `threshold` is what the context is measured against; `None` if it is not measured.
    pub fn new(prompt: impl Into<String>, threshold: Option<Threshold>) -> Self {
        Self { prompt: prompt.into(), is_kept: true, meter: threshold.map(TurnMeter::new), finished: None }
    }

    /// Names no session and no numbers of events, for a turn that is not stored.
    #[must_use]
    pub fn ephemeral(mut self) -> Self {
        self.is_kept = false;
        self
    }

    /// Returns the context usage so far, if it is measured.
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref()?.meter()
    }

    /// Returns the lines of an event; none for most of those that are no output of the agent.
    pub fn take<'a>(&mut self, event: &'a TurnEvent) -> Vec<TurnLine<'a>> {
        if let TurnEvent::Accepted(accepted) = event {
            return self.accepted(accepted).into();
        }
        // Before the meter begins again.
        let complete = if matches!(event, TurnEvent::Began(_)) { self.end() } else { None };
        if let Some(meter) = &mut self.meter {
            meter.take(event);
        }
        match event {
            TurnEvent::Began(began) if began.continues => {
                self.finished = None;
                vec![self.line(&Event::Compacted)]
            }
            // Another prompt was staged if a turn was stored before.
            TurnEvent::Began(began) => match (complete, self.finished.take()) {
                (Some(complete), Some(_)) => vec![complete, self.line(&Event::user(&*began.prompt))],
                _ => Vec::new(),
            },
            TurnEvent::Output(output) => match &**output {
                AgentOutput::Event(event) => vec![self.line(event)],
                AgentOutput::Delta(delta) => vec![TurnLine::Delta { delta }],
                _ => Vec::new(),
            },
            TurnEvent::Stored(finished) => {
                // A turn that is compacted in the middle is stored in two parts, and complete with the second one.
                self.finished = Some(finished.clone());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the first two lines: who answers, and the prompt.
    pub fn accepted<'a>(&mut self, accepted: &'a Accepted) -> [TurnLine<'a>; 2] {
        if let Some(meter) = &mut self.meter {
            meter.accepted(accepted, &self.prompt);
        }
        [TurnLine::accepted(accepted, self.is_kept), self.line(&Event::user(&*self.prompt))]
    }

    /// Returns the last line, when the events have ended; `None` if the turn is not stored.
    pub fn end(&self) -> Option<TurnLine<'static>> {
        let finished = self.finished.as_ref()?;
        let stored = finished.first.zip(finished.last).filter(|_| self.is_kept);
        Some(TurnLine::event(&Event::Complete(finished.complete.clone()), stored, self.meter()))
    }

    fn line(&self, event: &Event) -> TurnLine<'static> {
        TurnLine::event(event, None, self.meter())
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::agent::CacheSeen;
    use azureal_core::event::{Complete, Outcome, Usage};
    use azureal_core::{SessionId, SessionRecord};
    use azureal_engine::Began;
    use azureal_process::ProcessIdentity;

    use super::*;

    fn record() -> SessionRecord {
        SessionRecord::new(SessionId::new(3).unwrap())
    }

    fn accepted() -> TurnEvent {
        TurnEvent::Accepted(Box::new(Accepted {
            record: record(),
            is_new: false,
            agent: "claude",
            model: None,
            expected_model: Some("opus".into()),
        }))
    }

    fn began(prompt: &str, continues: bool) -> TurnEvent {
        TurnEvent::Began(Box::new(Began {
            run: "r".into(),
            prompt: prompt.into(),
            process: ProcessIdentity { pid: 1, started: String::new() },
            control: None,
            continues,
            record: record(),
        }))
    }

    fn stored(outcome: Outcome) -> TurnEvent {
        TurnEvent::Stored(Box::new(FinishedTurn {
            session: SessionId::new(3).unwrap(),
            instead_of: None,
            first: Some(Seq(4)),
            last: Some(Seq(9)),
            complete: Complete {
                success: outcome == Outcome::Done,
                outcome: Some(outcome),
                ..Complete::default()
            },
            kept: None,
            refused: Vec::new(),
            cache: CacheSeen::default(),
            context_chars: 2_000,
            context_tokens: Some(700),
        }))
    }

    fn output(output: AgentOutput) -> TurnEvent {
        TurnEvent::Output(Box::new(output))
    }

    fn said(text: &str) -> TurnEvent {
        output(AgentOutput::Event(Event::assistant(text)))
    }

    /// Returns the lines of a turn, with the last one.
    fn lines(mut lines: TurnLines, events: &[TurnEvent]) -> Vec<String> {
        let text = |line: TurnLine<'_>| serde_json::to_string(&line).unwrap();
        let mut texts: Vec<String> = events.iter().flat_map(|event| lines.take(event)).map(text).collect();
        texts.extend(lines.end().map(text));
        texts
    }

    /// Returns the same without the measured context.
    fn without_context(prompt: &str, events: &[TurnEvent]) -> Vec<String> {
        lines(TurnLines::new(prompt, None), events)
    }

    const COMPLETE: &str = r#"{"seq":9,"first_seq":4,"kind":"Complete","data":{"success":true,"duration_ms":0,"cost_usd":0.0,"outcome":"done"}}"#;

    #[test]
    fn a_turn_is_its_session_its_prompt_its_output_and_its_end() {
        let delta = output(AgentOutput::Delta("Hi\n".into()));
        let notice = TurnEvent::Notice("not part of it".into());
        let retry = output(AgentOutput::Retry("not part of it".into()));
        let events =
            [notice, accepted(), began("Hello", false), delta, retry, said("Hi\nall"), stored(Outcome::Done)];
        assert_eq!(
            without_context("Hello", &events),
            [
                r#"{"session":"S3","agent":"claude","model":"opus"}"#,
                r#"{"kind":"UserMessage","data":{"content":"Hello"}}"#,
                r#"{"delta":"Hi\n"}"#,
                r#"{"kind":"AssistantText","data":{"text":"Hi\nall"}}"#,
                COMPLETE,
            ]
        );
    }

    #[test]
    fn a_turn_that_is_not_stored_has_no_session_and_no_numbers() {
        let ephemeral = TurnLines::new("Hello", None).ephemeral();
        let lines = lines(ephemeral, &[accepted(), stored(Outcome::Done)]);
        assert_eq!(lines[0], r#"{"session":null,"agent":"claude","model":"opus"}"#);
        assert!(lines[2].starts_with(r#"{"kind":"Complete","data":{"success":true"#), "{}", lines[2]);
        let lost = without_context("Hello", &[accepted()]);
        assert_eq!(lost.len(), 2, "without an end: {lost:?}");
    }

    #[test]
    fn a_turn_that_continues_after_a_compaction_ends_once() {
        let events = [
            accepted(),
            began("Hello", false),
            stored(Outcome::Interrupted),
            began("Go on", true),
            said("Done."),
            stored(Outcome::Done),
        ];
        assert_eq!(
            without_context("Hello", &events)[2..],
            [
                r#"{"kind":"Compacted","data":null}"#,
                r#"{"kind":"AssistantText","data":{"text":"Done."}}"#,
                COMPLETE
            ]
        );
    }

    #[test]
    fn a_staged_prompt_follows_the_end_of_the_turn_before() {
        let events = [
            accepted(),
            began("One", false),
            // Started again without a breakpoint for the prompt cache.
            began("One", false),
            stored(Outcome::Done),
            began("Two", false),
            stored(Outcome::Done),
        ];
        let two = r#"{"kind":"UserMessage","data":{"content":"Two"}}"#;
        assert_eq!(without_context("One", &events)[2..], [COMPLETE, two, COMPLETE]);
    }

    #[test]
    fn every_event_has_the_context_usage_with_it() {
        let usage = Usage { context_tokens: Some(650), ..Usage::default() };
        let events = [
            accepted(),
            began("Hello", false),
            said("Hi"),
            output(AgentOutput::Usage(usage)),
            said("there"),
            stored(Outcome::Done),
        ];
        let lines = lines(TurnLines::new("Hello", Some(Threshold::Tokens(1_000))), &events);
        let contexts: Vec<serde_json::Value> = lines[1..]
            .iter()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["context"].take())
            .collect();
        let [prompt, said, counted, complete] = contexts.as_slice() else { panic!("{lines:?}") };
        assert_eq!(prompt["tokens_by"], "estimate");
        assert!(said["chars"].as_u64() > prompt["chars"].as_u64(), "{said} {prompt}");
        assert_eq!((&counted["tokens"], &counted["tokens_by"]), (&650.into(), &"claude".into()));
        assert_eq!(
            complete.to_string(),
            r#"{"chars":2000,"tokens":700,"tokens_by":"claude","threshold":4000,"threshold_tokens":1000,"percent":70}"#
        );
    }
}
