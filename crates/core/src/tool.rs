//! Facts about tools, by their names.
//!
//! Agents map the tools of their programs to this one vocabulary, so that a rule written here holds for
//! all of them. Names are compared without regard to case.

use crate::Json;

/// The tools whose calls or results are treated in their own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Reads a file.
    Read,
    /// Writes a whole file.
    Write,
    /// Changes parts of a file.
    Edit,
    /// Any other tool that is about one file.
    File,
    /// Runs a command.
    Bash,
    /// Searches in files.
    Grep,
    /// Finds files by name.
    Glob,
    /// Runs a subagent.
    Task,
    /// Fetches a page.
    WebFetch,
    /// Searches the web.
    WebSearch,
    /// An unknown tool.
    Other,
}

/// The fields that hold the path of a tool's file.
const PATH_FIELDS: [&str; 3] = ["file_path", "notebook_path", "path"];

impl Tool {
    /// Finds the tool of this name.
    pub fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "read" => Self::Read,
            "write" => Self::Write,
            "edit" | "multiedit" => Self::Edit,
            "notebookedit" | "notebookread" | "ls" => Self::File,
            "bash" => Self::Bash,
            "grep" => Self::Grep,
            "glob" => Self::Glob,
            // Claude Code renamed its Task tool to Agent. TaskCreate and its kin are a to-do list, not this.
            "task" | "agent" => Self::Task,
            "webfetch" => Self::WebFetch,
            "websearch" => Self::WebSearch,
            _ => Self::Other,
        }
    }

    /// Returns whether a tool of this name changes the file that it is about.
    pub fn changes_files(name: &str) -> bool {
        matches!(Self::named(name), Self::Write | Self::Edit)
            || ["NotebookEdit", "Delete"].iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns the fields of an input that say what the call is about: all of those listed first, or
    /// the first that is there of several.
    fn key_fields(self) -> KeyFields {
        match self {
            Self::Read | Self::Write | Self::Edit | Self::File => KeyFields::FirstOf(&PATH_FIELDS),
            Self::Bash => KeyFields::FirstOf(&["command"]),
            Self::Grep | Self::Glob => KeyFields::FirstOf(&["pattern"]),
            Self::WebFetch => KeyFields::FirstOf(&["url"]),
            Self::WebSearch => KeyFields::FirstOf(&["query"]),
            Self::Task => KeyFields::All(&["subagent_type", "description"]),
            Self::Other => KeyFields::FirstOf(&[
                "file_path",
                "notebook_path",
                "path",
                "command",
                "query",
                "pattern",
                "url",
            ]),
        }
    }

    /// Reduces an input to the fields that say what the call is about.
    pub fn key_input(self, input: &Json) -> Json {
        let fields = input.fields();
        let kept = |names: &'static [&'static str]| {
            names.iter().filter_map(|name| fields.get(*name).map(|value| (*name, *value)))
        };
        match self.key_fields() {
            KeyFields::All(names) => Json::from_fields(kept(names)),
            KeyFields::FirstOf(names) => Json::from_fields(kept(names).take(1)),
        }
    }

    /// Returns what the call is about, for a line of text; empty when the input does not say.
    pub fn key_text(self, input: &Json) -> String {
        let fields = input.fields();
        let text = |name: &&str| {
            let raw = fields.get(*name)?.get();
            Some(serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned()))
        };
        match self.key_fields() {
            KeyFields::All(names) => names.iter().filter_map(text).collect::<Vec<_>>().join(": "),
            KeyFields::FirstOf(names) => names.iter().find_map(text).unwrap_or_else(String::new),
        }
    }
}

enum KeyFields {
    All(&'static [&'static str]),
    FirstOf(&'static [&'static str]),
}
