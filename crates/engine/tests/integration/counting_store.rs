//! A store that notes every call, and gives out leases as a server does. On a server each call is a round trip.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use azureal_core::{
    Appended, Compaction, CrashNotes, Holder, LeaseId, Leases, ListQuery, Mark, NewLease, NewOriginal,
    NewSession, NewTurn, OpenOriginal, Original, Originals, Page, Seq, SessionId, SessionRecord,
    SessionStore, StoreError, StoredEvent, Taken, Tokens, Watch, async_trait,
};
use azureal_store::MemoryStore;
use uuid::Uuid;

#[derive(Default)]
pub(crate) struct CountingStore {
    inner: MemoryStore,
    calls: Mutex<Vec<&'static str>>,
    held: Mutex<HashMap<SessionId, (LeaseId, Holder)>>,
    /// The call that waits for the gate.
    gated: &'static str,
    pub(crate) gate: Mutex<()>,
    /// Whether it keeps originals. What it is given stays where it is.
    keeps_originals: bool,
}

impl CountingStore {
    /// A store that keeps originals.
    pub(crate) fn with_originals() -> Self {
        Self { keeps_originals: true, ..Self::default() }
    }

    /// A store in which this call waits for the gate.
    pub(crate) fn with_gate(gated: &'static str) -> Self {
        Self { gated, ..Self::default() }
    }

    /// Notes something that is no call.
    pub(crate) fn note(&self, what: &'static str) {
        self.calls.lock().unwrap().push(what);
        if what == self.gated {
            drop(self.gate.lock().unwrap());
        }
    }

    /// Returns the names of the calls so far, and forgets them.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    pub(crate) fn has_been_called(&self, name: &str) -> bool {
        self.calls.lock().unwrap().contains(&name)
    }
}

/// Implements a trait by noting the name of each method and calling the same one of the memory store.
macro_rules! passed_on {
    ($trait:ident { $($rest:item)* } $($method:ident($($name:ident: $type:ty),*) -> $output:ty;)*) => {
        #[async_trait]
        impl $trait for CountingStore {
            $(async fn $method(&self, $($name: $type),*) -> Result<$output, StoreError> {
                self.note(stringify!($method));
                self.inner.$method($($name),*).await
            })*
            $($rest)*
        }
    };
}

passed_on! {
    SessionStore {
        fn crash_notes(&self) -> Option<&dyn CrashNotes> {
            Some(self)
        }

        fn leases(&self) -> Option<&dyn Leases> {
            Some(self)
        }

        fn originals(&self) -> Option<&dyn Originals> {
            self.keeps_originals.then_some(self as &dyn Originals)
        }
    }
    create(new: NewSession) -> SessionId;
    create_with(new: NewSession, turn: NewTurn, compactions: Vec<Compaction>) -> SessionId;
    find_or_create(new: NewSession) -> SessionId;
    find(name: &str) -> Vec<SessionId>;
    find_uuid(uuid: Uuid) -> Option<SessionId>;
    get(id: SessionId) -> SessionRecord;
    list(query: &ListQuery) -> Vec<SessionRecord>;
    rename(id: SessionId, name: &str) -> ();
    delete(id: SessionId) -> ();
    append(id: SessionId, turn: NewTurn) -> Appended;
    read(id: SessionId, page: Page) -> Vec<StoredEvent>;
    read_prompts(id: SessionId, until: Seq, limit: usize) -> Vec<StoredEvent>;
    clear(id: SessionId) -> ();
    fork(id: SessionId, at: Seq, new: NewSession) -> SessionId;
    set_tokens(id: SessionId, tokens: Tokens) -> ();
    add_tokens(id: SessionId, tokens: Tokens) -> ();
    compactions(id: SessionId) -> Vec<Compaction>;
    add_compaction(id: SessionId, compaction: &Compaction) -> ();
    remove_compaction(id: SessionId, after_seq: Seq) -> bool;
    last_used(used_in: &str) -> Option<SessionId>;
    watch(id: SessionId) -> Option<Box<dyn Watch>>;
    watch_all() -> Option<Box<dyn Watch>>;
    close() -> ();
}

passed_on! {
    CrashNotes {}
    mark(name: &str) -> Option<Mark>;
    remove_mark(name: &str) -> bool;
    note_run(id: SessionId, run: Option<&str>) -> ();
    noted_runs() -> Vec<(SessionId, String)>;
    clear_original_run(id: SessionId, run: &str) -> bool;
}

/// Leases that do not expire. Renewals come by time, and are not noted.
#[async_trait]
impl Leases for CountingStore {
    async fn take(&self, id: SessionId, new: &NewLease) -> Result<Taken, StoreError> {
        self.note("take");
        let mut held = self.held.lock().unwrap();
        match held.get(&id) {
            Some((lease, holder)) if *lease != new.id => Ok(Taken::Theirs(holder.clone())),
            _ => {
                held.insert(id, (new.id.clone(), new.holder.clone()));
                Ok(Taken::Ours)
            }
        }
    }

    async fn renew(&self, id: SessionId, lease: &LeaseId, _: Duration) -> Result<bool, StoreError> {
        Ok(self.held.lock().unwrap().get(&id).is_some_and(|(held, _)| held == lease))
    }

    async fn release(&self, id: SessionId, lease: &LeaseId) -> Result<(), StoreError> {
        self.note("release");
        let mut held = self.held.lock().unwrap();
        if held.get(&id).is_some_and(|(found, _)| found == lease) {
            held.remove(&id);
        }
        Ok(())
    }

    async fn held(&self) -> Result<Vec<(SessionId, Holder)>, StoreError> {
        self.note("held");
        let held = self.held.lock().unwrap();
        Ok(held.iter().map(|(id, (_, holder))| (*id, holder.clone())).collect())
    }
}

/// Originals that are counted and not kept.
#[async_trait]
impl Originals for CountingStore {
    async fn put(&self, _: SessionId, _: NewOriginal) -> Result<(), StoreError> {
        self.note("put");
        Ok(())
    }

    async fn copy(&self, _: SessionId, _: &Original, _: OpenOriginal) -> Result<(), StoreError> {
        self.note("copy");
        Ok(())
    }

    async fn finish(&self) -> Result<(), StoreError> {
        self.note("finish");
        Ok(())
    }

    async fn list(&self, _: SessionId) -> Result<Vec<Original>, StoreError> {
        self.note("list originals");
        Ok(Vec::new())
    }

    async fn open(&self, _: SessionId, _: &str) -> Result<Option<OpenOriginal>, StoreError> {
        self.note("open");
        Ok(None)
    }

    async fn delete(&self, _: SessionId) -> Result<u64, StoreError> {
        self.note("delete originals");
        Ok(0)
    }

    async fn expire(&self, _: u32) -> Result<(), StoreError> {
        self.note("expire");
        Ok(())
    }
}
