//! Completion of the command line, answered by the program itself.
//!
//! The script of `azureal completions SHELL` calls `azureal` with [`VARIABLE`] set and with the words that were typed so
//! far. Nothing is written then, neither to the store nor to standard error: the person is in the middle of a line.
//! Whatever goes wrong, the answer is that there are no candidates.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use azureal_agents::registry;
use azureal_core::{ListQuery, NameFilter, SessionRecord, visible_line};
use clap::{Arg, CommandFactory};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Shells};
use futures_executor::block_on;
use rustix::stdio::dup2_stderr;

use crate::cli::Cli;
use crate::environment::environment;
use crate::output::fit;
use azureal::{Options, StoreChoice, Workspace};

/// The variable that names the shell which asks.
pub(crate) const VARIABLE: &str = "AZUREAL_COMPLETE";
/// How long the store may take. A person waits for the answer with a finger on the key.
const DEADLINE: Duration = Duration::from_millis(500);
/// How many sessions are offered before a beginning is typed, and how many are looked at once one is.
const NEWEST: usize = 50;
const NEWEST_THAT_BEGIN_SO: usize = 1000;
/// How much of a session's first prompt describes it.
const DESCRIPTION_COLUMNS: usize = 60;

/// Answers a shell that asks for candidates. Returns whether one did.
pub(crate) fn answer(arguments: &[OsString]) -> bool {
    let Some(shell) = std::env::var_os(VARIABLE).filter(|shell| !shell.is_empty()) else { return false };
    // Without it there is no answer either, but also no error on the line that is being typed.
    if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = dup2_stderr(nowhere);
    }
    let words = arguments.iter().skip_while(|argument| *argument != "--").skip(1);
    let words: Vec<OsString> = words.cloned().collect();
    let shells = Shells::builtins();
    if let Some(shell) = shell.to_str().and_then(|name| shells.completer(name)).filter(|_| !words.is_empty())
    {
        drop(write_candidates(shell, words));
    }
    true
}

fn write_candidates(shell: &dyn EnvCompleter, words: Vec<OsString>) -> io::Result<()> {
    if let Some(directory) = value_of(&words, "-C") {
        std::env::set_current_dir(directory)?;
    }
    let store = value_of(&words, "--store").or_else(|| std::env::var_os("AZUREAL_STORE"));
    let store = store.filter(|store| !store.is_empty()).map(PathBuf::from);
    let is_empty = words.last().is_none_or(|word| word.is_empty());
    let store = store.as_deref();
    let mut command = Cli::command();
    // Adds the options that are made by the parser, such as `--help`.
    command.build();
    let mut command = command.mut_args(|arg| describe(arg, store, is_empty)).mut_subcommands(|subcommand| {
        let is_hidden = subcommand.is_hide_set();
        let subcommand = subcommand.mut_args(|arg| describe(arg, store, is_empty));
        // Where they are the only candidates, hidden ones are offered too, unless they have no name.
        if is_hidden { subcommand.name("") } else { subcommand }
    });
    let mut candidates = Vec::new();
    shell.write_complete(&mut command, words, std::env::current_dir().ok().as_deref(), &mut candidates)?;
    io::stdout().write_all(&candidates)
}

/// Returns the value of an option among words that may not be a whole command line yet.
fn value_of(words: &[OsString], option: &str) -> Option<OsString> {
    // The last word is the one that is being typed.
    let (_, words) = words.split_last()?;
    let position = words.iter().position(|word| word == option)?;
    words.get(position + 1).cloned()
}

/// Adds to an argument what it can be completed with. That depends on what its help calls its value.
fn describe(arg: Arg, store: Option<&Path>, is_empty: bool) -> Arg {
    if arg.is_hide_set() {
        return arg.long(None).short(None);
    }
    let value = arg.get_value_names().and_then(|names| names.first()).map(clap::builder::Str::as_str);
    let store = store.map(Path::to_owned);
    let arg = match value {
        Some("SESSION") => {
            arg.add(ArgValueCompleter::new(move |word: &OsStr| sessions(store.as_deref(), word)))
        }
        Some("AGENT") => arg.add(ArgValueCompleter::new(agents)),
        Some("MODEL") => arg.add(ArgValueCompleter::new(move |word: &OsStr| models(store.as_deref(), word))),
        _ => arg,
    };
    // A hidden candidate is offered only where there is no other. Before the first letter, options would bury the rest.
    if is_empty && !arg.is_positional() { arg.hide(true) } else { arg }
}

/// Returns sessions by number and by name, the newest first.
fn sessions(store: Option<&Path>, word: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = Vec::new();
    let limit = if word.is_empty() { NEWEST } else { NEWEST_THAT_BEGIN_SO };
    for record in read_sessions(store, queries_for(word, limit)) {
        let preview = fit(&visible_line(record.counts.preview_text()), DESCRIPTION_COLUMNS);
        let name = if record.has_own_name() { visible_line(&record.name) } else { "".into() };
        let description = [&*name, &preview].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        candidates.push(candidate(&record.id.to_string(), &description.join(": ")));
        // A shell puts a candidate on the line as it is. Whatever it could act on stays out of it.
        if record.has_own_name() && is_plain_word(&record.name) {
            candidates.push(candidate(&record.name, &format!("{}: {preview}", record.id)));
        }
    }
    beginning_with(word, candidates)
}

/// Returns agents; after `claude/`, that agent's models.
fn agents(word: &OsStr) -> Vec<CompletionCandidate> {
    let is_agent_only = !word.to_string_lossy().contains('/');
    let mut candidates = Vec::new();
    for agent in registry::all() {
        if is_agent_only {
            candidates.push(CompletionCandidate::new(agent.name()));
        } else {
            let models = agent.models().iter().map(|model| format!("{}/{model}", agent.name()));
            candidates.extend(models.map(CompletionCandidate::new));
        }
    }
    beginning_with(word, candidates)
}

/// Returns the models that agents are known for, and those that answered in this store.
fn models(store: Option<&Path>, word: &OsStr) -> Vec<CompletionCandidate> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut add = |model: &str, agent: &str| {
        if is_plain_word(model) && !found.iter().any(|(known, _)| known == model) {
            found.push((model.to_owned(), agent.to_owned()));
        }
    };
    for agent in registry::all() {
        agent.models().iter().for_each(|model| add(model, agent.name()));
    }
    let limit = if word.is_empty() { NEWEST } else { NEWEST_THAT_BEGIN_SO };
    for record in read_sessions(store, vec![newest(limit)]) {
        // A name that no agent answers for would have to be given with its agent.
        if let Some(model) = &record.counts.model
            && let Ok(choice) = registry::for_model(model)
        {
            add(model, choice.agent.name());
        }
    }
    beginning_with(word, found.iter().map(|(model, agent)| candidate(model, agent)).collect())
}

fn candidate(value: &str, description: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help((!description.is_empty()).then(|| description.to_owned().into()))
}

fn beginning_with(word: &OsStr, mut candidates: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let word = word.as_encoded_bytes();
    candidates.retain(|candidate| candidate.get_value().as_encoded_bytes().starts_with(word));
    candidates
}

/// Returns whether a text means itself on the command line of every shell, and is one word.
fn is_plain_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | '@');
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
}

fn newest(limit: usize) -> ListQuery {
    ListQuery { limit: Some(limit), ..ListQuery::default() }
}

/// Returns what finds the sessions whose number or name begins with a word.
fn queries_for(word: &OsStr, limit: usize) -> Vec<ListQuery> {
    let Some(word) = word.to_str().filter(|word| !word.is_empty()) else { return vec![newest(limit)] };
    let by_name = ListQuery { name: Some(NameFilter::Prefix(word.to_owned())), ..newest(limit) };
    let digits = word.strip_prefix('S');
    match digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        true => vec![newest(limit), by_name],
        false => vec![by_name],
    }
}

/// Reads sessions of a store in a file, each once. One on a server is not asked: opening it may create its tables, and
/// the network has no deadline that a person would accept here.
fn read_sessions(store: Option<&Path>, queries: Vec<ListQuery>) -> Vec<SessionRecord> {
    let store = store.map(Path::to_owned);
    let (sender, receiver) = mpsc::channel();
    // The thread ends with the program: another process may hold the file for longer than we wait.
    thread::spawn(move || {
        let choice = store.as_deref().map(StoreChoice::of).transpose();
        if let Ok(None | Some(StoreChoice::File(_))) = choice
            && let Ok(place) = Workspace::open(
                Path::new("."),
                &environment(),
                &Options { store, may_block: true, ..Options::default() },
            )
        {
            let mut records: Vec<SessionRecord> = Vec::new();
            for query in queries {
                let Ok(listed) = block_on(place.store.list(&query)) else { return };
                let is_new = |record: &SessionRecord| !records.iter().any(|known| known.id == record.id);
                let new: Vec<SessionRecord> = listed.into_iter().filter(is_new).collect();
                records.extend(new);
            }
            drop(sender.send(records));
        }
    });
    receiver.recv_timeout(DEADLINE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_are_put_on_a_command_line() {
        for word in ["fix-login", "v1.2_b", "登录", "a/b", "x+y@z"] {
            assert!(is_plain_word(word), "{word}");
        }
        for word in [
            "",
            "-rf",
            "a b",
            "$(reboot)",
            "`x`",
            "a;b",
            "a'b",
            "a\"b",
            "a:b",
            "a=b",
            "~x",
            "*",
            "a\nb",
            "a&b",
            "!x",
            "#x",
        ] {
            assert!(!is_plain_word(word), "{word}");
        }
    }

    #[test]
    fn an_agent_is_completed_before_its_models() {
        let values = |word: &str| -> Vec<String> {
            let candidates = agents(OsStr::new(word));
            candidates.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(values(""), ["claude", "codex", "offline"]);
        assert_eq!(values("c"), ["claude", "codex"]);
        assert_eq!(values("offline/"), ["offline/ada", "offline/ben"]);
        assert!(values("claude/o").contains(&"claude/opus".to_owned()));
    }

    #[test]
    fn every_model_that_is_offered_belongs_to_its_agent() {
        for agent in registry::all() {
            for model in agent.models() {
                assert!(is_plain_word(model), "{model}");
                assert_eq!(registry::for_model(model).unwrap().agent.name(), agent.name(), "{model}");
            }
        }
    }
}
