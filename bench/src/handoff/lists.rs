//! The lists of sentences, commands and files.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// What is planted.
pub(crate) struct Lists {
    pub(crate) requirements: Vec<String>,
    pub(crate) decisions: Vec<String>,
    pub(crate) others: Vec<String>,
    /// Commands that succeed, with their output.
    pub(crate) commands: Vec<(String, String)>,
    /// Commands that fail, with their output; ` | ` separates lines.
    pub(crate) failures: Vec<(String, String)>,
    pub(crate) files: Vec<String>,
}

impl Lists {
    /// Reads the lists that sessions are made from.
    pub(crate) fn planted() -> Result<Self> {
        let sections = sections(include_str!("planted.txt"));
        let list = |name: &str| sections.get(name).cloned().with_context(|| format!("no list of {name}"));
        let pairs = |name: &str| -> Result<Vec<(String, String)>> {
            list(name)?
                .iter()
                .map(|line| {
                    let (command, output) = line.split_once(" =>").context("a command without `=>`")?;
                    Ok((command.to_owned(), output.trim().to_owned()))
                })
                .collect()
        };
        Ok(Self {
            requirements: list("requirements")?,
            decisions: list("decisions")?,
            others: list("others")?,
            commands: pairs("commands")?,
            failures: pairs("failures")?,
            files: list("files")?,
        })
    }
}

/// Returns the sentences of a file that state a decision, and those that do not.
pub(crate) fn labelled(text: &str) -> (Vec<String>, Vec<String>) {
    let mut sections = sections(text);
    let mut list = |name: &str| sections.remove(name).unwrap_or_default();
    (list("decisions"), list("others"))
}

fn sections(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(heading) => heading.clone_into(&mut name),
            None => sections.entry(name.clone()).or_default().push(line.to_owned()),
        }
    }
    sections
}
