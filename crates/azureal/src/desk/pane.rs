//! The thread of a pane: performs its requests in their order, and follows its session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use azureal_core::{Page, Seq, SessionId, StoredEvent, TurnIndex};
use azureal_engine::SessionTarget;
use futures_executor::block_on;

use super::compaction::Compaction;
use super::following::{Following, LIVE_PACE};
use super::hub::HubMessage;
use super::lease::LeaseWaits;
use super::outbox::OpenPane;
use super::questions::answer;
use super::reading::RenderedContext;
use super::running::OwnTurn;
use super::search::Search;
use super::shared::Shared;
use super::turn::Turn;
use super::{Kept, News, NextAgent, Opened, Request, TurnNews};
use crate::error::Error;
use crate::meter::Meter;
use crate::turns::TurnSettings;

/// The most events that are read for one request.
const MOST_EVENTS: usize = 4_096;

/// A message to the thread of a pane.
pub(super) enum PaneMessage {
    Request(Request),
    /// The store may have changed.
    Changed,
    /// The pane's own turn is over: these are its last news.
    Ended {
        over: Box<TurnNews>,
        sent: Sender<()>,
    },
    /// Asks for the session.
    Session(Sender<Option<SessionId>>),
    /// The pane was closed.
    Close,
}

/// The state of a pane.
pub(super) struct PaneThread {
    shared: Arc<Shared>,
    pane: OpenPane,
    inbox: Receiver<PaneMessage>,
    sender: Sender<PaneMessage>,
    following: Arc<Mutex<Following>>,
    own: Option<OwnTurn>,
    /// The agent and model that were chosen for a conversation without a session.
    chosen: NextAgent,
    /// A choice that waits for the end of the turn.
    switch: Option<NextAgent>,
    is_known_to_hub: bool,
    /// The number of the last search: it ends the one before.
    searches: Arc<AtomicU64>,
}

/// A pane, for work on another thread.
struct PaneSender {
    shared: Arc<Shared>,
    pane: OpenPane,
}

impl PaneSender {
    fn send(&self, news: News) {
        self.shared.outbox.send_to(self.pane, news);
    }
}

impl PaneThread {
    pub(super) fn start(shared: &Arc<Shared>, pane: OpenPane) -> Sender<PaneMessage> {
        let (sender, inbox) = mpsc::channel();
        let mut thread = Self {
            shared: Arc::clone(shared),
            pane,
            inbox,
            sender: sender.clone(),
            following: Arc::new(Mutex::new(Following::new(Arc::clone(shared), pane))),
            own: None,
            chosen: NextAgent::default(),
            switch: None,
            is_known_to_hub: false,
            searches: Arc::default(),
        };
        let builder = thread::Builder::new().name("azureal-desk-pane".to_owned());
        drop(builder.spawn(move || thread.run()));
        sender
    }

    fn following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&mut self) {
        loop {
            let is_reading = self.own.is_none() && self.following().is_reading();
            let next = match is_reading {
                true => self.inbox.recv_timeout(LIVE_PACE),
                false => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let mut has_changed = false;
            match next {
                Ok(PaneMessage::Close) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(PaneMessage::Changed) => has_changed = true,
                Ok(PaneMessage::Ended { over, sent }) => {
                    self.own = None;
                    self.shared.outbox.turn(self.pane, *over);
                    if let Some(NextAgent { agent: Some(agent), model }) = self.switch.take()
                        && let Err(error) = self.switch(agent, model)
                    {
                        self.shared.outbox.failed(self.pane, error);
                    }
                    sent.send(()).ok();
                    has_changed = true;
                }
                Ok(PaneMessage::Session(answer)) => {
                    answer.send(self.following().session()).unwrap_or_default();
                }
                Ok(PaneMessage::Request(request)) => self.perform(request),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // A turn of this pane reports itself.
            if self.own.is_none() && (has_changed || is_reading) {
                self.following().poll(has_changed);
            }
        }
    }

    fn perform(&mut self, request: Request) {
        let performed = match request {
            Request::Open { session, last, .. } => self.open(session, last),
            Request::ReadBefore { before, limit, .. } => {
                self.page(before, true, Page::Before(before, limit.min(MOST_EVENTS)))
            }
            Request::ReadAfter { after, limit, .. } => {
                self.page(after, false, Page::After(after, limit.min(MOST_EVENTS)))
            }
            Request::Send { prompt, agent, model, .. } => {
                self.send(prompt, agent, model);
                Ok(())
            }
            Request::Cancel { .. } => {
                self.cancel();
                Ok(())
            }
            Request::AwaitLease { .. } => {
                let session = stored(self.following().session());
                session.map(|session| LeaseWaits::wait(&self.shared, session, self.pane))
            }
            Request::Answer { question, option, .. } => {
                let control = match &self.own {
                    Some(own) => own.control(),
                    None => self.following().control(),
                };
                answer(control.as_ref(), &question, option.as_deref())
            }
            Request::ReadFull { first, last, .. } => {
                self.apart(move |pane, session| {
                    let Some(session) = session else { return Ok(()) };
                    let events = pane.shared.read_full(session, first, last)?;
                    pane.send(News::Full { pane: pane.pane.id, events });
                    Ok(())
                });
                Ok(())
            }
            Request::FindPrompt { from, backwards, .. } => {
                self.find(None, from, backwards);
                Ok(())
            }
            Request::FindText { text, from, backwards, .. } => {
                self.find(Some(text), from, backwards);
                Ok(())
            }
            Request::Context { .. } => {
                self.apart(|pane, session| {
                    let RenderedContext { parts, text, meter } = pane.shared.context(session)?;
                    pane.send(News::Context { pane: pane.pane.id, parts, text, meter });
                    Ok(())
                });
                Ok(())
            }
            Request::Changes { at, .. } => {
                self.apart(move |pane, session| {
                    let changes = stored(session).and_then(|session| pane.shared.file_changes(session, at));
                    pane.send(News::Changes { pane: pane.pane.id, at, changes: changes.map(Box::new) });
                    Ok(())
                });
                Ok(())
            }
            Request::PlanUndo { of, .. } => {
                self.apart(move |pane, session| {
                    let question = Box::new(pane.shared.plan_undo(stored(session)?, of)?);
                    pane.send(News::UndoPlanned { pane: pane.pane.id, question });
                    Ok(())
                });
                Ok(())
            }
            Request::Undo { question, force, .. } => {
                self.apart(move |pane, session| {
                    let summary = pane.shared.undo(stored(session)?, &question, force)?;
                    pane.send(News::Undone { pane: pane.pane.id, summary });
                    Ok(())
                });
                Ok(())
            }
            Request::Switch { agent, model, .. } => self.switch(agent, model),
            Request::Compact { .. } => self.compact(),
            _ => Ok(()),
        };
        if let Err(error) = performed {
            self.shared.outbox.failed(self.pane, error);
        }
    }

    /// Does something that takes a while on a thread of its own.
    fn apart(&self, work: impl FnOnce(&PaneSender, Option<SessionId>) -> Result<(), Error> + Send + 'static) {
        let sender = PaneSender { shared: Arc::clone(&self.shared), pane: self.pane };
        let session = self.following().session();
        let work = move || {
            if let Err(error) = work(&sender, session) {
                sender.shared.outbox.failed(sender.pane, error);
            }
        };
        drop(thread::Builder::new().name("azureal-desk-read".to_owned()).spawn(work));
    }

    /// Searches for a text, or for a prompt.
    fn find(&self, text: Option<String>, from: Seq, backwards: bool) {
        let searches = Arc::clone(&self.searches);
        let number = searches.fetch_add(1, Ordering::SeqCst) + 1;
        self.apart(move |pane, session| {
            let is_wanted = || searches.load(Ordering::SeqCst) == number;
            let store = &*pane.shared.workspace.store;
            let found = match session {
                Some(session) => {
                    let search = Search { store, session, from, backwards, is_wanted: &is_wanted };
                    text.as_ref().map_or_else(|| search.prompt(), |text| search.text(text))?
                }
                None => Some(None),
            };
            if let Some(seq) = found {
                pane.send(News::Found { pane: pane.pane.id, text, seq });
            }
            Ok(())
        });
    }

    /// Chooses the agent and model of the next turn. During a turn of the pane that waits for its end.
    fn switch(&mut self, agent: String, model: Option<String>) -> Result<(), Error> {
        if self.own.is_some() {
            self.switch = Some(NextAgent { agent: Some(agent), model });
            return Ok(());
        }
        let Some(session) = self.following().session() else {
            self.chosen = NextAgent { agent: Some(agent), model };
            self.send_next(self.chosen.clone());
            return Ok(());
        };
        block_on(self.shared.workspace.switch_agent(session, &agent, model.as_deref()))?;
        self.following().poll(true);
        self.send_next(NextAgent { agent: Some(agent), model });
        self.shared.tell_hub(HubMessage::Changed);
        Ok(())
    }

    fn send_next(&self, next: NextAgent) {
        self.shared.outbox.send_to(self.pane, News::NextAgent { pane: self.pane.id, next });
    }

    /// Compacts the session. It is reported like a turn, and can be cancelled.
    fn compact(&mut self) -> Result<(), Error> {
        if self.is_busy() {
            return Err(busy());
        }
        let Some(session) = self.following().session() else {
            return Err(Error::usage("there is nothing to compact yet"));
        };
        let own = self.shared.turns.begin();
        self.own = Some(own.clone());
        let (shared, pane, thread) = (Arc::clone(&self.shared), self.pane, self.sender.clone());
        Compaction { shared, pane, thread, own, session }.start();
        Ok(())
    }

    /// Returns whether a turn of the pane runs.
    fn is_busy(&self) -> bool {
        self.own.is_some() || self.following().is_foreign()
    }

    /// Opens a session and follows it.
    fn open(&mut self, session: SessionId, last: usize) -> Result<(), Error> {
        let store = &self.shared.workspace.store;
        let record = block_on(store.get(session))?;
        let mut events: Vec<StoredEvent> = Vec::new();
        let last = last.min(MOST_EVENTS);
        while events.len() < last {
            let before = events.first().map_or(Seq::END, |first| first.seq);
            let mut page = block_on(store.read(session, Page::Before(before, last - events.len())))?;
            if page.is_empty() {
                break;
            }
            page.append(&mut events);
            events = page;
        }
        let seen = match events.last() {
            Some(seen) => Some(seen.clone()),
            None => block_on(store.read(session, Page::last(1)))?.pop(),
        };
        let opened = Opened {
            pane: self.pane.id,
            meter: Meter::of(&record, self.shared.threshold()),
            events,
            next: self.shared.next_agent(Some(&record)),
            offer: self.shared.keep.take_queue(&Kept::key(&record)),
            record: record.clone(),
        };
        self.following().start(&record, seen);
        self.shared.outbox.send_to(self.pane, News::Opened(Box::new(opened)));
        self.be_woken();
        if self.own.is_none() {
            // A turn may run already.
            self.following().poll(true);
        }
        self.count_turns();
        Ok(())
    }

    /// Counts the turns of the session. Its prompts are read for that, which nothing waits for.
    fn count_turns(&self) {
        self.apart(|pane, session| {
            let Some(session) = session else { return Ok(()) };
            let turns = block_on(TurnIndex::read(&*pane.shared.workspace.store, session))?;
            let last = turns.first_event(turns.count()).unwrap_or(Seq::START);
            pane.send(News::Counted { pane: pane.pane.id, turns: turns.count() as u64, last });
            Ok(())
        });
    }

    /// Lets the hub wake this thread when the store may have changed.
    fn be_woken(&mut self) {
        if !std::mem::replace(&mut self.is_known_to_hub, true) {
            self.shared.tell_hub(HubMessage::Follow(self.sender.clone()));
        }
    }

    fn page(&self, from: Seq, backwards: bool, page: Page) -> Result<(), Error> {
        let session = self.following().session();
        let events = match session {
            Some(session) => block_on(self.shared.workspace.store.read(session, page))?,
            None => Vec::new(),
        };
        self.shared.outbox.send_to(self.pane, News::Page { pane: self.pane.id, from, backwards, events });
        Ok(())
    }

    /// Starts a turn, unless one of the pane runs.
    fn send(&mut self, prompt: String, agent: Option<String>, model: Option<String>) {
        if self.is_busy() {
            let news = News::Failed { pane: Some(self.pane.id), error: busy(), unsent: Some(prompt) };
            self.shared.outbox.send_to(self.pane, news);
            return;
        }
        let session = self.following().session();
        let chosen = if session.is_none() { self.chosen.clone() } else { NextAgent::default() };
        let has_agent = agent.is_some();
        let settings = TurnSettings {
            agent: agent.or(chosen.agent),
            model: if has_agent { model } else { model.or(chosen.model) },
            ..TurnSettings::default()
        };
        let target = match session {
            Some(session) => SessionTarget::Existing(session),
            None => SessionTarget::New(self.shared.workspace.new_session("")),
        };
        let own = self.shared.turns.begin();
        self.own = Some(own.clone());
        self.be_woken();
        Turn::start(Turn {
            shared: Arc::clone(&self.shared),
            pane: self.pane,
            following: Arc::clone(&self.following),
            thread: self.sender.clone(),
            own,
            target,
            prompt,
            settings,
        });
    }

    /// Cancels the turn of the pane, also one of another process. That takes a while, on a thread of its own.
    fn cancel(&self) {
        if let Some(own) = &self.own {
            return own.cancel();
        }
        let (session, shared, pane) = (self.following().session(), Arc::clone(&self.shared), self.pane);
        let Some(session) = session else { return };
        thread::spawn(move || {
            let workspace = &shared.workspace;
            if let Some(controls) = workspace.engine().ok().and_then(|engine| engine.turn(session)) {
                return controls.cancel();
            }
            let cancelled = block_on(async {
                let found = workspace.recover().await?;
                workspace.cancel_turn(session, &found).await
            });
            match cancelled {
                // Nobody else stores it.
                Ok(cancelled) if cancelled.is_orphan => shared.tell_hub(HubMessage::Look),
                Ok(_) => {}
                Err(error) => shared.outbox.failed(pane, error),
            }
        });
    }
}

/// Returns the session of a pane that has one.
fn stored(session: Option<SessionId>) -> Result<SessionId, Error> {
    session.ok_or_else(|| Error::usage("this conversation is not stored yet"))
}

fn busy() -> Error {
    Error::new("busy", "a turn of this conversation is running").with_hint("wait for its end, or cancel it")
}
