//! The fold of events into blocks.

use azureal_core::event::{CommandRecord, MessageEvent, SystemMessage, ToolResult};
use azureal_core::{Block as Part, Event, Role, Seq, duration_text};

use crate::{Author, Block, Call, CallState, Content, Level, Places, Text};

/// The longest text that is kept of an answer that is being written, in bytes.
const LONGEST_LIVE: usize = 1 << 20;
/// The bytes that stay of each end of a longer one.
const LIVE_END: usize = LONGEST_LIVE / 4;

/// Folds events into blocks.
///
/// Events come in the order of their numbers. An event whose number is known is ignored: a turn that was shown while it ran is not shown
/// again when it is stored.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    places: Places,
    blocks: Vec<Block>,
    /// The last event.
    last: Option<Seq>,
    /// The calls that have no result yet: their ids and their blocks.
    open: Vec<(String, usize)>,
    /// The agent and the model that answer.
    agent: Option<String>,
    model: Option<String>,
    /// Whether the last block is a text that is being written.
    is_writing: bool,
    /// The number of the last turn, if turns are counted.
    turn: Option<u64>,
    /// The last text that was [taken](Self::take_stable), without its source: the next one may need no heading.
    before: Option<Text>,
}

impl Transcript {
    /// Creates a transcript with paths relative to these places.
    pub fn new(places: Places) -> Self {
        Self { places, ..Self::default() }
    }

    /// Counts turns: the next prompt begins the turn after this one.
    pub fn after_turn(self, turn: u64) -> Self {
        Self { turn: Some(turn), ..self }
    }

    /// Returns the blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the number of the last event.
    pub fn last(&self) -> Option<Seq> {
        self.last
    }

    /// Adds an event.
    pub fn push(&mut self, seq: Seq, event: &Event) {
        if self.last.is_some_and(|last| seq <= last) {
            return;
        }
        self.last = Some(seq);
        let writing = if self.is_writing { self.blocks.pop() } else { None };
        self.is_writing = false;
        let before = self.blocks.len();
        self.fold(seq, event);
        let Some(mut writing) = writing else { return };
        match event {
            // The finished text takes the place of the one that was being written.
            Event::AssistantText(text) if text.subagent.is_none() => {
                if let Some(block) = self.blocks.get_mut(before) {
                    block.version = writing.version + 1;
                }
            }
            Event::Plan(_) | Event::Complete(_) | Event::UserMessage(_) => {}
            _ => {
                (writing.seq, writing.last) = (seq.next(), seq.next());
                self.blocks.push(writing);
                self.is_writing = true;
            }
        }
    }

    /// Adds a row that cannot be read.
    pub fn damaged(&mut self, seq: Seq, kind: &str, why: &str) {
        if self.last.is_none_or(|last| seq > last) {
            self.last = Some(seq);
            self.notice(seq, Level::Error, format!("event {seq} ({kind}) cannot be read: {why}"));
        }
    }

    /// Adds to the text that the agent is writing, which will be event `seq`. The finished text takes its place.
    pub fn push_delta(&mut self, seq: Seq, delta: &str) {
        if delta.is_empty() || self.last.is_some_and(|last| seq <= last) {
            return;
        }
        if !self.is_writing {
            let text = Text { is_finished: false, ..Text::new(Author::Agent, "") };
            self.text(seq, text);
            self.is_writing = true;
        }
        if let Some(block) = self.blocks.last_mut()
            && let Content::Text(text) = &mut block.content
        {
            text.source.push_str(delta);
            bound(&mut text.source);
            block.version = block.version.wrapping_add(1);
        }
    }

    /// Adds a notice that is no event, such as a retry, after the last block. It is not kept by [`prepend`](Self::prepend).
    pub fn note(&mut self, level: Level, text: impl Into<String>) {
        let writing = if self.is_writing { self.blocks.pop() } else { None };
        let seq = self.last.unwrap_or(Seq::START.next());
        self.notice(seq, level, text.into());
        self.blocks.extend(writing);
    }

    /// Removes the blocks that no expected event changes, up to the first that may change, and returns them.
    ///
    /// For front ends that print blocks once: what was taken is not kept, so that a session of any length takes little memory.
    pub fn take_stable(&mut self) -> Vec<Block> {
        let end = self.blocks.iter().position(|block| !block.is_stable()).unwrap_or(self.blocks.len());
        let rest = self.blocks.split_off(end);
        let taken = std::mem::replace(&mut self.blocks, rest);
        self.forget(&taken);
        taken
    }

    /// Removes all blocks that no expected event changes, and returns them. A call that is still running is overtaken by those after it.
    pub fn take_finished(&mut self) -> Vec<Block> {
        let (taken, rest) = std::mem::take(&mut self.blocks).into_iter().partition(Block::is_stable);
        self.blocks = rest;
        self.forget(&taken);
        taken
    }

    /// Removes all blocks and returns them as they are.
    pub fn take_all(&mut self) -> Vec<Block> {
        let taken = std::mem::take(&mut self.blocks);
        self.is_writing = false;
        self.forget(&taken);
        taken
    }

    /// Remembers what the blocks that follow need to know of those that were taken.
    fn forget(&mut self, taken: &[Block]) {
        if let Some(text) = last_text(taken) {
            self.before = Some(Text { source: String::new(), ..text.clone() });
        }
        self.find_open();
    }

    /// Replaces an event by its full form. Returns whether that changed a block.
    pub fn replace(&mut self, seq: Seq, event: &Event) -> bool {
        match event {
            Event::ToolCall(call) => self.replace_in(seq, &call.tool_use_id, |shown, places| {
                let short = shown.clone();
                shown.describe(&call.input, call.file_path.as_deref(), places);
                match short.state {
                    CallState::Running | CallState::NoResult => {}
                    _ if shown.output != short.output => shown.state = short.state,
                    // The places of the lines are those that the result has.
                    CallState::Done if !short.diff.is_empty() => {
                        shown.answer_with(short.output, short.diff, false, short.omitted);
                    }
                    state => {
                        shown.answer_with(
                            short.output,
                            Vec::new(),
                            state == CallState::Failed,
                            short.omitted,
                        );
                    }
                }
            }),
            Event::ToolResult(result) => {
                self.replace_in(seq, &result.tool_use_id, |shown, places| shown.answer(result, places))
            }
            Event::AssistantText(said) => self.replace_text(seq, &said.text),
            Event::Reasoning(thought) => self.replace_text(seq, &thought.text),
            Event::UserMessage(prompt) => self.replace_text(seq, &prompt.content),
            _ => false,
        }
    }

    /// Changes the call that begins or ends with an event.
    fn replace_in(&mut self, seq: Seq, id: &str, change: impl Fn(&mut Call, &Places)) -> bool {
        let first = self.blocks.partition_point(|block| block.seq < seq);
        let begins = self.blocks.get(first).filter(|block| block.seq == seq).map(|_| first);
        let ends = || {
            let before = self.blocks.get(..first)?;
            before.iter().rposition(|block| block.last == seq)
        };
        let Some(index) = begins.or_else(ends) else { return false };
        let Some(block) = self.blocks.get_mut(index) else { return false };
        let Content::Call(call) = &mut block.content else { return false };
        if call.id != id {
            return false;
        }
        let old = call.clone();
        change(call, &self.places);
        let has_changed = *call != old;
        block.version = block.version.wrapping_add(u32::from(has_changed));
        has_changed
    }

    fn replace_text(&mut self, seq: Seq, source: &str) -> bool {
        let first = self.blocks.partition_point(|block| block.seq < seq);
        let Some(block) = self.blocks.get_mut(first).filter(|block| block.seq == seq) else { return false };
        let Content::Text(text) = &mut block.content else { return false };
        if text.source == source || !text.is_finished {
            return false;
        }
        source.clone_into(&mut text.source);
        block.version = block.version.wrapping_add(1);
        true
    }

    /// Puts the blocks of earlier events in front. `earlier` has been given the events before the first of this one.
    pub fn prepend(&mut self, mut earlier: Self) {
        let is_prompt =
            |block: &Block| matches!(&block.content, Content::Text(text) if text.author == Author::User);
        let first_prompt = self.blocks.iter().position(is_prompt).unwrap_or(self.blocks.len());
        let rest = self.blocks.split_off(first_prompt);
        let ends = |block: &Block| matches!(block.content, Content::End(_));
        let has_ended = !rest.is_empty() || self.blocks.iter().any(ends);
        for block in std::mem::take(&mut self.blocks) {
            // A result whose call is in the earlier part.
            if let Some(block) = earlier.merge(block) {
                self.blocks.push(block);
            }
        }
        self.blocks.extend(rest);
        for block in &mut self.blocks {
            if let Content::Text(text) = &mut block.content
                && text.author == Author::Agent
                && text.agent.is_none()
            {
                text.agent.clone_from(&earlier.agent);
                text.model = text.model.take().or_else(|| earlier.model.clone());
                block.version = block.version.wrapping_add(1);
            }
        }
        if has_ended {
            earlier.close_calls();
        }
        earlier.blocks.append(&mut self.blocks);
        self.blocks = earlier.blocks;
        self.last = self.last.or(earlier.last);
        self.turn = self.turn.or(earlier.turn);
        if self.agent.is_none() {
            (self.agent, self.model) = (earlier.agent, self.model.take().or(earlier.model));
        }
        self.find_open();
        self.set_headings();
    }

    /// Gives an open call the result of a block that has only a result. Returns the block if it is none.
    fn merge(&mut self, block: Block) -> Option<Block> {
        let Content::Call(answered) = &block.content else { return Some(block) };
        let is_answer =
            block.seq == block.last && matches!(answered.state, CallState::Done | CallState::Failed);
        let at = self.open.iter().rposition(|(id, _)| *id == answered.id).filter(|_| is_answer);
        let Some((_, index)) = at.map(|at| self.open.remove(at)) else { return Some(block) };
        let shown = self.blocks.get_mut(index)?;
        let Content::Call(call) = &mut shown.content else { return Some(block) };
        let is_error = answered.state == CallState::Failed;
        call.answer_with(answered.output.clone(), answered.diff.clone(), is_error, answered.omitted);
        shown.last = block.last;
        shown.version = shown.version.wrapping_add(1);
        None
    }

    /// Finds the calls that have no result yet.
    fn find_open(&mut self) {
        let running = self.blocks.iter().enumerate().filter_map(|(index, block)| match &block.content {
            Content::Call(call) if call.state == CallState::Running => Some((call.id.clone(), index)),
            _ => None,
        });
        self.open = running.collect();
    }

    fn set_headings(&mut self) {
        let mut before: Option<Text> = None;
        for block in &mut self.blocks {
            let Content::Text(text) = &mut block.content else { continue };
            let has_heading = needs_heading(before.as_ref(), text);
            if text.has_heading != has_heading {
                text.has_heading = has_heading;
                block.version = block.version.wrapping_add(1);
            }
            before = Some(Text { source: String::new(), ..text.clone() });
        }
    }

    fn fold(&mut self, seq: Seq, event: &Event) {
        match event {
            Event::Init(init) => {
                let agent = init.agent.clone().filter(|agent| !agent.is_empty());
                let model = Some(init.model.clone()).filter(|model| !model.is_empty());
                self.model = model.or_else(|| init.requested_model.clone());
                self.agent = agent;
                let is_elsewhere = self.places.project.as_ref().is_some_and(|project| *project != init.cwd);
                if is_elsewhere && !init.cwd.is_empty() {
                    self.notice(seq, Level::Info, format!("in {}", self.places.shown(&init.cwd)));
                }
            }
            Event::UserMessage(prompt) => self.prompt(seq, &prompt.content),
            Event::AssistantText(said) => {
                let author = if said.subagent.is_some() { Author::Subagent } else { Author::Agent };
                self.text(seq, Text::new(author, &said.text));
            }
            Event::Reasoning(thought) => self.text(seq, Text::new(Author::Reasoning, &thought.text)),
            Event::Plan(plan) => {
                let title = Some(plan.name.clone()).filter(|name| !name.is_empty());
                self.text(seq, Text { title, ..Text::new(Author::Plan, &plan.content) });
            }
            Event::SystemMessage(system) => {
                self.text(seq, Text::new(Author::System, &system.content));
                if let Some(taken) = context_taken(system) {
                    self.notice(seq, Level::Info, taken);
                }
            }
            Event::Message(message) => self.message(seq, message),
            Event::ToolCall(call) => self.call(seq, Call::begun(call, &self.places)),
            Event::ToolResult(result) => self.result(seq, result),
            Event::Complete(complete) => {
                self.close_calls();
                // A turn that azureal stopped to compact the session has not ended: its end comes later.
                if !complete.continues {
                    self.add(seq, Content::End(complete.clone()));
                }
            }
            Event::ModelSwitch(switch) => {
                self.model = Some(switch.model.clone());
                self.notice(seq, Level::Info, switch.to_string());
            }
            Event::Hook(hook) => {
                let output = hook.output.trim_end();
                let output = if output.is_empty() { String::new() } else { format!("\n{output}") };
                self.notice(seq, Level::Info, format!("hook {}{output}", hook.name));
            }
            Event::Command(command) => self.notice(seq, Level::Info, format!("command {}", command.name)),
            Event::Compacting => self.notice(seq, Level::Info, "compacting".to_owned()),
            Event::Compacted => self.notice(seq, Level::Info, "compacted".to_owned()),
            Event::Error(error) => self.notice(seq, Level::Error, error.message.clone()),
            Event::Changes(changes) => self.notice(seq, Level::Info, changes.summary()),
            Event::Undo(undo) => self.notice(seq, Level::Info, undo.summary()),
            Event::Unknown(unknown) => {
                self.notice(seq, Level::Warning, format!("unknown event {}", unknown.kind()));
            }
        }
    }

    fn prompt(&mut self, seq: Seq, content: &str) {
        self.close_calls();
        self.open.clear();
        self.turn = self.turn.map(|turn| turn + 1);
        self.text(seq, Text { turn: self.turn, ..Text::new(Author::User, content) });
    }

    fn message(&mut self, seq: Seq, message: &MessageEvent) {
        for part in &message.content {
            match (part, message.role) {
                (Part::Text { text }, Role::User) => self.prompt(seq, text),
                (Part::Text { text }, Role::Assistant) => self.text(seq, Text::new(Author::Agent, text)),
                (Part::Text { text }, Role::System) => self.text(seq, Text::new(Author::System, text)),
                (Part::Image(image), _) => self.notice(seq, Level::Info, image.note()),
                (Part::ToolUse { id, name, input }, _) => {
                    let mut call = Call::without_call(id, name, false);
                    call.describe(input, None, &self.places);
                    self.call(seq, call);
                }
                (Part::ToolResult { tool_use_id, content, is_error }, _) => {
                    let result = ToolResult {
                        tool_use_id: tool_use_id.clone(),
                        content: content.text().into_owned(),
                        is_error: *is_error,
                        ..ToolResult::default()
                    };
                    self.result(seq, &result);
                }
            }
        }
    }

    fn text(&mut self, seq: Seq, mut text: Text) {
        if matches!(text.author, Author::Agent) {
            text.agent.clone_from(&self.agent);
            text.model.clone_from(&self.model);
        }
        let before = last_text(&self.blocks).or(self.before.as_ref());
        text.has_heading = needs_heading(before, &text);
        self.add(seq, Content::Text(text));
    }

    fn call(&mut self, seq: Seq, call: Call) {
        self.open.push((call.id.clone(), self.blocks.len()));
        self.add(seq, Content::Call(call));
    }

    fn result(&mut self, seq: Seq, result: &ToolResult) {
        // Ids may be used again: the last call counts.
        let at = self.open.iter().rposition(|(id, _)| *id == result.tool_use_id);
        let index = at.map(|at| self.open.remove(at).1);
        if let Some(block) = index.and_then(|index| self.blocks.get_mut(index))
            && let Content::Call(call) = &mut block.content
        {
            call.answer(result, &self.places);
            block.last = seq;
            block.version = block.version.wrapping_add(1);
            return;
        }
        let name = if result.tool_name.is_empty() { "result" } else { &result.tool_name };
        let mut call = Call::without_call(&result.tool_use_id, name, result.subagent.is_some());
        call.answer(result, &self.places);
        self.add(seq, Content::Call(call));
    }

    /// Marks the calls that are still open: their turn has ended. A late result still finds them.
    fn close_calls(&mut self) {
        for (_, index) in &self.open {
            if let Some(block) = self.blocks.get_mut(*index)
                && let Content::Call(call) = &mut block.content
                && call.state == CallState::Running
            {
                call.state = CallState::NoResult;
                block.version = block.version.wrapping_add(1);
            }
        }
    }

    fn notice(&mut self, seq: Seq, level: Level, text: String) {
        self.add(seq, Content::Notice(level, text));
    }

    fn add(&mut self, seq: Seq, content: Content) {
        let before = self.blocks.last().filter(|block| block.seq == seq);
        let part = before.map_or(0, |block| block.part.saturating_add(1));
        self.blocks.push(Block::new(seq, part, content));
    }
}

fn last_text(blocks: &[Block]) -> Option<&Text> {
    blocks.iter().rev().find_map(|block| match &block.content {
        Content::Text(text) => Some(text),
        _ => None,
    })
}

/// Returns whether a heading names the author of a text that follows another. A prompt always has one.
fn needs_heading(before: Option<&Text>, text: &Text) -> bool {
    text.author == Author::User
        || before.is_none_or(|before| {
            (before.author, &before.agent, &before.model, &before.title)
                != (text.author, &text.agent, &text.model, &text.title)
        })
}

/// Bounds a text that is being written: of a long one its two ends stay.
fn bound(text: &mut String) {
    if text.len() <= LONGEST_LIVE {
        return;
    }
    let head = text.floor_char_boundary(LIVE_END);
    let tail = text.ceil_char_boundary(text.len() - LIVE_END);
    let missing = format!("\n\n[{} left out]\n\n", crate::wrap::size_text(tail - head));
    text.replace_range(head..tail, &missing);
}

/// Says when the context in a system message was taken, and by which commands; `None` if it has no context.
fn context_taken(system: &SystemMessage) -> Option<String> {
    let commands = system.context_commands.as_deref().unwrap_or_default();
    if system.context_executed_at.is_none() && commands.is_empty() {
        return None;
    }
    let mut text = "context taken".to_owned();
    if let Some(at) = &system.context_executed_at {
        text.push_str(&format!(" {at}"));
    }
    let commands: Vec<String> = commands
        .iter()
        .map(|CommandRecord { name, command, exit_code, duration_ms }| {
            let name = if name == command { String::new() } else { format!("{name}: ") };
            let code = exit_code.filter(|code| *code != 0).map(|code| format!(", exit code {code}"));
            format!("{name}`{command}` ({}{})", duration_text(*duration_ms), code.unwrap_or_default())
        })
        .collect();
    if !commands.is_empty() {
        text.push_str(&format!(" by {}", commands.join("; ")));
    }
    Some(text)
}
