//! The table of keys: all actions, where they apply, their keys and their words.
//!
//! Dispatch, hints, the help screen, `docs/keys.md` and `[keys]` of the configuration are made from it. Ctrl-B, Ctrl-O, Ctrl-S, Ctrl-Q and
//! Ctrl-M are not in it: multiplexers and terminals keep them for themselves, and Ctrl-M is Enter.

use super::Action;

/// Where keys apply. Keys of [`Anywhere`](Self::Anywhere) apply in every other context too, but not after the menu key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    /// The prompt box.
    Prompt,
    /// The session pane, while reading.
    Reading,
    /// The list of sessions.
    List,
    /// After the menu key.
    Menu,
    /// Everywhere.
    Anywhere,
}

impl Context {
    /// All contexts, in the order of the help.
    pub const ALL: [Self; 5] = [Self::Prompt, Self::Reading, Self::List, Self::Menu, Self::Anywhere];

    /// Returns its heading in the help.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Prompt => "Prompt",
            Self::Reading => "Reading",
            Self::List => "Session list",
            Self::Menu => "Menu",
            Self::Anywhere => "Anywhere",
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The action.
    pub action: Action,
    /// Its name in `[keys]`.
    pub name: &'static str,
    /// Where it applies.
    pub context: Context,
    /// Its keys.
    pub keys: &'static [&'static str],
    /// Its words: at most three, for hints.
    pub short: &'static str,
    /// What it does, for the help.
    pub long: &'static str,
}

/// Builds the table, one row a line.
macro_rules! table {
    ($($context:ident { $($action:expr, $name:literal, [$($key:literal),*], $short:literal, $long:literal;)* })*) => {
        &[$($(Entry {
            action: $action,
            name: $name,
            context: Context::$context,
            keys: &[$($key),*],
            short: $short,
            long: $long,
        },)*)*]
    };
}

use Action as A;

/// The table.
pub const TABLE: &[Entry] = table! {
    Prompt {
        A::Send, "send", ["enter"], "send", "Send the prompt. While a turn runs: cancel it and send the prompt after it";
        A::Queue, "queue", ["ctrl-t", "alt-q"], "queue", "Queue the prompt: it is sent when the turn has ended by itself";
        A::Newline, "newline", ["ctrl-j", "alt-enter", "shift-enter"], "newline", "Start a new line, like Enter after `\\`";
        A::Read, "read", ["tab"], "read", "Read the session: letters become commands";
        A::PageUp, "read-page-up", ["pageup"], "page up", "Read, one screen up";
        A::PageDown, "read-page-down", ["pagedown"], "page down", "Read, one screen down";
        A::Up, "up", ["up", "ctrl-p"], "up", "One line up; in the first line: the prompt before";
        A::Down, "down", ["down", "ctrl-n"], "down", "One line down; in the last line: the prompt after";
        A::HistorySearch, "history-search", ["ctrl-r"], "history", "Search the prompts of all sessions";
        A::CompletePath, "complete-path", ["alt-/"], "path", "Complete a path of the project; `@` does it too";
        A::EditInEditor, "edit-in-editor", ["ctrl-g"], "editor", "Edit the prompt in `$EDITOR`";
        A::EditWaiting, "edit-waiting", ["alt-up"], "edit", "Take a waiting prompt back into the box";
        A::Left, "left", ["left"], "left", "One character to the left";
        A::Right, "right", ["right", "ctrl-f"], "right", "One character to the right";
        A::WordLeft, "word-left", ["alt-b", "ctrl-left", "alt-left"], "word left", "One word to the left";
        A::WordRight, "word-right", ["alt-f", "ctrl-right", "alt-right"], "word right", "One word to the right";
        A::LineStart, "line-start", ["ctrl-a", "home"], "line start", "To the start of the line";
        A::LineEnd, "line-end", ["ctrl-e", "end"], "line end", "To the end of the line";
        A::Backspace, "backspace", ["backspace", "ctrl-h"], "delete", "Delete the character before the cursor";
        A::DeleteForward, "delete-forward", ["delete", "ctrl-d"], "delete", "Delete the character after the cursor";
        A::DeleteWord, "delete-word", ["ctrl-w", "alt-backspace", "ctrl-backspace"], "delete word", "Delete the word before the cursor";
        A::DeleteToStart, "delete-to-start", ["ctrl-u"], "delete line", "Delete to the start of the line";
        A::DeleteToEnd, "delete-to-end", ["ctrl-k"], "delete rest", "Delete to the end of the line";
        A::PutBack, "put-back", ["ctrl-y"], "put back", "Insert the text that was deleted last";
        A::Undo, "undo", ["ctrl-_", "alt-z"], "undo", "Undo";
        A::Redo, "redo", ["alt-y"], "redo", "Redo";
    }
    Reading {
        A::Write, "write", ["i", "tab"], "write", "Back to the prompt";
        A::RowUp, "row-up", ["k", "up"], "up", "One row up";
        A::RowDown, "row-down", ["j", "down"], "down", "One row down";
        A::HalfUp, "half-up", ["ctrl-u"], "half up", "Half a screen up";
        A::HalfDown, "half-down", ["ctrl-d"], "half down", "Half a screen down";
        A::PageUp, "page-up", ["pageup"], "page up", "One screen up";
        A::PageDown, "page-down", ["pagedown"], "page down", "One screen down";
        A::Top, "top", ["g", "home"], "top", "To the first event";
        A::Bottom, "bottom", ["G", "end"], "follow", "To the end, and follow it";
        A::PromptBefore, "prompt-before", ["{"], "prompt before", "To the prompt before";
        A::PromptAfter, "prompt-after", ["}"], "prompt after", "To the prompt after";
        A::Fold, "fold", ["space", "enter"], "fold", "Fold or unfold a block";
        A::FoldAll, "fold-all", ["z"], "fold all", "Fold or unfold all blocks";
        A::Find, "find", ["/"], "find", "Search the session";
        A::FindNext, "find-next", ["n"], "next", "The next hit";
        A::FindPrevious, "find-previous", ["N"], "previous", "The hit before";
        A::CopyBlock, "copy-block", ["y"], "copy", "Copy the source of a block";
        A::CopyTurn, "copy-turn", ["Y"], "copy turn", "Copy the source of a turn";
        A::CopyCode, "copy-code", ["c"], "copy code", "Copy the code of a block";
        A::ForkHere, "fork-here", ["f"], "fork", "Fork the session after this turn";
        A::Changes, "changes", ["d"], "changes", "Show the files that changed during this turn, and their diff";
        A::UndoTurn, "undo-turn", ["u"], "undo turn", "Restore the files of this turn to what they were before it, after a question";
        A::OpenPager, "open-pager", ["o"], "pager", "Open the session in `$PAGER`";
        A::OpenEditor, "open-editor", ["e"], "editor", "Open the session in `$EDITOR`";
        A::OpenInAgent, "open-in-agent", ["O"], "agent's own", "Open the session in the own interface of its agent; what is added there becomes part of it";
        A::Palette, "palette", [":"], "commands", "Find an action by its words";
        A::PreviousSlot, "previous-slot", ["["], "slot before", "The slot before";
        A::NextSlot, "next-slot", ["]"], "slot after", "The slot after";
        A::Help, "reading-help", ["?"], "help", "All keys";
    }
    List {
        A::Open, "open", ["enter"], "open", "Open the session, or show the pane that has it";
        A::RowUp, "list-up", ["k", "up"], "up", "One session up";
        A::RowDown, "list-down", ["j", "down"], "down", "One session down";
        A::PageUp, "list-page-up", ["pageup"], "page up", "One screen up";
        A::PageDown, "list-page-down", ["pagedown"], "page down", "One screen down";
        A::Top, "list-top", ["g", "home"], "top", "To the first session";
        A::Bottom, "list-bottom", ["G", "end"], "bottom", "To the last session";
        A::New, "list-new", ["n"], "new", "New conversation";
        A::Rename, "rename", ["r"], "rename", "Rename the session";
        A::Fork, "fork-session", ["f"], "fork", "Copy the session into a new one";
        A::Delete, "delete", ["d"], "delete", "Delete the session, after a question";
        A::Filter, "filter", ["/"], "filter", "Show only sessions with these words";
        A::AllWorktrees, "all-worktrees", ["a"], "all worktrees", "Show the sessions of all worktrees, or of this one";
        A::Write, "leave-list", ["i", "tab"], "write", "Back to the prompt";
        A::Help, "list-help", ["?"], "help", "All keys";
    }
    Menu {
        A::Sessions, "menu-sessions", ["s"], "sessions", "List of sessions";
        A::Search, "menu-search", ["/"], "search", "Search all sessions";
        A::New, "menu-new", ["n"], "new", "New conversation";
        A::Agents, "menu-agents", ["m"], "agent, model", "Agent and model of the next turn";
        A::Context, "menu-context", ["v"], "context", "The context that the next agent receives";
        A::Compact, "menu-compact", ["c"], "compact", "Compact the session: older events become a summary";
        A::Fork, "menu-fork", ["f"], "fork", "Copy the session into a new one";
        A::Rename, "menu-rename", ["r"], "rename", "Rename the session";
        A::Changes, "menu-changes", ["d"], "changes", "Show the files that changed during a turn, and their diff";
        A::UndoTurn, "menu-undo", ["u"], "undo turn", "Restore the files of a turn to what they were before it, after a question";
        A::OpenPager, "menu-pager", ["o"], "pager", "Open the session in `$PAGER`";
        A::OpenEditor, "menu-editor", ["e"], "editor", "Open the session in `$EDITOR`";
        A::OpenInAgent, "menu-open-in-agent", ["O"], "agent's own", "Open the session in the own interface of its agent; what is added there becomes part of it";
        A::Trust, "menu-trust", ["t"], "trust", "Show and trust the configuration files of the project";
        A::Answer, "menu-answer", ["a"], "answer", "Answer the open question of the agent";
        A::Palette, "menu-palette", ["p"], "commands", "Find an action by its words";
        A::Close, "menu-close", ["x"], "close slot", "Close the slot; its turn continues";
        A::Help, "menu-help", ["h"], "help", "All keys";
        A::Quit, "menu-quit", ["q"], "quit", "Quit";
        A::Slot(1), "menu-slot-1", ["1"], "slot 1", "Slot 1";
        A::Slot(2), "menu-slot-2", ["2"], "slot 2", "Slot 2";
        A::Slot(3), "menu-slot-3", ["3"], "slot 3", "Slot 3";
        A::Slot(4), "menu-slot-4", ["4"], "slot 4", "Slot 4";
        A::Slot(5), "menu-slot-5", ["5"], "slot 5", "Slot 5";
        A::Slot(6), "menu-slot-6", ["6"], "slot 6", "Slot 6";
        A::Slot(7), "menu-slot-7", ["7"], "slot 7", "Slot 7";
        A::Slot(8), "menu-slot-8", ["8"], "slot 8", "Slot 8";
        A::Slot(9), "menu-slot-9", ["9"], "slot 9", "Slot 9";
    }
    Anywhere {
        A::Help, "help", ["f1"], "help", "All keys";
        A::Agents, "agents", ["f2"], "agent", "Agent and model of the next turn";
        A::Sessions, "sessions", ["f3"], "sessions", "List of sessions";
        A::Search, "search", ["f4"], "search", "Search all sessions; `//` does it too while reading or in the list";
        A::Context, "context", ["f5"], "context", "The context that the next agent receives";
        A::Mouse, "mouse", ["f9"], "mouse", "Use the mouse here, or leave it to the terminal";
        A::Menu, "menu", ["ctrl-x"], "menu", "Menu of further commands";
        A::Back, "back", ["esc"], "back", "Close the topmost layer; else stop reading; else cancel the turn. Deletes no text";
        A::Cancel, "cancel", ["ctrl-c"], "cancel", "Clear the prompt into the history; else cancel the turn; else quit if pressed twice";
        A::Suspend, "suspend", ["ctrl-z"], "suspend", "Suspend azureal; `fg` continues it";
        A::Redraw, "redraw", ["ctrl-l"], "redraw", "Draw the screen again";
        A::Slot(1), "slot-1", ["alt-1"], "slot 1", "Slot 1";
        A::Slot(2), "slot-2", ["alt-2"], "slot 2", "Slot 2";
        A::Slot(3), "slot-3", ["alt-3"], "slot 3", "Slot 3";
        A::Slot(4), "slot-4", ["alt-4"], "slot 4", "Slot 4";
        A::Slot(5), "slot-5", ["alt-5"], "slot 5", "Slot 5";
        A::Slot(6), "slot-6", ["alt-6"], "slot 6", "Slot 6";
        A::Slot(7), "slot-7", ["alt-7"], "slot 7", "Slot 7";
        A::Slot(8), "slot-8", ["alt-8"], "slot 8", "Slot 8";
        A::Slot(9), "slot-9", ["alt-9"], "slot 9", "Slot 9";
    }
};
