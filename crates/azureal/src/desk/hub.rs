//! The thread that hears of changes: lists the sessions again, wakes the panes, and stores turns whose azureal is gone.
//!
//! A store in a file notifies this thread, also of turns that begin and end on this machine; before there is a file, its folder does. So it
//! sleeps while nothing happens. It polls
//! while a turn of another process runs, because the death of a process writes no file; a store without notifications; and, for the
//! turns of this machine, a store on a server.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::{ListQuery, Watch};
use azureal_engine::{Noted, Recovered};
use futures_executor::block_on;
use tracing::debug;

use super::pane::PaneMessage;
use super::patience::Wait;
use super::shared::Shared;
use super::{News, SessionLine};
use crate::error::Error;
use crate::meter::Meter;
use crate::turns::ActiveTurn;

/// The shortest time between two lists.
const PACE: Duration = Duration::from_millis(150);
/// How often turns of other processes are looked at.
const FOREIGN_PACE: Duration = Duration::from_secs(1);
/// How often a store is polled that sends no notifications, or none of this machine's turns.
const POLL_PACE: Duration = Duration::from_secs(2);
/// How long a store that sends notifications is believed that there is none.
const WATCH_TIME: Duration = Duration::from_secs(600);

/// A message to the hub.
pub(super) enum HubMessage {
    /// Lists sessions from now on.
    List { all_worktrees: bool, limit: usize },
    /// Wakes this pane when the store may have changed.
    Follow(Sender<PaneMessage>),
    /// The store may have changed.
    Changed,
    /// There are no notifications any more.
    Unwatched,
    /// Looks for interrupted turns and lists the sessions, now.
    Look,
    /// The desk was left.
    Leave,
}

/// The state of the hub.
pub(super) struct Hub {
    shared: Arc<Shared>,
    inbox: Receiver<HubMessage>,
    panes: Vec<Sender<PaneMessage>>,
    query: Option<ListQuery>,
    sent: Option<Vec<SessionLine>>,
    found: Vec<Recovered>,
    /// What the user was told of interrupted turns.
    told: HashSet<String>,
    is_watched: bool,
    /// Whether something has changed since the last look.
    is_due: bool,
    looked_at: Option<Instant>,
    last_error: Option<String>,
    /// Whether the user was told that the server of the store does not answer.
    is_away: Arc<AtomicBool>,
}

impl Hub {
    pub(super) fn start(shared: Arc<Shared>, inbox: Receiver<HubMessage>) {
        let mut hub = Self {
            shared,
            inbox,
            panes: Vec::new(),
            query: None,
            sent: None,
            found: Vec::new(),
            told: HashSet::new(),
            is_watched: false,
            is_due: true,
            looked_at: None,
            last_error: None,
            is_away: Arc::default(),
        };
        let run = move || {
            hub.run();
            // Turns that still wait for it must not wait for ever.
            hub.shared.note_recovered();
        };
        drop(thread::Builder::new().name("azureal-desk-hub".to_owned()).spawn(run));
    }

    fn run(&mut self) {
        loop {
            let next = match self.pause() {
                Some(pause) => self.inbox.recv_timeout(pause),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(HubMessage::Leave) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(message) => self.with_patience(|hub| hub.take(message)),
                Err(RecvTimeoutError::Timeout) => self.with_patience(Self::look),
            }
        }
    }

    /// Does something for which the store is asked. The user is told if a server does not answer, and when it answers again.
    fn with_patience(&mut self, ask: impl FnOnce(&mut Self)) {
        let is_on_server = self.shared.workspace.is_on_server();
        let wait = is_on_server.then(|| Wait::begin(&self.shared, &self.is_away));
        ask(self);
        drop(wait);
    }

    /// Returns how long to wait for a message; `None` for as long as it takes.
    fn pause(&self) -> Option<Duration> {
        let since = self.looked_at.map(|at| at.elapsed());
        let in_time = |pace: Duration| since.map_or(Duration::ZERO, |since| pace.saturating_sub(since));
        let workspace = &self.shared.workspace;
        if self.is_due {
            Some(in_time(PACE))
        } else if self.has_foreign() {
            Some(in_time(FOREIGN_PACE))
        } else if workspace.is_ephemeral() || (self.is_watched && !workspace.is_on_server()) {
            None
        } else {
            Some(in_time(POLL_PACE))
        }
    }

    /// Returns whether a turn of this machine is known that this desk does not run.
    fn has_foreign(&self) -> bool {
        self.found.iter().any(|found| match found {
            // Of a run whose output is gone, only its end is seen.
            Recovered::Orphan(..) | Recovered::Noted(_, _, Ok(Noted::Busy | Noted::Running)) => true,
            Recovered::Running(turn, _) => !self.shared.turns.has_run(&turn.run),
            _ => false,
        })
    }

    fn take(&mut self, message: HubMessage) {
        match message {
            HubMessage::List { all_worktrees, limit } => {
                let worktree = (!all_worktrees).then(|| self.shared.workspace.project.worktree_filter());
                self.query = Some(ListQuery { worktree, limit: Some(limit), ..ListQuery::default() });
                self.sent = None;
                // At once, with the turns that are known; a look finds the others.
                self.list();
            }
            HubMessage::Follow(pane) => self.panes.push(pane),
            HubMessage::Changed => {
                self.is_due = true;
                self.wake_panes();
            }
            HubMessage::Unwatched => {
                self.is_watched = false;
                self.is_due = true;
            }
            HubMessage::Look => self.look(),
            HubMessage::Leave => {}
        }
    }

    fn wake_panes(&mut self) {
        self.panes.retain(|pane| pane.send(PaneMessage::Changed).is_ok());
    }

    /// Looks for turns and sessions.
    fn look(&mut self) {
        (self.is_due, self.looked_at) = (false, Some(Instant::now()));
        let was_watched = self.is_watched;
        if !self.is_watched {
            self.watch();
        }
        match block_on(self.shared.workspace.recover()) {
            Ok(found) => self.found = found,
            Err(error) => self.tell(error.message().to_owned()),
        }
        self.report();
        self.shared.note_recovered();
        for notice in self.shared.workspace.take_notices() {
            self.shared.outbox.send(News::Notice(notice.to_string()));
        }
        self.list();
        if !was_watched || self.shared.workspace.is_on_server() {
            self.wake_panes();
        }
    }

    /// Begins to wait for notifications, if the store has them.
    fn watch(&mut self) {
        let store = Arc::clone(&self.shared.workspace.store);
        let Ok(Some(watch)) = block_on(store.watch_all()) else { return self.watch_for_creation() };
        let hub = self.shared.hub();
        let thread = thread::Builder::new().name("azureal-desk-watch".to_owned());
        self.is_watched = thread.spawn(move || wait(watch, &hub)).is_ok();
    }

    /// Begins to wait for the file of the store, if there is none yet.
    #[cfg(target_os = "linux")]
    fn watch_for_creation(&mut self) {
        let Some(file) = self.shared.workspace.missing_file() else { return };
        let hub = self.shared.hub();
        let wait = move || {
            while let Ok(false) = super::creation::wait_for(&file, WATCH_TIME) {
                // Not before the hub has ended.
                if hub.send(HubMessage::Changed).is_err() {
                    return;
                }
            }
            // From now on the store itself can be watched.
            hub.send(HubMessage::Unwatched).ok();
        };
        let thread = thread::Builder::new().name("azureal-desk-watch".to_owned());
        self.is_watched = thread.spawn(wait).is_ok();
    }

    #[cfg(not(target_os = "linux"))]
    fn watch_for_creation(&self) {}

    /// Sends the list, if it is another than the last one.
    fn list(&mut self) {
        let Some(query) = &self.query else { return };
        match block_on(self.lines(query)) {
            Ok(lines) => {
                self.last_error = None;
                if self.is_away.swap(false, Ordering::AcqRel) {
                    let text = "the server of the store answers again".to_owned();
                    self.shared.outbox.send(News::Notice(text));
                }
                if self.sent.as_ref() != Some(&lines) {
                    self.shared.outbox.send(News::Sessions(lines.clone()));
                    self.sent = Some(lines);
                }
            }
            Err(error) => {
                // The next change may succeed, and this one is reported once.
                let message = error.message().to_owned();
                // Of a server that is away the user knows, and no request of theirs has failed.
                let is_known = error.kind() == "unreachable" && self.is_away.load(Ordering::Acquire);
                if self.last_error.as_ref() != Some(&message) && !is_known {
                    self.shared.outbox.failed_without_pane(error);
                }
                self.last_error = Some(message);
            }
        }
    }

    async fn lines(&self, query: &ListQuery) -> Result<Vec<SessionLine>, Error> {
        let Shared { workspace, turns, .. } = &*self.shared;
        let threshold = self.shared.threshold();
        let records = workspace.store.list(query).await?;
        let mut active = workspace.active_turns(&self.found).await?;
        active.extend(turns.active());
        let line = |record: azureal_core::SessionRecord| SessionLine {
            meter: Meter::of(&record, threshold),
            active: active.iter().find(|turn: &&ActiveTurn| turn.session() == record.id).cloned(),
            record,
        };
        Ok(records.into_iter().map(line).collect())
    }

    /// Tells the user what became of interrupted turns, each once.
    fn report(&mut self) {
        for index in 0..self.found.len() {
            let Some(found) = self.found.get(index) else { return };
            let is_told = match found {
                // It had been stored, and only its spool was left.
                Recovered::Stored(_, ingested) => ingested.appended.is_some(),
                Recovered::Noted(_, _, Ok(noted)) => matches!(noted, Noted::Stored(..)),
                // Shown as a running turn.
                Recovered::Orphan(..) | Recovered::Running(..) => false,
                Recovered::Failed(..)
                | Recovered::Unreadable(_)
                | Recovered::UnknownAgent(_)
                | Recovered::SummaryStopped(_)
                | Recovered::Noted(_, _, Err(_)) => true,
            };
            if is_told {
                let run = found.turn().map(|turn| turn.run.clone()).unwrap_or_default();
                let notice = found.to_string();
                if self.told.insert(format!("{run} {notice}")) {
                    self.shared.outbox.send(News::Notice(notice));
                }
            }
        }
    }

    fn tell(&mut self, notice: String) {
        if self.told.insert(notice.clone()) {
            self.shared.outbox.send(News::Notice(notice));
        }
    }
}

/// Passes notifications on until there are none, or the hub has ended.
fn wait(mut watch: Box<dyn Watch>, hub: &Sender<HubMessage>) {
    loop {
        let message = match block_on(watch.changed(WATCH_TIME)) {
            // A silent one is believed for a while.
            Ok(_) => HubMessage::Changed,
            Err(error) => {
                debug!(error = ?error.to_string(), "a store is not watched any more");
                HubMessage::Unwatched
            }
        };
        let is_last = matches!(message, HubMessage::Unwatched);
        if hub.send(message).is_err() || is_last {
            return;
        }
    }
}
