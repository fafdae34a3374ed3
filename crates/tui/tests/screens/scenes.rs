//! Every screen: how one gets there, and what it is for. `docs/tui.md` is made from them.

use azureal::core::event::{Complete, DirectoryChanges, Undo};
use azureal::desk::{News, PaneId, TurnNews};
use azureal::{Error, Event, Seq};

use crate::harness::{START_MS, Screen};
use crate::world::*;

/// A screen: what is there before, the keys, and what happens after them.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// Its heading in the documentation; empty if it is not there.
    pub(crate) heading: &'static str,
    /// What the documentation says of it.
    pub(crate) words: &'static str,
    pub(crate) before: fn(&mut Screen),
    pub(crate) keys: &'static str,
    pub(crate) after: fn(&mut Screen),
}

fn nothing(_: &mut Screen) {}

const SCENE: Scene = Scene { name: "", heading: "", words: "", before: nothing, keys: "", after: nothing };

fn first_run(screen: &mut Screen) {
    screen.news(agents()).news(News::Sessions(Vec::new()));
}

fn with_sessions(screen: &mut Screen) {
    screen.news(agents()).news(sessions());
}

/// Turns run in two slots; the first one is shown.
pub(crate) fn in_two_slots(screen: &mut Screen) {
    in_turn(screen);
    screen.keys("f3 g down enter").news(opened(PaneId(2), 14));
    screen.type_text("Port the lexer.").key("enter");
    screen.news(accepted(PaneId(2), 14)).news(began(PaneId(2), "Port the lexer.", 141));
    screen.news(delta(PaneId(2), "The lexer first.")).keys("alt-1");
    screen.asked();
    screen.now_ms = START_MS + 90_000;
}

fn error(kind: &'static str, message: &str, hint: &str) -> Error {
    Error::new(kind, message).with_hint(hint)
}

pub(crate) const SCENES: &[Scene] = &[
    Scene {
        name: "first_run",
        heading: "The first start",
        words: "`azureal` on a terminal opens the interface. It says which agents are installed and where the conversations will be stored.",
        before: first_run,
        ..SCENE
    },
    Scene {
        name: "new_conversation",
        heading: "A new conversation",
        words: "From 110 columns on, the list of sessions is beside the conversation. Marks: ● a turn runs, ◐ unread, ✓ the last turn succeeded, ✗ it failed.",
        before: with_sessions,
        ..SCENE
    },
    Scene {
        name: "session",
        heading: "A session",
        words: "The header has the name, the agent and model of the next turn, and the context usage: green below 60 %, yellow below 90 %, red from there on, and always the number.",
        before: in_session,
        ..SCENE
    },
    Scene {
        name: "running",
        heading: "A turn",
        words: "The prompt appears as typed from Enter on. The header shows for how long the turn runs; Esc cancels it.",
        before: in_turn,
        ..SCENE
    },
    Scene {
        name: "typing",
        heading: "Typing while a turn runs",
        words: "Enter cancels the turn and sends the prompt after it. Ctrl-T queues the prompt instead: the turn ends by itself first. The line of keys says so.",
        before: in_turn,
        keys: "'No, only the logout of tabs.'",
        ..SCENE
    },
    Scene {
        name: "staged",
        heading: "Waiting prompts",
        words: "A prompt that waits is visible until it is sent, and Alt-↑ takes it back into the box. After an error or an Esc they are held: nothing but Enter in the empty box sends them. While another process runs a turn in the session, such as `azureal run` or a second interface, a prompt waits and goes out when that process has ended its turn. Each interface has prompts of its own. Those of an interface that was quit or killed are held in the next one that opens the session.",
        before: in_turn,
        keys: "'Then update the docs.' ctrl-t 'No, only the logout of tabs.' enter",
        ..SCENE
    },
    Scene {
        name: "held",
        before: in_turn,
        keys: "'Then update the docs.' ctrl-t esc",
        after: |screen| {
            screen.news(ended(PANE, 12)).news(over(PANE)).wait(7_000);
        },
        ..SCENE
    },
    Scene {
        name: "command",
        heading: "Commands",
        words: "A prompt that is one word with a slash in front performs an action: `/help`, `/sessions`, `/new`, `/model`, `/context`, `/diff`, `/undo`, `/compact`, `/fork`, `/rename`, `/delete`, `/cancel`, `/quit`, and all others by their [names](keys.md). A word that is no action is sent to the agent if you press Enter again.",
        before: in_session,
        keys: "'/init' enter",
        ..SCENE
    },
    Scene {
        name: "reading",
        heading: "Reading",
        words: "Tab or Page Up leaves the prompt box: letters become commands. `i` or Tab goes back. What happens meanwhile does not move the text; the line below it says how much is new.",
        before: in_turn,
        keys: "tab pageup",
        after: |screen| {
            screen.news(delta(PANE, "it is safe.\n\nNothing else to do."));
        },
    },
    Scene {
        name: "changes",
        heading: "The changes of a turn",
        words: "In a git repository, a line at the end of each turn says how many files changed while it ran, whatever changed them. `d` shows them with their diff; from the prompt, Ctrl-X d or `/diff`. It is the turn that you read, or at the end the last one with changes. `v` opens the whole diff in your pager.",
        before: in_changed_session,
        keys: "tab d",
        after: |screen| {
            screen.news(changes(None, file_changes()));
        },
    },
    Scene {
        name: "search",
        heading: "Search",
        words: "F4 searches all sessions while you type, and so does `//` while reading or in the list. The best hits come first. Words, \"phrases\" and the beginnings of words are found; `agent:codex`, `role:user`, `tool:Bash`, `session:S3` and `since:7d` narrow the search. Enter opens the session at the hit; `n` and `N` go to the next one there.",
        before: in_session,
        keys: "f4 'token ro' down",
        after: |screen| {
            screen.news(search_found("token ro"));
        },
    },
    Scene { name: "search_empty", before: in_session, keys: "tab / /", ..SCENE },
    Scene {
        name: "search_without_hits",
        before: in_session,
        keys: "f4 'zzz'",
        after: |screen| {
            screen.news(no_hits("zzz"));
        },
        ..SCENE
    },
    Scene { name: "changes_notice", before: in_changed_session, keys: "tab k", ..SCENE },
    Scene { name: "changes_end", before: in_changes, keys: "G", ..SCENE },
    Scene {
        name: "changes_with_notes",
        before: in_changed_session,
        keys: "tab d",
        after: |screen| {
            let mut shown = file_changes();
            shown.changes.undone_by = Some(Seq(122));
            shown.changes.during = vec!["u1".into(), "u2".into()];
            shown.changes.late = true;
            shown.changes.directories = vec![DirectoryChanges { path: "target/doc".into(), files: 1_204 }];
            let error = error(
                "snapshot",
                "the snapshots of this turn are not stored here",
                "snapshots stay on the machine of their turn",
            );
            shown.diff = Err(error);
            screen.news(changes(None, shown));
        },
        ..SCENE
    },
    Scene {
        name: "undo",
        heading: "Undo of a turn",
        words: "`u`, in the changes or while reading, restores the files of the turn to what they were before it, after a question. The undo is a line of the session, the next agent hears of it, and `u` takes it back.",
        before: in_changes,
        keys: "u",
        after: |screen| {
            screen.news(planned(undo_question()));
        },
    },
    Scene {
        name: "undo_conflicts",
        heading: "Undo of a turn whose files were changed since",
        words: "If files were changed since the turn, or other sessions ran meanwhile, the undo has a key of its own: Enter goes back.",
        before: in_changes,
        keys: "u",
        after: |screen| {
            screen.news(planned(conflicting_undo()));
        },
    },
    Scene {
        name: "undone",
        before: in_changes,
        keys: "u",
        after: |screen| {
            screen.news(planned(undo_question())).key("y");
            let undo = Undo { of: 120, turn: 6, files: files(), ..Undo::default() };
            let summary = undo.summary();
            screen.news(News::Appended { pane: PANE, events: vec![stored(122, &Event::Undo(undo))] });
            screen.news(News::Undone { pane: PANE, summary });
        },
        ..SCENE
    },
    Scene { name: "find", before: in_session, keys: "tab / 'race'", ..SCENE },
    Scene {
        name: "list",
        heading: "The list of sessions",
        words: "F3 goes to the list and back. A session without a name has its last prompt instead.",
        before: with_sessions,
        keys: "f3 down down",
        ..SCENE
    },
    Scene { name: "filter", before: with_sessions, keys: "f3 / 'claude o'", ..SCENE },
    Scene { name: "no_match", before: with_sessions, keys: "f3 / 'zebra'", ..SCENE },
    Scene { name: "rename", before: with_sessions, keys: "f3 r ctrl-u 'login'", ..SCENE },
    Scene { name: "fork", before: with_sessions, keys: "f3 f", ..SCENE },
    Scene {
        name: "delete",
        heading: "Questions",
        words: "A question names what it is about. Esc closes the topmost layer only; it never reaches the turn below.",
        before: with_sessions,
        keys: "f3 down down d",
        ..SCENE
    },
    Scene {
        name: "agents",
        heading: "Agent and model",
        words: "F2 chooses the agent and model of the next turn, from the next prompt on. Type to filter, or type any model. The history goes along.",
        before: in_session,
        keys: "f2",
        ..SCENE
    },
    Scene { name: "model_typed", before: in_session, keys: "f2 'claude haiku-5'", ..SCENE },
    Scene {
        name: "context",
        heading: "The context of the next agent",
        words: "F5 shows the parts of the context that the next agent receives, and their sizes. `v` opens the whole text in your editor.",
        before: in_session,
        keys: "f5",
        after: |screen| {
            let parts = [
                ("system message", 1_210),
                ("summary of events 1 to 80", 3_140),
                ("prompts of those events", 2_020),
                ("events 81 to 120", 237_630),
            ];
            let parts = parts.map(|(name, chars)| (name.to_owned(), chars)).to_vec();
            screen.news(News::Context {
                pane: PANE,
                parts,
                text: "<conversation>…".into(),
                meter: meter(61),
            });
        },
    },
    Scene {
        name: "trust",
        heading: "Trust",
        words: "Configuration files that came with a project have no effect before you have seen and trusted them.",
        before: |screen| {
            first_run(screen);
            let content = "azufig.toml:\n\n[[context_commands]]\nname = \"status\"\ncommand = [\"git\", \"status\", \"--short\"]\n";
            screen.news(News::TrustRequired { content: content.into() });
        },
        keys: "ctrl-x t",
        ..SCENE
    },
    Scene {
        name: "untrusted",
        before: |screen| {
            first_run(screen);
            screen.news(News::TrustRequired { content: "azufig.toml".into() });
        },
        ..SCENE
    },
    Scene {
        name: "question",
        heading: "Questions of an agent",
        words: "An agent that asks for permission waits for your answer. `n` refuses; Esc leaves the question open, and Ctrl-X a shows it again.",
        before: in_turn,
        after: |screen| {
            screen.news(turn(PANE, TurnNews::Question(question()))).key("down");
        },
        ..SCENE
    },
    Scene {
        name: "slots",
        heading: "Slots",
        words: "Several conversations are open at once, each in a slot: Alt-1 to Alt-9 show them. A turn that is not shown continues.",
        before: in_two_slots,
        ..SCENE
    },
    Scene {
        name: "auto_switch",
        heading: "The next running turn",
        words: "When the shown turn has ended and another one that you started here still runs, that one is shown 20 seconds later, unless you press a key. The finished session is then unread until you look at it, and Enter does nothing for 2 seconds.",
        before: in_two_slots,
        after: |screen| {
            screen.news(ended(PANE, 12)).news(over(PANE)).wait(20_000);
        },
        ..SCENE
    },
    Scene {
        name: "auto_switch_soon",
        before: in_two_slots,
        after: |screen| {
            screen.news(ended(PANE, 12)).news(over(PANE));
        },
        ..SCENE
    },
    Scene {
        name: "quit",
        heading: "Quitting",
        words: "Ctrl-C clears the prompt into the history, else cancels the turn, else quits if it is pressed twice. While turns run, azureal asks.",
        before: in_two_slots,
        keys: "ctrl-x q",
        ..SCENE
    },
    Scene { name: "quit_again", before: in_session, keys: "ctrl-c", ..SCENE },
    Scene {
        name: "compacting",
        before: in_session,
        keys: "'Go on.' enter",
        after: |screen| {
            screen.news(accepted(PANE, 12)).news(turn(PANE, TurnNews::Compacting { agent: "claude".into() }));
        },
        ..SCENE
    },
    Scene {
        name: "failed",
        before: in_session,
        keys: "'Go on.' enter",
        after: |screen| {
            let error = error("login", "codex is not logged in", "run `codex login`");
            screen.news(turn(
                PANE,
                TurnNews::Over { is_ours: true, error: Some(error), unsent: Some("Go on.".into()) },
            ));
        },
        ..SCENE
    },
    Scene {
        name: "notice",
        before: in_session,
        after: |screen| {
            let error = error(
                "file",
                "the store cannot be written: no space left on device",
                "free some space, then send the prompt again",
            );
            screen.news(News::Failed { pane: None, error, unsent: None });
        },
        ..SCENE
    },
    Scene {
        name: "failed_turn",
        before: in_turn,
        after: |screen| {
            let complete = Box::new(Complete { success: false, duration_ms: 3_000, ..Complete::default() });
            let (first, last) = (None, None);
            screen.news(turn(
                PANE,
                TurnNews::Stored { session: id(12), first, last, complete, refused: Vec::new() },
            ));
            screen.news(over(PANE));
        },
        ..SCENE
    },
    Scene {
        name: "menu",
        heading: "The menu",
        words: "Ctrl-X and a letter. The menu appears if the letter does not come at once.",
        before: in_session,
        keys: "ctrl-x",
        after: |screen| {
            screen.wait(400);
        },
    },
    Scene { name: "palette", before: in_session, keys: "tab : 'copy'", ..SCENE },
    Scene {
        name: "help",
        heading: "All keys",
        words: "F1, or `?` while reading, lists all keys. [keys.md](keys.md) has the same list, and says how to change them.",
        before: in_session,
        keys: "f1",
        ..SCENE
    },
    Scene { name: "help_end", before: in_session, keys: "f1 end", ..SCENE },
    Scene {
        name: "paths",
        before: in_session,
        keys: "'Look at @src/au'",
        after: |screen| {
            let paths = vec!["src/auth/token.rs".to_owned(), "src/auth/login.rs".to_owned()];
            screen.news(News::Paths { prefix: "src/au".into(), paths });
        },
        ..SCENE
    },
];
