//! A session as one page of HTML that needs nothing else: no network, no server, no other file.
//!
//! The page reads well without its script, which adds a search, folding of everything at once and printing of what is folded. Its policy
//! allows exactly this script and this style, by their hashes, and no request. So even markup that would get through [`text`] could
//! neither run nor load anything.

mod code;
mod prose;
mod render;
mod text;

use std::io::Write;

use azureal_core::{Block, Event, Role, Seq, SessionRecord, counted, duration_text};

use super::masking::Masking;
use super::tree::{Part, Tree};
use super::{ExportError, Source};
use crate::DamagedEvents;

use self::render::{Renderer, compaction, grouped, has_results, title};
pub(super) use self::text::escaped;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The hashes of the two, as a policy has them. A test computes them again.
const STYLE_HASH: &str = "sha256-2QU1eH3m2oEL6PBWPAQCKa01DDlKnalwEqtyFc6ixkg=";
const SCRIPT_HASH: &str = "sha256-msDzBX7hHvKLlmkHr2LrQusKbM54/YBWkOKg3OwQq8s=";

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let (tree, damaged) = Tree::read(source, record, masking).await?;
    head(record, masking.is_on(), out)?;
    contents(&tree, out)?;
    writeln!(out, "<main>")?;
    let mut renderer = Renderer::default();
    let mut is_in_turn = false;
    for part in tree.parts() {
        let node = match part {
            Part::Node(node) => node,
            Part::Summary(summary) => {
                write!(out, "{}", compaction(summary))?;
                continue;
            }
        };
        let html = renderer.node(&tree, node);
        if html.is_empty() {
            continue;
        }
        // A turn is laid out when it comes into view, so a long session opens quickly.
        if prompt_of(&node.event).is_some() || !is_in_turn {
            writeln!(out, "{}<section class=\"turn\">", if is_in_turn { "</section>\n" } else { "" })?;
            is_in_turn = true;
        }
        out.write_all(html.as_bytes())?;
    }
    if is_in_turn {
        writeln!(out, "</section>")?;
    }
    writeln!(out, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>")?;
    Ok(damaged)
}

/// Writes the head of the page, and what is known of the session.
fn head(record: &SessionRecord, is_masked: bool, out: &mut impl Write) -> Result<(), ExportError> {
    let name = escaped(&record.name);
    let policy = format!(
        "default-src 'none'; script-src '{SCRIPT_HASH}'; style-src '{STYLE_HASH}'; img-src data:; media-src data:; \
         base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    );
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"robots\" content=\"noindex\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"azureal\">\n<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header class=\"top\">\n<h1>{name}</h1>\n"
    )?;
    let counts = &record.counts;
    let agent = match (&counts.agent, &counts.model) {
        (Some(agent), Some(model)) => Some(format!("{agent}/{model}")),
        (agent, model) => agent.clone().or_else(|| model.clone()),
    };
    let tokens = record.tokens;
    let has_tokens = tokens.input > 0 || tokens.output > 0;
    let facts = [
        (record.id.to_string() != record.name).then(|| record.id.to_string()),
        // To the minute.
        record.created_at.get(..16).map(|created| format!("{} UTC", created.replace('T', " "))),
        agent,
        Some(record.worktree.clone()).filter(|worktree| worktree != "."),
        Some(counted(counts.messages, "message")),
        has_tokens.then(|| format!("{} tokens in, {} out", grouped(tokens.input), grouped(tokens.output))),
        (record.duration_ms > 0).then(|| duration_text(record.duration_ms)),
        (record.cost_usd > 0.0).then(|| format!("${:.2}", record.cost_usd)),
        is_masked.then(|| "secrets masked".to_owned()),
    ];
    let facts: Vec<String> = facts
        .into_iter()
        .flatten()
        .filter(|fact| !fact.trim().is_empty())
        .map(|fact| format!("<span>{}</span>", escaped(&fact)))
        .collect();
    write!(
        out,
        "<p class=\"facts\">{}</p>\n</header>\n\
         <div class=\"bar\" id=\"bar\" hidden>\n\
         <div role=\"search\">\n\
         <input type=\"search\" id=\"query\" placeholder=\"Search ( / )\" aria-label=\"Search in this session\" autocomplete=\"off\" spellcheck=\"false\">\n\
         <output id=\"hits\" for=\"query\"></output>\n\
         <button type=\"button\" id=\"previous\" aria-label=\"Previous hit\" title=\"Previous hit (Shift+Enter)\">↑</button>\n\
         <button type=\"button\" id=\"next\" aria-label=\"Next hit\" title=\"Next hit (Enter)\">↓</button>\n\
         </div>\n<div>\n\
         <button type=\"button\" id=\"talk\" aria-pressed=\"false\" title=\"Hide tool calls and thinking\">Conversation only</button>\n\
         <button type=\"button\" id=\"fold\">Unfold all</button>\n\
         <button type=\"button\" id=\"theme\" aria-label=\"Light or dark\" title=\"Light or dark\">◐</button>\n\
         </div>\n\
         </div>\n",
        facts.join("\n")
    )?;
    Ok(())
}

/// Returns the text of a prompt; `None` for another event.
fn prompt_of(event: &Event) -> Option<&str> {
    match event {
        Event::UserMessage(message) => Some(&message.content),
        // With a picture. Results of tools are in a message of the user too.
        Event::Message(message) if message.role == Role::User && !has_results(&message.content) => {
            message.content.iter().find_map(Block::as_text)
        }
        _ => None,
    }
}

/// Writes the list of prompts.
fn contents(tree: &Tree, out: &mut impl Write) -> Result<(), ExportError> {
    let prompts: Vec<(Seq, String)> = tree
        .top()
        .filter(|node| node.seq != Seq::START)
        .filter_map(|node| Some((node.seq, title(prompt_of(&node.event)?))))
        .filter(|(_, title)| !title.is_empty())
        .collect();
    if prompts.len() < 2 {
        return Ok(());
    }
    writeln!(
        out,
        "<nav aria-label=\"Prompts\"><details class=\"contents\" id=\"contents\"><summary>{}</summary>\n<ol>",
        counted(prompts.len() as u64, "prompt")
    )?;
    for (seq, title) in prompts {
        writeln!(out, "<li><a href=\"#e{seq}\">{title}</a></li>")?;
    }
    writeln!(out, "</ol></details></nav>")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_policy_has_the_hashes_of_script_and_style() {
        for (text, hash) in [(STYLE, STYLE_HASH), (SCRIPT, SCRIPT_HASH)] {
            assert_eq!(format!("sha256-{}", BASE64.encode(Sha256::digest(text))), hash);
        }
    }

    #[test]
    fn script_and_style_cannot_end_their_elements() {
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"), "the page loads nothing");
    }
}
