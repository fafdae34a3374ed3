//! The answers of the built-in agent.
//!
//! A pure function of the frame: the same session gives the same answer on every machine.

use std::collections::BTreeMap;

use azureal_core::Event;
use azureal_core::agent::AgentOutput;
use azureal_core::event::{AssistantText, Complete, Init, Outcome};

use super::record::Record;
use super::{NAME, Persona};
use crate::unreadable::shorten;

/// The characters of a text that are quoted.
const QUOTED_CHARS: usize = 90;
/// The beginnings of their answers.
const ADA: &str = "Ada here";
const BEN: &str = "Hello, this is Ben";
/// The number of items of a sort that are named.
const NAMED: usize = 3;

/// Answers a frame, given as one text: the outputs of a whole run, in order.
///
/// `cwd` is where the program runs, for the record.
pub fn answer(persona: Persona, cwd: &str, frame: &str) -> Vec<AgentOutput> {
    let record = Record::read(frame);
    let text = match persona {
        Persona::Ada => ada(&record),
        Persona::Ben => ben(&record),
    };
    let mut outputs = vec![AgentOutput::Event(Event::Init(Init {
        cwd: cwd.to_owned(),
        model: persona.name().to_owned(),
        agent: Some(NAME.to_owned()),
        ..Init::default()
    }))];
    outputs.extend(text.split_inclusive(' ').map(|word| AgentOutput::Delta(word.to_owned())));
    outputs
        .push(AgentOutput::Event(Event::AssistantText(AssistantText { text, ..AssistantText::default() })));
    outputs.push(AgentOutput::Event(Event::Complete(Complete {
        success: true,
        outcome: Some(Outcome::Done),
        ..Complete::default()
    })));
    outputs
}

/// The subject of a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Topic {
    Asked,
    Done,
    Changed,
    Failed,
}

/// Finds the subjects of a prompt by its words; all of them if it names none.
fn topics(prompt: &str) -> Vec<Topic> {
    let words: Vec<String> =
        prompt.split(|c: char| !c.is_alphanumeric()).map(str::to_ascii_lowercase).collect();
    let about = |stems: &[&str]| words.iter().any(|word| stems.iter().any(|stem| word.starts_with(stem)));
    let all = [
        (Topic::Asked, about(&["ask", "question", "prompt", "want"])),
        (Topic::Done, about(&["done", "did", "ran", "command", "tool", "happen"])),
        (Topic::Changed, about(&["chang", "file", "edit", "diff", "wrote", "touch"])),
        (Topic::Failed, about(&["fail", "error", "wrong", "broke", "problem"])),
    ];
    let named: Vec<Topic> = all.iter().filter(|(_, is)| *is).map(|(topic, _)| *topic).collect();
    if named.is_empty() { all.map(|(topic, _)| topic).into() } else { named }
}

fn ada(record: &Record<'_>) -> String {
    let mut lines = vec![
        format!(
            "{ADA}, azureal's built-in offline agent: no model, no network. I read the record of this session \
             and say what is in it."
        ),
        String::new(),
        format!("You asked: {}", quote(record.prompt)),
        String::new(),
    ];
    if is_empty(record) {
        lines.push("The record is empty: this prompt is the first.".to_owned());
    } else {
        lines.push("On record:".to_owned());
        if let Some(summary) = record.summary {
            lines.push(format!("- summary of the earlier part: {}", quote(summary)));
        }
        for topic in topics(record.prompt) {
            let (name, said) = match topic {
                Topic::Asked => ("asked", asked(record)),
                Topic::Done => ("done", done(record)),
                Topic::Changed => ("changed", changed(record)),
                Topic::Failed => ("failed", failed(record)),
            };
            lines.push(format!("- {name}: {}", said.as_deref().unwrap_or("nothing")));
        }
        if let Some(last) = last_answer(record) {
            lines.push(format!("- last answer: {last}"));
        }
    }
    lines.push(String::new());
    lines.push(
        "Claude Code or Codex can continue from here: the same session, `-a claude` or `-a codex`."
            .to_owned(),
    );
    lines.join("\n")
}

fn ben(record: &Record<'_>) -> String {
    let mut text = format!(
        "{BEN}. I am the built-in offline agent that comes with azureal; there is no model behind \
         me, only the record of this session. You want to know: {}. ",
        quote(record.prompt)
    );
    if is_empty(record) {
        text.push_str("Nothing was said before that, so I have nothing to tell yet. ");
    }
    if let Some(summary) = record.summary {
        text.push_str(&format!("The earlier part was summed up as {}. ", quote(summary)));
    }
    let topics = if is_empty(record) { Vec::new() } else { topics(record.prompt) };
    for topic in topics {
        let sentence = match topic {
            Topic::Asked => asked(record).map(|said| format!("Until now you asked {said}. ")),
            Topic::Done => done(record).map(|said| format!("The agents before me used {said}. ")),
            Topic::Changed => changed(record).map(|said| format!("They changed {said}. ")),
            Topic::Failed => match failed(record) {
                Some(said) => Some(format!("Not everything went well: {said}. ")),
                None => Some("Nothing failed on the way. ".to_owned()),
            },
        };
        text.push_str(&sentence.unwrap_or_default());
    }
    if let Some(last) = last_answer(record) {
        text.push_str(&format!("The last answer was {last}. "));
    }
    text.push_str("Any other agent can take over from me and will be told all of this.");
    text
}

fn is_empty(record: &Record<'_>) -> bool {
    let Record { summary, asked, answered, done, failed, system: _, prompt: _ } = record;
    summary.is_none() && asked.is_empty() && answered.is_empty() && done.is_empty() && failed.is_empty()
}

fn asked(record: &Record<'_>) -> Option<String> {
    named(&record.asked.iter().map(|text| quote(text)).collect::<Vec<_>>())
}

fn done(record: &Record<'_>) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (tool, _) in &record.done {
        *counts.entry(tool).or_default() += 1;
    }
    let (tool, about) = record.done.last()?;
    let times = |(tool, count): (&&str, &usize)| match count {
        1 => (*tool).to_owned(),
        count => format!("{tool} {count} times"),
    };
    let tools: Vec<String> = counts.iter().map(times).collect();
    let last = if about.is_empty() { (*tool).to_owned() } else { format!("{tool} {}", quote(about)) };
    Some(format!("{} (last: {last})", tools.join(", ")))
}

fn changed(record: &Record<'_>) -> Option<String> {
    named(&record.changed().into_iter().map(str::to_owned).collect::<Vec<_>>())
}

fn failed(record: &Record<'_>) -> Option<String> {
    let failure = |(tool, line): &(&str, &str)| match tool.is_empty() {
        true => quote(line),
        false => format!("{tool} {}", quote(line)),
    };
    named(&record.failed.iter().map(failure).collect::<Vec<_>>())
}

/// Quotes the last answer, unless it is one of this agent's, which only repeats the record.
fn last_answer(record: &Record<'_>) -> Option<String> {
    let last = record.answered.last()?;
    Some(match last {
        ada if ada.starts_with(ADA) => "Ada's, from this record".to_owned(),
        ben if ben.starts_with(BEN) => "Ben's, from this record".to_owned(),
        other => quote(other),
    })
}

/// Names the newest of several things, and the number of earlier ones.
fn named(things: &[String]) -> Option<String> {
    let newest = things.get(things.len().saturating_sub(NAMED)..)?;
    let earlier = things.len() - newest.len();
    match (newest.is_empty(), earlier) {
        (true, _) => None,
        (false, 0) => Some(newest.join(", ")),
        (false, earlier) => Some(format!("{}, and {earlier} before", newest.join(", "))),
    }
}

/// Quotes the beginning of a text, on one line.
fn quote(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("“{}”", shorten(&line, QUOTED_CHARS))
}

#[cfg(test)]
mod tests {
    use azureal_core::{ContextFrame, build_context};

    use super::*;

    fn text(persona: Persona, frame: &str) -> String {
        let outputs = answer(persona, "/p", frame);
        let deltas: String = outputs
            .iter()
            .filter_map(|output| match output {
                AgentOutput::Delta(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert!(outputs.contains(&AgentOutput::Event(Event::assistant(deltas.clone()))));
        deltas
    }

    fn frame(prompt: &str) -> String {
        let log = [
            r#"{"UserMessage":{"content":"Make the tests pass"}}"#,
            r#"{"ToolCall":{"tool_use_id":"1","tool_name":"Bash","input":{"command":"cargo test"}}}"#,
            r#"{"ToolResult":{"tool_use_id":"1","tool_name":"Bash","content":"Exit code 101\nx","is_error":true}}"#,
            r#"{"ToolCall":{"tool_use_id":"2","tool_name":"Edit","input":{"file_path":"src/lib.rs"}}}"#,
            r#"{"AssistantText":{"text":"They\npass now."}}"#,
        ]
        .map(|json| Event::from_json(json).unwrap());
        ContextFrame::new(build_context(None, None, &log), "", prompt).into_text()
    }

    #[test]
    fn both_say_what_is_on_record_in_their_own_voice() {
        let mut said = String::new();
        let after_ada = [Event::user("Hello"), Event::assistant(text(Persona::Ada, "Hello"))];
        let after_ada = ContextFrame::new(build_context(None, None, &after_ada), "", "And you?").into_text();
        for input in ["Hello".to_owned(), after_ada, frame("Where are we?"), frame("Which files changed?")] {
            for persona in Persona::ALL {
                said.push_str(&text(persona, &input));
                said.push_str("\n~~~~\n");
            }
        }
        insta::assert_snapshot!("voices", said);
    }

    #[test]
    fn it_always_says_what_it_is() {
        for persona in Persona::ALL {
            for prompt in ["", "x", "## User\n", "</azureal-session-context>", &"long ".repeat(10_000)] {
                for input in [prompt.to_owned(), frame(prompt)] {
                    let said = text(persona, &input);
                    assert!(said.contains("built-in offline agent") && said.contains("no model"), "{said}");
                    assert!(said.len() < 2000, "{said}");
                }
            }
        }
    }
}
