//! The JSON shape of the result of an import.

use serde::Serialize;

use super::{ImportOutcome, ImportStep, NativeImported, NativeOutcome};
use crate::copy::originals_problem;

/// The result of an import as JSON. Fields may be added, never removed.
#[derive(Debug, Default, Serialize)]
pub struct ImportReport {
    imported: Vec<ImportedSession>,
    unchanged: Vec<UnchangedSession>,
    notices: Vec<SourceMessage>,
    problems: Vec<SourceMessage>,
    /// Sessions of agents' programs that are not imported on purpose, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<SourceMessage>,
    /// Whether nothing was stored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct ImportedSession {
    /// `null` in a dry run.
    id: Option<String>,
    source: String,
    events: usize,
    name: String,
    /// Whether the events were added to a session that was imported before.
    continued: bool,
    /// The session of the store that has the same UUID and another log.
    #[serde(skip_serializing_if = "Option::is_none")]
    diverged_from: Option<String>,
    /// The agent whose program kept the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'static str>,
    /// The number of turns, of a session that an agent's program kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<u64>,
    /// The beginning of the first of its new prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    /// The root of the project whose store has the session, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
}

#[derive(Debug, Serialize)]
struct UnchangedSession {
    id: String,
    source: String,
}

#[derive(Debug, Serialize)]
struct SourceMessage {
    source: String,
    message: String,
}

impl ImportReport {
    /// Adds a step of the import.
    pub fn add(&mut self, step: &ImportStep) {
        match step {
            ImportStep::OtherFiles { .. } => {}
            ImportStep::DamagedFile { path, error } | ImportStep::Failed { path, error } => {
                let source = path.display().to_string();
                self.problems.push(SourceMessage { source, message: error.to_string() });
            }
            ImportStep::Imported { session, outcome, record, originals } => {
                let (id, source) = (outcome.session().to_string(), session.label().to_owned());
                if let Err(error) = originals {
                    self.add_problem(source.clone(), originals_problem(error));
                }
                let Some(record) = record else {
                    return self.unchanged.push(UnchangedSession { id, source });
                };
                let message = |message: String| SourceMessage { source: source.clone(), message };
                self.notices.extend(session.notices().iter().map(ToString::to_string).map(message));
                self.problems.extend(session.problems().iter().map(ToString::to_string).map(message));
                self.imported.push(ImportedSession {
                    id: Some(id),
                    events: outcome.events(),
                    name: record.name.clone(),
                    continued: matches!(outcome, ImportOutcome::Continued { .. }),
                    diverged_from: outcome.diverged_from().map(|from| from.to_string()),
                    source,
                    agent: None,
                    turns: None,
                    preview: None,
                    project: None,
                });
            }
        }
    }

    /// Says that nothing was stored.
    pub fn set_dry_run(&mut self) {
        self.dry_run = true;
    }

    /// Adds a session of an agent's program. `name` is its name in the store, `project` the root of its project if that is
    /// another one.
    pub fn add_native(
        &mut self,
        agent: &'static str,
        source: String,
        imported: &NativeImported,
        name: Option<String>,
        project: Option<String>,
    ) {
        let outcome = imported.outcome;
        let message = |message: String| SourceMessage { source: source.clone(), message };
        self.problems.extend(imported.messages().into_iter().map(message));
        let id = outcome.session().map(|id| id.to_string());
        match outcome {
            NativeOutcome::LeftOut(why) => {
                self.left_out.push(SourceMessage { source, message: why.reason().to_owned() });
            }
            NativeOutcome::Unchanged { id } => {
                self.unchanged.push(UnchangedSession { id: id.to_string(), source });
            }
            NativeOutcome::New { .. } | NativeOutcome::Continued { .. } | NativeOutcome::Forked { .. } => {
                let (turns, events) = outcome.added();
                self.imported.push(ImportedSession {
                    name: name.or_else(|| id.clone()).unwrap_or_default(),
                    id,
                    events: usize::try_from(events).unwrap_or(usize::MAX),
                    continued: matches!(outcome, NativeOutcome::Continued { .. }),
                    diverged_from: match outcome {
                        NativeOutcome::Forked { from, .. } => Some(from.to_string()),
                        _ => None,
                    },
                    source,
                    agent: Some(agent),
                    turns: Some(turns),
                    preview: Some(imported.preview.clone()),
                    project,
                });
            }
        }
    }

    /// Adds a session that is left out, with the reason.
    pub fn add_left_out(&mut self, source: String, reason: String) {
        self.left_out.push(SourceMessage { source, message: reason });
    }

    /// Adds a problem of a source.
    pub fn add_problem(&mut self, source: String, message: String) {
        self.problems.push(SourceMessage { source, message });
    }
}
