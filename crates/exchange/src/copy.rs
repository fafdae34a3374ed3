//! Copies of sessions from one store to another.

use std::ops::ControlFlow;
use std::sync::Arc;

use azureal_core::{SessionId, SessionRecord, SessionStore, StoreError};
use serde::Serialize;

use crate::import::{
    ImportError, ImportOutcome, ImportProblem, ImportProgress, IncomingSession, SourceStore, import_session,
};
use crate::verify::{verify, verify_record};

/// The result of the copy of a session.
#[derive(Debug)]
pub struct CopiedSession {
    /// The session of the source, with notices and problems.
    pub session: IncomingSession,
    /// The result in the target.
    pub outcome: ImportOutcome,
    /// The result of the comparison of both sides after the copy.
    pub comparison: Result<(), ImportError>,
    /// The reason why the output of its turns is not in the target, if both stores keep it.
    pub originals: Result<(), StoreError>,
}

/// Copies a session to another store, then reads both sides again and compares them.
///
/// A copy of a session that the target has adds what is new and nothing twice. An interrupted copy continues.
/// A session without a worktree stays without one.
pub async fn copy_session(
    source: &Arc<SourceStore>,
    to: &dyn SessionStore,
    record: &SessionRecord,
    progress: ImportProgress<'_>,
) -> Result<CopiedSession, ImportError> {
    if progress(0) == ControlFlow::Break(()) {
        return Err(ImportError::CopyStopped);
    }
    let mut session = source.session(record).await?;
    let outcome = import_session(to, "", &mut session, progress).await.map_err(|error| match error {
        ImportError::ImportStopped => ImportError::CopyStopped,
        error => error,
    })?;
    let comparison = match verify(to, &session, outcome.session()).await {
        Ok(()) if outcome.is_new() => verify_record(to, &session, record, outcome).await,
        compared => compared,
    };
    let originals = match &comparison {
        Ok(()) => copy_originals(&session, to, outcome.session()).await,
        Err(_) => Ok(()),
    };
    Ok(CopiedSession { session, outcome, comparison, originals })
}

/// Copies the output of the turns of a stored session that the target does not have.
pub(crate) async fn copy_originals(
    session: &IncomingSession,
    to: &dyn SessionStore,
    target: SessionId,
) -> Result<(), StoreError> {
    let Some((source, id)) = session.texts.stored() else { return Ok(()) };
    let (Some(from), Some(to)) = (source.store().originals(), to.originals()) else { return Ok(()) };
    // Where events were left out, the others have other numbers than in the source.
    if session.problems().iter().any(|problem| matches!(problem, ImportProblem::EventLeftOut { .. })) {
        return Ok(());
    }
    let originals = from.list(id).await?;
    if originals.is_empty() {
        return Ok(());
    }
    let known = to.list(target).await?;
    for original in originals {
        if known.iter().any(|known| known.run == original.run) {
            continue;
        }
        if let Some(content) = from.open(id, &original.run).await? {
            to.copy(target, &original, content).await?;
        }
    }
    Ok(())
}

/// Describes an output that was not copied.
pub fn originals_problem(error: &StoreError) -> String {
    format!("the output of its turns was not copied whole: {error}")
}

/// The result of a copy as JSON. Fields may be added, never removed.
#[derive(Debug, Default, Serialize)]
pub struct CopyReport {
    sessions: Vec<CopyReportSession>,
    notices: Vec<SessionMessage>,
    problems: Vec<SessionMessage>,
}

#[derive(Debug, Serialize)]
struct CopyReportSession {
    from: String,
    to: String,
    name: String,
    outcome: &'static str,
    /// The number of events that are new in the target.
    events: usize,
    /// The session of the target that has the same UUID and another log.
    #[serde(skip_serializing_if = "Option::is_none")]
    diverged_from: Option<String>,
}

#[derive(Debug, Serialize)]
struct SessionMessage {
    session: String,
    message: String,
}

impl CopyReport {
    /// Adds a copied session of the source.
    pub fn add(&mut self, record: &SessionRecord, copied: &CopiedSession) {
        let message = |message: String| SessionMessage { session: record.id.to_string(), message };
        self.notices.extend(copied.session.notices().iter().map(ToString::to_string).map(message));
        self.problems.extend(copied.session.problems().iter().map(ToString::to_string).map(message));
        let originals = copied.originals.as_ref().err().map(|error| message(originals_problem(error)));
        self.problems.extend(originals);
        if copied.comparison.is_err() {
            return;
        }
        self.sessions.push(CopyReportSession {
            from: record.id.to_string(),
            to: copied.outcome.session().to_string(),
            name: record.name.clone(),
            outcome: match copied.outcome {
                ImportOutcome::New { .. } => "new",
                ImportOutcome::Forked { .. } => "forked",
                ImportOutcome::Continued { .. } => "continued",
                ImportOutcome::Unchanged { .. } => "unchanged",
            },
            events: copied.outcome.events(),
            diverged_from: copied.outcome.diverged_from().map(|from| from.to_string()),
        });
    }

    /// Says whether all sessions were copied without problems.
    pub fn is_complete(&self) -> bool {
        self.problems.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::{Event, NewSession, append_events};
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::*;

    const CONTINUE: ImportProgress<'static> = &|_| ControlFlow::Continue(());

    #[test]
    fn a_copy_continues_and_is_compared() {
        let from = Arc::new(MemoryStore::default());
        let id = block_on(from.create(NewSession::default())).unwrap();
        block_on(append_events(&*from, id, [Event::user("a")])).unwrap();
        let source =
            Arc::new(SourceStore::in_place(Arc::clone(&from) as Arc<dyn SessionStore>, "here".into()));
        let to = MemoryStore::default();
        let copy = || {
            let record = block_on(from.get(id)).unwrap();
            block_on(copy_session(&source, &to, &record, CONTINUE)).unwrap()
        };
        let first = copy();
        assert_eq!((first.session.label(), first.outcome.events()), ("here S1", 1));
        first.comparison.unwrap();
        block_on(append_events(&*from, id, [Event::user("b"), Event::user("c")])).unwrap();
        let second = copy();
        assert!(matches!(second.outcome, ImportOutcome::Continued { added, .. } if added.events == 2));
        second.comparison.unwrap();
    }

    #[test]
    fn a_copy_that_is_stopped_says_so() {
        let from = Arc::new(MemoryStore::default());
        let id = block_on(from.create(NewSession::default())).unwrap();
        let record = block_on(from.get(id)).unwrap();
        let source = Arc::new(SourceStore::in_place(from, "here".into()));
        let to = MemoryStore::default();
        let stopped = block_on(copy_session(&source, &to, &record, &|_| ControlFlow::Break(())));
        assert!(matches!(stopped, Err(ImportError::CopyStopped)));
        assert!(block_on(to.get(SessionId::new(1).unwrap())).is_err(), "nothing is copied");
    }

    #[test]
    fn a_copy_can_move_to_another_thread() {
        fn check(_: impl Send) {}
        let from = Arc::new(MemoryStore::default());
        let id = block_on(from.create(NewSession::default())).unwrap();
        let record = block_on(from.get(id)).unwrap();
        let source = Arc::new(SourceStore::in_place(from, "here".into()));
        check(copy_session(&source, &MemoryStore::default(), &record, CONTINUE));
    }
}
