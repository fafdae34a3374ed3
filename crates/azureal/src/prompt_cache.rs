//! Which breakpoint a history is sent to Claude Code with.
//!
//! A request may have four breakpoints, and those of different lifetimes in one order only. Claude Code sets three of its own; their
//! lifetime depends on the login, on settings and on switches at the provider. So the first run of a program gets no breakpoint of
//! ours, and what its output says of its own is remembered. A program that leaves no room for ours is remembered too. An update
//! of the program forgets both.

use std::path::Path;

use azureal_core::agent::{CacheLifetime, CacheSeen, PromptCache};
use serde::{Deserialize, Serialize};

use crate::config::{Caching, Surroundings};
use crate::program_cache::{ProgramCache, ProgramFile};

/// The name of the cache in its folder.
const FILE: &str = "prompt-cache.json";

/// The arguments of Claude Code that go on with a conversation of its own. A breakpoint of ours may be in there.
const RESUMING: [&str; 4] = ["-c", "--continue", "-r", "--resume"];

/// What is known of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Known {
    /// Its own breakpoints last five minutes.
    FiveMinutes,
    /// Its own breakpoints last an hour.
    OneHour,
    /// It leaves no room for another.
    Refused,
}

/// Decides how a history is sent, from the settings and what is known of the program.
pub(crate) fn choose(
    caching: Caching,
    program: &Path,
    arguments: &[String],
    surroundings: &Surroundings,
) -> PromptCache {
    if caching == Caching::Off || surroundings.is_on("DISABLE_PROMPT_CACHING") {
        return PromptCache::Off;
    }
    let resumes = |argument: &String| {
        let name = argument.split('=').next().unwrap_or_default();
        RESUMING.contains(&name)
    };
    if arguments.iter().any(resumes) {
        return PromptCache::Segments;
    }
    let cache = ProgramCache::load(surroundings.cache(), FILE);
    match ProgramFile::of(program).and_then(|program| cache.get(&program).copied()) {
        Some(Known::FiveMinutes) => PromptCache::Breakpoint(CacheLifetime::FiveMinutes),
        Some(Known::OneHour) => PromptCache::Breakpoint(CacheLifetime::OneHour),
        Some(Known::Refused) | None => PromptCache::Segments,
    }
}

/// Remembers what a run showed of its program.
pub(crate) fn learn(program: &Path, used: PromptCache, seen: CacheSeen, surroundings: &Surroundings) {
    let Some(program) = ProgramFile::of(program) else { return };
    let mut cache = ProgramCache::load(surroundings.cache(), FILE);
    let before = cache.get(&program).copied();
    let Some(known) = learned(before, used, seen).filter(|known| before != Some(*known)) else { return };
    cache.add(program, known);
    cache.save();
}

fn learned(before: Option<Known>, used: PromptCache, seen: CacheSeen) -> Option<Known> {
    if before == Some(Known::Refused) {
        return before;
    }
    match (used, seen) {
        // Refused though all lifetimes are the same: there were too many.
        (PromptCache::Breakpoint(ours), CacheSeen { is_refused: true, lifetime })
            if lifetime.is_none_or(|theirs| theirs == ours) =>
        {
            Some(Known::Refused)
        }
        (_, CacheSeen { lifetime: Some(CacheLifetime::FiveMinutes), .. }) => Some(Known::FiveMinutes),
        (_, CacheSeen { lifetime: Some(CacheLifetime::OneHour), .. }) => Some(Known::OneHour),
        (_, CacheSeen { lifetime: None, .. }) => before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: PromptCache = PromptCache::Breakpoint(CacheLifetime::FiveMinutes);
    const LONG: PromptCache = PromptCache::Breakpoint(CacheLifetime::OneHour);

    #[test]
    fn a_breakpoint_has_the_lifetime_that_the_program_was_seen_to_use() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let program = folder.path().join("claude");
        std::fs::write(&program, "1").unwrap();
        let surroundings = Surroundings::from([("HOME", home)]);
        let choose = |caching, arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            choose(caching, &program, &arguments, &surroundings)
        };
        let learn = |used, is_refused, lifetime| {
            learn(&program, used, CacheSeen { is_refused, lifetime }, &surroundings);
        };
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments, "nothing is known");
        learn(PromptCache::Segments, false, None);
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments);
        learn(PromptCache::Segments, false, Some(CacheLifetime::OneHour));
        assert_eq!(choose(Caching::Auto, &["--verbose"]), LONG);
        assert_eq!(choose(Caching::Off, &[]), PromptCache::Off);
        assert_eq!(choose(Caching::Auto, &["--resume=x"]), PromptCache::Segments);
        assert_eq!(choose(Caching::Auto, &["-c"]), PromptCache::Segments);
        // Refused, and then it was seen why: the provider changed the lifetime.
        learn(LONG, true, Some(CacheLifetime::FiveMinutes));
        assert_eq!(choose(Caching::Auto, &[]), SHORT);
        learn(SHORT, true, Some(CacheLifetime::FiveMinutes));
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments, "there were too many");
        learn(PromptCache::Segments, false, Some(CacheLifetime::FiveMinutes));
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments, "and that is remembered");
        std::fs::write(&program, "the next version").unwrap();
        learn(PromptCache::Segments, false, Some(CacheLifetime::FiveMinutes));
        assert_eq!(choose(Caching::Auto, &[]), SHORT);
    }

    #[test]
    fn who_switches_caching_off_gets_no_breakpoint() {
        let switched_off = Surroundings::from([("DISABLE_PROMPT_CACHING", "1")]);
        assert_eq!(choose(Caching::Auto, Path::new("/x"), &[], &switched_off), PromptCache::Off);
        let not = Surroundings::from([("DISABLE_PROMPT_CACHING", "0")]);
        assert_eq!(choose(Caching::Auto, Path::new("/x"), &[], &not), PromptCache::Segments);
    }
}
