//! Text from outside, in every place that shows text: no cell has a character that a terminal acts on.

use azureal::core::acts_on_terminal;
use azureal::core::bridge::{OptionKind, QuestionOption};
use azureal::core::event::{DirectoryChanges, FileChange, FileStatus};
use azureal::desk::{
    AgentLine, Diff, FileChanges, News, NextAgent, Offer, Opened, SessionLine, TurnNews, UndoQuestion,
};
use azureal::{AgentOutput, Error, Event, SessionRecord};
use azureal_tui::keys::Keys;
use azureal_tui::{Message, Settings};
use ratatui::buffer::{Buffer, CellWidth};

use crate::harness::{ASCII, COLOURS, Screen};
use crate::world::*;

/// The number of strings.
const STRINGS: usize = 5_000;
/// The strings that are on a screen at once.
const AT_ONCE: usize = 10;

const PIECES: [&str; 40] = [
    "\u{1b}[2J",
    "\u{1b}]52;c;aGk=\u{7}",
    "\u{1b}]0;title\u{1b}\\",
    "\u{9b}31m",
    "\u{9d}8;;http://x\u{9c}",
    "\u{1b}P$q\u{1b}\\",
    "\u{1b}c",
    "\u{1b}[?1049l",
    "\u{1b}[6n",
    "\u{7}",
    "\u{8}\u{8}",
    "\r",
    "\n",
    "\t",
    "\u{b}\u{c}",
    "\0",
    "\u{7f}",
    "\u{85}",
    "\u{202e}",
    "\u{2066}",
    "\u{200f}",
    "\u{2028}",
    "\u{61c}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "e\u{301}\u{301}\u{301}",
    "\u{fe0f}",
    "日本",
    "👨\u{200d}👩\u{200d}👧",
    "🇩🇪",
    "\u{e0001}",
    "\u{1f3fb}",
    "שלום",
    "ﷺ",
    "ＡＢ",
    "S12",
    "`rm -rf`",
    "%s{}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Returns strings that try to act on a terminal or to break a row: the same ones in every run.
fn strings() -> Vec<String> {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(below).unwrap()).unwrap()
    };
    (0..STRINGS)
        .map(|_| {
            let count = 1 + next(6);
            (0..count)
                .map(|_| match next(4) {
                    0 => char::from_u32(u32::try_from(next(0x3000)).unwrap()).unwrap_or('x').to_string(),
                    _ => PIECES[next(PIECES.len())].to_owned(),
                })
                .collect()
        })
        .collect()
}

fn check(buffer: &Buffer, place: &str) {
    for y in 0..buffer.area.height {
        let mut hidden = 0;
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            assert!(!symbol.chars().any(acts_on_terminal), "{place}: {symbol:?} at {x},{y}");
            if hidden > 0 {
                hidden -= 1;
                assert!(symbol == " ", "{place}: {symbol:?} at {x},{y} is behind a wide character");
                continue;
            }
            let width = symbol.cell_width();
            assert!(width >= 1, "{place}: {symbol:?} at {x},{y} has {width} columns");
            hidden = width - 1;
            assert!(x + width <= buffer.area.width, "{place}: {symbol:?} at {x},{y} leaves the screen");
        }
    }
}

fn draw(screen: &mut Screen, place: &str) {
    check(&screen.draw().0, place);
}

fn record_with(number: u32, text: &str) -> SessionRecord {
    let mut record = record(12);
    record.id = id(number);
    record.name = text.to_owned();
    record.counts.agent = Some(text.to_owned());
    record.counts.model = Some(text.to_owned());
    record.counts.last_prompt = Some(text.to_owned());
    record.last_active = text.to_owned();
    record
}

/// Plays strings in all places: those of lists all at once, the others one after the other.
fn play(strings: &[String], size: (u16, u16), is_ascii: bool) {
    let first = strings[0].clone();
    let settings = Settings {
        project: first.clone(),
        branch: Some(first.clone()),
        store: first,
        ..crate::harness::settings()
    };
    let theme = if is_ascii { ASCII } else { COLOURS };
    let mut screen = Screen::with(size, theme, settings, Keys::default());
    let agents = strings.iter().map(|text| AgentLine {
        name: text.clone(),
        version: Some(text.clone()),
        models: vec![text.clone()],
        hint: Some(text.clone()),
    });
    screen.news(News::Agents(agents.collect())).news(News::Sessions(Vec::new()));
    draw(&mut screen, "first run");
    let lines = (20..).zip(strings).map(|(number, text)| SessionLine {
        record: record_with(number, text),
        meter: meter(50),
        active: None,
    });
    screen.news(News::Sessions(lines.collect())).keys("f3");
    draw(&mut screen, "list");
    screen.keys("d");
    draw(&mut screen, "delete");
    screen.keys("esc r");
    draw(&mut screen, "rename");
    screen.keys("esc f");
    draw(&mut screen, "fork");
    screen.keys("esc esc f2");
    draw(&mut screen, "agents");
    screen.keys("esc f5");
    let parts = strings.iter().map(|text| (text.clone(), 100)).collect();
    screen.news(News::Context { pane: PANE, parts, text: String::new(), meter: meter(50) });
    draw(&mut screen, "context");
    screen.keys("esc").news(opened(PANE, 12)).keys("ctrl-x d");
    draw(&mut screen, "changes that are read");
    screen.news(changes(None, hostile_changes(strings)));
    draw(&mut screen, "changes");
    assert!(screen.text().contains("turn 6: "), "{}", screen.text());
    screen.keys("end");
    draw(&mut screen, "end of the changes");
    let conflicts = strings.iter().map(|text| (text.clone(), "changed since the turn")).collect();
    screen.keys("u").news(planned(UndoQuestion {
        conflicts,
        obstacles: strings.to_vec(),
        ..undo_question()
    }));
    draw(&mut screen, "undo");
    assert!(screen.text().contains("Undo the changes"), "{}", screen.text());
    screen.keys("esc").news(changes(
        None,
        FileChanges { diff: Err(Error::new("x", &strings[0]).with_hint(&strings[1])), ..file_changes() },
    ));
    draw(&mut screen, "changes without a diff");
    screen.keys("esc").news(News::Undone { pane: PANE, summary: strings[0].clone() });
    draw(&mut screen, "undone");
    screen.keys("ctrl-x t").news(News::TrustRequired { content: strings.join("\n") });
    draw(&mut screen, "trust");
    screen.keys("esc");
    let mut asked = question();
    asked.title = strings[1].clone();
    asked.input = strings[2].clone();
    asked.options = strings
        .iter()
        .map(|text| QuestionOption { id: text.clone(), label: text.clone(), kind: OptionKind::Other })
        .collect();
    screen.news(turn(PANE, TurnNews::Question(asked)));
    draw(&mut screen, "question");
    screen.keys("esc").news(over(PANE));
    for text in strings {
        one(&mut screen, text);
    }
}

/// Returns changes whose files have these names and these lines.
fn hostile_changes(strings: &[String]) -> FileChanges {
    let mut shown = file_changes();
    let file = |text: &String| FileChange {
        path: text.clone(),
        from: Some(text.clone()),
        status: FileStatus::Renamed,
        ..FileChange::default()
    };
    shown.changes.files = strings.iter().map(file).collect();
    let directory = |text: &String| DirectoryChanges { path: text.clone(), files: 1 };
    shown.changes.directories = strings.iter().map(directory).collect();
    let line =
        |text: &String| format!("diff --git a/{text} b/{text}\n@@ -1 +1 @@\n-{text}\n+{text}\n {text}\n");
    shown.diff = Ok(Diff { bytes: strings.iter().map(line).collect::<String>().into_bytes(), left_out: 0 });
    shown
}

/// Plays one string in the places that show one. On a wide screen, most of them are there at once.
fn one(screen: &mut Screen, text: &str) {
    let paste = |screen: &mut Screen| {
        screen.message(Message::Paste(text.to_owned()));
    };
    let opened = Opened {
        pane: PANE,
        record: record_with(20, text),
        meter: meter(50),
        events: vec![stored(1, &Event::user(text)), stored(2, &Event::assistant(text))],
        next: NextAgent { agent: Some(text.to_owned()), model: Some(text.to_owned()) },
        offer: Some(Offer { number: 1, prompts: vec![text.to_owned()] }),
    };
    screen.news(News::Opened(Box::new(opened)));
    paste(screen);
    screen.keys("enter");
    let (agent, model) = (text.to_owned(), Some(text.to_owned()));
    screen.news(turn(PANE, TurnNews::Accepted { record: Box::new(record_with(20, text)), agent, model }));
    let output = vec![AgentOutput::Delta(text.to_owned()), AgentOutput::Retry(text.to_owned())];
    screen.news(began(PANE, text, 3)).news(turn(PANE, TurnNews::Output(output)));
    paste(screen);
    screen.keys("ctrl-t").news(News::Notice(text.to_owned()));
    paste(screen);
    screen
        .message(Message::Paste(" @a".into()))
        .news(News::Paths { prefix: "a".into(), paths: vec![text.to_owned()] });
    screen.keys("f2");
    paste(screen);
    draw(screen, "session, turn, notice, waiting prompt, prompt, paths and model");
    let error = || Error::new("x", text).with_hint(text);
    screen.keys("esc f3 /").news(News::Failed { pane: None, error: error(), unsent: None });
    paste(screen);
    screen.news(turn(
        PANE,
        TurnNews::Over { is_ours: true, error: Some(error()), unsent: Some(text.to_owned()) },
    ));
    draw(screen, "filter and errors");
    screen.keys("esc esc ctrl-c ctrl-c alt-up ctrl-c");
}

#[test]
fn no_cell_has_a_character_that_a_terminal_acts_on() {
    let strings = strings();
    assert!(strings.iter().flat_map(|text| text.chars()).filter(|c| acts_on_terminal(*c)).count() > 5_000);
    let sizes = [(112, 14), (112, 14), (80, 16), (40, 12)];
    std::thread::scope(|scope| {
        for part in 0..4 {
            let strings = &strings;
            scope.spawn(move || {
                for (index, chunk) in
                    strings.chunks(AT_ONCE).enumerate().filter(|(index, _)| index % 4 == part)
                {
                    play(chunk, sizes[index / 4 % sizes.len()], index % 3 == 0);
                }
            });
        }
    });
}
