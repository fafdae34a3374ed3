//! What the threads of a desk have in common.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use azureal_core::{SessionRecord, Threshold};
use futures_executor::block_on;

use super::highlight::Highlights;
use super::hub::HubMessage;
use super::keep::Keep;
use super::lease::LeaseWaits;
use super::outbox::Outbox;
use super::paths::Paths;
use super::running::RunningTurns;
use super::search_all::Searches;
use super::{News, NextAgent};
use crate::agents::{Wanted, choose};
use crate::config::Config;
use crate::workspace::Workspace;

/// The workspace and the ways between the threads.
pub(super) struct Shared {
    pub(super) workspace: Arc<Workspace>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) turns: RunningTurns,
    pub(super) lease_waits: LeaseWaits,
    pub(super) keep: Arc<Keep>,
    pub(super) paths: Paths,
    pub(super) searches: Searches,
    pub(super) highlights: Highlights,
    config: RwLock<Arc<Config>>,
    hub: Sender<HubMessage>,
    has_recovered: (Mutex<bool>, Condvar),
}

impl Shared {
    pub(super) fn new(
        workspace: Arc<Workspace>,
        config: Arc<Config>,
        hub: Sender<HubMessage>,
        send: impl Fn(News) + Send + Sync + 'static,
    ) -> Self {
        let outbox = Arc::new(Outbox::new(send));
        Self {
            keep: Keep::new(Arc::clone(&workspace), Arc::clone(&outbox)),
            workspace,
            outbox,
            turns: RunningTurns::default(),
            lease_waits: LeaseWaits::default(),
            paths: Paths::default(),
            searches: Searches::default(),
            highlights: Highlights::default(),
            config: RwLock::new(config),
            hub,
            has_recovered: (Mutex::new(false), Condvar::new()),
        }
    }

    /// Sends what an earlier interface kept. A turn that runs without an azureal comes before the session that was shown last.
    pub(super) fn restore(&self) {
        let (mut kept, notice) = self.keep.restore();
        if let Some(session) = self.session_of_orphan(kept.shown.as_deref()) {
            kept.shown = Some(session);
        }
        if let Some(offer) = self.keep.take_queue("") {
            kept.drafts.entry(String::new()).or_default().queued = offer.prompts;
            kept.offers.push(offer.number);
        }
        self.outbox.send(News::Restored(Box::new(kept)));
        if let Some(notice) = notice {
            self.outbox.send(News::Notice(notice));
        }
    }

    /// Returns the UUID of a session of this worktree in which a turn runs without an azureal: this one, if it is one of them, else that
    /// of the newest session. A server is not asked, because nothing waits for it before the first screen.
    fn session_of_orphan(&self, preferred: Option<&str>) -> Option<String> {
        if self.workspace.is_on_server() || self.workspace.is_ephemeral() {
            return None;
        }
        let turns = self.workspace.spools()?.found_turns().ok()?;
        let worktree = self.workspace.project.worktree_filter();
        let orphans = turns.iter().filter(|turn| turn.is_orphan());
        let records = orphans.filter_map(|turn| block_on(self.workspace.store.get(turn.session)).ok());
        let records = records.filter(|record| worktree.matches(&record.worktree));
        let keys = records.filter_map(|record| Some((record.id, record.uuid?.to_string())));
        let newest = keys.max_by_key(|(id, uuid)| (Some(uuid.as_str()) == preferred, *id));
        newest.map(|(_, uuid)| uuid)
    }

    pub(super) fn tell_hub(&self, message: HubMessage) {
        // The hub ends when the desk is left.
        self.hub.send(message).ok();
    }

    pub(super) fn hub(&self) -> Sender<HubMessage> {
        self.hub.clone()
    }

    pub(super) fn set_config(&self, config: Config) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Returns the configuration that is in effect.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn threshold(&self) -> Threshold {
        self.config().compaction_threshold()
    }

    /// Returns the agent and model that the next turn of a session uses.
    pub(super) fn next_agent(&self, record: Option<&SessionRecord>) -> NextAgent {
        let (config, counts) = (self.config(), record.map(|record| &record.counts));
        let wanted = Wanted {
            last_agent: counts.and_then(|counts| counts.agent.as_deref()),
            last_model: counts.and_then(|counts| counts.requested_model.as_deref()),
            configured_agent: config.agent(),
            configured_model: config.model(),
            ..Wanted::default()
        };
        match choose(&wanted, self.workspace.environment()) {
            Ok(choice) => NextAgent { agent: Some(choice.agent.name().to_owned()), model: choice.model },
            // It is not installed, which the turn reports.
            Err(_) => NextAgent {
                agent: wanted.last_agent.or(wanted.configured_agent).map(str::to_owned),
                model: wanted.last_model.map(str::to_owned),
            },
        }
    }

    /// Notes that interrupted turns were looked for: turns may begin.
    pub(super) fn note_recovered(&self) {
        *self.has_recovered.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.has_recovered.1.notify_all();
    }

    /// Waits until interrupted turns were looked for.
    pub(super) fn wait_for_recovery(&self) {
        let has_recovered = self.has_recovered.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.has_recovered.1.wait_while(has_recovered, |has_recovered| !*has_recovered));
    }
}
