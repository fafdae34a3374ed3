//! The text of an event that is searched.

use azureal_core::event::{FileChange, MessageEvent};
use azureal_core::{Block, Event, Json, Role};
use serde_json::Value;

/// The author of a searched text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SearchRole {
    /// The user: prompts as they were typed, and commands.
    User,
    /// The agent: answers and plans.
    Assistant,
    /// The agent's reasoning.
    Thinking,
    /// Calls of tools, and their results.
    Tool,
    /// The files that changed during a turn, or were restored.
    Files,
    /// Errors.
    Error,
}

impl SearchRole {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::User, Self::Assistant, Self::Thinking, Self::Tool, Self::Files, Self::Error];

    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Thinking => "thinking",
            Self::Tool => "tool",
            Self::Files => "files",
            Self::Error => "error",
        }
    }

    /// Returns the role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// What is searched of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchedText {
    /// The author.
    pub role: SearchRole,
    /// The tool of a call or a result, if it is known.
    pub tool: Option<String>,
    /// The text.
    pub text: String,
}

/// Returns what is searched of an event; `None` if nothing is.
///
/// Neither the system prompt nor the output of context commands is searched: nobody typed them.
pub fn searched_text(event: &Event) -> Option<SearchedText> {
    let of = |role, text: String| Some(SearchedText { role, tool: None, text });
    let searched = match event {
        Event::UserMessage(prompt) => of(SearchRole::User, prompt.content.clone()),
        Event::Command(command) => of(SearchRole::User, command.name.clone()),
        Event::AssistantText(answer) => of(SearchRole::Assistant, answer.text.clone()),
        Event::Plan(plan) => of(SearchRole::Assistant, lines([plan.name.as_str(), &plan.content])),
        Event::Reasoning(reasoning) => of(SearchRole::Thinking, reasoning.text.clone()),
        Event::Error(error) => of(SearchRole::Error, error.message.clone()),
        Event::ToolCall(call) => {
            let mut text = call.tool_name.clone();
            add_json(&call.input, &mut text);
            // The path is one of the arguments almost always.
            let path = call.file_path.as_deref().filter(|path| !text.contains(path));
            let text = lines([Some(text.as_str()), path, call.detail.as_deref()].into_iter().flatten());
            Some(SearchedText { role: SearchRole::Tool, tool: named(&call.tool_name), text })
        }
        Event::ToolResult(result) => {
            let parts = [Some(result.content.as_str()), result.detail.as_deref()];
            let text = lines(parts.into_iter().flatten());
            Some(SearchedText { role: SearchRole::Tool, tool: named(&result.tool_name), text })
        }
        Event::Changes(changes) => {
            let detail = changes.detail.as_deref().unwrap_or_default();
            of(SearchRole::Files, lines([&paths(&changes.files), detail]))
        }
        Event::Undo(undo) => of(SearchRole::Files, paths(&undo.files)),
        Event::Message(message) => of_message(message),
        Event::Init(_)
        | Event::Hook(_)
        | Event::Complete(_)
        | Event::ModelSwitch(_)
        | Event::Compacting
        | Event::Compacted
        | Event::SystemMessage(_)
        | Event::Unknown(_) => None,
    };
    searched.filter(|searched| !searched.text.is_empty())
}

fn of_message(message: &MessageEvent) -> Option<SearchedText> {
    let role = match message.role {
        Role::User => SearchRole::User,
        Role::Assistant => SearchRole::Assistant,
        Role::System => return None,
    };
    let (mut text, mut tool, mut speaks) = (String::new(), None, false);
    for block in &message.content {
        if !text.is_empty() {
            text.push('\n');
        }
        match block {
            Block::Text { text: said } => {
                speaks = true;
                text.push_str(said);
            }
            Block::ToolUse { name, input, .. } => {
                text.push_str(name);
                add_json(input, &mut text);
                tool = tool.or_else(|| named(name));
            }
            Block::ToolResult { content, .. } => text.push_str(&content.text()),
            Block::Image(_) => {}
        }
    }
    let only_tools = !speaks && message.content.iter().any(|block| !matches!(block, Block::Image(_)));
    Some(SearchedText { role: if only_tools { SearchRole::Tool } else { role }, tool, text })
}

fn named(tool: &str) -> Option<String> {
    (!tool.is_empty()).then(|| tool.to_owned())
}

fn lines<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn paths(files: &[FileChange]) -> String {
    let mut text = String::new();
    for file in files {
        for path in file.from.iter().chain([&file.path]) {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(path);
        }
    }
    text
}

/// Appends the texts and numbers of a JSON value, each on a line of its own, without the names of fields.
fn add_json(json: &Json, out: &mut String) {
    match json.read::<Value>() {
        Ok(value) => add_value(&value, out),
        Err(_) => add_line(json.as_str(), out),
    }
}

fn add_value(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => add_line(text, out),
        Value::Number(number) => add_line(&number.to_string(), out),
        Value::Array(items) => items.iter().for_each(|item| add_value(item, out)),
        Value::Object(fields) => fields.values().for_each(|field| add_value(field, out)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn add_line(text: &str, out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(json: &str) -> Option<(&'static str, Option<String>, String)> {
        let searched = searched_text(&Event::from_json(json).unwrap())?;
        Some((searched.role.as_str(), searched.tool, searched.text))
    }

    #[test]
    fn the_texts_of_every_kind_are_searched_as_this_table_says() {
        let bash = Some("Bash".to_owned());
        for (json, expected) in [
            (r#"{"UserMessage":{"content":"fix it"}}"#, Some(("user", None, "fix it"))),
            (r#"{"Command":{"name":"/clear"}}"#, Some(("user", None, "/clear"))),
            (r#"{"AssistantText":{"text":"ok"}}"#, Some(("assistant", None, "ok"))),
            (r#"{"Plan":{"name":"p","content":"1. do"}}"#, Some(("assistant", None, "p\n1. do"))),
            (r#"{"Reasoning":{"text":"hm"}}"#, Some(("thinking", None, "hm"))),
            (r#"{"Error":{"message":"it broke","kind":"agent"}}"#, Some(("error", None, "it broke"))),
            (
                r#"{"ToolCall":{"tool_name":"Bash","input":{"command":"a \"b\"","list":[1,["x"]],"yes":true,"no":null}}}"#,
                Some(("tool", bash.clone(), "Bash\na \"b\"\n1\nx")),
            ),
            (
                r#"{"ToolCall":{"tool_name":"Edit","file_path":"/a/b.rs","input":{"file_path":"/a/b.rs"},"detail":"+x"}}"#,
                Some(("tool", Some("Edit".to_owned()), "Edit\n/a/b.rs\n+x")),
            ),
            (
                r#"{"ToolCall":{"tool_name":"Edit","file_path":"/a/b.rs"}}"#,
                Some(("tool", Some("Edit".to_owned()), "Edit\n/a/b.rs")),
            ),
            (
                r#"{"ToolResult":{"tool_name":"Bash","content":"exit 1","detail":"panicked"}}"#,
                Some(("tool", bash.clone(), "exit 1\npanicked")),
            ),
            (r#"{"ToolResult":{"content":"x"}}"#, Some(("tool", None, "x"))),
            (
                r#"{"Changes":{"files":[{"path":"new.rs","from":"old.rs"},{"path":"b"}],"detail":"+line"}}"#,
                Some(("files", None, "old.rs\nnew.rs\nb\n+line")),
            ),
            (r#"{"Undo":{"files":[{"path":"a"}]}}"#, Some(("files", None, "a"))),
            (
                r#"{"Message":{"role":"user","content":[{"type":"text","text":"hi"},{"type":"tool_result","tool_use_id":"t","content":"out"}]}}"#,
                Some(("user", None, "hi\nout")),
            ),
            (
                r#"{"Message":{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]}}"#,
                Some(("tool", bash, "Bash\nls")),
            ),
            // Nobody typed these.
            (r#"{"SystemMessage":{"content":"be kind"}}"#, None),
            (r#"{"Message":{"role":"system","content":[{"type":"text","text":"be kind"}]}}"#, None),
            (r#"{"Hook":{"name":"h","output":"o"}}"#, None),
            (r#"{"Init":{"cwd":"/p","model":"opus"}}"#, None),
            (r#"{"Complete":{"success":true}}"#, None),
            (r#"{"ModelSwitch":{"model":"m"}}"#, None),
            (r#""Compacted""#, None),
            (r#"{"Future":{"text":"x"}}"#, None),
            (r#"{"UserMessage":{"content":""}}"#, None),
        ] {
            let expected = expected.map(|(role, tool, text)| (role, tool, text.to_owned()));
            assert_eq!(searched(json), expected, "{json}");
        }
    }

    #[test]
    fn roles_have_names() {
        for role in SearchRole::ALL {
            assert_eq!(SearchRole::named(role.as_str()), Some(role));
        }
        assert_eq!(SearchRole::named("system"), None);
    }
}
