//! The sessions of Claude Code: `projects/<directory>/<session>.jsonl` in its folder.
//!
//! The calls of subagents are in files of their own, which the result of the call names: `<session>/subagents/agent-<id>.jsonl`,
//! or `agent-<id>.jsonl` beside the session in versions before 2.1. Before 2.0 they are lines of the session
//! (`isSidechain`), which nothing links to their call; they are left out.

use std::collections::HashSet;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use azureal_core::agent::{AgentOutput, AgentParser, Ending, KeptOutputs};
use azureal_core::{Event, counted};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::chain::Chain;
use super::kept::KEPT_OUTPUTS;
use super::record::Record;
use super::typed;
use super::wire::WireTurn;
use crate::native::files::{self, ProjectFolders};
use crate::native::lines::{Line, Lines, any_object, first_objects, last_time};
use crate::native::records::{LineParser, LineTurns};
use crate::native::{NativeError, NativeHead, NativeHome, NativeSession, NativeSource, NativeTurns};
use crate::wire::{Loose, lenient};

/// The sessions of Claude Code.
#[derive(Debug, Clone, Copy)]
pub struct ClaudeSessions;

/// The folder of projects in Claude Code's folder.
pub(super) const PROJECTS: &str = "projects";
const FOLDERS: ProjectFolders = ProjectFolders { projects: PROJECTS, sessions: "", id_of: session_id };
/// The number of lines in which the head of a session is searched.
const HEAD_LINES: u64 = 64;
/// The number of calls and results of a subagent that are read.
const MOST_OF_SUBAGENT: usize = 20_000;
/// The length from which Claude Code shortens the name of a project's folder, and adds a hash.
pub(super) const LONGEST_NAME: usize = 200;

impl NativeSource for ClaudeSessions {
    fn agent(&self) -> &'static str {
        super::NAME
    }

    fn program(&self) -> &'static str {
        "Claude Code"
    }

    fn homes(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        files::homes(variable, "CLAUDE_CONFIG_DIR", &[".claude", ".config/claude"])
    }

    fn recognises(&self, _: &Path, beginning: &[u8]) -> bool {
        any_object(beginning, |fields| fields.read::<LineHead<'_>>().is_some_and(|head| head.is_of_claude()))
    }

    fn kept_outputs(&self) -> Option<KeptOutputs> {
        Some(KEPT_OUTPUTS)
    }

    fn open(&self, place: &Path, _: &Path) -> Result<Box<dyn NativeHome>, NativeError> {
        Ok(Box::new(ClaudeHome { place: place.to_owned() }))
    }
}

struct ClaudeHome {
    place: PathBuf,
}

impl NativeHome for ClaudeHome {
    fn sessions<'a>(
        &'a self,
        project: Option<&'a Path>,
    ) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>> + 'a> {
        let name = project.map(folder_name);
        FOLDERS.list(&self.place, move |folder| {
            let found = folder.file_name().unwrap_or_default().as_bytes();
            name.as_ref().is_none_or(|name| is_within(found, name.as_bytes()))
        })
    }

    fn head(&self, session: &NativeSession) -> Result<NativeHead, NativeError> {
        let ended = last_time(&session.path);
        let mut head = NativeHead { id: session.id.clone(), ended, ..NativeHead::default() };
        let mut is_conversation = false;
        first_objects(&session.path, HEAD_LINES, |fields| {
            let Some(found) = fields.read::<LineHead<'_>>() else { return ControlFlow::Continue(()) };
            if let Some(title) = found.custom_title.clone() {
                head.title = Some(title);
            }
            head.started = head.started.or_else(|| found.timestamp.parse().ok());
            if !found.is_of_claude() || found.cwd.is_empty() {
                return ControlFlow::Continue(());
            }
            if !is_uuid(&head.id) && !found.session_id.is_empty() {
                head.id.clone_from(&found.session_id);
            }
            if !is_conversation {
                is_conversation = true;
                head.is_subagent = found.is_sidechain;
                head.is_headless = found.entrypoint.starts_with("sdk");
                head.cwd = Some(PathBuf::from(&found.cwd));
            }
            // A session of 2.0 that only warms up a subagent begins with this word.
            if found.kind == "user" {
                head.first = Some(found.uuid);
                head.copied_from = found.forked_from.0.map(|origin| origin.session_id);
                let text = fields.read::<WireTurn<'_>>().and_then(|turn| typed::text(&turn));
                head.is_subagent |= found.is_sidechain && text.as_deref() == Some("Warmup");
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(head)
    }

    fn turns(&self, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError> {
        let chain =
            Chain::read(&mut Lines::open(&session.path)?).map_err(NativeError::file(&session.path))?;
        let (path, abandoned) = (session.path.clone(), chain.abandoned);
        let parser =
            ClaudeParser { path: path.clone(), chain, record: Record::default(), subagents: HashSet::new() };
        let mut turns = LineTurns::of(path, Lines::open(&session.path)?, parser);
        if abandoned > 0 {
            let entries = counted(abandoned, "entry").replace("entrys", "entries");
            turns.problem(&format!("an older branch ({entries})"), "the user went back in the program");
        }
        Ok(Box::new(turns))
    }
}

/// The fields by which a line is known as Claude Code's.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LineHead<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    session_id: String,
    #[serde(default, deserialize_with = "lenient")]
    uuid: String,
    #[serde(default, deserialize_with = "lenient")]
    cwd: String,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: String,
    #[serde(default, deserialize_with = "lenient")]
    entrypoint: String,
    #[serde(default, deserialize_with = "lenient")]
    is_sidechain: bool,
    #[serde(default, deserialize_with = "lenient")]
    custom_title: Option<String>,
    /// The origin of a line that `/branch` copied. `--fork-session` copies lines without a word.
    #[serde(default)]
    forked_from: Loose<Origin>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Origin {
    #[serde(default, deserialize_with = "lenient")]
    session_id: String,
}

impl LineHead<'_> {
    fn is_of_claude(&self) -> bool {
        // Qwen Code has the same fields, and `parts` instead of `content`.
        #[derive(Deserialize)]
        struct Content<'a> {
            #[serde(default, borrow)]
            content: Option<&'a RawValue>,
        }
        let has_content =
            || self.message.and_then(crate::wire::read::<Content<'_>>).is_some_and(|m| m.content.is_some());
        match self.kind.as_str() {
            "user" | "assistant" => !self.session_id.is_empty() && !self.uuid.is_empty() && has_content(),
            "system" | "attachment" | "progress" => !self.session_id.is_empty() && !self.uuid.is_empty(),
            _ => false,
        }
    }
}

/// Parses the lines of the chain, and the files of subagents.
struct ClaudeParser {
    /// The file of the session.
    path: PathBuf,
    chain: Chain,
    record: Record,
    /// The subagents whose files were read.
    subagents: HashSet<String>,
}

impl ClaudeParser {
    /// Reads the calls of a subagent, whose result is one of the outputs, and puts them before it.
    fn with_subagent(&mut self, agent: &str, outputs: Vec<AgentOutput>) -> Vec<AgentOutput> {
        let result = outputs.iter().find_map(|output| match output {
            AgentOutput::Event(Event::ToolResult(result)) => Some(result.tool_use_id.clone()),
            _ => None,
        });
        let is_name = agent.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        let Some(call) = result.filter(|_| is_name && self.subagents.insert(agent.to_owned())) else {
            return outputs;
        };
        let name = format!("agent-{agent}.jsonl");
        let beside = self.path.with_file_name(&name);
        let below = self.path.with_extension("").join("subagents").join(&name);
        let Some(mut lines) = [below, beside].iter().find_map(|path| Lines::open(path).ok()) else {
            return outputs;
        };
        let mut all = Vec::new();
        while let Ok(Some(line)) = lines.next() {
            if let Line::Whole(line) = line {
                all.extend(self.record.subagent_line(&call, line));
            }
            if all.len() > MOST_OF_SUBAGENT {
                break;
            }
        }
        all.extend(outputs);
        all
    }
}

impl LineParser for ClaudeParser {
    fn line(&mut self, number: u64, line: &[u8]) -> Vec<AgentOutput> {
        if self.chain.is_left_out(number) {
            return Vec::new();
        }
        let outputs = self.record.line(line);
        match self.record.take_subagent() {
            Some(agent) => self.with_subagent(&agent, outputs),
            None => outputs,
        }
    }

    fn end(&mut self) -> Vec<AgentOutput> {
        self.record.end(&Ending::default())
    }

    fn has_content(&self) -> bool {
        self.record.has_content()
    }

    fn turn(&self) -> (&str, Option<Timestamp>) {
        self.record.turn()
    }

    fn was_open(&self) -> bool {
        self.record.was_open()
    }

    fn take_summary(&mut self) -> Option<String> {
        self.record.take_summary()
    }

    fn title(&self) -> Option<&str> {
        self.chain.title.as_deref()
    }
}

/// Returns the id of a session from the name of its file; `None` for another file, such as that of a subagent.
pub(super) fn session_id(name: &str) -> Option<&str> {
    let id = name.strip_suffix(".zst").unwrap_or(name).strip_suffix(".jsonl")?;
    (!id.starts_with("agent-")).then_some(id)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Returns the name of the folder of a directory's sessions: every character but letters and digits of ASCII is a `-`.
pub(super) fn folder_name(directory: &Path) -> String {
    files::with_dashes(directory).chars().take(LONGEST_NAME).collect()
}

/// Returns whether the folder of sessions can be that of a directory, or of one below it.
fn is_within(folder: &[u8], name: &[u8]) -> bool {
    folder
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-") || name.len() >= LONGEST_NAME)
}
