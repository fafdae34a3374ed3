//! The table of keys: all actions, where they apply, their keys and their words.
//!
//! Dispatch, hints, the help screen, `docs/keys.md` and `[keys]` of the configuration are made from it.

/// An action of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the words of each are in the table")]
pub enum Action {
    // Prompt
    Send,
    Queue,
    Newline,
    LineStart,
    LineEnd,
    DeleteToEnd,
    DeleteToStart,
    DeleteWord,
    PutBack,
    WordLeft,
    WordRight,
    Undo,
    Redo,
    Up,
    Down,
    HistorySearch,
    CompletePath,
    EditInEditor,
    EditWaiting,
    // Reading
    RowUp,
    RowDown,
    HalfUp,
    HalfDown,
    PageUp,
    PageDown,
    Top,
    Bottom,
    PromptBefore,
    PromptAfter,
    Fold,
    FoldAll,
    Find,
    FindNext,
    FindPrevious,
    CopyBlock,
    CopyTurn,
    CopyCode,
    ForkHere,
    OpenPager,
    OpenEditor,
    // List
    Open,
    New,
    Rename,
    Fork,
    Delete,
    Filter,
    AllWorktrees,
    // Anywhere
    Help,
    Agents,
    Sessions,
    Context,
    Mouse,
    Menu,
    Read,
    Back,
    Cancel,
    Suspend,
    Redraw,
    Compact,
    Trust,
    Quit,
    Slot(u8),
    NextSlot,
    PreviousSlot,
}

/// Where keys apply. Keys of [`Anywhere`](Self::Anywhere) apply in every other context too, unless that context has the key itself.
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
