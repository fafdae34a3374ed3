//! Bare `azureal`: the interface on the terminal.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;

use azureal::config::{Config, ThemeChoice, Ui};
use azureal::desk::Desk;
use azureal::native;
use azureal::sessions::{called, resolve_to_read};
use azureal::transcript::{Author, Block, Content, Fold, Text};
use azureal::{Environment, Workspace};
use azureal_core::{Event, ListQuery, Page, Seq, SessionId, SessionStore};
use azureal_tui::keys::{Keys, TABLE};
use azureal_tui::terminal::TerminalSettings;
use azureal_tui::theme::{Background, Theme};
use azureal_tui::{Ended, Inbox, Settings, State, plain, run};
use futures_executor::block_on;
use signal_hook::low_level::emulate_default_handler;
use strsim::osa_distance;

use crate::environment::environment;
use crate::failure::{Failure, quoted};
use crate::open::{LateNotices, open_for_interface};
use crate::output::{Output, counted, tell};
use crate::screen::{Screen, places};

/// Events that are looked through for the last answer.
const LAST_EVENTS: usize = 64;
/// The most rows of the last answer that are printed at the end.
const GOODBYE_ROWS: usize = 12;

/// Where all actions are named.
const KEYS_HINT: &str = "`azureal help keys` lists the actions and their keys";

/// What the interface takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Open this session in the interface: its number (S3), its name, or a unique prefix of it
    #[arg(short = 's', long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Print lines instead of drawing a screen, for screen readers and simple terminals; also `AZUREAL_PLAIN=1`
    #[arg(long)]
    pub(crate) plain: bool,
}

impl Args {
    /// Returns whether the interface is asked for: by an option, or by being on a terminal.
    pub(crate) fn asks_for_interface(&self) -> bool {
        self.session.is_some() || self.plain || is_on_terminal()
    }

    /// Returns the option that needs the interface, if there is one.
    pub(crate) fn option(&self) -> Option<&'static str> {
        match self {
            Self { session: Some(_), .. } => Some("--session"),
            Self { plain: true, .. } => Some("--plain"),
            _ => None,
        }
    }
}

fn is_on_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Opens the interface, and returns when the user has left it.
pub(crate) fn run_interface(args: &Args, store: Option<&Path>, out: &mut Output) -> Result<(), Failure> {
    let environment = environment();
    let is_plain =
        args.plain || is_set(&environment, "AZUREAL_PLAIN") || environment.variable("TERM") == Some("dumb");
    if !is_plain && !is_on_terminal() {
        return Err(Failure::usage("the interface needs a terminal").with_hint(
            "`azureal show` prints a session, `azureal run` sends a prompt, `azureal --plain` prints lines",
        ));
    }
    // The desk waits for the store on threads of its own.
    let workspace = Arc::new(open_for_interface(store)?);
    let _notices = LateNotices(&workspace);
    let config = Arc::new(workspace.load_config()?);
    let session = match &args.session {
        Some(text) => Some(block_on(resolve_to_read(&workspace, &[], Some(text)))?.id),
        None => None,
    };
    let ui = config.ui();
    let keys = keys(&config)?;
    let theme = theme(ui, &environment);
    let settings = settings(&workspace, ui);
    let terminal = terminal_settings(ui, &environment);
    let inbox = Arc::new(Inbox::default());
    let news = Arc::clone(&inbox);
    let desk = Desk::new(Arc::clone(&workspace), config, move |one| news.add_news(one));
    let state = State::new(settings, theme, keys, (80, 24), 0);
    let ended = if is_plain {
        plain::run(state, &desk, &inbox, session, &mut io::stdout())?
    } else {
        run(state, &desk, &inbox, terminal, session)?
    };
    desk.leave();
    if let Some(signal) = ended.signal {
        // The exit status says which.
        emulate_default_handler(signal)?;
    }
    if !is_plain {
        say_goodbye(&workspace, ended, out)?;
    }
    out.flush()
}

/// Prints the last answer and how to come back, on the screen that the user returns to. While a turn runs in the session there is no last
/// answer yet.
fn say_goodbye(workspace: &Workspace, ended: Ended, out: &mut Output) -> Result<(), Failure> {
    let Some(session) = ended.session else { return Ok(()) };
    // It may have been deleted.
    let Ok(record) = block_on(workspace.store.get(session)) else { return Ok(()) };
    if block_on(is_running(workspace, session)) {
        tell(&format!(
            "{session} runs in the background: `azureal -s {session}` shows it, `azureal cancel {session}` stops it"
        ));
        return Ok(());
    }
    if let Some(answer) = block_on(last_answer(&*workspace.store, session))? {
        let screen = Screen::new(out, Fold::Open);
        let block = Block::new(Seq::START, 0, Content::Text(Text::new(Author::Agent, answer)));
        let rows = screen.rows(&block, out.width());
        let shown = rows.get(..GOODBYE_ROWS).unwrap_or(&rows);
        out.text(&screen.lines(shown))?;
        if let Some(more) = rows.len().checked_sub(shown.len()).filter(|more| *more > 0) {
            let more = counted(more as u64, "more line");
            out.line(&format!("… {more}: `azureal show {session}`"))?;
        }
        out.line("")?;
        out.flush()?;
    }
    tell(&format!("{}: `azureal -s {session}` opens it again", called(&record)));
    Ok(())
}

/// Returns whether a turn runs in a session, in this process or elsewhere. What cannot be found out is no reason to leave with an error.
async fn is_running(workspace: &Workspace, session: SessionId) -> bool {
    let found = workspace.recover().await.unwrap_or_default();
    let active = workspace.active_turns(&found).await.unwrap_or_default();
    active.iter().any(|turn| turn.session() == session)
}

/// Returns the last message of the agent, if it is among the last events.
async fn last_answer(store: &dyn SessionStore, session: SessionId) -> Result<Option<String>, Failure> {
    let events = store.read(session, Page::last(LAST_EVENTS)).await?;
    Ok(events.iter().rev().find_map(|stored| match stored.event() {
        Ok(Event::AssistantText(answer)) => Some(answer.text),
        _ => None,
    }))
}

/// Returns the keys. What is wrong with them is said before the screen changes.
fn keys(config: &Config) -> Result<Keys, Failure> {
    let configured = config.keys();
    let is_known = |action: &str| TABLE.iter().any(|entry| entry.name == action);
    if let Some(unknown) = configured.iter().find(|found| !is_known(&found.action)) {
        let message = format!("{}: no action is called {}", unknown.place, quoted(&unknown.action));
        let meant =
            action_meant(&unknown.action).map_or_else(String::new, |name| format!("did you mean `{name}`? "));
        return Err(Failure::new("config", message).with_hint(format!("{meant}{KEYS_HINT}")));
    }
    // The nearest file comes first.
    let changes = configured.iter().rev().map(|found| (found.action.clone(), found.keys.clone())).collect();
    Keys::new(&changes).map_err(|problem| {
        let named = configured.iter().find(|found| problem.contains(&format!("`{}`", found.action)));
        let place =
            named.or(configured.first()).map_or_else(String::new, |found| format!("{}: ", found.place));
        Failure::new("config", format!("{place}{problem}")).with_hint(KEYS_HINT)
    })
}

/// Finds the action that a name was meant for: with a slip of the finger, or a part of its name.
fn action_meant(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace(['_', ' '], "-");
    let slips = if name.chars().count() > 4 { 2 } else { 1 };
    let names = || TABLE.iter().map(|entry| entry.name);
    let nearest = names().map(|known| (osa_distance(&name, known), known)).min_by_key(|(slips, _)| *slips);
    let nearest = nearest.filter(|(distance, _)| *distance <= slips).map(|(_, known)| known);
    nearest
        .or_else(|| names().find(|known| name.len() > 2 && (known.contains(&name) || name.contains(known))))
}

fn settings(workspace: &Workspace, ui: Ui) -> Settings {
    let directory = workspace.project.directory();
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
    Settings {
        project: name.unwrap_or_default(),
        branch: workspace.project.branch().map(str::to_owned),
        store: workspace.store_text(),
        found_elsewhere: found_elsewhere(workspace),
        places: places(workspace),
        auto_switch: ui.auto_switch,
        has_motion: ui.motion,
        uses_mouse: ui.mouse,
    }
}

/// Says what agents' programs keep of the project, if its store has no session yet. Takes a few milliseconds.
fn found_elsewhere(workspace: &Workspace) -> Option<String> {
    let any = ListQuery { limit: Some(1), ..ListQuery::default() };
    // A store on a server is not asked before the first frame.
    let is_empty = || block_on(workspace.store.list(&any)).is_ok_and(|sessions| sessions.is_empty());
    if workspace.is_on_server() || !is_empty() {
        return None;
    }
    block_on(native::find_importable(workspace))
}

fn theme(ui: Ui, environment: &Environment) -> Theme {
    let has_colours = ui.theme != ThemeChoice::None && environment.value("NO_COLOR").is_none();
    let background = match ui.theme {
        ThemeChoice::Light => Some(Background::Light),
        ThemeChoice::Dark => Some(Background::Dark),
        ThemeChoice::Auto | ThemeChoice::Ansi | ThemeChoice::None => None,
    };
    Theme { has_colours, background: background.filter(|_| has_colours), is_ascii: ui.ascii }
}

fn terminal_settings(ui: Ui, environment: &Environment) -> TerminalSettings {
    TerminalSettings {
        uses_mouse: ui.mouse,
        is_in_tmux: environment.value("TMUX").is_some(),
        // The console of Linux shows what it does not understand.
        takes_questions: environment.variable("TERM").is_some_and(|term| term != "linux"),
        uses_background: ui.theme == ThemeChoice::Auto && environment.value("NO_COLOR").is_none(),
    }
}

fn is_set(environment: &Environment, name: &str) -> bool {
    environment.value(name).is_some_and(|value| value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_the_name_of_an_action_is_understood() {
        for (name, meant) in [
            ("qeue", Some("queue")),
            ("quueu", Some("queue")),
            ("Fork_Here", Some("fork-here")),
            ("sned", Some("send")),
            ("worktrees", Some("all-worktrees")),
            ("x", None),
            ("", None),
            ("frobnicate", None),
        ] {
            assert_eq!(action_meant(name), meant, "{name}");
        }
    }
}
