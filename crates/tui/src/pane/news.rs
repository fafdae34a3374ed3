//! News for a pane.

use azureal::core::agent::AgentOutput;
use azureal::core::event::Complete;
use azureal::desk::{News, Opened, Request, TurnNews};
use azureal::transcript::Level;
use azureal::{Event, Seq, SessionId, StoredEvent};

use super::blocks::{PROMPT, settled};
use super::live::{Live, Phase, last_line_of};
use super::rows::Folds;
use super::turns::Turns;
use super::view::Place;
use super::window::Held;
use super::{Asked, Jump, PAGE_EVENTS, Pane, Target};

impl Pane {
    /// Takes news. Those of other panes have no effect.
    pub fn news(&mut self, news: &News) -> Vec<Request> {
        match news {
            News::Sessions(lines) => {
                let session = self.session();
                if let Some(line) = lines.iter().find(|line| Some(line.record.id) == session) {
                    self.record = Some(line.record.clone());
                    if self.live.is_none() {
                        self.meter = Some(line.meter.clone());
                    }
                }
            }
            News::Opened(opened) if opened.pane == self.id => {
                self.opened(opened);
                return self.show_wanted();
            }
            News::Page { pane, from, backwards, events } if *pane == self.id => {
                return self.page(*from, *backwards, events);
            }
            News::Full { pane, events } if *pane == self.id => self.full(events),
            News::Found { pane, text, seq } if *pane == self.id => return self.found(text.as_deref(), *seq),
            News::Appended { pane, events } if *pane == self.id => self.appended(events),
            News::Counted { pane, turns, last } if *pane == self.id => self.turns.set(*turns, *last),
            News::NextAgent { pane, next } if *pane == self.id => self.next_agent = next.clone(),
            News::Changed { pane } if *pane == self.id => return self.reopen(),
            News::Deleted { pane } if *pane == self.id => {
                self.notice(Level::Warning, "this session was deleted");
                self.record = None;
            }
            News::Highlighted { pane, block, at, tones } if *pane == self.id => {
                self.cache.set_tones(*block, *at, tones);
            }
            News::Turn { pane, news } if *pane == self.id => return self.turn_news(news),
            News::Failed { pane: Some(pane), .. } if *pane == self.id => {
                let Asked { full, tones, .. } = std::mem::take(&mut self.asked);
                self.asked = Asked { has_failed: true, full, tones, ..Asked::default() };
            }
            _ => {}
        }
        Vec::new()
    }

    fn opened(&mut self, opened: &Opened) {
        self.meter = Some(opened.meter.clone());
        self.next_agent = opened.next.clone();
        self.stored = Seq(opened.record.counts.events).max(last(&opened.events));
        self.record = Some(opened.record.clone());
        self.turns = Turns::default();
        self.asked = Asked::default();
        self.cache.clear();
        self.fill(&opened.events);
        self.window.is_at_end = true;
        self.window.is_at_start |= opened.events.is_empty();
        if let Some(line) = opened.events.iter().rev().find_map(|event| last_line_of(&event.event().ok()?)) {
            self.last_line = line;
        }
        // Blocks that belonged to what was shown before.
        self.blocks.clear_others();
        if let Some(prompt) = self.live.as_ref().and_then(|live| live.prompt.as_ref()) {
            self.blocks.prompt(prompt);
        }
    }

    /// Puts events in the place of the window.
    fn fill(&mut self, events: &[StoredEvent]) {
        self.window.clear();
        for event in events {
            self.window.insert(Held::stored(event));
        }
        self.is_stale = true;
        self.asked.full.clear();
    }

    /// Reads the end of the session again: its history was changed, and its events have new numbers.
    fn reopen(&mut self) -> Vec<Request> {
        let Some(session) = self.session() else { return Vec::new() };
        self.place = Place::End;
        self.folds = Folds::default();
        self.cache.clear();
        self.asked = Asked::default();
        vec![Request::Open { pane: self.id, session, last: PAGE_EVENTS }]
    }

    fn page(&mut self, from: Seq, backwards: bool, events: &[StoredEvent]) -> Vec<Request> {
        self.stored = self.stored.max(last(events));
        if let Some(jump) = self.asked.jump
            && (jump.from, jump.backwards) == (from, backwards)
        {
            self.asked.jump = None;
            return self.land(jump, events);
        }
        if backwards && self.asked.before == Some(from) {
            self.asked.before = None;
            self.window.is_at_start |= events.is_empty();
        } else if !backwards && self.asked.after == Some(from) {
            self.asked.after = None;
            self.window.is_at_end |= events.is_empty() || last(events) >= self.stored;
        } else {
            return Vec::new();
        }
        let live_first = self.live.as_ref().and_then(|live| live.first);
        for event in events.iter().filter(|event| live_first.is_none_or(|first| event.seq < first)) {
            self.window.insert(Held::stored(event));
        }
        self.is_stale = true;
        self.trim();
        Vec::new()
    }

    /// Shows the page that was read for a jump.
    fn land(&mut self, jump: Jump, events: &[StoredEvent]) -> Vec<Request> {
        self.fill(events);
        (self.asked.before, self.asked.after) = (None, None);
        self.window.is_at_start |= jump.from == Seq::START || events.is_empty();
        self.window.is_at_end = events.is_empty() || last(events) >= self.stored;
        self.refresh();
        match jump.to {
            Target::Start => self.go_to(Seq::START, 0),
            Target::End => self.place = Place::End,
            Target::Event(seq) => self.go_to(seq, 0),
            Target::Hit(seq) => return self.land_on_hit(seq),
        }
        Vec::new()
    }

    fn full(&mut self, events: &[(Seq, Event)]) {
        let mut is_changed = false;
        for (seq, event) in events {
            is_changed |= self.window.replace(Held::new(*seq, event.clone()));
        }
        if !is_changed {
            return;
        }
        let read = self.row_at_top().filter(|(key, _)| {
            let block = self.blocks.find(*key).and_then(|index| self.blocks.get(index));
            block.is_some_and(|block| events.iter().any(|(seq, _)| block.seq <= *seq && *seq <= block.last))
        });
        // The rows of texts that are replaced by others of the same length are to be laid out again.
        for index in 0..self.blocks.len() {
            if let Some(block) = self.blocks.get(index)
                && events.iter().any(|(seq, _)| block.seq <= *seq && *seq <= block.last)
            {
                self.cache.forget((block.seq, block.part));
                self.asked.tones.remove(&(block.seq, block.part));
            }
        }
        self.is_stale = true;
        self.trim();
        if let Some((key, text)) = read {
            self.refresh();
            self.keep_row_at_top(key, &text);
        }
    }

    fn appended(&mut self, events: &[StoredEvent]) {
        let known = self.stored;
        self.asked.has_failed = false;
        self.stored = self.stored.max(last(events));
        // Events in between are missing: they are read as the view nears the end.
        self.window.is_at_end &= events.first().is_none_or(|event| event.seq <= known.next());
        let live_first = self.live.as_ref().and_then(|live| live.first);
        for event in events.iter().filter(|event| event.seq > known) {
            if live_first.is_some_and(|first| event.seq >= first) {
                continue;
            }
            if event.begins_turn() {
                self.turns.add(event.seq);
            }
            let held = Held::stored(event);
            if let Some(line) = last_line_of(&held.event) {
                self.last_line = line;
            }
            if self.window.is_at_end {
                self.append(held);
            }
        }
        self.has_unread |= !self.is_shown && !events.is_empty();
    }

    /// Adds an event to the end of the window.
    fn append(&mut self, held: Held) {
        if !self.is_shown || self.live.as_ref().is_some_and(|live| live.first.is_some()) {
            self.is_stale = true;
        } else if !self.is_stale {
            self.blocks.push(&held);
        }
        self.window.insert(held);
        self.is_out_of_order = true;
        self.trim();
    }

    fn turn_news(&mut self, news: &TurnNews) -> Vec<Request> {
        self.asked.has_failed = false;
        if let TurnNews::Over { error, unsent, .. } = news {
            return self.over(error.as_ref(), unsent.as_deref());
        }
        if let TurnNews::Notice(text) = news {
            self.notice(Level::Info, text.clone());
            return Vec::new();
        }
        if self.live.is_none() {
            self.live = Some(Live::new(false, self.stored.next()));
        }
        self.is_out_of_order = true;
        match news {
            TurnNews::Waiting(text) => self.set_phase(Phase::Waiting(text.clone())),
            TurnNews::Accepted { record, agent, model } => {
                self.record = Some((**record).clone());
                self.set_phase(Phase::Preparing("starting".to_owned()));
                if let Some(live) = &mut self.live {
                    live.turn.agent.clone_from(agent);
                    live.turn.model.clone_from(model);
                }
            }
            TurnNews::Progress(text) => self.set_phase(Phase::Preparing(text.clone())),
            TurnNews::Compacting { agent } => self.set_phase(Phase::Compacting(agent.clone())),
            TurnNews::Began { prompt, first, since_ms, is_ours } => {
                return self.began(prompt.as_deref(), *first, *since_ms, *is_ours);
            }
            TurnNews::Output(outputs) => outputs.iter().for_each(|output| self.output(output)),
            TurnNews::Meter(meter) => self.meter = Some(meter.clone()),
            TurnNews::Question(question) => {
                if let Some(live) = &mut self.live {
                    live.turn.question = Some(question.clone());
                }
            }
            TurnNews::Stored { session, first, last, complete, refused } => {
                return self.turn_stored(*session, first.zip(*last), complete, refused);
            }
            TurnNews::Over { .. } | TurnNews::Notice(_) => {}
        }
        Vec::new()
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(live) = &mut self.live {
            live.turn.phase = phase;
        }
    }

    fn began(&mut self, prompt: Option<&str>, first: Seq, since_ms: u64, is_ours: bool) -> Vec<Request> {
        let Some(live) = &mut self.live else { return Vec::new() };
        live.prompt = None;
        self.blocks.remove(PROMPT);
        // Its number is an expectation. If it was wrong, the turn is read again when it is stored.
        let first = first.max(self.stored.next());
        live.begin(prompt, first);
        // The prompt has a number now.
        let anchor = match &mut self.place {
            Place::At(anchor) => Some(anchor),
            Place::End => None,
        };
        for anchor in anchor.into_iter().chain(&mut self.cursor) {
            if anchor.key == PROMPT {
                anchor.key = (first, 0);
            }
        }
        live.turn.phase = Phase::Running;
        live.turn.is_ours = is_ours;
        // A turn that continues after a compaction runs since its prompt.
        if live.turn.since_ms.is_none() || prompt.is_some() {
            live.turn.since_ms = Some(since_ms);
        }
        self.is_stale = true;
        // Events that were stored before the turn, such as the system message of a new session.
        let known = self.window.last().unwrap_or(Seq::START);
        if self.window.is_at_end && first > known.next() {
            self.stored = Seq(first.0 - 1);
            self.window.is_at_start &= known != Seq::START || first <= Seq(1);
            self.asked.after = Some(known);
            return vec![Request::ReadAfter { pane: self.id, after: known, limit: PAGE_EVENTS }];
        }
        Vec::new()
    }

    fn output(&mut self, output: &AgentOutput) {
        let is_live = self.is_shown && !self.is_stale && self.is_connected();
        let Some(live) = &mut self.live else { return };
        match output {
            AgentOutput::Event(event) => {
                if let Some(key) = live.retry.take() {
                    self.blocks.remove(key);
                }
                let is_added = live.push(event.clone(), self.now_ms);
                self.is_stale |= !is_added;
                match live.events.back() {
                    Some(held) if is_live && is_added => self.blocks.push(held),
                    _ => self.is_stale = true,
                }
            }
            AgentOutput::Delta(text) => {
                let is_added = live.grow(text);
                if is_live && is_added {
                    self.blocks.push_delta(live.next, text);
                } else {
                    self.is_stale = true;
                }
            }
            AgentOutput::Notice(text) => {
                self.notice(Level::Info, text.clone());
            }
            AgentOutput::Retry(text) => {
                if let Some(key) = live.retry.take() {
                    self.blocks.remove(key);
                }
                let key = self.notice(Level::Warning, text.clone());
                if let Some(live) = &mut self.live {
                    live.retry = Some(key);
                }
            }
            AgentOutput::Question(question) => live.turn.question = Some(question.clone()),
            AgentOutput::Answered(answered) => {
                live.turn.question = None;
                let text = format!("answered: {}", answered.title);
                self.notice(Level::Info, text);
            }
            AgentOutput::Usage(_) | AgentOutput::Cache(_) | AgentOutput::Refused(_) => {}
        }
    }

    fn turn_stored(
        &mut self,
        session: SessionId,
        range: Option<(Seq, Seq)>,
        complete: &Complete,
        refused: &[String],
    ) -> Vec<Request> {
        let refused = refused_text(refused);
        let Some(live) = &mut self.live else { return Vec::new() };
        if let Some(refused) = refused {
            let text = format!("{} was refused {refused}", live.turn.agent);
            self.blocks.notice(Seq(live.next.0.saturating_sub(1)), Level::Warning, text);
        }
        if self.record.as_ref().is_some_and(|record| record.id != session) {
            live.clear_events();
            self.settle_notices();
            self.is_stale = true;
            self.notice(
                Level::Warning,
                format!("another process took the session over: the turn is in {session}"),
            );
            return Vec::new();
        }
        // The end comes with the result, not with the output.
        let shown_to = Seq(live.next.0.saturating_sub(1));
        if let Some((first, last)) = range
            && live.first == Some(first)
            && last == shown_to.next()
        {
            live.push(Event::Complete(complete.clone()), self.now_ms);
        }
        let is_as_shown = range.is_some_and(|(first, last)| {
            live.first == Some(first) && live.dropped == 0 && last.next() == live.next
        });
        let first = range.map(|(first, _)| first).or(live.first);
        if let Some(prompt) = first.filter(|_| live.begins_turn) {
            self.turns.add(prompt);
        }
        let events = live.take_events();
        self.stored = range.map_or(self.stored, |(_, last)| last.max(self.stored));
        self.settle_notices();
        self.is_stale = true;
        if !self.window.is_at_end {
            return Vec::new();
        }
        if is_as_shown {
            for held in events {
                self.window.insert(held);
            }
            self.trim();
            return Vec::new();
        }
        // It is stored differently than it was shown: what is stored counts.
        let Some(first) = first else { return self.jump(Target::End) };
        self.window.cut_from(first);
        self.window.is_at_end = false;
        match self.window.last() {
            Some(after) => {
                self.asked.after = Some(after);
                vec![Request::ReadAfter { pane: self.id, after, limit: PAGE_EVENTS }]
            }
            None => self.jump(Target::End),
        }
    }

    /// Puts notices that came after events which are not stored after the last event that is. A reader of such a notice goes with it.
    fn settle_notices(&mut self) {
        self.blocks.settle_notices(self.stored);
        let top = match &mut self.place {
            Place::At(anchor) => Some(anchor),
            Place::End => None,
        };
        for anchor in top.into_iter().chain(&mut self.cursor) {
            anchor.key = settled(anchor.key, self.stored);
        }
    }

    fn over(&mut self, error: Option<&azureal::Error>, unsent: Option<&str>) -> Vec<Request> {
        let mut requests = Vec::new();
        if let Some(mut live) = self.live.take() {
            self.last_line = std::mem::take(&mut live.turn.last_line);
            self.blocks.remove(PROMPT);
            if let Some(key) = live.retry {
                self.blocks.remove(key);
            }
            self.settle_notices();
            // Events that were not reported as stored: if there is no error, they are in the store.
            if let Some(first) = live.first.filter(|_| error.is_none() && self.session().is_some()) {
                if live.begins_turn {
                    self.turns.add(first);
                }
                self.window.is_at_end = false;
                if let Some(after) = self.window.last() {
                    self.asked.after = Some(after);
                    requests.push(Request::ReadAfter { pane: self.id, after, limit: PAGE_EVENTS });
                } else {
                    requests = self.jump(Target::End);
                }
            }
            self.is_stale = true;
        }
        // A prompt that another turn is in the way of waits: that is no failure.
        let is_waiting = |error: &&azureal::Error| unsent.is_some() && error.kind() == "busy";
        if let Some(error) = error.filter(|error| !is_waiting(error)) {
            let hint = error.hint().map(|hint| format!(" · {hint}")).unwrap_or_default();
            self.notice(Level::Error, format!("{}{hint}", error.message()));
        }
        self.unsent = unsent.map(str::to_owned);
        self.is_out_of_order = true;
        self.has_unread |= !self.is_shown;
        requests
    }
}

fn last(events: &[StoredEvent]) -> Seq {
    events.last().map_or(Seq::START, |event| event.seq)
}

/// Names refused tools, each once with its count.
fn refused_text(refused: &[String]) -> Option<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for tool in refused {
        match counts.iter_mut().find(|(name, _)| name == tool) {
            Some((_, count)) => *count += 1,
            None => counts.push((tool, 1)),
        }
    }
    let names: Vec<String> = counts
        .iter()
        .map(|(name, count)| if *count == 1 { (*name).to_owned() } else { format!("{name} ({count}×)") })
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}
