use std::borrow::Cow;
use std::sync::Arc;

use azureal_core::agent::AgentOutput;
use azureal_core::{
    Digest, Event, Page, Redactor, Seq, SessionId, SessionRecord, StoredEvent, TurnIndex, compact_event,
    duration_text, read_ledger, visible, visible_line,
};
use azureal_engine::Recovered;
use serde_json::json;

use super::around::Around;
use super::previewed::each_previewed_page;
use super::{Paging, SessionToRead};
use crate::active::describe;
use crate::block_printer::{BlockPrinter, Due};
use crate::damage::{warn_of_damage, warn_of_damaged_events};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::{Output, counted, in_rows, is_unheard, warn};
use crate::plain_text::Escapes;
use crate::recovery::recover;
use crate::screen::{Screen, places};
use crate::spinner::Spinner;
use crate::times::Clock;
use azureal::Workspace;
use azureal::exchange::DamagedEvents;
use azureal::follow::{Follower, News};
use azureal::json::{EventLine, TurnEventLine};
use azureal::sessions::resolve_to_read;
use azureal::transcript::Fold;
use azureal::turns::ActiveTurn;
use azureal_core::{EventRange, each_page};
use azureal_engine::FullHistoryGaps;

/// Show the messages and tool calls of a session
///
/// Each prompt has the numbers of its turn and of its event, which `azureal fork --at` takes. On a terminal, answers are
/// rendered: headings, lists, tables, code in colour. Edits are diffs. Of the output of a tool call a few lines are shown, of
/// reasoning too; `--full` shows all of it. Paths are relative to the project. Marks are ASCII with `[ui] ascii`
/// or in a locale without other characters.
///
/// When piped, texts are printed as they were written, tool calls are one line each, and results are as they were stored. With `--json`, one line
/// per stored event, `{"seq":1,"kind":"UserMessage","data":{…}}`, with everything that is stored. An event that cannot be
/// read has `error` instead of `data`.
///
/// A running turn is not stored yet. `show` says at the end who runs it, since when, and the prompt. With `--follow`, its
/// events are shown as the agent prints them, if it runs on this machine; a turn on another machine is shown when it is
/// stored. With `--json`, such events have no `seq`, as in `run --json`, and are not repeated: the last one, when the turn
/// is stored, is `Complete` with `first_seq` and `seq`.
///
/// Control characters are replaced by visible ones. What comes from the output of the turns has its keys, tokens and passwords masked.
/// `--raw` does neither, and renders nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal show S3
  azureal show fix-login --last 3
  azureal show S3 --seq 42
  azureal show S3 --digest
  azureal show S3 --full | less -R
  azureal show S3 --last 0 --follow
  azureal show S3 --json | jq -r 'select(.kind == \"UserMessage\") | .data.content'")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionToRead,
    /// Only the last N turns: each begins with a prompt
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Only this event and its neighbours, as `azureal search` names it
    ///
    /// The event is marked. A result comes with its call.
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["last", "follow"], value_parser = clap::value_parser!(u64).range(1..))]
    seq: Option<u64>,
    /// Continue with new events, also of a turn that is running, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Print text as it was written: nothing is rendered, escape sequences act, and with `--full` secrets are shown
    #[arg(long)]
    raw: bool,
    /// Show results and inputs of tool calls whole, and reasoning too
    ///
    /// What is stored of them is short. The rest comes from the output of the turns, which azureal keeps: see `azureal original`.
    #[arg(long)]
    full: bool,
    /// Show a digest instead: goals, decisions, files, commands, open errors, current state
    ///
    /// Gathered from the events without any model, in at most 4 000 characters.
    #[arg(long, conflicts_with_all = ["last", "raw", "follow", "full", "seq"])]
    digest: bool,
    #[command(flatten)]
    paging: Paging,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    let record = resolve_to_read(place, found, args.session.session.as_deref()).await?;
    warn_of_damage(std::slice::from_ref(&record));
    if args.digest {
        args.paging.begin(out)?;
        return show_digest(&record, place, out).await;
    }
    // Of a hit, the match may be in a line that would be folded.
    let fold = if args.full || args.seq.is_some() { Fold::Open } else { Fold::Preview };
    let is_on_screen = out.is_terminal() && !out.is_json() && !args.raw;
    let blocks = if is_on_screen {
        BlockPrinter::on_screen(Screen::new(out, fold), places(place))
    } else {
        let escapes = if args.raw { Escapes::Raw } else { Escapes::Visible };
        BlockPrinter::as_text(escapes, fold, places(place))
    };
    let has_full_events = args.full || is_on_screen;
    let redactor = if has_full_events && !args.raw { Some(place.redactor()?) } else { None };
    let start = Start::of(args, place, &record).await?;
    let mut printer = Printer {
        blocks,
        is_on_screen,
        spinner: None,
        redactor,
        masked: 0,
        damaged: DamagedEvents::default(),
        session: record.id,
        turn: start.turn,
        marked: start.around.as_ref().map(|around| (around.marked, around.seq)),
        out,
    };
    // A pager would show escape sequences instead of passing them on, and cannot show what is still to come.
    if !args.raw && !args.follow {
        args.paging.begin(printer.out)?;
    }
    if !printer.out.is_json() {
        let header = header(&record, printer.out);
        printer.out.own_text(&header)?;
    }
    // Of the last none, what comes next is after all that is there.
    let mut seen = match args.last {
        Some(0) if args.follow => place.store.read(record.id, Page::last(1)).await?.pop(),
        _ => None,
    };
    let gaps = start
        .read(args.full, is_on_screen, place, record.id, &mut |mut page: Vec<StoredEvent>| {
            printer.page(&page)?;
            seen = page.pop().or(seen.take());
            Ok(())
        })
        .await?;
    if !args.follow {
        printer.print(Due::Now)?;
    }
    // A follower shows the turns of this machine itself.
    if !printer.out.is_json() {
        let active = place.active_turns(found).await?;
        let mut turns = active.iter().filter(|turn| turn.session() == record.id);
        if let Some(turn) = turns.find(|turn| !args.follow || turn.host.is_some()) {
            printer.running(turn, seen.is_none())?;
        }
    }
    printer.out.end_pager()?;
    warn_of_gaps(&gaps);
    if printer.masked > 0 {
        let events = counted(printer.masked, "event");
        warn(&format!("secrets are masked in {events}; `--raw` shows them as they are"));
    }
    if args.follow {
        follow(place, &record, seen, &mut printer).await?;
    }
    warn_of_damaged_events(&printer.damaged, record.id);
    Ok(())
}

/// Where the transcript starts.
struct Start {
    /// The event before the first one.
    after: Seq,
    /// The number of turns that begin before it.
    turn: usize,
    /// The event to show with its neighbours, if only these are shown.
    around: Option<Around>,
}

impl Start {
    async fn of(args: &Args, place: &Workspace, record: &SessionRecord) -> Result<Self, Failure> {
        let store = &*place.store;
        if let Some(seq) = args.seq {
            let around = Around::find(store, record, Seq(seq)).await?;
            let after = around.after;
            let turns = TurnIndex::read(store, record.id).await?;
            let is_before = |turn: &usize| turns.first_event(*turn).is_some_and(|first| first <= after);
            let turn = (1..=turns.count()).take_while(is_before).count();
            return Ok(Self { after, turn, around: Some(around) });
        }
        let Some(last) = args.last else { return Ok(Self { after: Seq::START, turn: 0, around: None }) };
        let turns = TurnIndex::read(store, record.id).await?;
        Ok(Self { after: turns.before_last(last), turn: turns.count().saturating_sub(last), around: None })
    }

    /// Reads the events in pages, and returns which of them are shorter than they were.
    async fn read(
        &self,
        is_full: bool,
        is_previewed: bool,
        place: &Workspace,
        session: SessionId,
        take: &mut impl FnMut(Vec<StoredEvent>) -> Result<(), Failure>,
    ) -> Result<FullHistoryGaps, Failure> {
        let range = EventRange::After(self.after);
        if let Some(around) = &self.around {
            take(around.read(place, is_full, is_previewed).await?)?;
        } else if is_full {
            let history = place.full_history(session).await?;
            each_page(&history, session, range, take).await?;
            return Ok(history.gaps().await);
        } else if is_previewed {
            each_previewed_page(place, session, self.after, take).await?;
        } else {
            each_page(&*place.store, session, range, take).await?;
        }
        Ok(FullHistoryGaps::default())
    }
}

/// Says which events are still short.
pub(super) fn warn_of_gaps(gaps: &FullHistoryGaps) {
    if gaps.missing > 0 {
        let events = counted(gaps.missing, "event");
        warn(&format!("the output of the turn is not kept for {events}: shown as stored"));
    }
    if gaps.unmatched > 0 {
        let events = counted(gaps.unmatched, "event");
        warn(&format!("{events} not found in the output of the turn: the output itself is shown once"));
    }
    for why in &gaps.unreadable {
        warn(&format!("an output cannot be read, and its events are shown as stored: {why}"));
    }
}

/// Shows events, one page after the other.
struct Printer<'a> {
    blocks: BlockPrinter,
    /// Whether rows of a terminal are printed.
    is_on_screen: bool,
    /// Says which call is running, on a terminal that is followed.
    spinner: Option<Spinner>,
    /// Masks secrets.
    redactor: Option<&'a Redactor>,
    /// The number of events with a masked secret.
    masked: u64,
    damaged: DamagedEvents,
    session: SessionId,
    /// The number of the turn that was shown last.
    turn: usize,
    /// The event to mark, and the number to name.
    marked: Option<(Seq, Seq)>,
    out: &'a mut Output,
}

impl Printer<'_> {
    fn masked<'e>(&mut self, stored: &'e StoredEvent) -> Cow<'e, StoredEvent> {
        let masked = match (self.redactor, &stored.json) {
            (Some(redactor), Ok(json)) => redactor.redact_event_json(json),
            _ => return Cow::Borrowed(stored),
        };
        let Cow::Owned(json) = masked else { return Cow::Borrowed(stored) };
        self.masked += 1;
        Cow::Owned(StoredEvent { json: Ok(json), ..stored.clone() })
    }

    fn page(&mut self, page: &[StoredEvent]) -> Result<(), Failure> {
        for stored in page {
            let prompt = stored.begins_turn().then(|| {
                self.turn += 1;
                format!("turn {}, event {}", self.turn, stored.seq)
            });
            let stored = &*self.masked(stored);
            if self.out.is_json() {
                let line = EventLine::of(stored);
                if let Some(why) = line.damage() {
                    self.damaged.add(stored, why);
                }
                self.out.json(&line)?;
            } else {
                if let Some((_, named)) = self.marked.take_if(|(marked, _)| *marked == stored.seq) {
                    self.blocks.note(format!("event {named}:"));
                }
                match stored.event() {
                    Ok(Event::Changes(changes)) => {
                        let command = format!("azureal diff {} --turn {}", self.session, self.turn);
                        self.blocks.note(format!("{} · {command}", changes.summary()));
                    }
                    Ok(event) => self.blocks.push(&event, prompt),
                    Err(damage) => {
                        self.damaged.add(stored, &damage.to_string());
                        self.blocks.damaged(stored.seq, &stored.kind, &damage.to_string());
                    }
                }
            }
        }
        self.print(Due::InOrder)
    }

    /// Prints what can be printed.
    fn print(&mut self, due: Due) -> Result<(), Failure> {
        self.spinner = None;
        let text = self.blocks.print(due, self.out);
        self.out.text(&text)?;
        self.out.flush()?;
        if due == Due::AtOnce && self.is_on_screen {
            self.spinner = self.blocks.running().map(|call| Spinner::start(&call));
        }
        Ok(())
    }

    /// Shows who runs a turn, since when, and its prompt.
    fn running(&mut self, turn: &ActiveTurn, is_first: bool) -> Result<(), Failure> {
        let title = "running: ";
        let width = self.out.width().map(|width| width.saturating_sub(title.len()));
        let line = format!("{title}{}", describe(turn, &Clock::read(), width));
        let line = self.out.paint().quiet(&line);
        let gap = if is_first { "" } else { "\n" };
        self.out.text(&format!("{gap}{line}\n"))
    }

    /// Shows events of a turn that is not stored yet.
    fn live(&mut self, events: &[Event]) -> Result<(), Failure> {
        for event in events {
            let event = match self.redactor {
                Some(redactor) => redactor.redact_event(event),
                None => Cow::Borrowed(event),
            };
            let event = &*event;
            let prompt = event.begins_turn().then(|| {
                self.turn += 1;
                format!("turn {}", self.turn)
            });
            if self.out.is_json() {
                self.out.json(&TurnEventLine::live(event))?;
            } else {
                self.blocks.push(event, prompt);
            }
        }
        self.print(Due::AtOnce)
    }

    /// Shows the end of a turn whose events were shown before it was stored.
    fn complete(&mut self, complete: &StoredEvent, first: Seq) -> Result<(), Failure> {
        if !self.out.is_json() {
            return self.page(std::slice::from_ref(complete));
        }
        self.out.json(&TurnEventLine::complete(complete, first))?;
        self.out.flush()
    }
}

/// Shows what comes after the last event seen, until nobody reads it any more.
///
/// Ctrl-C ends the program as it ends any other: everything that was seen has been handed on, and no lock is held.
async fn follow(
    place: &Workspace,
    record: &SessionRecord,
    seen: Option<StoredEvent>,
    printer: &mut Printer<'_>,
) -> Result<(), Failure> {
    printer.out.flush()?;
    // Also where a shell has its background ignore it: nothing else ends this.
    let _interrupts = Interrupts::listen()?;
    let id = record.id;
    let follower = Follower::start(Arc::clone(&place.store), id, seen).await?;
    let mut follower = follower.with_live_turns(place.spools(), record);
    if place.is_on_server() && follower.is_polling() {
        warn(
            "the server delivers no notifications here (a pooler in transaction mode, or a user who may only \
             read): azureal polls it three times a second",
        );
    }
    // Without a look at that, `show --follow | head -1` would not end before the next event.
    while !is_unheard() {
        match follower.next().await? {
            Some(News::Events(events) | News::Rest(events)) => printer.page(&events)?,
            Some(News::Began(turn)) => printer.live(&[turn.opening()])?,
            Some(News::Live(outputs)) => {
                let is_on_screen = printer.is_on_screen;
                let event = |output| match output {
                    AgentOutput::Event(event) if is_on_screen => Some(event),
                    // As it will be stored.
                    AgentOutput::Event(event) => Some(compact_event(event)),
                    _ => None,
                };
                printer.live(&outputs.into_iter().filter_map(event).collect::<Vec<_>>())?;
            }
            Some(News::Complete(complete, first)) => printer.complete(&complete, first)?,
            // As every command does when it starts.
            Some(News::Abandoned) => {
                printer.spinner = None;
                drop(recover(place).await);
            }
            Some(News::StoredElsewhere) => {
                printer.spinner = None;
                printer.turn = printer.turn.saturating_sub(1);
                warn(&format!(
                    "the turn above is not stored in {id}: another process took the session over, and it is in a fork, or its \
                     spool was removed"
                ));
            }
            Some(News::Cleared) => {
                printer.spinner = None;
                printer.turn = 0;
                warn(&format!("{id} was cleared, and starts again"));
            }
            None => {}
        }
    }
    Ok(())
}

/// The most characters of the files, commands and failures below a digest.
const LEDGER_CHARS: usize = 12_000;

async fn show_digest(record: &SessionRecord, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let mut digest = Digest::default();
    each_page(&*place.store, record.id, EventRange::All, |page| {
        page.iter().filter_map(|stored| stored.event().ok()).for_each(|event| digest.push(&event));
        Ok::<(), Failure>(())
    })
    .await?;
    let ledger = read_ledger(&*place.store, record.id, Seq::END, LEDGER_CHARS).await?.render(LEDGER_CHARS);
    let parts = [digest.finish(), ledger];
    let text =
        parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    if out.is_json() {
        return out.json(&json!({"session": record.id.to_string(), "digest": text}));
    }
    out.text(&header(record, out))?;
    if text.is_empty() { Ok(()) } else { out.line(&visible(&text)) }
}

/// Says which session this is, in one line, or more on a narrow terminal, and a blank one.
fn header(record: &SessionRecord, out: &Output) -> String {
    let mut parts = vec![record.id.to_string()];
    if record.has_own_name() {
        parts.push(visible_line(&record.name).into_owned());
    }
    parts.extend(
        [&record.counts.agent, &record.counts.model]
            .into_iter()
            .flatten()
            .map(|name| visible_line(name).into_owned()),
    );
    let clock = Clock::read();
    if !record.created_at.is_empty() {
        parts.push(format!("created {}", clock.local(&record.created_at)));
    }
    let active = clock.ago(record.active_at());
    if !active.is_empty() {
        parts.push(format!("active {active}"));
    }
    parts.push(counted(record.counts.messages, "message"));
    if record.duration_ms > 0 {
        parts.push(duration_text(record.duration_ms));
    }
    let rows = in_rows(&parts, out.width().unwrap_or(usize::MAX));
    format!("{}\n\n", out.paint().quiet(&rows))
}
