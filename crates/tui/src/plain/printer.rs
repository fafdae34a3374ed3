//! News as lines: each text with its author, each tool call with its result, the end of a turn.

use azureal::core::agent::AgentOutput;
use azureal::core::event::Event;
use azureal::desk::{News, PaneId, TurnNews};
use azureal::transcript::{Author, Block, Call, CallState, Content, Text, Transcript, ending};
use azureal::{Seq, StoredEvent};

/// The most characters of one text. `/pager` shows it whole.
const LONGEST: usize = 100_000;

/// Prints the news of the pane that is shown, and the ends of turns of the others.
#[derive(Default)]
pub(super) struct Printer {
    transcript: Transcript,
    /// The number of blocks that are printed.
    printed: usize,
    next: Seq,
}

impl Printer {
    /// Returns the lines for news. `shown` is the pane that is shown.
    pub(super) fn take(&mut self, news: &News, shown: PaneId) -> Vec<String> {
        match news {
            News::Opened(opened) if opened.pane == shown => self.opened(&opened.events),
            News::Appended { pane, events } if *pane == shown => {
                self.stored(events);
                self.finished(true)
            }
            News::Turn { pane, news } if *pane == shown => self.turn(news),
            News::Turn { pane, news } => match **news {
                TurnNews::Over { .. } => vec![format!("slot {}: turn done\x07", pane.0)],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Prints the last turn of a session that was opened.
    fn opened(&mut self, events: &[StoredEvent]) -> Vec<String> {
        *self = Self::default();
        self.stored(events);
        let blocks = self.transcript.blocks();
        let is_prompt =
            |block: &Block| matches!(&block.content, Content::Text(text) if text.author == Author::User);
        self.printed = blocks.iter().rposition(is_prompt).unwrap_or(0);
        self.finished(true)
    }

    fn stored(&mut self, events: &[StoredEvent]) {
        for stored in events {
            match stored.event() {
                Ok(event) => self.transcript.push(stored.seq, &event),
                Err(error) => self.transcript.damaged(stored.seq, &stored.kind, &error.to_string()),
            }
            self.next = stored.seq.next();
        }
    }

    fn turn(&mut self, news: &TurnNews) -> Vec<String> {
        match news {
            TurnNews::Waiting(text) | TurnNews::Progress(text) => vec![format!("status: {text}")],
            TurnNews::Compacting { agent } => vec![format!("status: {agent} compacts the session")],
            TurnNews::Accepted { agent, model, .. } => vec![match model {
                Some(model) => format!("status: {agent} {model} is asked"),
                None => format!("status: {agent} is asked"),
            }],
            TurnNews::Began { prompt, first, is_ours, .. } => {
                // Calls belong to one turn, so nothing of the turns before is needed.
                *self = Self { next: *first, ..Self::default() };
                match prompt {
                    Some(prompt) if !is_ours => vec![labelled("you", prompt)],
                    _ => Vec::new(),
                }
            }
            TurnNews::Output(outputs) => {
                for output in outputs {
                    if let AgentOutput::Event(event) = output {
                        self.event(event);
                    }
                }
                self.finished(false)
            }
            TurnNews::Over { error, .. } => {
                let mut lines = self.finished(true);
                *self = Self { next: self.next, ..Self::default() };
                // The reason is a notice of the state.
                lines.push(if error.is_some() { "turn failed\x07" } else { "turn done\x07" }.to_owned());
                lines
            }
            TurnNews::Stored { complete, .. } => {
                let mut lines = self.finished(true);
                lines.push(format!("end: {}", ending(complete).join(", ")));
                lines
            }
            TurnNews::Meter(_) | TurnNews::Question(_) | TurnNews::Notice(_) => Vec::new(),
        }
    }

    fn event(&mut self, event: &Event) {
        // The prompt was typed here, or printed when the turn began.
        if !matches!(event, Event::UserMessage(_)) {
            self.transcript.push(self.next, event);
        }
        self.next = self.next.next();
    }

    /// Returns the lines of blocks that nothing changes any more, or of all.
    fn finished(&mut self, all: bool) -> Vec<String> {
        let new = self.transcript.blocks().iter().skip(self.printed);
        let new: Vec<&Block> = new.take_while(|block| all || block.is_stable()).collect();
        self.printed += new.len();
        new.into_iter().filter_map(block_text).collect()
    }
}

/// Returns a block as text; `None` if there is nothing to say.
pub(super) fn block_text(block: &Block) -> Option<String> {
    match &block.content {
        Content::Text(text) => (!text.source.trim().is_empty()).then(|| self::text(text)),
        Content::Call(call) => Some(self::call(call)),
        Content::Notice(_, text) => Some(format!("notice: {text}")),
        Content::End(complete) => Some(format!("end: {}", ending(complete).join(", "))),
    }
}

fn text(text: &Text) -> String {
    let agent = text.agent.as_deref().unwrap_or("agent");
    let label = match text.author {
        Author::User => "you".to_owned(),
        Author::Agent => agent.to_owned(),
        Author::Subagent => format!("{agent}, subagent"),
        Author::Reasoning => format!("{agent}, thinking"),
        Author::Plan => format!("{agent}, plan"),
        Author::System => "system".to_owned(),
    };
    let source = if text.is_markdown() { tables_as_sentences(&text.source) } else { text.source.clone() };
    labelled(&label, &source)
}

fn call(call: &Call) -> String {
    let state = match call.state {
        CallState::Running => "running",
        CallState::Done => "done",
        CallState::Failed => "failed",
        CallState::NoResult => "no result",
    };
    let by = if call.is_subagents { "subagent's tool" } else { "tool" };
    let summary = if call.summary.is_empty() { String::new() } else { format!(", {}", call.summary) };
    let mut text = format!("{by}: {} {}, {state}{summary}", call.tool, call.key);
    for line in &call.diff {
        text.push_str("\n  ");
        text.push_str(line);
    }
    if call.state == CallState::Failed && !call.output.is_empty() {
        text.push('\n');
        text.push_str(call.output.trim_end());
    }
    cut(text)
}

fn labelled(label: &str, text: &str) -> String {
    cut(format!("{label}: {}", text.trim_end()))
}

fn cut(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}… /pager shows the rest", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Writes the tables of a Markdown text as sentences: `Name: token.rs, Lines: 212.`
fn tables_as_sentences(source: &str) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let mut out = Vec::new();
    let mut index = 0;
    let mut is_code = false;
    while let Some(line) = lines.get(index) {
        index += 1;
        is_code ^= line.trim_start().starts_with("```");
        let is_table = !is_code && line.contains('|') && lines.get(index).is_some_and(|next| is_rule(next));
        if !is_table {
            out.push((*line).to_owned());
            continue;
        }
        let heads = cells(line);
        index += 1;
        while let Some(row) = lines.get(index).filter(|row| row.contains('|')) {
            index += 1;
            let pairs = heads.iter().zip(cells(row)).filter(|(_, cell)| !cell.is_empty());
            let pairs: Vec<String> = pairs.map(|(head, cell)| format!("{head}: {cell}")).collect();
            out.push(format!("{}.", pairs.join(", ")));
        }
    }
    out.join("\n")
}

/// Returns whether a line separates the head of a table from its rows.
fn is_rule(line: &str) -> bool {
    line.contains('-') && line.contains('|') && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').unwrap_or(line);
    line.split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_become_sentences() {
        let source =
            "Files:\n\n| Name | Lines |\n|---|---:|\n| token.rs | 212 |\n| lock.rs |  |\n\nDone | really.";
        assert_eq!(
            tables_as_sentences(source),
            "Files:\n\nName: token.rs, Lines: 212.\nName: lock.rs.\n\nDone | really."
        );
        let code = "```\n| a | b |\n|---|---|\n```";
        assert_eq!(tables_as_sentences(code), code);
    }
}
