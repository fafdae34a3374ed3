//! Changes of sessions, and the user's trust in the files of the project.

use azureal_core::{Seq, SessionId};
use futures_executor::block_on;

use super::News;
use super::hub::HubMessage;
use super::shared::Shared;
use crate::config::trust;
use crate::error::{Error, shown};
use crate::sessions::called;

/// The number of transcripts that a notice names.
const NAMED: usize = 3;

impl Shared {
    /// Makes a change, and reports what is wrong with it.
    pub(super) fn change(&self, change: impl FnOnce(&Self) -> Result<(), Error>) {
        if let Err(error) = change(self) {
            self.outbox.failed_without_pane(error);
        }
        // Not every store notifies of it.
        self.tell_hub(HubMessage::Changed);
    }

    pub(super) fn rename(&self, session: SessionId, name: &str) -> Result<(), Error> {
        block_on(self.workspace.rename_session(session, name))
    }

    pub(super) fn fork(&self, session: SessionId, at: Seq) -> Result<(), Error> {
        let forked = block_on(self.workspace.fork_session(session, at, None))?;
        if forked.lacks_originals {
            let notice = format!("the output of its turns was not copied whole; {session} has it");
            self.outbox.send(News::Notice(notice));
        }
        self.outbox.send(News::Forked { session: forked.record.id, from: session });
        Ok(())
    }

    /// Deletes a session, and says what is left of it: the agents' own transcripts, and copies in stores that were set aside.
    pub(super) fn delete(&self, session: SessionId) -> Result<(), Error> {
        let workspace = &self.workspace;
        let record = block_on(workspace.store.get(session))?;
        // Only for a notice.
        let transcripts = block_on(workspace.transcripts(session)).unwrap_or_default();
        block_on(workspace.delete_session(&record))?;
        self.outbox.send(News::Notice(format!("deleted {}", called(&record))));
        for transcript in transcripts.iter().take(NAMED) {
            let path = shown(&transcript.path);
            self.outbox.send(News::Notice(format!("{} stays: {path}", transcript.name)));
        }
        if let Some(more @ 1..) = transcripts.len().checked_sub(NAMED) {
            self.outbox.send(News::Notice(format!("and {more} more transcripts")));
        }
        for path in workspace.stores_set_aside() {
            let notice = format!("a store that was set aside may have a copy: {}", shown(&path));
            self.outbox.send(News::Notice(notice));
        }
        Ok(())
    }

    /// Trusts the files of the project, if they are still those that the interface has shown.
    pub(super) fn trust(&self) -> Result<(), Error> {
        let shown = trust::required(&self.config());
        let mut config = self.workspace.load_config()?;
        let required = trust::required(&config);
        if let Some(required) = required.as_ref().filter(|required| Some(*required) != shown.as_ref()) {
            let content = required.content.clone();
            self.set_config(config);
            self.outbox.send(News::TrustRequired { content });
            return Err(Error::refused("changed", "the files of the project have changed meanwhile")
                .with_hint("look at them again"));
        }
        if required.is_some() {
            trust::approve(&mut config)?;
        }
        self.set_config(config);
        self.outbox.send(News::Notice("the configuration of the project is in effect".to_owned()));
        Ok(())
    }
}
