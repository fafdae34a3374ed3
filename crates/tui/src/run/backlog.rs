//! News that wait for the loop.
//!
//! The loop handles them at once, unless the terminal takes no output: then it waits, and agents continue. What waits is bounded:
//! events and texts of running turns are dropped from the oldest on. They are read from the store when their turn is stored.

use std::collections::{HashSet, VecDeque};

use azureal::AgentOutput;
use azureal::desk::{News, PaneId, TurnNews};

use crate::pane::event_size;

/// The most bytes of events and texts that wait. The loop handles as much in a fraction of a second.
const MOST_BYTES: usize = 16 << 20;
/// The bytes that an output takes beside its text.
const OVERHEAD: usize = 128;
/// Says that a part of a turn was dropped.
const DROPPED: &str =
    "the terminal took no output for a while: a part of this turn is shown when it is stored";

/// News in their order.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// With the bytes of each that may be dropped.
    news: VecDeque<(usize, News)>,
    bytes: usize,
    /// The panes that outputs were dropped of, until no news wait any more.
    cut: HashSet<PaneId>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.news.is_empty()
    }

    /// Adds news. A list or a meter takes the place of an older one that still waits.
    pub(super) fn add(&mut self, news: News) {
        match &news {
            News::Sessions(_) => self.news.retain(|(_, other)| !matches!(other, News::Sessions(_))),
            News::Turn { pane, news } if matches!(**news, TurnNews::Meter(_)) => {
                self.news.retain(|(_, other)| !is_meter_of(other, *pane));
            }
            _ => {}
        }
        let size = size(&news);
        self.bytes = self.bytes.saturating_add(size);
        self.news.push_back((size, news));
        if self.bytes > MOST_BYTES {
            self.thin_out();
        }
    }

    pub(super) fn next(&mut self) -> Option<News> {
        let (size, news) = self.news.pop_front()?;
        self.bytes = self.bytes.saturating_sub(size);
        if self.news.is_empty() {
            self.cut.clear();
        }
        Some(news)
    }

    /// Drops the oldest outputs and stored events, until half of the bytes are left.
    fn thin_out(&mut self) {
        // A pane reads stored events that are missing before others: it has to hear of the last ones.
        let mut seen = HashSet::new();
        let mut last = HashSet::new();
        for (index, (_, news)) in self.news.iter().enumerate().rev() {
            if let News::Appended { pane, .. } = news
                && seen.insert(*pane)
            {
                last.insert(index);
            }
        }
        for (index, (size, news)) in std::mem::take(&mut self.news).into_iter().enumerate() {
            if self.bytes <= MOST_BYTES / 2 || size == 0 {
                self.news.push_back((size, news));
                continue;
            }
            let kept = match news {
                News::Appended { pane, mut events } if last.contains(&index) => {
                    events.drain(..events.len().saturating_sub(1));
                    Some(News::Appended { pane, events })
                }
                News::Appended { .. } => None,
                News::Turn { pane, news } => self.without_outputs(pane, *news),
                other => Some(other),
            };
            self.bytes = self.bytes.saturating_sub(size);
            if let Some(news) = kept {
                let size = self::size(&news);
                self.bytes = self.bytes.saturating_add(size);
                self.news.push_back((size, news));
            }
        }
    }

    /// Drops what is read from the store later; the first time, a notice says so.
    fn without_outputs(&mut self, pane: PaneId, news: TurnNews) -> Option<News> {
        let TurnNews::Output(mut outputs) = news else { return Some(turn(pane, news)) };
        outputs.retain(|output| size_of_output(output) == 0);
        if self.cut.insert(pane) {
            outputs.push(AgentOutput::Notice(DROPPED.to_owned()));
        }
        (!outputs.is_empty()).then(|| turn(pane, TurnNews::Output(outputs)))
    }
}

fn turn(pane: PaneId, news: TurnNews) -> News {
    News::Turn { pane, news: Box::new(news) }
}

fn is_meter_of(news: &News, pane: PaneId) -> bool {
    matches!(news, News::Turn { pane: other, news } if *other == pane && matches!(**news, TurnNews::Meter(_)))
}

/// Returns about how many bytes of news may be dropped.
fn size(news: &News) -> usize {
    match news {
        News::Turn { news, .. } => match &**news {
            TurnNews::Output(outputs) => outputs.iter().map(size_of_output).sum(),
            _ => 0,
        },
        News::Appended { events, .. } => events
            .iter()
            .map(|event| event.json.as_ref().map_or(0, String::len).saturating_add(OVERHEAD))
            .sum(),
        _ => 0,
    }
}

/// Returns about how many bytes an output takes; 0 for one that must not be dropped, because it is not in the store.
fn size_of_output(output: &AgentOutput) -> usize {
    match output {
        AgentOutput::Event(event) => event_size(event),
        AgentOutput::Delta(text) => text.len().saturating_add(OVERHEAD),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use azureal::{Event, Seq, StoredEvent};

    use super::*;

    const PANE: PaneId = PaneId(1);

    fn outputs(backlog: &mut Backlog) -> Vec<AgentOutput> {
        let mut outputs = Vec::new();
        while let Some(news) = backlog.next() {
            if let News::Turn { news, .. } = news
                && let TurnNews::Output(more) = *news
            {
                outputs.extend(more);
            }
        }
        outputs
    }

    fn output(output: AgentOutput) -> News {
        turn(PANE, TurnNews::Output(vec![output]))
    }

    #[test]
    fn a_terminal_that_takes_no_output_costs_a_bounded_amount_of_memory() {
        let mut backlog = Backlog::default();
        backlog.add(turn(PANE, TurnNews::Progress("first".into())));
        for n in 0..20_000 {
            backlog.add(output(AgentOutput::Delta(format!("{n} {}", "x".repeat(5_000)))));
            backlog.add(output(AgentOutput::Event(Event::assistant(format!("{n} {}", "y".repeat(5_000))))));
            assert!(backlog.bytes <= MOST_BYTES, "{n}");
        }
        backlog.add(output(AgentOutput::Notice("kept".into())));
        assert!(backlog.news.len() < 8_000, "{}", backlog.news.len());
        assert!(
            matches!(backlog.next(), Some(News::Turn { news, .. }) if matches!(*news, TurnNews::Progress(_)))
        );
        let left = outputs(&mut backlog);
        let notices = left.iter().filter(|output| **output == AgentOutput::Notice(DROPPED.into())).count();
        assert_eq!((notices, backlog.bytes, backlog.is_empty()), (1, 0, true));
        assert_eq!(left.last(), Some(&AgentOutput::Notice("kept".into())));
        let newest = left.iter().rev().nth(1).unwrap();
        assert!(
            matches!(newest, AgentOutput::Event(Event::AssistantText(text)) if text.text.starts_with("19999 "))
        );
        assert!(backlog.cut.is_empty(), "the next time is said again");
    }

    #[test]
    fn a_pane_hears_of_the_last_event_that_another_process_stored() {
        let mut backlog = Backlog::default();
        let event = |seq: u64| {
            let event = Event::assistant("z".repeat(10_000));
            StoredEvent::new(Seq(seq), event.kind(), Ok(event.to_json()))
        };
        for n in 0..1_000 {
            backlog.add(News::Appended { pane: PANE, events: (1..=5).map(|e| event(5 * n + e)).collect() });
            assert!(backlog.bytes <= MOST_BYTES, "{n}");
        }
        let mut last = Seq::START;
        while let Some(news) = backlog.next() {
            let News::Appended { events, .. } = news else { panic!() };
            assert!(events[0].seq > last);
            last = events.last().unwrap().seq;
        }
        assert_eq!(last, Seq(5_000));
    }

    #[test]
    fn of_lists_and_meters_only_the_newest_waits() {
        let mut backlog = Backlog::default();
        let meter =
            |chars| azureal::meter::Meter::of_context(chars, None, azureal::core::Threshold::Chars(10_000));
        for chars in 0..100 {
            backlog.add(News::Sessions(Vec::new()));
            backlog.add(turn(PANE, TurnNews::Meter(meter(chars))));
            backlog.add(turn(PaneId(2), TurnNews::Meter(meter(chars))));
        }
        assert_eq!(backlog.news.len(), 3);
    }
}
