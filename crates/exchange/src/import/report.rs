//! The JSON shape of the result of an import.

use serde::Serialize;

use super::{ImportOutcome, ImportStep};

/// The result of an import as JSON. Fields may be added, never removed.
#[derive(Debug, Default, Serialize)]
pub struct ImportReport {
    imported: Vec<ImportedSession>,
    unchanged: Vec<UnchangedSession>,
    notices: Vec<SourceMessage>,
    problems: Vec<SourceMessage>,
}

#[derive(Debug, Serialize)]
struct ImportedSession {
    id: String,
    source: String,
    events: usize,
    name: String,
    /// Whether the events were added to a session that was imported before.
    continued: bool,
    /// The session of the store that has the same UUID and another log.
    #[serde(skip_serializing_if = "Option::is_none")]
    diverged_from: Option<String>,
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
            ImportStep::Imported { session, outcome, record } => {
                let (id, source) = (outcome.session().to_string(), session.label().to_owned());
                let Some(record) = record else {
                    return self.unchanged.push(UnchangedSession { id, source });
                };
                let message = |message: String| SourceMessage { source: source.clone(), message };
                self.notices.extend(session.notices().iter().map(ToString::to_string).map(message));
                self.problems.extend(session.problems().iter().map(ToString::to_string).map(message));
                self.imported.push(ImportedSession {
                    id,
                    events: outcome.events(),
                    name: record.name.clone(),
                    continued: matches!(outcome, ImportOutcome::Continued { .. }),
                    diverged_from: outcome.diverged_from().map(|from| from.to_string()),
                    source,
                });
            }
        }
    }
}
