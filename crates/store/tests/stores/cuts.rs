//! An append whose connection is cut at any byte, on both servers.

use std::time::Duration;

use azureal_store::core::{
    CrashNotes, Holder, LeaseId, Leases, NewLease, NewSession, NewTurn, Operation, Seq, SessionId,
    SessionStore, StoreError, Taken, Uuid,
};
use azureal_testkit::servers::{Cut, CuttingProxy, Direction};
use azureal_testkit::{thorough, until};

use crate::scratch::wait;
use crate::storm::{EVENTS, turn_of, turns_in};

pub(crate) fn lease() -> NewLease {
    let text = String::new;
    let holder = Holder { user: text(), host: text(), pid: 1, agent: text(), since: text() };
    NewLease { id: LeaseId::random(), holder, lasts: Duration::from_secs(3600), instead_of: None }
}

/// Returns the distance of the bytes at which an append is cut. With `CI` every byte is tried, too.
fn step() -> usize {
    if std::env::var_os("CI").is_some() { 1 } else { thorough(9, 1) }
}

/// Appends as the program does: under a lease, after the event that it has seen last. So a request that the server reads
/// after the next append is refused, and a retry of one that was done is answered as the first time.
struct Appends<'a, D> {
    direct: &'a D,
    session: SessionId,
    lease: NewLease,
}

impl<'a, D: SessionStore + Leases + CrashNotes> Appends<'a, D> {
    fn new(direct: &'a D) -> Self {
        let (session, lease) = (wait(direct.create(NewSession::default())).unwrap(), lease());
        assert_eq!(wait(direct.take(session, &lease)).unwrap(), Taken::Ours);
        Self { direct, session, lease }
    }

    fn turn(&self, name: &str, turns_before: usize) -> NewTurn {
        let after = Some(Seq((turns_before * EVENTS) as u64));
        NewTurn { lease: Some(self.lease.id.clone()), after, ends_run: true, ..turn_of(name) }
    }

    fn stored(&self) -> Vec<String> {
        turns_in(self.direct, self.session)
    }
}

/// Cuts an append at each byte of its conversation. `direct` is connected to the server; `patient` opens the same store through the
/// proxy, over one connection, and `impatient` too, but it does not retry.
pub(crate) fn append_is_cut_anywhere<D: SessionStore + Leases + CrashNotes>(
    proxy: &CuttingProxy,
    direct: &D,
    patient: impl Fn() -> D,
    impatient: impl Fn() -> D,
) {
    let appends = Appends::new(direct);
    let store = patient();
    let mut expected = Vec::new();
    let mut append = || {
        let name = format!("{:08}", expected.len());
        let appended = wait(store.append(appends.session, appends.turn(&name, expected.len())));
        let appended = appended.unwrap_or_else(|error| panic!("{name}: {error}"));
        expected.push(name);
        assert_eq!(appended.last.0 as usize, expected.len() * EVENTS);
        assert_eq!(appended.first.0, appended.last.0 - EVENTS as u64 + 1);
    };
    // How long the conversation of one append is, both ways, once the server knows its statement or script. All names are of
    // one length, and so are these conversations, but for a digit more in a place.
    append();
    proxy.arm(None);
    append();
    let (to_server, to_client) = proxy.passed();
    assert!(to_server > 300 && to_client > 20, "{to_server} {to_client}");

    let at = |direction| move |after| Cut { direction, after };
    let cuts: Vec<Cut> = (0..to_server)
        .step_by(step())
        .map(at(Direction::ToServer))
        .chain((0..to_client).step_by(step().min(2)).map(at(Direction::ToClient)))
        .collect();
    for cut in &cuts {
        // On a connection that is there.
        append();
        proxy.arm(Some(*cut));
        append();
    }
    assert_eq!(proxy.cuts(), cuts.len());
    assert_eq!(appends.stored(), expected);
    let record = wait(direct.get(appends.session)).unwrap();
    assert_eq!(record.counts.messages as usize, expected.len() * EVENTS);
    assert_eq!(record.tokens.input as usize, expected.len(), "tokens of a turn that was tried twice");

    // Who does not retry is told, and then the turn is there whole or not at all.
    let (mut there, mut not_there) = (0, 0);
    for cut in &cuts {
        let store = impatient();
        let appends = Appends::new(direct);
        wait(store.append(appends.session, appends.turn("--before", 0))).unwrap();
        wait(direct.note_run(appends.session, Some("run"))).unwrap();
        proxy.arm(Some(*cut));
        let answer = wait(store.append(appends.session, appends.turn("-the-cut", 1)));
        assert!(matches!(answer, Err(StoreError::OutcomeUnknown { .. })), "{cut:?}: {answer:?}");
        // The server may read what was sent before the cut later than we notice it, and then refuses it.
        wait(direct.append(appends.session, turn_of("---after"))).unwrap();
        let noted = wait(direct.noted_runs()).unwrap();
        let is_noted = noted.iter().any(|(session, _)| *session == appends.session);
        match &appends.stored()[1..] {
            [after] if after == "---after" && is_noted => not_there += 1,
            [cut, after] if cut == "-the-cut" && after == "---after" && !is_noted => there += 1,
            turns => panic!("{cut:?}: {turns:?}, noted: {is_noted}"),
        }
    }
    assert!(there > 0 && not_there > 0, "{there} {not_there}");
    println!("{} cuts twice: {to_server} bytes there, {to_client} back", cuts.len());
}

/// Loses the answer of an append. `forget` removes what a server forgets by itself, as if days had passed before the next try.
pub(crate) fn a_lost_answer_is_no_second_turn<D: SessionStore + Sync>(
    proxy: &CuttingProxy,
    direct: &D,
    (patient, impatient): (D, D),
    forget: impl Fn(),
) {
    let id = wait(direct.create(NewSession::default())).unwrap();
    let last = || wait(direct.get(id)).unwrap().counts.events;
    // The store retries by itself.
    proxy.set_swallows_answers(true);
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| wait(patient.append(id, turn_of("first"))));
        until("the server has the turn", || (last() > 0).then_some(()));
        forget();
        proxy.set_swallows_answers(false);
        assert_eq!(appending.join().unwrap().unwrap().last, Seq(EVENTS as u64));
    });
    // The caller asks again, by another client, behind the turns of others.
    let operation = Operation::new(Uuid::now_v7(), &wait(direct.get(id)).unwrap());
    let turn = || NewTurn { operation: Some(operation), ..turn_of("secnd") };
    let first = Seq(EVENTS as u64 + 1);
    wait(impatient.get(id)).unwrap();
    proxy.set_swallows_answers(true);
    let error = wait(impatient.append(id, turn())).unwrap_err();
    assert!(
        matches!(&error, StoreError::OutcomeUnknown { operation: Some(known), .. } if *known == operation.id),
        "{error:?}"
    );
    proxy.set_swallows_answers(false);
    wait(direct.append(id, turn_of("third"))).unwrap();
    forget();
    assert_eq!(wait(direct.append(id, turn())).unwrap().first, first);
    assert_eq!(turns_in(direct, id), ["first", "secnd", "third"]);
    assert_eq!(wait(direct.get(id)).unwrap().tokens.input, 3);
    wait(direct.clear(id)).unwrap();
    let refused = wait(direct.append(id, turn()));
    assert!(matches!(refused, Err(StoreError::Cleared(of)) if of == id), "{refused:?}");
}
