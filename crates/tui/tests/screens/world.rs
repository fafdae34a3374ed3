//! A project with sessions, made by hand.

use azureal::core::bridge::{OptionKind, Question, QuestionOption};
use azureal::core::event::Complete;
use azureal::core::{Counts, Threshold};
use azureal::desk::{AgentLine, News, NextAgent, Opened, PaneId, SessionLine, TurnNews};
use azureal::meter::Meter;
use azureal::turns::ActiveTurn;
use azureal::{AgentOutput, Event, Seq, SessionId, SessionRecord, StoredEvent};

use crate::harness::{START_MS, Screen};

pub const PANE: PaneId = PaneId(1);

pub fn id(number: u32) -> SessionId {
    SessionId::new(number).unwrap()
}

/// A row of the list: number, name, agent, model, last activity, whether it succeeded, percent of the context, cost.
type Made = (u32, &'static str, &'static str, &'static str, &'static str, Option<bool>, u64, f64);

const SESSIONS: [Made; 5] = [
    (12, "fix-login-race", "codex", "gpt-5.5", "2026-11-16T14:02:00Z", Some(true), 61, 1.22),
    (14, "port-parser", "claude", "opus", "2026-11-16T13:54:32Z", None, 12, 0.41),
    (11, "release-notes", "claude", "opus", "2026-11-16T13:00:00Z", Some(true), 93, 4.10),
    (9, "S9", "codex", "gpt-5.5", "2026-11-16T11:00:00Z", Some(true), 4, 0.08),
    (7, "upgrade-tokio", "claude", "sonnet", "2026-11-15T10:00:00Z", Some(false), 38, 0.0),
];

pub fn meter(percent: u64) -> Meter {
    let mut meter = Meter::of_context(percent * 4_000, None, Threshold::Chars(400_000));
    meter.percent = percent;
    meter
}

pub fn record(number: u32) -> SessionRecord {
    let made = SESSIONS.iter().find(|made| made.0 == number);
    let (_, name, agent, model, last_active, completed, _, cost_usd) =
        *made.expect("a session of this world");
    let counts = Counts {
        events: u64::from(number) * 10,
        messages: u64::from(number) * 4,
        agent: Some(agent.into()),
        model: Some(model.into()),
        last_prompt: Some("Why is the CI flaky on Mondays?".into()),
        ..Counts::default()
    };
    let last_active = last_active.to_owned();
    SessionRecord {
        name: name.into(),
        completed,
        cost_usd,
        counts,
        last_active,
        ..SessionRecord::new(id(number))
    }
}

pub fn line(number: u32) -> SessionLine {
    let percent = SESSIONS.iter().find(|made| made.0 == number).map_or(0, |made| made.6);
    SessionLine { record: record(number), meter: meter(percent), active: None }
}

/// The sessions. In S14, another azureal runs a turn.
pub fn sessions() -> News {
    let mut lines: Vec<SessionLine> = SESSIONS.iter().map(|made| line(made.0)).collect();
    lines[1].active = Some(ActiveTurn::new(id(14), "claude", "2026-11-16T13:54:32Z"));
    News::Sessions(lines)
}

pub fn agents() -> News {
    News::Agents(vec![
        AgentLine {
            name: "claude".into(),
            version: Some("2.1.197".into()),
            models: vec!["opus".into(), "sonnet".into()],
            hint: None,
        },
        AgentLine {
            name: "codex".into(),
            version: Some("0.154.0".into()),
            models: vec!["gpt-5.5".into()],
            hint: None,
        },
        AgentLine {
            name: "gemini".into(),
            version: None,
            models: Vec::new(),
            hint: Some("install it with `npm install -g @google/gemini-cli`".into()),
        },
    ])
}

pub fn stored(seq: u64, event: &Event) -> StoredEvent {
    StoredEvent { seq: Seq(seq), kind: event.kind().to_owned(), json: Ok(event.to_json()) }
}

/// The conversation of S12.
pub fn events() -> Vec<StoredEvent> {
    let complete = Complete { success: true, duration_ms: 42_000, cost_usd: 0.31, ..Complete::default() };
    let events = [
        Event::user("The login test still fails when two tabs refresh."),
        Event::assistant(
            "Two refreshes race on the same token row. I will lock it:\n\n- read the row **for update**\n- retry once\n",
        ),
        Event::Complete(complete),
    ];
    (118..).zip(&events).map(|(seq, event)| stored(seq, event)).collect()
}

pub fn opened(pane: PaneId, number: u32) -> News {
    let line = line(number);
    let mut record = line.record;
    let events =
        if number == 12 { events() } else { vec![stored(u64::from(number) * 10, &Event::user("Go on."))] };
    record.counts.events = events.last().map_or(0, |event| event.seq.0);
    let next = NextAgent { agent: record.counts.agent.clone(), model: record.counts.model.clone() };
    News::Opened(Box::new(Opened { pane, record, meter: line.meter, events, next }))
}

pub fn turn(pane: PaneId, news: TurnNews) -> News {
    News::Turn { pane, news: Box::new(news) }
}

pub fn accepted(pane: PaneId, number: u32) -> News {
    let record = record(number);
    let (agent, model) = (record.counts.agent.clone().unwrap(), record.counts.model.clone());
    turn(pane, TurnNews::Accepted { record: Box::new(record), agent, model })
}

pub fn began(pane: PaneId, prompt: &str, first: u64) -> News {
    let since_ms = START_MS;
    turn(pane, TurnNews::Began { prompt: Some(prompt.into()), first: Seq(first), since_ms, is_ours: true })
}

pub fn delta(pane: PaneId, text: &str) -> News {
    turn(pane, TurnNews::Output(vec![AgentOutput::Delta(text.into())]))
}

pub fn ended(pane: PaneId, number: u32) -> News {
    let complete = Box::new(Complete { success: true, duration_ms: 9_000, ..Complete::default() });
    turn(
        pane,
        TurnNews::Stored { session: id(number), first: None, last: None, complete, refused: Vec::new() },
    )
}

pub fn over(pane: PaneId) -> News {
    turn(pane, TurnNews::Over { error: None, unsent: None })
}

pub fn question() -> Question {
    Question {
        id: "q1".into(),
        title: "Run cargo test -p api login".into(),
        kind: "execute".into(),
        input: r#"{"command":"cargo test -p api login"}"#.into(),
        options: vec![
            QuestionOption {
                id: "once".into(),
                label: "Allow this time".into(),
                kind: OptionKind::AllowOnce,
            },
            QuestionOption {
                id: "always".into(),
                label: "Allow cargo test from now on".into(),
                kind: OptionKind::AllowAlways,
            },
            QuestionOption { id: "no".into(), label: "Do not run it".into(), kind: OptionKind::RejectOnce },
        ],
    }
}

/// An interface with the list and S12 open.
pub fn in_session(screen: &mut Screen) {
    screen.news(agents()).news(sessions()).keys("f3 enter").news(opened(PANE, 12));
    screen.asked();
}

/// An interface in which a turn runs in S12.
pub fn in_turn(screen: &mut Screen) {
    in_session(screen);
    screen.type_text("Also check logout.").key("enter");
    screen.news(accepted(PANE, 12)).news(began(PANE, "Also check logout.", 121));
    screen.news(delta(PANE, "I look at `logout` first.\n\nIt takes the same lock, so "));
    screen.asked();
    screen.now_ms = START_MS + 42_000;
}
