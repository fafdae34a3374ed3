//! The transcripts that the agents' programs keep of a session's turns.

use std::path::PathBuf;

use azureal_core::agent::Agent;
use azureal_core::{Event, EventRange, SessionId, SessionStore, StoreError, each_page};
use azureal_process::ChildEnvironment;

use crate::own_record::find_record;

/// A transcript of an agent's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// The name of this kind of transcript, for people: `Claude Code's transcript`.
    pub name: &'static str,
    /// The file.
    pub path: PathBuf,
}

/// Finds the transcripts of a session's turns on this machine, at most so many. Reads all events of the session.
pub async fn transcripts_of(
    store: &dyn SessionStore,
    session: SessionId,
    agents: &[&dyn Agent],
    environment: &ChildEnvironment,
    most: usize,
) -> Result<Vec<Transcript>, StoreError> {
    let mut runs = Vec::new();
    each_page(store, session, EventRange::All, |page| {
        for stored in page.iter().filter(|stored| stored.kind == "Init") {
            if let Ok(Event::Init(init)) = stored.event()
                && let Some(run) = init.agent_session.filter(|run| !run.is_empty())
                && !runs.contains(&run)
            {
                runs.push(run);
            }
        }
        Ok::<(), StoreError>(())
    })
    .await?;
    let found = runs.iter().take(most).filter_map(|run| find_record(agents, environment, run));
    let mut transcripts: Vec<Transcript> =
        found.map(|(record, path)| Transcript { name: record.name, path }).collect();
    transcripts.dedup();
    Ok(transcripts)
}
