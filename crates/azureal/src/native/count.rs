//! Counts the native sessions of a project, for a hint that they can be imported.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use azureal_exchange::was_deleted;

use super::{NativeSource, homes_of, project_around, sources};
use crate::error::shown;
use crate::workspace::Workspace;

/// The native sessions of one agent's program that belong to a project, as far as they were counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedSessions {
    /// The agent.
    pub agent: &'static str,
    /// The name of the program, for people.
    pub program: &'static str,
    /// The number of sessions. It can be 0 if there may be more.
    pub sessions: u64,
    /// Whether there may be more, because the count was stopped.
    pub is_least: bool,
}

/// The time that a count may take while the user waits for something else.
const COUNT_AT_MOST: Duration = Duration::from_millis(15);

/// The number of sessions of a home that are looked at even if the time is over: a list of thousands alone can take longer.
const LOOKED_AT_LEAST: usize = 16;

/// Counts the native sessions of a project, for about so long. Sessions of a program that shows the directory in a name are
/// counted by names alone. Sessions that were deleted from the store do not count.
pub async fn count_sessions(workspace: &Workspace, at_most: Duration) -> Vec<CountedSessions> {
    let end = Instant::now() + at_most;
    let mut counted = Vec::new();
    for source in sources() {
        let mut count = CountedSessions {
            agent: source.agent(),
            program: source.program(),
            sessions: 0,
            is_least: false,
        };
        for home in homes_of(*source, workspace) {
            count_home(*source, &home, workspace, end, &mut count).await;
        }
        if count.sessions > 0 || count.is_least {
            counted.push(count);
        }
    }
    counted
}

async fn count_home(
    source: &dyn NativeSource,
    home: &Path,
    workspace: &Workspace,
    end: Instant,
    count: &mut CountedSessions,
) {
    let Ok(home) = source.open(home, &workspace.environment().temporary()) else { return };
    let project = &workspace.project;
    let mut projects: HashMap<PathBuf, bool> = HashMap::new();
    for (place, session) in home.sessions(Some(project.root())).filter_map(Result::ok).enumerate() {
        if place >= LOOKED_AT_LEAST && Instant::now() >= end {
            count.is_least = true;
            return;
        }
        let Ok(head) = home.head(&session) else { continue };
        let is_of_project = head.cwd.clone().filter(|_| !head.is_subagent).is_some_and(|cwd| {
            *projects.entry(cwd).or_insert_with_key(|cwd| match project_around(cwd) {
                Some(own) => own.root() == project.root(),
                None => cwd.is_absolute() && cwd.starts_with(project.root()),
            })
        });
        // An import would leave out a deleted one.
        if is_of_project
            && !was_deleted(&*workspace.store, source.agent(), &head.id).await.unwrap_or_default()
        {
            count.sessions += 1;
        }
    }
}

/// Says what can be imported into the project's store, and which command does it; `None` if nothing was found. Takes a few milliseconds.
pub async fn find_importable(workspace: &Workspace) -> Option<String> {
    match workspace.project.store_of_worktree() {
        Some(path) => {
            let path = shown(&path);
            Some(format!(
                "the original AZUREAL program has a store of its own here: `azureal import {path}` imports its sessions"
            ))
        }
        None => import_hint(&count_sessions(workspace, COUNT_AT_MOST).await),
    }
}

/// Says how many sessions were counted and which command imports them; `None` if there are none.
fn import_hint(counted: &[CountedSessions]) -> Option<String> {
    let command = match counted {
        [] => return None,
        [only] => only.agent,
        _ => "all",
    };
    let (found, unknown): (Vec<_>, Vec<_>) = counted.iter().partition(|count| count.sessions > 0);
    if found.is_empty() {
        let have = if unknown.len() > 1 { "have" } else { "has" };
        let programs = list(unknown.iter().map(|count| count.program.to_owned()).collect());
        return Some(format!(
            "{programs} {have} many sessions: `azureal import --from {command}` imports those of this project"
        ));
    }
    let one = |count: &&CountedSessions| {
        let least = if count.is_least { "at least " } else { "" };
        format!("{least}{} of {}", azureal_core::counted(count.sessions, "session"), count.program)
    };
    let found = list(found.iter().map(one).collect());
    Some(format!("found {found} for this project: `azureal import --from {command}` imports them"))
}

/// Returns words as a list: `a, b and c`.
fn list(mut words: Vec<String>) -> String {
    let Some(last) = words.pop() else { return String::new() };
    if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_command_for_what_was_found() {
        let count =
            |agent, program, sessions, is_least| CountedSessions { agent, program, sessions, is_least };
        let claude = count("claude", "Claude Code", 12, false);
        let codex = count("codex", "Codex", 1, true);
        assert_eq!(import_hint(&[]), None);
        assert_eq!(
            import_hint(std::slice::from_ref(&claude)).unwrap(),
            "found 12 sessions of Claude Code for this project: `azureal import --from claude` imports them"
        );
        assert_eq!(
            import_hint(&[claude.clone(), codex]).unwrap(),
            "found 12 sessions of Claude Code and at least 1 session of Codex for this project: `azureal import --from all` imports them"
        );
        // Those that were looked at before the time was over are of other projects.
        let many = |agent, program| count(agent, program, 0, true);
        assert_eq!(
            import_hint(&[many("codex", "Codex")]).unwrap(),
            "Codex has many sessions: `azureal import --from codex` imports those of this project"
        );
        assert_eq!(
            import_hint(&[many("codex", "Codex"), many("gemini", "Gemini CLI")]).unwrap(),
            "Codex and Gemini CLI have many sessions: `azureal import --from all` imports those of this project"
        );
        assert_eq!(
            import_hint(&[claude, many("codex", "Codex")]).unwrap(),
            "found 12 sessions of Claude Code for this project: `azureal import --from all` imports them"
        );
    }
}
