//! Messages as lists of parts, the format of the Gemini API. Qwen Code records them too.

use azureal_core::{Image, Json};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::native::draft::Answer;
use crate::native::pieces::{CallResult, Prompt, pictures};
use crate::native::tools::{ToolNames, translate};
use crate::wire::{Loose, elements, kept, lenient, optional_long_text, output_text, read, text_of};

/// The part behind which the files stand that a prompt mentions with `@`.
const FILES_FOLLOW: &str = "--- Content from referenced files ---";

/// The tools of both programs. Tools of MCP servers keep their names, because the parts of a name cannot be told apart.
///
/// Where they have different names for a tool, that of Gemini CLI is the first and that of Qwen Code the last.
pub(crate) const TOOLS: &[ToolNames] = &[
    ("run_shell_command", "Bash", &[]),
    ("read_file", "Read", &[("absolute_path", "file_path"), ("path", "file_path")]),
    ("write_file", "Write", &[("path", "file_path")]),
    ("replace", "Edit", &[("path", "file_path")]),
    ("edit", "Edit", &[("path", "file_path")]),
    ("notebook_edit", "NotebookEdit", &[]),
    ("search_file_content", "Grep", &[]),
    ("grep_search", "Grep", &[]),
    ("glob", "Glob", &[]),
    ("list_directory", "LS", &[("dir_path", "path")]),
    ("web_fetch", "WebFetch", &[]),
    ("google_web_search", "WebSearch", &[]),
    ("web_search", "WebSearch", &[]),
    ("write_todos", "TodoWrite", &[]),
    ("todo_write", "TodoWrite", &[]),
    ("task", "Task", &[]),
    ("agent", "Task", &[]),
];

/// A part of a message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part<'a> {
    #[serde(default, deserialize_with = "optional_long_text")]
    pub(crate) text: Option<String>,
    /// Whether the text is a thought.
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) thought: bool,
    #[serde(default, borrow)]
    pub(crate) function_call: Loose<FunctionCall<'a>>,
    #[serde(default, borrow)]
    pub(crate) function_response: Loose<FunctionResponse<'a>>,
}

/// A call that the model asked for.
#[derive(Deserialize)]
pub(crate) struct FunctionCall<'a> {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) name: String,
    #[serde(default, borrow)]
    pub(crate) args: Option<&'a RawValue>,
}

impl FunctionCall<'_> {
    /// Returns the tool and its input, in our vocabulary.
    pub(crate) fn translated(&self) -> (String, Json) {
        translate(TOOLS, &self.name, kept(self.args.filter(|raw| raw.get() != "null")))
    }
}

/// The result of a call, as the model gets it.
#[derive(Deserialize)]
pub(crate) struct FunctionResponse<'a> {
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(crate) name: String,
    #[serde(default, borrow)]
    response: Loose<Response<'a>>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(default, borrow)]
    output: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

impl FunctionResponse<'_> {
    /// Returns the result. `has_failed` says whether the program calls it a failure.
    pub(crate) fn answer(&self, has_failed: bool) -> Answer {
        let response = self.response.0.as_ref();
        let output = response.and_then(|response| response.output).map(output_text);
        let error = response.and_then(|response| response.error).map(output_text);
        let has_failed = has_failed || error.is_some();
        let text = output.or(error).unwrap_or_default();
        let text = without_tags(&text);
        match self.name == "run_shell_command" {
            true => command_answer(text, has_failed),
            false => Answer { content: text.to_owned(), is_error: has_failed, diff: None },
        }
    }
}

/// Returns the output of a tool without the tags that tell the model not to trust it.
fn without_tags(text: &str) -> &str {
    let inside =
        text.strip_prefix("<untrusted_context>\n").and_then(|rest| rest.strip_suffix("</untrusted_context>"));
    inside.map_or(text, |inside| inside.strip_suffix('\n').unwrap_or(inside))
}

/// Reads the report on a command that the model gets: `Output: …`, with lines on the command before it in older versions,
/// and lines on its exit behind it.
fn command_answer(report: &str, has_failed: bool) -> Answer {
    const OUTPUT: &str = "Output: ";
    let begins = match report.starts_with(OUTPUT) {
        true => Some(0),
        false if report.starts_with("Command: ") => report.find("\nOutput: ").map(|at| at + 1),
        false => None,
    };
    let Some(mut output) = begins.and_then(|at| report.get(at + OUTPUT.len()..)) else {
        return Answer { content: report.to_owned(), is_error: has_failed, diff: None };
    };
    let (mut exit_code, mut error) = (None, None);
    loop {
        let (before, last) = output.rsplit_once('\n').unwrap_or(("", output));
        let Some((name, value)) = last.split_once(": ") else { break };
        match name {
            "Exit Code" => exit_code = value.trim().parse::<i64>().ok(),
            "Error" => error = Some(value).filter(|value| *value != "(none)"),
            "Signal" | "Process Group PGID" | "Background PIDs" => {}
            _ => break,
        }
        output = before;
        if before.is_empty() {
            break;
        }
    }
    let output = if output == "(empty)" { "" } else { output };
    let output = match error {
        Some(error) if output.is_empty() => error.to_owned(),
        Some(error) => format!("{output}\n{error}"),
        None => output.to_owned(),
    };
    Answer::of_command(&output, exit_code, has_failed)
}

/// Returns the parts of a content: a list, or one text. Elements that cannot be read are left out and counted.
pub(crate) fn parts(content: &RawValue) -> (Vec<Part<'_>>, usize) {
    let text = |text| Part {
        text: Some(text),
        thought: false,
        function_call: Loose(None),
        function_response: Loose(None),
    };
    if let Some(one) = text_of(content) {
        return (vec![text(one)], 0);
    }
    let Some(all) = elements(content) else {
        return match read::<Part<'_>>(content) {
            Some(part) => (vec![part], 0),
            None => (Vec::new(), usize::from(content.get() != "null")),
        };
    };
    let count = all.len();
    let parts: Vec<Part<'_>> =
        all.into_iter().filter_map(|raw| read::<Part<'_>>(raw).or_else(|| text_of(raw).map(text))).collect();
    let unreadable = count - parts.len();
    (parts, unreadable)
}

/// Returns the text of a prompt as it was typed, without the files that it mentions.
pub(crate) fn typed(parts: &[Part<'_>]) -> String {
    let texts = parts.iter().filter(|part| !part.thought).filter_map(|part| part.text.as_deref());
    texts.take_while(|text| text.trim() != FILES_FOLLOW).collect()
}

/// Returns a part with a text.
pub(crate) fn text_part(text: &str) -> Value {
    json!({"text": text})
}

/// Returns a part with a picture.
pub(crate) fn picture_part(image: &Image) -> Value {
    json!({"inlineData": {"mimeType": image.media_type.as_str(), "data": image.base64()}})
}

/// Returns the parts of a prompt.
pub(crate) fn prompt_parts(prompt: &Prompt<'_>) -> Value {
    let pictures = prompt.pictures.iter().map(|image| picture_part(image));
    std::iter::once(text_part(&prompt.text)).chain(pictures).collect()
}

/// Returns the parts with the result of a call of the tool `name`.
pub(crate) fn result_parts(name: &str, result: &CallResult<'_>) -> Value {
    let field = if result.is_error { "error" } else { "output" };
    let response = json!({"id": result.id, "name": name, "response": {field: result.content.text()}});
    let response = json!({"functionResponse": response});
    std::iter::once(response).chain(pictures(result.content).map(picture_part)).collect()
}

/// Counts of tokens in the API's words.
pub(crate) struct Counts {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached: u64,
    pub(crate) thoughts: u64,
    pub(crate) tool: u64,
    pub(crate) total: u64,
}

impl Counts {
    /// Returns the counts in ours. Thoughts are part of the output in some APIs and beside it in others, which the total
    /// tells.
    pub(crate) fn usage(&self) -> azureal_core::event::Usage {
        let input = self.input.saturating_add(self.tool);
        let with_thoughts = self.output.saturating_add(self.thoughts);
        let is_beside = input.saturating_add(with_thoughts) <= self.total;
        azureal_core::event::Usage {
            input_tokens: input,
            output_tokens: if is_beside { with_thoughts } else { self.output },
            cache_read_tokens: self.cached.min(input),
            cache_write_tokens: 0,
            context_tokens: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(report: &str) -> (String, bool) {
        let Answer { content, is_error, .. } = command_answer(without_tags(report), false);
        (content, is_error)
    }

    #[test]
    fn the_report_on_a_command_becomes_its_output_with_its_exit_code() {
        for (report, content, is_error) in [
            ("<untrusted_context>\nOutput: a\nb\nProcess Group PGID: 7\n</untrusted_context>", "a\nb", false),
            (
                "<untrusted_context>\nOutput: a\nExit Code: 3\nProcess Group PGID: 7\n</untrusted_context>",
                "Exit code 3\na",
                true,
            ),
            (
                "Command: ls\nDirectory: (root)\nOutput: a\nError: (none)\nExit Code: 0\nSignal: (none)\nProcess Group PGID: 7",
                "a",
                false,
            ),
            (
                "Command: x\nDirectory: (root)\nOutput: (empty)\nError: no such thing\nExit Code: 127\nSignal: (none)",
                "Exit code 127\nno such thing",
                true,
            ),
            ("Output: (empty)\nProcess Group PGID: 7", "", false),
            ("Output: Note: this is output\nProcess Group PGID: 7", "Note: this is output", false),
            ("Command was refused", "Command was refused", false),
            ("", "", false),
            ("Output: ", "", false),
        ] {
            assert_eq!(answer(report), (content.to_owned(), is_error), "{report}");
        }
    }

    #[test]
    fn a_content_is_a_text_or_a_list_of_parts() {
        let check = |json: &str, typed_text: &str, unreadable: usize| {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            let (parts, left_out) = parts(raw);
            assert_eq!((typed(&parts).as_str(), left_out), (typed_text, unreadable), "{json}");
        };
        check(r#""a""#, "a", 0);
        check(r#"[{"text":"a"},"b",{"text":"hidden","thought":true},7]"#, "ab", 1);
        check(
            r#"[{"text":"@x"},{"text":"\n--- Content from referenced files ---"},{"text":"secret"}]"#,
            "@x",
            0,
        );
        check(r#"{"text":"a"}"#, "a", 0);
        check("7", "", 1);
        check("null", "", 0);
    }

    #[test]
    fn thoughts_are_counted_once() {
        let counts =
            |total| Counts { input: 100, output: 20, cached: 30, thoughts: 5, tool: 0, total }.usage();
        assert_eq!(counts(120).output_tokens, 20);
        assert_eq!(counts(125).output_tokens, 25);
        assert_eq!(counts(0).output_tokens, 20);
        assert_eq!((counts(125).input_tokens, counts(125).cache_read_tokens), (100, 30));
    }
}
