//! Finding the session that a user names: by number (`S3`), UUID or name.
//!
//! Commands that change or delete something take exact names only: `rm w` must not delete `w11`. Commands that read also
//! take a unique prefix, and without a session mean the last one of this worktree.

use azureal_core::{
    ListQuery, NameFilter, NewSession, SessionId, SessionRecord, SessionStore, Uuid, WorktreeFilter,
    check_name, visible_line,
};
use azureal_engine::Recovered;

use crate::error::{Error, quoted};
use crate::workspace::Workspace;

/// How many sessions an error names.
const NAMED: usize = 10;
/// How many sessions are compared with a name that may be a typing error.
const COMPARED: usize = 1000;

impl Workspace {
    /// Returns the sessions of this worktree, the one that was active last first.
    pub async fn list_sessions(&self) -> Result<Vec<SessionRecord>, Error> {
        let worktree = Some(self.project.worktree_filter());
        Ok(self.store.list(&ListQuery { worktree, ..ListQuery::default() }).await?)
    }

    /// Finds the session of exactly this number, UUID or name.
    pub async fn find_session(&self, text: &str) -> Result<SessionRecord, Error> {
        resolve(&*self.store, text).await
    }

    /// Creates a session in this worktree. An empty name is none: the session is then called by its number.
    ///
    /// # Errors
    ///
    /// Another session has the name.
    pub async fn create_session(&self, name: &str) -> Result<SessionId, Error> {
        let new = self.new_session(name);
        let Some(name) = new.name.clone() else { return Ok(self.store.create(new).await?) };
        check_new_name(&*self.store, &name, None).await?;
        let session = self.store.create(new).await?;
        keep_name(&*self.store, &name, session).await?;
        Ok(session)
    }

    /// Returns what a session of this worktree is created with, for a [turn](Self::submit) that creates it. An empty name is none.
    pub fn new_session(&self, name: &str) -> NewSession {
        NewSession {
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            worktree: self.project.worktree(),
            ..NewSession::default()
        }
    }
}

/// Finds the session of exactly this number, UUID or name.
pub async fn resolve(store: &dyn SessionStore, text: &str) -> Result<SessionRecord, Error> {
    match find(store, text).await? {
        Some(record) => Ok(record),
        None => Err(not_found(store, text).await?),
    }
}

/// Finds the session of exactly this number, UUID or name; `None` if no session has that UUID or name.
pub async fn find(store: &dyn SessionStore, text: &str) -> Result<Option<SessionRecord>, Error> {
    if let Ok(number) = text.parse::<SessionId>() {
        return Ok(Some(store.get(number).await?));
    }
    if let Ok(uuid) = text.parse::<Uuid>()
        && let Some(id) = store.find_uuid(uuid).await?
    {
        return Ok(Some(store.get(id).await?));
    }
    one_of(text, store.list(&ListQuery::named(text)).await?)
}

/// Finds the session to read: by number, UUID, name or unique prefix of a name; without any, the last active one of this
/// worktree. That is the one in which a turn runs, if there is one; `found` is what [`Workspace::recover`] returned.
pub async fn resolve_to_read(
    workspace: &Workspace,
    found: &[Recovered],
    text: Option<&str>,
) -> Result<SessionRecord, Error> {
    let store = &*workspace.store;
    let Some(text) = text else {
        if let Some(running) = workspace.running_here(found)
            && let Ok(record) = store.get(running).await
        {
            return Ok(record);
        }
        // There may be nothing but turns that failed: those can be read, though nobody means to continue them.
        let newest = ListQuery {
            worktree: Some(workspace.project.worktree_filter()),
            limit: Some(1),
            ..ListQuery::default()
        };
        let last = match last_session(workspace).await? {
            None => store.list(&newest).await?.pop(),
            last => last,
        };
        if let Some(last) = last {
            return Ok(last);
        }
        let any = ListQuery { limit: Some(1), ..ListQuery::default() };
        return Err(match store.list(&any).await?.is_empty() {
            true => {
                Error::new("not_found", "there is no session yet").with_hint("`azureal run \"…\"` begins one")
            }
            false => Error::new("not_found", "there is no session in this worktree yet")
                .with_hint("name a session; `azureal list --all` shows those of all worktrees"),
        });
    };
    if let Some(record) = find(store, text).await? {
        return Ok(record);
    }
    let prefix = Some(NameFilter::Prefix(text.to_owned()));
    let query = ListQuery { name: prefix, ..ListQuery::default() };
    let candidates = if text.is_empty() { Vec::new() } else { store.list(&query).await? };
    match one_of(text, candidates)? {
        Some(record) => Ok(record),
        None => Err(not_found(store, text).await?),
    }
}

/// Returns the session that was last used or tried in this worktree; if that is unknown, the one of this worktree that was active
/// last and in which an agent has answered. So an import is not continued by accident.
pub async fn last_session(workspace: &Workspace) -> Result<Option<SessionRecord>, Error> {
    if let Some(id) = workspace.store.last_used(&workspace.used_in()).await? {
        return Ok(Some(workspace.store.get(id).await?));
    }
    last_answered(&*workspace.store, workspace.project.worktree_filter()).await
}

/// Returns the session of a worktree that was active last and in which an agent has answered.
///
/// No query asks for answered sessions alone. Almost always it is the first of the list, so that one is asked for first, and
/// more only while none of them will do.
async fn last_answered(
    store: &dyn SessionStore,
    worktree: WorktreeFilter,
) -> Result<Option<SessionRecord>, Error> {
    let mut query = ListQuery { worktree: Some(worktree), ..ListQuery::default() };
    let mut limit = 1_usize;
    loop {
        query.limit = Some(limit);
        let listed = store.list(&query).await?;
        let is_all = listed.len() < limit;
        let found = listed.into_iter().find(|record| record.counts.answered);
        if found.is_some() || is_all {
            return Ok(found);
        }
        limit = limit.saturating_mul(32);
    }
}

/// Refuses a new name that a session has already, other than `renamed`.
pub async fn check_new_name(
    store: &dyn SessionStore,
    name: &str,
    renamed: Option<SessionId>,
) -> Result<(), Error> {
    check_name(name)?;
    match store.find(name).await?.into_iter().find(|id| Some(*id) != renamed) {
        None => Ok(()),
        Some(id) => Err(name_taken(name, id)),
    }
}

/// Deletes a session that was just created under a new name, if another process was faster with the same name.
pub async fn keep_name(store: &dyn SessionStore, name: &str, id: SessionId) -> Result<(), Error> {
    match store.find(name).await?.into_iter().min() {
        Some(first) if first < id => {
            store.delete(id).await?;
            Err(name_taken(name, first))
        }
        _ => Ok(()),
    }
}

fn name_taken(name: &str, id: SessionId) -> Error {
    Error::new("name_taken", format!("{id} is already called {}", quoted(name)))
        .with_hint(format!("choose another name, or continue it with `azureal run -s {id}`"))
}

/// Finds a session whose name is one typing error away, among the last sessions. Names that differ in digits alone are a
/// series (`w1`, `w10`), not an error.
pub async fn similar(store: &dyn SessionStore, name: &str) -> Result<Option<SessionRecord>, Error> {
    let last = store.list(&ListQuery { limit: Some(COMPARED), ..ListQuery::default() }).await?;
    Ok(last.into_iter().find(|record| record.has_own_name() && is_one_error_away(&record.name, name)))
}

fn is_one_error_away(known: &str, typed: &str) -> bool {
    let without_digits = |name: &str| name.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    strsim::osa_distance(known, typed) == 1 && without_digits(known) != without_digits(typed)
}

/// Returns the number of a session, and its name if it has one.
pub fn called(record: &SessionRecord) -> String {
    if record.has_own_name() {
        format!("{} {}", record.id, visible_line(&record.name))
    } else {
        record.id.to_string()
    }
}

fn one_of(text: &str, mut candidates: Vec<SessionRecord>) -> Result<Option<SessionRecord>, Error> {
    if candidates.len() > 1 { Err(ambiguous(text, &candidates)) } else { Ok(candidates.pop()) }
}

async fn not_found(store: &dyn SessionStore, text: &str) -> Result<Error, Error> {
    let error = Error::new("not_found", format!("no session is called {}", quoted(text)));
    if text.parse::<u32>().is_ok() {
        return Ok(error.with_hint(format!("session numbers are written as `S{text}`")));
    }
    Ok(match similar(store, text).await? {
        Some(record) => error.with_hint(format!("did you mean {}?", called(&record))),
        None => error.with_hint("`azureal list --all` shows all sessions"),
    })
}

fn ambiguous(text: &str, candidates: &[SessionRecord]) -> Error {
    let mut names: Vec<String> = candidates.iter().take(NAMED).map(called).collect();
    if let Some(more) = candidates.len().checked_sub(NAMED).filter(|more| *more > 0) {
        names.push(format!("{more} more"));
    }
    let list = names.join(", ");
    Error::new("ambiguous", format!("{} may be any of: {list}", quoted(text)))
        .with_hint("name the one you mean by its number")
}

#[cfg(test)]
mod tests {
    use azureal_core::{Event, NewTurn};
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::*;

    #[test]
    fn the_last_answered_session_is_found_behind_any_number_of_others() {
        let store = MemoryStore::default();
        let filter = || WorktreeFilter { names: vec![".".to_owned()], last_part: String::new() };
        let create = |events: &[Event]| {
            let new = NewSession { worktree: ".".to_owned(), ..NewSession::default() };
            let id = block_on(store.create(new)).unwrap();
            block_on(store.append(id, NewTurn::verbatim(events.to_vec()))).unwrap();
            id
        };
        let found = || block_on(last_answered(&store, filter())).unwrap().map(|record| record.id);
        assert_eq!(found(), None, "an empty store");
        let failed = [Event::user("a")];
        create(&failed);
        assert_eq!(found(), None, "none is answered");
        let answered = create(&[Event::user("a"), Event::assistant("b")]);
        // More than the first and the second query ask for.
        for others in [0, 1, 31, 40] {
            for _ in 0..others {
                create(&failed);
            }
            assert_eq!(found(), Some(answered), "behind {others} more");
        }
    }

    #[test]
    fn a_typing_error_is_one_edit_and_not_the_next_of_a_series() {
        for typed in ["lgoin", "logn", "loggin", "lohin"] {
            assert!(is_one_error_away("login", typed), "{typed}");
        }
        for (known, typed) in
            [("w10", "w1"), ("w1", "w2"), ("login", "login"), ("login", "logout"), ("w1", "")]
        {
            assert!(!is_one_error_away(known, typed), "{known} {typed}");
        }
    }
}
