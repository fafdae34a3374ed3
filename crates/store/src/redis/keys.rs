//! The names of a store's keys. `docs/redis.md` describes their values.
//!
//! All keys of a project have its name in braces. So a cluster stores them on one of its servers, and a script can
//! use them all.

use std::fmt::Write;

use azureal_core::SessionId;
use uuid::Uuid;

/// The keys of one project.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// The prefix of all keys.
    prefix: String,
}

impl Keys {
    pub(super) fn of(project: &str) -> Self {
        let mut prefix = "azureal:{".to_owned();
        for char in project.chars() {
            match char {
                // A brace would end the part that decides the server of the keys.
                '{' | '}' | '%' => drop(write!(prefix, "%{:02X}", u32::from(char))),
                plain => prefix.push(plain),
            }
        }
        prefix.push('}');
        Self { prefix }
    }

    /// The format of the project, the number that was given last, and a counter of activity.
    pub(super) fn project(&self) -> String {
        self.prefix.clone()
    }

    /// The sessions in the order in which they were active.
    pub(super) fn active(&self) -> String {
        format!("{}:active", self.prefix)
    }

    /// The sessions by the time of their last activity.
    pub(super) fn by_time(&self) -> String {
        format!("{}:by-time", self.prefix)
    }

    /// The notes of runs whose events are not in the store yet.
    pub(super) fn runs(&self) -> String {
        format!("{}:runs", self.prefix)
    }

    /// The session of the last turn that was taken somewhere.
    pub(super) fn last_used(&self) -> String {
        format!("{}:last-used", self.prefix)
    }

    /// The leases that were given out: until when, and who has them.
    pub(super) fn leases(&self) -> String {
        format!("{}:leases", self.prefix)
    }

    /// Returns the key that marks the project as watched, for a while.
    pub(super) fn watched(&self) -> String {
        format!("{}:watched", self.prefix)
    }

    /// Returns the key of the last change while the project was watched.
    pub(super) fn changes(&self) -> String {
        format!("{}:changes", self.prefix)
    }

    /// Returns the key of a session's events while an operation adds a turn to them. Each operation has its own key,
    /// so the rest of a failed operation is never read.
    pub(super) fn aside(&self, operation: Uuid) -> String {
        format!("{}:aside:{operation}", self.prefix)
    }

    /// A session: all but its events and summaries.
    pub(super) fn session(&self, id: SessionId) -> String {
        format!("{}:session:{}", self.prefix, id.number())
    }

    /// The events of a session.
    pub(super) fn events(&self, id: SessionId) -> String {
        format!("{}:events:{}", self.prefix, id.number())
    }

    /// Returns the key of the events that can hold a prompt.
    pub(super) fn prompts(&self, id: SessionId) -> String {
        format!("{}:prompts:{}", self.prefix, id.number())
    }

    /// What is left of deleted sessions.
    pub(super) fn tombstones(&self) -> String {
        format!("{}:tombstones", self.prefix)
    }

    /// All that belongs to a session: itself, its events, its summaries, where its prompts are, and what was done in it.
    pub(super) fn of_session(&self, id: SessionId) -> [String; 5] {
        let compactions = format!("{}:compactions:{}", self.prefix, id.number());
        let operations = format!("{}:operations:{}", self.prefix, id.number());
        [self.session(id), self.events(id), compactions, self.prompts(id), operations]
    }

    /// Returns the keys that every script is given, in the order in which `keys.lua` takes them. Where there is no
    /// operation and no session, a script has no use for their keys: the project's stand in their place.
    pub(super) fn of_script(&self, operation: Option<Uuid>, session: Option<SessionId>) -> Vec<String> {
        let aside = operation.map_or_else(|| self.project(), |operation| self.aside(operation));
        let of_session = match session {
            Some(id) => self.of_session(id),
            None => [(); 5].map(|()| self.project()),
        };
        let names = format!("{}:names", self.prefix);
        let uuids = format!("{}:uuids", self.prefix);
        let marks = format!("{}:marks", self.prefix);
        let marks_by_session = format!("{}:marks-by-session", self.prefix);
        [
            self.project(),
            self.active(),
            self.by_time(),
            names,
            uuids,
            marks,
            marks_by_session,
            self.last_used(),
            self.runs(),
            self.leases(),
            aside,
            self.tombstones(),
            self.watched(),
            self.changes(),
        ]
        .into_iter()
        .chain(of_session)
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_in_braces_is_the_whole_project() {
        for (project, prefix) in [
            ("team/engine", "azureal:{team/engine}"),
            ("}a{b}", "azureal:{%7Da%7Bb%7D}"),
            ("100%", "azureal:{100%25}"),
        ] {
            let keys = Keys::of(project);
            assert_eq!(keys.project(), prefix);
            let all = keys.of_script(Some(Uuid::nil()), SessionId::new(3));
            assert!(all.iter().all(|key| key.starts_with(prefix)), "{all:?}");
            assert_eq!(all.len(), 19);
        }
    }
}
