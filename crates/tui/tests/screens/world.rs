//! A project with sessions, made by hand.

use std::sync::Arc;

use azureal::changes::{ChangesOf, TurnChanges};
use azureal::core::bridge::{OptionKind, Question, QuestionOption};
use azureal::core::event::{Changes, Complete, FileChange, FileStatus, Init, ToolResult};
use azureal::core::{Counts, Threshold};
use azureal::desk::{
    AgentLine, Diff, FileChanges, News, NextAgent, Opened, PaneId, SearchNews, SessionLine, TurnNews,
    UndoQuestion,
};
use azureal::meter::Meter;
use azureal::search::{Hit, Query, SearchRole, Snippet, Total};
use azureal::turns::ActiveTurn;
use azureal::{AgentOutput, Event, Seq, SessionId, SessionRecord, StoredEvent};

use crate::harness::{START_MS, Screen};

pub(crate) const PANE: PaneId = PaneId(1);

pub(crate) fn id(number: u32) -> SessionId {
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

pub(crate) fn meter(percent: u64) -> Meter {
    let mut meter = Meter::of_context(percent * 4_000, None, Threshold::Chars(400_000));
    meter.percent = percent;
    meter
}

pub(crate) fn record(number: u32) -> SessionRecord {
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

pub(crate) fn line(number: u32) -> SessionLine {
    let percent = SESSIONS.iter().find(|made| made.0 == number).map_or(0, |made| made.6);
    SessionLine { record: record(number), meter: meter(percent), active: None }
}

/// The sessions. In S14, another azureal runs a turn.
pub(crate) fn sessions() -> News {
    let mut lines: Vec<SessionLine> = SESSIONS.iter().map(|made| line(made.0)).collect();
    lines[1].active = Some(ActiveTurn::new(id(14), "claude", "2026-11-16T13:54:32Z"));
    News::Sessions(lines)
}

pub(crate) fn agents() -> News {
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

pub(crate) fn stored(seq: u64, event: &Event) -> StoredEvent {
    StoredEvent::new(Seq(seq), event.kind(), Ok(event.to_json()))
}

fn call(id: &str, tool: &str, path: Option<&str>, input: &str) -> Event {
    Event::from_json(&format!(
        r#"{{"ToolCall":{{"tool_use_id":"{id}","tool_name":"{tool}","file_path":{},"input":{input}}}}}"#,
        path.map_or("null".to_owned(), |path| format!("{path:?}"))
    ))
    .unwrap()
}

fn result(id: &str, tool: &str, content: &str, is_error: bool) -> Event {
    Event::ToolResult(ToolResult {
        tool_use_id: id.into(),
        tool_name: tool.into(),
        content: content.into(),
        is_error,
        ..ToolResult::default()
    })
}

/// The conversation of S12: two turns, from event 107 on.
pub(crate) fn events() -> Vec<StoredEvent> {
    let complete = Complete { success: true, duration_ms: 42_000, cost_usd: 0.31, ..Complete::default() };
    let init = |agent: &str, model: &str| {
        Event::Init(Init { agent: Some(agent.into()), model: model.into(), ..Init::default() })
    };
    let events = [
        Event::user("Why do users have to log in twice?"),
        init("claude", "opus"),
        Event::assistant(
            "The token is refreshed by **every tab** on its own:\n\n- tab one takes token 1 and gets token 2\n- tab two still has token 1, which is not valid any more\n\nThe server then ends the session.\n",
        ),
        Event::Complete(complete.clone()),
        Event::user("The login test still fails when two tabs refresh."),
        init("codex", "gpt-5.5"),
        Event::assistant("Two refreshes race on the same token row. I will lock it."),
        call("t1", "Read", Some("src/auth/token.rs"), r#"{"file_path":"src/auth/token.rs"}"#),
        result("t1", "Read", &"line\n".repeat(212), false),
        call(
            "t2",
            "Edit",
            Some("src/auth/token.rs"),
            r#"{"file_path":"src/auth/token.rs","old_string":"let row = self.find(id)?;","new_string":"let row = self.find_for_update(id)?;"}"#,
        ),
        result("t2", "Edit", "ok", false),
        call("t3", "Bash", None, r#"{"command":"cargo test -p api login"}"#),
        result("t3", "Bash", "thread 'login::two_tabs' panicked at tests/login.rs:41", true),
        Event::Complete(complete),
    ];
    (107..).zip(&events).map(|(seq, event)| stored(seq, event)).collect()
}

pub(crate) fn opened(pane: PaneId, number: u32) -> News {
    let line = line(number);
    let mut record = line.record;
    let events =
        if number == 12 { events() } else { vec![stored(u64::from(number) * 10, &Event::user("Go on."))] };
    record.counts.events = events.last().map_or(0, |event| event.seq.0);
    let next = NextAgent { agent: record.counts.agent.clone(), model: record.counts.model.clone() };
    News::Opened(Box::new(Opened { pane, record, meter: line.meter, events, next, offer: None }))
}

pub(crate) fn turn(pane: PaneId, news: TurnNews) -> News {
    News::Turn { pane, news: Box::new(news) }
}

pub(crate) fn accepted(pane: PaneId, number: u32) -> News {
    let record = record(number);
    let (agent, model) = (record.counts.agent.clone().unwrap(), record.counts.model.clone());
    turn(pane, TurnNews::Accepted { record: Box::new(record), agent, model })
}

pub(crate) fn began(pane: PaneId, prompt: &str, first: u64) -> News {
    let since_ms = START_MS;
    turn(pane, TurnNews::Began { prompt: Some(prompt.into()), first: Seq(first), since_ms, is_ours: true })
}

pub(crate) fn delta(pane: PaneId, text: &str) -> News {
    turn(pane, TurnNews::Output(vec![AgentOutput::Delta(text.into())]))
}

pub(crate) fn ended(pane: PaneId, number: u32) -> News {
    let complete = Box::new(Complete { success: true, duration_ms: 9_000, ..Complete::default() });
    turn(
        pane,
        TurnNews::Stored { session: id(number), first: None, last: None, complete, refused: Vec::new() },
    )
}

pub(crate) fn over(pane: PaneId) -> News {
    turn(pane, TurnNews::Over { is_ours: true, error: None, unsent: None })
}

/// A turn that another process runs has begun, and is over.
pub(crate) fn began_elsewhere(pane: PaneId, prompt: &str, first: u64) -> News {
    let since_ms = START_MS;
    turn(pane, TurnNews::Began { prompt: Some(prompt.into()), first: Seq(first), since_ms, is_ours: false })
}

pub(crate) fn over_elsewhere(pane: PaneId) -> News {
    turn(pane, TurnNews::Over { is_ours: false, error: None, unsent: None })
}

pub(crate) fn question() -> Question {
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
pub(crate) fn in_session(screen: &mut Screen) {
    screen.news(agents()).news(sessions()).keys("f3 enter").news(opened(PANE, 12));
    screen.news(News::Counted { pane: PANE, turns: 6, last: Seq(115) });
    screen.asked();
}

/// An interface in which a turn runs in S12.
pub(crate) fn in_turn(screen: &mut Screen) {
    in_session(screen);
    screen.type_text("Also check logout.").key("enter");
    screen.news(accepted(PANE, 12)).news(began(PANE, "Also check logout.", 121));
    screen.news(delta(PANE, "I look at `logout` first.\n\nIt takes the same lock, so "));
    screen.asked();
    screen.now_ms = START_MS + 42_000;
}

/// The files that changed during the last turn of S12.
pub(crate) fn files() -> Vec<FileChange> {
    let file = |path: &str, status, added, removed| FileChange {
        path: path.into(),
        status,
        from: None,
        added,
        removed,
    };
    vec![
        file("docs/login.png", FileStatus::Added, None, None),
        file("src/auth/old_token.rs", FileStatus::Deleted, Some(0), Some(3)),
        file("src/auth/token.rs", FileStatus::Modified, Some(2), Some(1)),
        FileChange {
            from: Some("tests/tabs.rs".into()),
            ..file("tests/login_with_two_tabs.rs", FileStatus::Renamed, Some(0), Some(0))
        },
    ]
}

const DIFF: &str = "\
diff --git a/docs/login.png b/docs/login.png
new file mode 100644
index 0000000..9f1c2aa
Binary files /dev/null and b/docs/login.png differ
diff --git a/src/auth/old_token.rs b/src/auth/old_token.rs
deleted file mode 100644
index 58c9bdf..0000000
--- a/src/auth/old_token.rs
+++ /dev/null
@@ -1,3 +0,0 @@
-fn refresh() {
-    todo!()
-}
diff --git a/src/auth/token.rs b/src/auth/token.rs
index 2f1b3c4..8d7e6f5 100644
--- a/src/auth/token.rs
+++ b/src/auth/token.rs
@@ -39,5 +39,6 @@ impl Tokens {
     pub fn refresh(&self, id: TokenId) -> Result<Token, Error> {
-        let row = self.find(id)?;
+        // Another tab waits here until this one has the new token, so that it never sees one that is not valid any more.
+        let row = self.find_for_update(id)?;
         row.check()?;
         Ok(row.next())
diff --git a/tests/tabs.rs b/tests/login_with_two_tabs.rs
similarity index 100%
rename from tests/tabs.rs
rename to tests/login_with_two_tabs.rs
";

/// The conversation of S12 in a git repository: events 120 and 121 are the changes of its last turn and its end.
pub(crate) fn in_changed_session(screen: &mut Screen) {
    screen.news(agents()).news(sessions()).keys("f3 enter");
    let News::Opened(mut opened) = opened(PANE, 12) else { unreachable!() };
    let end = opened.events.pop().unwrap();
    let changes = Event::Changes(Changes { files: files(), ..Changes::default() });
    opened.events.push(stored(120, &changes));
    opened.events.push(stored(121, &end.event().unwrap()));
    opened.record.counts.events = 121;
    screen.news(News::Opened(opened)).news(News::Counted { pane: PANE, turns: 6, last: Seq(111) });
    screen.asked();
}

/// Returns the changes of the last turn of S12.
pub(crate) fn file_changes() -> FileChanges {
    let changes = TurnChanges {
        session: id(12),
        turn: 6,
        seq: Seq(120),
        before: "b".repeat(40),
        after: "a".repeat(40),
        files: files(),
        directories: Vec::new(),
        during: Vec::new(),
        late: false,
        undone_by: None,
        worktree: String::new(),
        is_undo: false,
        of_undo: false,
        skipped: Vec::new(),
    };
    FileChanges { of: ChangesOf::Turn(6), changes, diff: Ok(Diff { bytes: DIFF.into(), left_out: 0 }) }
}

pub(crate) fn changes(at: Option<u64>, changes: FileChanges) -> News {
    News::Changes { pane: PANE, at: at.map(Seq), changes: Ok(Box::new(changes)) }
}

/// An interface that shows the changes of the last turn of S12.
pub(crate) fn in_changes(screen: &mut Screen) {
    in_changed_session(screen);
    screen.keys("tab d").news(changes(None, file_changes()));
    screen.asked();
}

/// Returns the question before the undo of that turn.
pub(crate) fn undo_question() -> UndoQuestion {
    UndoQuestion {
        of: ChangesOf::Turn(6),
        session: id(12),
        turn: 6,
        restored: 3,
        deleted: 2,
        obstacles: Vec::new(),
        conflicts: Vec::new(),
    }
}

/// Returns the question before an undo that needs force.
pub(crate) fn conflicting_undo() -> UndoQuestion {
    let conflict = |number: u32| (format!("src/auth/generated/part_{number}.rs"), "changed since the turn");
    UndoQuestion {
        obstacles: vec![
            "1 other session ran in this worktree during turn 6, and may have made the changes".into(),
            "12 files were changed since turn 6, or cannot be restored".into(),
        ],
        conflicts: (1..=12).map(conflict).collect(),
        ..undo_question()
    }
}

pub(crate) fn planned(question: UndoQuestion) -> News {
    News::UndoPlanned { pane: PANE, question: Box::new(question) }
}

pub(crate) fn hit(
    number: u32,
    seq: u64,
    role: SearchRole,
    tool: Option<&str>,
    text: &str,
    query: &str,
) -> Hit {
    Hit {
        session: Arc::new(record(number)),
        seq: Seq(seq),
        role,
        tool: tool.map(str::to_owned),
        agent: Some("codex".into()),
        snippet: Snippet::of(text, &Query::typed(query).unwrap()),
        score: 1.0,
        is_full: false,
    }
}

/// Returns what a search over all sessions finds.
pub(crate) fn search_found(text: &str) -> News {
    let long = "The login test still fails when two tabs refresh at the same time, because both race on the same token row of the table";
    let hits = vec![
        hit(12, 107, SearchRole::User, None, long, text),
        hit(
            12,
            103,
            SearchRole::Tool,
            Some("Edit"),
            "src/auth/token.rs\n-  let row = find(id)\n+  let row = find_for_update(id)",
            text,
        ),
        hit(9, 31, SearchRole::Assistant, None, "A token bucket has one row per user.", text),
        hit(7, 2, SearchRole::Thinking, None, "Is the token in the row, or the row in the token?", text),
    ];
    let total = Total { events: 4, is_least: false };
    found(text, hits, total)
}

/// Returns that nothing was found.
pub(crate) fn no_hits(text: &str) -> News {
    found(text, Vec::new(), Total::default())
}

pub(crate) fn found(text: &str, hits: Vec<Hit>, total: Total) -> News {
    let text = text.to_owned();
    News::SearchFound(Box::new(SearchNews {
        text,
        hits,
        total,
        not_searched: 0,
        damaged: 0,
        problem: None,
        is_over: true,
    }))
}
