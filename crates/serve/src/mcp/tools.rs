//! The tools: names, descriptions, and the way from a name to its function.

use azureal::{Error, block_on};
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{NAME, Server, list, search};

/// What stands before and after the name of the server in the name of a tool: of Claude Code, Codex, Qwen Code and Copilot, of Gemini CLI, of goose, of opencode.
const SPELLINGS: [(&str, &str); 4] = [("mcp__", "__"), ("mcp_", "_"), ("", "__"), ("", "_")];

/// Returns the names that the tools have in stored sessions.
pub(super) fn names_in_sessions() -> Vec<String> {
    let definitions = definitions();
    let tools = definitions.as_array().into_iter().flatten().filter_map(|tool| tool.get("name")?.as_str());
    tools.flat_map(|tool| SPELLINGS.map(|(before, after)| format!("{before}{NAME}{after}{tool}"))).collect()
}

/// Returns the definitions of the tools. Their names explain themselves, because some agents show a model nothing else at first.
pub(super) fn definitions() -> Value {
    let only_reads = json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false});
    json!([
        {
            "name": "search_sessions",
            "title": "Search earlier sessions",
            "description": "Full text search over earlier sessions with any agent in this project: prompts, answers, commands, file names, tool \
                            results. Returns the best hits, newest first, with the session and the number of the event. Read around a hit with read_session.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Words that must all occur; \"in quotes\" for a phrase; word* for a prefix"},
                    "session": {"type": "string", "description": "Only this session, such as S3; also the current one"},
                    "agent": {"type": "string", "description": "Only events of this agent, such as claude or codex"},
                    "since": {"type": "string", "description": "Only sessions active since, such as 2026-01-31 or 7d"},
                    "original": {"type": "boolean", "description": "Search the whole output of commands and tools too; slower"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": search::MOST, "description": "How many hits; 10 without it"}
                },
                "required": ["query"]
            },
            "annotations": only_reads
        },
        {
            "name": "read_session",
            "title": "Read a session",
            "description": "Events of one session in their order: prompts, answers, tool calls, results. Without a range, the last ones. \
                            With original=true, results of commands and tools are whole. A long answer is cut and says how to go on.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "session": {"type": "string", "description": "The session, such as S3, or its name"},
                    "from": {"type": "integer", "minimum": 1, "description": "Number of the first event"},
                    "to": {"type": "integer", "minimum": 1, "description": "Number of the last event"},
                    "original": {"type": "boolean", "description": "Whole results, from the output that the agent printed"},
                    "offset": {"type": "integer", "minimum": 0, "description": "Characters of the first event to skip, to go on with one that was cut"}
                },
                "required": ["session"]
            },
            "annotations": only_reads
        },
        {
            "name": "list_sessions",
            "title": "List sessions",
            "description": "The sessions of this project, last active first: number, name, agent, time, size, last prompt.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "limit": {"type": "integer", "minimum": 1, "maximum": list::MOST, "description": "How many; 20 without it"},
                    "name": {"type": "string", "description": "Only sessions whose name begins with this"}
                }
            },
            "annotations": only_reads
        }
    ])
}

impl Server<'_> {
    /// Calls the tool of this name; `None` if there is none.
    pub(super) fn call_tool(&self, name: &str, arguments: &Value) -> Option<Result<String, Error>> {
        let arguments = Arguments(arguments);
        block_on(async {
            match name {
                "search_sessions" => Some(self.search_sessions(&arguments).await),
                "read_session" => Some(self.read_session(&arguments).await),
                "list_sessions" => Some(self.list_sessions(&arguments).await),
                _ => None,
            }
        })
    }
}
