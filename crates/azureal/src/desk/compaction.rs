//! A compaction that the user asks for, on a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use azureal_core::{Keep, SessionId, visible_line};
use azureal_engine::{CompactionOptions, Summarised, TurnEvent};
use futures_executor::block_on;

use super::TurnNews;
use super::hub::HubMessage;
use super::outbox::OpenPane;
use super::pane::PaneMessage;
use super::running::OwnTurn;
use super::shared::Shared;
use crate::agents::{SUMMARY_TIMEOUT, summarisers};
use crate::error::Error;
use crate::meter::Meter;

/// A compaction to be run. It is reported like a turn: its end is the last news of it.
pub(super) struct Compaction {
    pub(super) shared: Arc<Shared>,
    pub(super) pane: OpenPane,
    pub(super) thread: Sender<PaneMessage>,
    pub(super) own: OwnTurn,
    pub(super) session: SessionId,
}

impl Compaction {
    pub(super) fn start(self) {
        let compaction = Arc::new(self);
        let run = Arc::clone(&compaction);
        let builder = thread::Builder::new().name("azureal-desk-compact".to_owned());
        if let Err(error) = builder.spawn(move || run.end(run.run().err())) {
            compaction.end(Some(Error::from_io(error)));
        }
    }

    fn run(&self) -> Result<(), Error> {
        let workspace = &self.shared.workspace;
        let record = block_on(workspace.store.get(self.session))?;
        let options = CompactionOptions {
            threshold: self.shared.threshold(),
            keep: Keep::Usual,
            summarisers: summarisers(None, record.counts.agent.as_deref(), workspace.environment())?,
            timeout: SUMMARY_TIMEOUT,
        };
        // The lock of a compaction is one of this machine; on a server, others compact what they run turns in.
        let _lease = match workspace.is_on_server() {
            true => Some(block_on(workspace.lease(self.session, "compact"))?),
            false => None,
        };
        self.send(TurnNews::Progress("reading the session".to_owned()));
        let mut report = |event: TurnEvent| match event {
            TurnEvent::Summarising { agent } => self.send(TurnNews::Compacting { agent }),
            TurnEvent::NotSummarised { agent, why } => {
                self.notice(format!("{agent} wrote no summary: {}", visible_line(&why)));
            }
            _ => {}
        };
        let is_cancelled = || self.own.is_cancelled();
        let summarised = workspace.engine()?.compact(self.session, &options, &is_cancelled, &mut report)?;
        match summarised {
            Some(summarised) => self.notice(describe(&summarised)),
            None => self.notice(format!("nothing to compact in {}", self.session)),
        }
        let record = block_on(workspace.store.get(self.session))?;
        self.send(TurnNews::Meter(Meter::of(&record, self.shared.threshold())));
        Ok(())
    }

    fn end(&self, error: Option<Error>) {
        let (sent, is_sent) = mpsc::channel();
        let over = Box::new(TurnNews::Over { is_ours: true, error, unsent: None });
        self.thread.send(PaneMessage::Ended { over, sent }).ok();
        // Without an answer the pane is closed.
        is_sent.recv().ok();
        self.shared.turns.end(&self.own);
        self.shared.tell_hub(HubMessage::Changed);
    }

    fn notice(&self, text: String) {
        self.send(TurnNews::Notice(text));
    }

    fn send(&self, news: TurnNews) {
        self.shared.outbox.turn(self.pane, news);
    }
}

fn describe(summarised: &Summarised) -> String {
    let Summarised { boundary, agent, chars_before, chars_after, .. } = summarised;
    let what = agent
        .as_ref()
        .map_or_else(|| "azureal's own digest".to_owned(), |agent| format!("the summary by {agent}"));
    let little = if summarised.frees_little() { "; that is less than a fifth less" } else { "" };
    format!(
        "{what} covers the events up to {}: the next agent receives {chars_after} characters instead of {chars_before}{little}",
        boundary.after_seq
    )
}
