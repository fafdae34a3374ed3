//! The breakpoint with which a history is sent to Claude Code.
//!
//! A request may have four breakpoints, and those of different lifetimes in one order only. Claude Code sets three of
//! its own; their lifetime depends on the login, on settings and on switches at the provider. So the first run of a
//! program gets no breakpoint of ours. The lifetime in its output is remembered, by program and login. A program that
//! leaves no room for ours is remembered too, for a week. An update of the program invalidates both.

use std::path::Path;

use azureal_core::agent::{CacheLifetime, CacheRefusal, CacheSeen, PromptCache};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::program_cache::{ProgramCache, ProgramFile};
use crate::config::Caching;
use crate::environment::Environment;

/// The name of the cache in its folder.
const FILE: &str = "prompt-cache.json";
/// The number of logins that are remembered of a program.
const LOGINS: usize = 8;
/// The time for which a program without room for ours is remembered, in seconds. The file may be a wrapper that
/// starts another version tomorrow, and finding it out again costs one refused request.
const REFUSED_SECONDS: i64 = 7 * 24 * 3600;

/// The long arguments of Claude Code that continue a conversation of its own, in which a breakpoint of ours may be.
const RESUMING: [&str; 4] = ["--continue", "--resume", "--from-pr", "--teleport"];
/// The short ones, also together with others.
const RESUMING_SHORT: [char; 2] = ['c', 'r'];

/// The variables that choose a login, or another provider.
const LOGIN_VARIABLES: [&str; 8] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CONFIG_DIR",
];

/// The facts about a program with a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Known {
    /// Its own breakpoints last five minutes.
    FiveMinutes,
    /// Its own breakpoints last an hour.
    OneHour,
    /// It leaves no room for another.
    Refused {
        /// When that was found out, in seconds.
        at: i64,
    },
}

/// The form in which a history is sent to Claude Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheChoice {
    /// The blocks and the breakpoint.
    pub cache: PromptCache,
    /// Whether azureal puts the git status after a long history, instead of Claude Code before it.
    pub moves_git_status: bool,
}

impl CacheChoice {
    /// In one piece, as to any other agent.
    pub const OFF: Self = Self { cache: PromptCache::Off, moves_git_status: false };
}

/// Decides how a history is sent, from the settings and what is known of the program.
pub fn choose(
    caching: Caching,
    program: &Path,
    arguments: &[String],
    environment: &Environment,
) -> CacheChoice {
    if caching == Caching::Off || environment.is_any_on("DISABLE_PROMPT_CACHING") {
        return CacheChoice::OFF;
    }
    // A variable that the user has set is respected.
    let moves_git_status = environment.value("CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS").is_none();
    let with = |cache| CacheChoice { cache, moves_git_status };
    if arguments.iter().any(|argument| resumes(argument)) {
        return with(PromptCache::Segments);
    }
    let memory = Memory::load(program, environment);
    match memory.as_ref().and_then(|memory| memory.known(Timestamp::now().as_second())) {
        Some(Known::FiveMinutes) => with(PromptCache::Breakpoint(CacheLifetime::FiveMinutes)),
        Some(Known::OneHour) => with(PromptCache::Breakpoint(CacheLifetime::OneHour)),
        // Without a breakpoint of ours the history is not found again, wherever the git status is.
        Some(Known::Refused { .. }) => CacheChoice { cache: PromptCache::Segments, moves_git_status: false },
        None => with(PromptCache::Segments),
    }
}

fn resumes(argument: &str) -> bool {
    match argument.strip_prefix('-') {
        Some(long) if long.starts_with('-') => RESUMING.iter().any(|name| argument.starts_with(name)),
        Some(short) => short.contains(RESUMING_SHORT),
        None => false,
    }
}

/// Remembers what a run showed of its program. `arguments` are those of the user.
pub fn learn(
    program: &Path,
    used: PromptCache,
    seen: CacheSeen,
    arguments: &[String],
    environment: &Environment,
) {
    let Some(mut memory) = Memory::load(program, environment) else { return };
    let now = Timestamp::now().as_second();
    let before = memory.known(now);
    let known = learned(before, used, seen, arguments.is_empty(), now);
    if known != before {
        memory.set(known);
    }
}

fn learned(
    before: Option<Known>,
    used: PromptCache,
    seen: CacheSeen,
    is_plain: bool,
    now: i64,
) -> Option<Known> {
    let lifetime = seen.lifetime.map(|lifetime| match lifetime {
        CacheLifetime::FiveMinutes => Known::FiveMinutes,
        CacheLifetime::OneHour => Known::OneHour,
    });
    match (seen.refusal, used) {
        (_, PromptCache::Breakpoint(_))
            if before.is_some_and(|known| matches!(known, Known::Refused { .. })) =>
        {
            before
        }
        // Arguments of the user's may have brought the others.
        (Some(CacheRefusal::TooMany), PromptCache::Breakpoint(_)) if is_plain => {
            Some(Known::Refused { at: now })
        }
        // The remembered lifetime is wrong. It is unknown if the second run wrote no cache entry either.
        (Some(_), PromptCache::Breakpoint(_)) => lifetime,
        _ if matches!(before, Some(Known::Refused { .. })) => before,
        _ => lifetime.or(before),
    }
}

/// The facts about one program, by login.
struct Memory {
    cache: ProgramCache<Vec<(String, Known)>>,
    program: ProgramFile,
    login: String,
}

impl Memory {
    fn load(program: &Path, environment: &Environment) -> Option<Self> {
        let cache = ProgramCache::load(environment.cache(), FILE);
        Some(Self { cache, program: ProgramFile::of(program)?, login: login(environment) })
    }

    fn known(&self, now: i64) -> Option<Known> {
        let known = self.cache.get(&self.program)?;
        let known = known.iter().find(|(login, _)| *login == self.login).map(|(_, known)| *known)?;
        match known {
            Known::Refused { at } if !(0..REFUSED_SECONDS).contains(&now.saturating_sub(at)) => None,
            known => Some(known),
        }
    }

    fn set(&mut self, known: Option<Known>) {
        let mut logins = self.cache.get(&self.program).cloned().unwrap_or_default();
        logins.retain(|(login, _)| *login != self.login);
        logins.extend(known.map(|known| (self.login.clone(), known)));
        let too_many = logins.len().saturating_sub(LOGINS);
        logins.drain(..too_many);
        self.cache.add(self.program.clone(), logins);
        self.cache.save();
    }
}

/// Returns an identifier of the login, without a secret and without values of variables.
fn login(environment: &Environment) -> String {
    let mut hash = blake3::Hasher::new();
    for name in LOGIN_VARIABLES {
        let value = environment.value(name);
        let is_place = matches!(name, "ANTHROPIC_BASE_URL" | "CLAUDE_CONFIG_DIR");
        hash.update(name.as_bytes());
        hash.update(&[u8::from(value.is_some())]);
        if let Some(value) = value.filter(|_| is_place) {
            hash.update(value.as_encoded_bytes());
        }
    }
    hash.finalize().to_hex().chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: PromptCache = PromptCache::Breakpoint(CacheLifetime::FiveMinutes);
    const LONG: PromptCache = PromptCache::Breakpoint(CacheLifetime::OneHour);
    const FIVE_MINUTES: Option<CacheLifetime> = Some(CacheLifetime::FiveMinutes);

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_breakpoint_has_the_lifetime_that_the_program_was_seen_to_use() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let program = folder.path().join("claude");
        std::fs::write(&program, "1").unwrap();
        let environment = Environment::from([("HOME", home)]);
        let choose =
            |caching, arguments: &[&str]| choose(caching, &program, &words(arguments), &environment).cache;
        let learn = |used, refusal, lifetime| {
            learn(&program, used, CacheSeen { refusal, lifetime }, &[], &environment);
        };
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments, "nothing is known");
        learn(PromptCache::Segments, None, None);
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments);
        learn(PromptCache::Segments, None, Some(CacheLifetime::OneHour));
        assert_eq!(choose(Caching::Auto, &["--verbose", "resume"]), LONG);
        assert_eq!(choose(Caching::Off, &[]), PromptCache::Off);
        for resuming in ["--resume=x", "--resume", "-c", "-rABC", "-pc", "--from-pr=1", "--teleport"] {
            assert_eq!(choose(Caching::Auto, &[resuming]), PromptCache::Segments, "{resuming}");
        }
        // Refused, and then it was seen why: the provider changed the lifetime.
        learn(LONG, Some(CacheRefusal::Other), FIVE_MINUTES);
        assert_eq!(choose(Caching::Auto, &[]), SHORT);
        // Refused, and nobody saw why, since the repeated run failed.
        learn(SHORT, Some(CacheRefusal::Other), None);
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments);
        learn(PromptCache::Segments, None, FIVE_MINUTES);
        assert_eq!(choose(Caching::Auto, &[]), SHORT);
        learn(SHORT, Some(CacheRefusal::TooMany), None);
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments, "there were too many");
        learn(PromptCache::Segments, None, FIVE_MINUTES);
        assert_eq!(choose(Caching::Auto, &[]), PromptCache::Segments, "and that is remembered");
        std::fs::write(&program, "the next version").unwrap();
        learn(PromptCache::Segments, None, FIVE_MINUTES);
        assert_eq!(choose(Caching::Auto, &[]), SHORT);
    }

    #[test]
    fn no_room_is_remembered_for_a_week_and_not_because_of_the_users_arguments() {
        let seen = CacheSeen { refusal: Some(CacheRefusal::TooMany), lifetime: FIVE_MINUTES };
        assert_eq!(learned(Some(Known::FiveMinutes), SHORT, seen, true, 7), Some(Known::Refused { at: 7 }));
        assert_eq!(learned(Some(Known::FiveMinutes), SHORT, seen, false, 7), Some(Known::FiveMinutes));
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("claude");
        std::fs::write(&program, "1").unwrap();
        let environment = Environment::from([("HOME", folder.path().to_str().unwrap())]);
        let mut memory = Memory::load(&program, &environment).unwrap();
        memory.set(Some(Known::Refused { at: 1_000 }));
        assert_eq!(memory.known(1_000 + REFUSED_SECONDS - 1), Some(Known::Refused { at: 1_000 }));
        assert_eq!(memory.known(1_000 + REFUSED_SECONDS), None);
        assert_eq!(memory.known(999), None, "from the future");
    }

    #[test]
    fn each_login_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let program = folder.path().join("claude");
        std::fs::write(&program, "1").unwrap();
        let subscriber = Environment::from([("HOME", home)]);
        let with_key = Environment::from([("HOME", home), ("ANTHROPIC_API_KEY", "k")]);
        let seen = |lifetime| CacheSeen { refusal: None, lifetime: Some(lifetime) };
        learn(&program, PromptCache::Segments, seen(CacheLifetime::OneHour), &[], &subscriber);
        learn(&program, PromptCache::Segments, seen(CacheLifetime::FiveMinutes), &[], &with_key);
        assert_eq!(choose(Caching::Auto, &program, &[], &subscriber).cache, LONG);
        assert_eq!(choose(Caching::Auto, &program, &[], &with_key).cache, SHORT);
        let kept = std::fs::read_to_string(folder.path().join(".cache/azureal/prompt-cache.json")).unwrap();
        assert!(!kept.contains("ANTHROPIC"), "{kept}");
    }

    #[test]
    fn what_the_user_has_switched_off_stays_off() {
        let of = |variable: (&str, &str)| {
            choose(Caching::Auto, Path::new("/x"), &[], &Environment::from([variable]))
        };
        assert_eq!(of(("DISABLE_PROMPT_CACHING", "1")), CacheChoice::OFF);
        assert_eq!(of(("DISABLE_PROMPT_CACHING_OPUS", "true")), CacheChoice::OFF);
        assert_eq!(of(("DISABLE_PROMPT_CACHING", "0")).cache, PromptCache::Segments);
        assert!(of(("OTHER", "1")).moves_git_status);
        for value in ["0", "1"] {
            assert!(!of(("CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS", value)).moves_git_status, "{value}");
        }
    }
}
