use std::time::{Duration, Instant};

use azureal::search::{
    Case, Filters, Found, FoundLine, Hit, Query, QueryError, SearchOptions, SearchRole, Snippet, Step,
    show_command,
};
use azureal::sessions::{called, resolve_to_read};
use azureal::{Workspace, parse_since};
use azureal_core::{ListQuery, WorktreeFilter, visible_line};
use azureal_engine::Recovered;
use clap::builder::PossibleValuesParser;
use unicode_width::UnicodeWidthStr;

use crate::commands::list::tell_of_empty_store;
use crate::failure::Failure;
use crate::output::{Output, Paint, counted, tell, warn};
use crate::spinner::Spinner;
use crate::times::Clock;
use crate::usage_error::in_words;

/// Stands before the lines below the heading of a hit.
const INDENT: &str = "  ";

/// How long a search runs before its progress is shown.
const QUIET: Duration = Duration::from_millis(400);

/// Search the text of all sessions
///
/// Prompts, answers, reasoning, calls of tools and their results, names of changed files: all that is stored, in all sessions of all
/// worktrees. An event is found if it has all words. `"two words"` is a phrase, `tok*` is the beginning of a word. Case does not matter, and
/// neither does punctuation: `find_for_update`, `std::fs` and `src/main.rs` are phrases. `map` finds `HashMap`. Quote phrases and
/// stars for your shell: azureal search '"token row" refr*'. `-F` finds signs and parts of words, as they are.
///
/// An event must pass every filter. `--agent`, `--role`, `--tool` and `--session` may be given several times: one of their values is enough.
///
/// The best hits come first: rare words, many of them, in short texts, in sessions that were active lately. With `-F` and `--regex`, hits in the session that was
/// active last come first. Each has the command that shows the event among its neighbours.
///
/// The first search makes an index beside the store, the first with `-F` or `--regex` a second one, and later ones bring it up to date. It is a cache: azureal makes it again if
/// it is missing or damaged, and reads the events themselves if it cannot be used.
///
/// With `--json`, one object: `{"total":2,"total_is_least":false,"not_searched":0,"damaged_events":0,"hits":[{"session":"S3","name","seq":42,"role":"user",
/// "tool":null,"agent":"claude","worktree","last_active","snippet":[{"text":"the ","match":false},{"text":"token","match":true}],
/// "score":1.5,"show":"azureal show S3 --seq 42"}]}`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal search token race
  azureal search 'find_for*' --tool Edit --since 7d
  azureal search '\"connection refused\"' --role tool --session S3
  azureal search -F 'ection ref'
  azureal search -F -- '->'
  azureal search -i --regex 'panicked at .*login'
  azureal search token --json | jq -r '.hits[].show'")]
pub(crate) struct Args {
    /// The words to search for; all must be in one event
    #[arg(value_name = "TEXT", required = true)]
    text: Vec<String>,
    /// Show at most N hits
    #[arg(
        short = 'n',
        long = "limit",
        value_name = "N",
        default_value_t = 20,
        allow_negative_numbers = true
    )]
    limit: usize,
    /// Only what was said and done in turns of this agent
    #[arg(short, long, value_name = "AGENT")]
    agent: Vec<String>,
    /// Only sessions that were active since then: `30m`, `12h`, `7d`, `2w` or a date
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only texts of this author
    #[arg(long, value_name = "ROLE", value_parser = PossibleValuesParser::new(SearchRole::ALL.map(SearchRole::as_str)))]
    role: Vec<String>,
    /// Only calls and results of this tool, such as Bash
    #[arg(long, value_name = "TOOL")]
    tool: Vec<String>,
    /// Only this session: its number (S3), its name, or a unique prefix of it
    #[arg(short, long, value_name = "SESSION")]
    session: Vec<String>,
    /// Only sessions of this worktree, as `azureal list --all` shows it; `.` is the main one
    #[arg(long, value_name = "WORKTREE")]
    worktree: Option<String>,
    /// Search for this text as it is, such as `->` or a part of a word
    ///
    /// Case matters, unless `-i` is given. Put `--` before a text that begins with a dash.
    #[arg(short = 'F', long, conflicts_with = "regex")]
    fixed_strings: bool,
    /// Search for a regular expression
    ///
    /// It is compared with the text as it is stored. Case matters, unless `-i` is given or the expression begins with `(?i)`.
    #[arg(long)]
    regex: bool,
    /// Ignore case with `-F` and `--regex`; a search for words always does
    #[arg(short, long)]
    ignore_case: bool,
    /// Search the output of the turns as the agents printed it
    ///
    /// What is stored of results is short. This reads all of the output that azureal keeps (`azureal original`), which takes a while. Secrets are
    /// masked.
    #[arg(long)]
    full: bool,
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    program: &str,
    out: &mut Output,
) -> Result<(), Failure> {
    let text = args.text.join(" ");
    let case = if args.ignore_case { Case::Ignored } else { Case::Sensitive };
    let query = match (args.fixed_strings, args.regex) {
        (true, _) => Query::fixed(&text, case),
        (_, true) => Query::pattern(&text, case),
        _ => Query::words(&text),
    };
    let query = query.map_err(unusable)?;
    let filters = filters(args, place, found).await?;
    let mask = if args.full { Some(place.redactor()?) } else { None };
    let options =
        SearchOptions { limit: Some(args.limit), full: args.full, mask, ..SearchOptions::default() };
    let mut progress = ShownProgress::new();
    let result = place.search(&query, &filters, &options, |step| progress.show(step)).await?;
    drop(progress);
    tell_of_index(&result);
    if out.is_json() {
        return out.json(&FoundLine::of(&result, program));
    }
    let clock = Clock::read();
    let (paint, width) = (out.paint(), out.width());
    for (index, hit) in result.hits.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        out.own_text(&format!("{gap}{}", hit_text(hit, program, &clock, paint, width)))?;
    }
    out.flush()?;
    let any = ListQuery { limit: Some(1), ..ListQuery::default() };
    if result.total.events == 0 && place.store.list(&any).await?.is_empty() {
        tell_of_empty_store(place).await;
    } else {
        tell_of_total(args, &result);
    }
    Ok(())
}

fn unusable(error: QueryError) -> Failure {
    match error {
        QueryError::Empty => Failure::usage("there is no text to search for"),
        QueryError::NoWord => Failure::usage("there is no word to search for")
            .with_hint("`azureal search -F -- '->'` searches for signs"),
        QueryError::Pattern(why) => Failure::usage(format!("this is not a regular expression: {why}"))
            .with_hint("`-F` searches for the text as it is"),
        error @ (QueryError::TooLong | QueryError::LargePattern) => Failure::usage(error.to_string()),
    }
}

async fn filters(args: &Args, place: &Workspace, found: &[Recovered]) -> Result<Filters, Failure> {
    let mut sessions = Vec::new();
    for session in &args.session {
        sessions.push(resolve_to_read(place, found, Some(session)).await?.id);
    }
    let worktree = args.worktree.as_ref().map(|worktree| WorktreeFilter {
        names: vec![worktree.clone()],
        last_part: worktree.rsplit('/').next().unwrap_or(worktree).to_owned(),
    });
    Ok(Filters {
        roles: args.role.iter().filter_map(|role| SearchRole::named(role)).collect(),
        tools: args.tool.clone(),
        agents: args.agent.clone(),
        sessions: (!sessions.is_empty()).then_some(sessions),
        worktree,
        since: args.since.as_deref().map(parse_since).transpose()?.map(jiff::Timestamp::as_second),
        ..Filters::default()
    })
}

/// Renders a hit: a heading, the snippet, and the command that shows it.
fn hit_text(hit: &Hit, program: &str, clock: &Clock, paint: Paint, width: Option<usize>) -> String {
    let tool = hit.tool.as_deref().map(|tool| format!("{} {}", hit.role.as_str(), visible_line(tool)));
    let author = tool.unwrap_or_else(|| hit.role.as_str().to_owned());
    let agent = hit.agent.as_deref().map(|agent| visible_line(agent).into_owned());
    let ago = Some(clock.ago(hit.session.active_at())).filter(|ago| !ago.is_empty());
    let parts = [Some(author), agent, Some(format!("event {}", hit.seq)), ago];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let heading = paint.heading(&called(&hit.session));
    let facts = paint.quiet(&parts.join(" · "));
    let snippet = snippet_text(&hit.snippet, paint, width);
    format!("{heading}  {facts}\n{snippet}\n{INDENT}{}\n", paint.quiet(&show_command(hit, program)))
}

/// Renders a snippet with its matches in colour, or in brackets, in lines of a width.
fn snippet_text(snippet: &Snippet, paint: Paint, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len()));
    let (mut text, mut column) = (INDENT.to_owned(), 0);
    let mut push = |part: &str, is_match: bool| {
        for word in part.split_inclusive(' ') {
            if column > 0 && column + word.trim_end().width() > room {
                text.truncate(text.trim_end().len());
                text.push('\n');
                text.push_str(INDENT);
                column = 0;
            }
            column += word.width();
            text.push_str(&if is_match { paint.found(word) } else { word.to_owned() });
        }
    };
    if snippet.is_cut_before {
        push("…", false);
    }
    for piece in &snippet.pieces {
        let safe = visible_line(&piece.text);
        match (piece.is_match, paint.is_on()) {
            (true, false) => push(&format!("[{safe}]"), false),
            (is_match, _) => push(&safe, is_match),
        }
    }
    if snippet.is_cut_after {
        push("…", false);
    }
    text
}

fn tell_of_index(result: &Found) {
    if let Some(error) = &result.index_error {
        warn(&format!("the search index cannot be used, so all events were read: {error}"));
    }
    if result.damaged > 0 {
        let events = counted(result.damaged, "event");
        warn(&format!("not searched: {events} that cannot be read; `azureal doctor` names them"));
    }
    if result.not_searched > 0 {
        let sessions = counted(result.not_searched, "session");
        warn(&format!(
            "the time is over: {sessions} not searched; a filter such as `--since 30d` makes it quicker"
        ));
    }
}

fn tell_of_total(args: &Args, result: &Found) {
    let total = result.total.events;
    if total > 0 {
        if result.total.is_least || result.hits.len() < usize::try_from(total).unwrap_or(usize::MAX) {
            let least = if result.total.is_least { "at least " } else { "" };
            let verb = if total == 1 { "matches" } else { "match" };
            tell(&format!("{least}{} {verb}; `-n` shows more", counted(total, "event")));
        }
        return;
    }
    let filters = given_filters(args);
    let text = args.text.join(" ");
    let is_exact = args.fixed_strings || args.regex;
    let has_case = !args.ignore_case && !text.contains("(?i") && text.chars().any(char::is_alphabetic);
    let has_inner_star = text.split_whitespace().any(|word| word.trim_end_matches(['*', '"']).contains('*'));
    let try_this = match (is_exact, filters.as_slice(), args.full) {
        (true, [], _) if has_case => "case matters: `-i` ignores it".to_owned(),
        (false, [], _) if has_inner_star => {
            "a star stands for the rest of a word, as in `tok*`; `--regex` takes an expression".to_owned()
        }
        (true, [], false) => "try a part of the text, or `--full` for all output of tools".to_owned(),
        (true, [], true) => "try a part of the text; secrets are masked, and not searched".to_owned(),
        (false, [], false) => {
            "try fewer words, the beginning of a word (`tok*`), `-F` for parts of words, or `--full` for all output of tools".to_owned()
        }
        (false, [], true) => {
            "try fewer words, or the beginning of a word (`tok*`); secrets are masked, and not searched".to_owned()
        }
        (_, filters, _) => {
            let other = match is_exact {
                true if has_case => "or with `-i`, as case matters",
                true => "or with a part of the text",
                false => "with fewer words, or with the beginning of a word (`tok*`)",
            };
            format!("try it without {}, {other}", in_words(filters, "and"))
        }
    };
    tell(&format!("nothing found; {try_this}"));
}

/// Returns the filters as they were given.
fn given_filters(args: &Args) -> Vec<String> {
    let lists = [
        ("--agent", &args.agent),
        ("--role", &args.role),
        ("--tool", &args.tool),
        ("--session", &args.session),
    ];
    let lists = lists.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    let single = [("--worktree", &args.worktree), ("--since", &args.since)];
    let single = single.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    lists.chain(single).map(|(name, value)| format!("{name} {value}")).collect()
}

/// Shows on standard error what a search does, once it takes long.
struct ShownProgress {
    since: Instant,
    spinner: Option<Spinner>,
}

impl ShownProgress {
    fn new() -> Self {
        Self { since: Instant::now(), spinner: None }
    }

    fn show(&mut self, step: Step) {
        if self.since.elapsed() < QUIET {
            return;
        }
        let (what, progress) = match step {
            Step::Indexing(progress) => ("bringing the search index up to date", progress),
            Step::Scanning(progress) => ("reading events", progress),
        };
        let percent = progress.done.saturating_mul(100) / progress.of.max(1);
        let label = format!("{what}: {} of {} ({}%)", progress.done, progress.of, percent.min(100));
        match &self.spinner {
            Some(spinner) => spinner.relabel(&label),
            None => {
                let spinner = Spinner::start(&label);
                if !spinner.is_seen() {
                    tell(&label);
                }
                self.spinner = Some(spinner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_wrapped_between_words() {
        let query = Query::words("\"token row\" 検索").unwrap();
        let snippet =
            Snippet::of("two refreshes race on the token row of 検索 and_a_very_long_word x", &query);
        assert_eq!(
            snippet_text(&snippet, Paint::PLAIN, Some(20)),
            "  two refreshes race\n  on the [token row]\n  of [検索]\n  and_a_very_long_word\n  x"
        );
        assert!(!snippet_text(&snippet, Paint::PLAIN, None).contains('\n'));
        assert!(snippet_text(&snippet, Paint::PLAIN, Some(1)).contains("[token\n"));
    }
}
