//! Labels: what is no word of a text, but is found like one.

use std::fmt::Write;

use azureal_core::IndexedEvent;

/// Stands before a label. No token begins with it.
const LABEL: char = '\u{E000}';
/// Stands around the code of a character that a token of the table cannot have.
const ESCAPE: char = '\u{E001}';

/// Returns the labels of an event.
pub(super) fn labels(event: &IndexedEvent) -> String {
    let mut labels = label('r', event.role);
    if let Some(tool) = &event.tool {
        labels.push(' ');
        labels.push_str(&label('t', tool));
    }
    labels
}

/// Returns a label of a sort: the value with all that the tokenizer would split at, or fold, written as its code.
pub(super) fn label(sort: char, value: &str) -> String {
    let mut label = format!("{LABEL}{sort}");
    for c in value.chars() {
        match c {
            'a'..='z' | '0'..='9' => label.push(c),
            LABEL | ESCAPE | '\0'..='\u{7f}' => {
                // Writing to a string does not fail.
                let _ = write!(label, "{ESCAPE}{:x}{ESCAPE}", u32::from(c));
            }
            c => label.push(c),
        }
    }
    label
}
