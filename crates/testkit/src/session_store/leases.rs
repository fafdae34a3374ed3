//! Leases: one turn per session at a time, for those who share a store.
//!
//! A store that only one machine uses needs none. Then each case checks that it ignores them.

use std::thread;
use std::time::Duration;

use azureal_core::{Holder, LeaseId, Leases, NewLease, NewMark, Taken, Tokens};
use futures_executor::block_on;

use super::*;

/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(600);
/// The shortest lease. Only the clock of the store can end it.
const SHORT: Duration = Duration::from_millis(1);
/// Long enough for a short one to be over, however coarse that clock is.
const SOON: Duration = Duration::from_millis(20);

fn holder(user: &str) -> Holder {
    Holder {
        user: user.to_owned(),
        host: "host \u{1f}\u{202e}\0 \"".to_owned(),
        pid: 42,
        agent: "claude".to_owned(),
        since: "2026-01-31T09:30:00Z".to_owned(),
    }
}

fn lease(user: &str, lasts: Duration) -> NewLease {
    NewLease { id: LeaseId::random(), holder: holder(user), lasts, instead_of: None }
}

fn under(lease: &NewLease) -> NewTurn {
    NewTurn { lease: Some(lease.id.clone()), ..prompt("under a lease") }
}

/// Returns the leases of a store that gives out some.
fn leases(store: &Store) -> &dyn Leases {
    store.leases().unwrap()
}

/// Takes a lease that no other holder has.
async fn take(store: &Store, id: SessionId, lease: &NewLease) {
    assert_eq!(leases(store).take(id, lease).await.unwrap(), Taken::Ours);
}

/// Creates a session with one prompt; `None` if the store has no leases, after a check that it ignores them.
async fn leasable(store: &Store) -> Option<SessionId> {
    let id = session_of_prompts(store, 1).await;
    if store.leases().is_some() {
        return Some(id);
    }
    assert_eq!(store.append(id, under(&lease("ada", LONG))).await.unwrap().last, Seq(2));
    assert_eq!(store.held_leases().await.unwrap(), []);
    None
}

pub(super) async fn a_session_is_leased_to_one_at_a_time(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    let (ours, theirs) = (lease("ada", LONG), lease("bob", LONG));
    take(&store, id, &ours).await;
    assert_eq!(leases(&store).take(id, &theirs).await.unwrap(), Taken::Theirs(holder("ada")));
    assert_eq!(leases(&store).take(id, &ours).await.unwrap(), Taken::Ours, "to ask again is answered alike");
    assert!(!leases(&store).renew(id, &theirs.id, LONG).await.unwrap());
    leases(&store).release(id, &theirs.id).await.unwrap();
    assert_eq!(leases(&store).take(id, &theirs).await.unwrap(), Taken::Theirs(holder("ada")));
    assert!(leases(&store).renew(id, &ours.id, LONG).await.unwrap());
    let other = session_of_prompts(&store, 1).await;
    take(&store, other, &theirs).await;
}

pub(super) async fn a_lease_that_is_given_back_is_free(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    let (ours, theirs) = (lease("ada", LONG), lease("bob", LONG));
    take(&store, id, &ours).await;
    leases(&store).release(id, &ours.id).await.unwrap();
    assert!(!leases(&store).renew(id, &ours.id, LONG).await.unwrap());
    take(&store, id, &theirs).await;
    // A second release has no effect: another process holds it now.
    leases(&store).release(id, &ours.id).await.unwrap();
    assert_eq!(leases(&store).take(id, &ours).await.unwrap(), Taken::Theirs(holder("bob")));
}

pub(super) async fn a_lease_that_is_not_renewed_ends(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    let (ours, theirs) = (lease("ada", SHORT), lease("bob", LONG));
    take(&store, id, &ours).await;
    assert!(leases(&store).renew(id, &ours.id, LONG).await.unwrap());
    thread::sleep(SOON);
    assert_eq!(
        leases(&store).take(id, &theirs).await.unwrap(),
        Taken::Theirs(holder("ada")),
        "it was renewed"
    );
    assert!(leases(&store).renew(id, &ours.id, SHORT).await.unwrap());
    thread::sleep(SOON);
    assert_eq!(store.held_leases().await.unwrap(), []);
    take(&store, id, &theirs).await;
    assert!(!leases(&store).renew(id, &ours.id, LONG).await.unwrap());
}

pub(super) async fn a_lease_that_ended_goes_on_unless_somebody_was_let_in(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    let ours = lease("ada", SHORT);
    take(&store, id, &ours).await;
    thread::sleep(SOON);
    assert_eq!(store.append(id, under(&ours)).await.unwrap().last, Seq(2));
    assert!(leases(&store).renew(id, &ours.id, LONG).await.unwrap());
    let taken = leases(&store).take(id, &lease("bob", LONG)).await.unwrap();
    assert_eq!(taken, Taken::Theirs(holder("ada")));
}

pub(super) async fn a_lease_may_take_the_place_of_one_whose_holder_is_no_more(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    let (dead, other) = (lease("ada", LONG), lease("bob", LONG));
    take(&store, id, &dead).await;
    let wrong = NewLease { instead_of: Some(other.id.clone()), ..lease("eve", LONG) };
    assert_eq!(leases(&store).take(id, &wrong).await.unwrap(), Taken::Theirs(holder("ada")));
    let next = NewLease { instead_of: Some(dead.id.clone()), ..lease("ada", LONG) };
    take(&store, id, &next).await;
    assert!(matches!(store.append(id, under(&dead)).await, Err(StoreError::Fenced(_))));
    assert_eq!(store.append(id, under(&next)).await.unwrap().last, Seq(2));
}

pub(super) async fn a_turn_under_a_lost_lease_is_refused(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    let (ours, theirs) = (lease("ada", SHORT), lease("bob", LONG));
    take(&store, id, &ours).await;
    assert_eq!(store.append(id, under(&ours)).await.unwrap().last, Seq(2));
    thread::sleep(SOON);
    take(&store, id, &theirs).await;
    let mark = NewMark { name: "mark".to_owned(), note: String::new() };
    let tokens = Tokens::new(1, 1);
    let refused = || NewTurn { mark: Some(mark.clone()), tokens, ends_run: true, ..under(&ours) };
    store.note_run(id, Some("run")).await.unwrap();
    let is_fenced = |answer: Result<_, StoreError>| matches!(answer, Err(StoreError::Fenced(at)) if at == id);
    assert!(is_fenced(store.append(id, refused()).await));
    assert_eq!(store.append(id, under(&theirs)).await.unwrap().last, Seq(3));
    // Also if the other holder has released it: that one continued without our turn.
    leases(&store).release(id, &theirs.id).await.unwrap();
    assert!(is_fenced(store.append(id, refused()).await));
    assert!(is_fenced(store.append(id, NewTurn { events: vec![], ..refused() }).await));
    assert_eq!(store.mark("mark").await.unwrap(), None, "a refused turn has set its mark");
    let noted = usize::from(store.crash_notes().is_some());
    assert_eq!(
        store.noted_runs().await.unwrap().len(),
        noted,
        "a refused turn has removed the note of its run"
    );
    assert_eq!(store.get(id).await.unwrap().tokens, Tokens::default());
    // What a turn must come after is looked at apart from that.
    let after = NewTurn { after: Some(Seq(1)), ..under(&theirs) };
    assert!(matches!(store.append(id, after).await, Err(StoreError::Moved { .. })));
}

pub(super) async fn a_turn_without_a_lease_is_nobodys_business(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    let ours = lease("ada", LONG);
    take(&store, id, &ours).await;
    assert_eq!(store.append(id, prompt("recovered")).await.unwrap().last, Seq(2));
    assert_eq!(store.append(id, under(&ours)).await.unwrap().last, Seq(3));
}

pub(super) async fn leases_are_listed_with_who_has_them(store: Store) {
    let Some(one) = leasable(&store).await else { return };
    let two = session_of_prompts(&store, 1).await;
    let (of_one, of_two) = (lease("ada", LONG), lease("bob", LONG));
    take(&store, two, &of_two).await;
    take(&store, one, &of_one).await;
    assert_eq!(store.held_leases().await.unwrap(), [(one, holder("ada")), (two, holder("bob"))]);
    leases(&store).release(one, &of_one.id).await.unwrap();
    assert_eq!(store.held_leases().await.unwrap(), [(two, holder("bob"))]);
}

pub(super) async fn a_lease_goes_with_its_session_and_not_to_its_fork(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    let ours = lease("ada", LONG);
    take(&store, id, &ours).await;
    let fork = store.fork(id, Seq::END, unnamed()).await.unwrap();
    take(&store, fork, &lease("bob", LONG)).await;
    store.delete(id).await.unwrap();
    assert_eq!(store.held_leases().await.unwrap(), [(fork, holder("bob"))]);
    assert_no_such_session(&leases(&store).renew(id, &ours.id, LONG).await, id);
    assert_no_such_session(&store.append(id, under(&ours)).await, id);
}

pub(super) async fn of_many_who_ask_at_once_one_is_given_the_lease(store: Store) {
    let Some(id) = leasable(&store).await else { return };
    for _ in 0..8 {
        let asked: Vec<NewLease> = (0..4).map(|number| lease(&number.to_string(), LONG)).collect();
        let answers: Vec<Taken> = thread::scope(|scope| {
            let ask = |lease: &NewLease| block_on(leases(&store).take(id, lease)).unwrap();
            // All are started before the first is waited for.
            let asking: Vec<_> = asked.iter().map(|lease| scope.spawn(move || ask(lease))).collect();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let given: Vec<usize> = (0..4).filter(|number| answers[*number] == Taken::Ours).collect();
        assert_eq!(given.len(), 1, "{answers:?}");
        leases(&store).release(id, &asked[given[0]].id).await.unwrap();
    }
}
