//! Asking the person at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

/// What the person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// This is not a terminal.
    Nobody,
}

/// Asks a question that is safe to show. Whatever is not a yes is a no.
pub(crate) fn ask(question: &str) -> Answer {
    let (mut stderr, stdin) = (io::stderr(), io::stdin());
    if !(stdin.is_terminal() && stderr.is_terminal()) {
        return Answer::Nobody;
    }
    let mut answer = String::new();
    let asked = stderr
        .write_all(question.as_bytes())
        .and_then(|()| stderr.flush())
        .and_then(|()| stdin.lock().read_line(&mut answer));
    match (asked, answer.trim().to_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Answer::Yes,
        _ => Answer::No,
    }
}
