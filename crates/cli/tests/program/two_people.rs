//! Two people in one session: one turn at a time, whoever dies, sleeps or is cut off.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use azureal_testkit::servers::{PostgresServer, RedisServer};
use serde_json::json;

use crate::run::{RECORDED, SAYS_VERSION, fake_claude, signal, wait_until};
use crate::servers::{Server, on_every_server};
use crate::world::{Ran, World};

/// How long a lease lasts that nobody renews, in seconds.
const LEASE: f64 = 20.0;

/// What these tests do to a server behind the back of whoever uses it.
trait Lessor: Server {
    /// Starts one of its own, for tests that break the connections of all who use it.
    fn start_own() -> Option<Self>;

    /// Says for how many seconds the lease of a project's first session lasts; nothing if it was given back.
    fn lease_lasts(&self, project: &str) -> Option<f64>;

    /// Makes that lease end in so many seconds.
    fn end_lease_in(&self, project: &str, seconds: i64);

    /// Breaks all connections.
    fn break_connections(&self);

    /// Returns whether the first session of a project has the note of a run.
    fn has_noted_run(&self, project: &str) -> bool;
}

impl Lessor for PostgresServer {
    fn start_own() -> Option<Self> {
        Self::start_with(&[("fsync", "off")], &[])
    }

    fn lease_lasts(&self, project: &str) -> Option<f64> {
        let seconds = self.sql(&format!(
            "SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM azureal.sessions
             WHERE project = '{project}' AND session = 1 AND lease_holder IS NOT NULL"
        ));
        (!seconds.is_empty()).then(|| seconds.parse().unwrap())
    }

    fn end_lease_in(&self, project: &str, seconds: i64) {
        self.sql(&format!(
            "UPDATE azureal.sessions SET lease_until = clock_timestamp() + interval '{seconds} s'
             WHERE project = '{project}' AND session = 1 AND lease_holder IS NOT NULL"
        ));
    }

    fn break_connections(&self) {
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'azureal'");
    }

    fn has_noted_run(&self, project: &str) -> bool {
        let noted = format!("SELECT noted_run IS NOT NULL FROM azureal.sessions WHERE project = '{project}'");
        self.sql(&noted) == "t"
    }
}

impl Lessor for RedisServer {
    fn start_own() -> Option<Self> {
        Self::start_with(&[("appendonly", "no")], &[])
    }

    fn lease_lasts(&self, project: &str) -> Option<f64> {
        let lease = self.command(&["HGET", &format!("azureal:{{{project}}}:leases"), "1"]);
        let (until, _) = lease.split_once(' ')?;
        let now: f64 = self.command(&["TIME"]).lines().next().unwrap().parse().unwrap();
        Some(until.parse::<f64>().unwrap() / 1000.0 - now)
    }

    fn end_lease_in(&self, project: &str, seconds: i64) {
        let end = "local lease = redis.call('HGET', KEYS[1], '1')
                   local until_ms = (redis.call('TIME')[1] + ARGV[1]) * 1000
                   redis.call('HSET', KEYS[1], '1', (string.gsub(lease, '^%d+', string.format('%.0f', until_ms))))";
        self.command(&["EVAL", end, "1", &format!("azureal:{{{project}}}:leases"), &seconds.to_string()]);
    }

    fn break_connections(&self) {
        self.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }

    fn has_noted_run(&self, project: &str) -> bool {
        self.command(&["HLEN", &format!("azureal:{{{project}}}:runs")]) == "1"
    }
}

on_every_server! {
    the_second_person_is_told_who_runs_a_turn_and_can_wait
    a_running_turn_of_a_colleague_is_no_loss
    who_dies_lets_others_in
    on_the_same_machine_who_comes_next_need_not_wait
    a_turn_that_takes_long_keeps_its_session
    who_was_cut_off_and_overtaken_is_stored_apart
    who_was_cut_off_and_not_overtaken_is_stored_where_it_belongs
    each_continues_the_session_that_they_used_last
}

/// Somebody with a machine of their own, and the store of the team.
struct Person {
    name: &'static str,
    world: World,
    store: String,
}

impl Person {
    fn new(name: &'static str, server: &impl Server, project: &str) -> Self {
        Self { name, world: World::new(), store: server.store(project) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.with_programs(arguments);
        command.env("AZUREAL_STORE", &self.store).env("USER", self.name);
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.world.ran(self.command(arguments).output().unwrap())
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let log = fs::File::create(self.log()).unwrap();
        self.command(arguments).stdout(Stdio::piped()).stderr(log).spawn().unwrap()
    }

    /// Where what is started writes its standard error to.
    fn log(&self) -> PathBuf {
        self.world.path("log")
    }

    /// Waits until what was started says that it waits for the turn of somebody else.
    fn wait_until_waiting(&self) {
        wait_until("waiting", || {
            fs::read_to_string(self.log()).unwrap().starts_with("waiting: a turn of S1 is running: ")
        });
    }

    fn finish(&self, child: Child) -> Ran {
        let mut output = child.wait_with_output().unwrap();
        output.stderr = fs::read(self.log()).unwrap();
        self.world.ran(output)
    }

    /// Begins a turn in a session whose agent waits until [`let_go_on`](Self::let_go_on).
    fn begin(&self, session: &str, prompt: &str) -> Child {
        fake_claude(
            &self.world,
            &format!("while [ ! -e '{}' ]; do sleep 0.05; done", self.world.path("gate").display()),
        );
        let child = self.start(&["run", "-s", session, "-a", "claude", prompt]);
        let is_running = |turn: &serde_json::Value| {
            turn["host"].is_null() && turn["pid"].is_u64() && turn["agent"] == "claude"
        };
        wait_until("a running turn", || {
            self.run(&["ps", "--json"]).json().as_array().unwrap().iter().any(is_running)
        });
        child
    }

    fn let_go_on(&self) {
        fs::write(self.world.path("gate"), "").unwrap();
    }

    /// Returns what was asked in a session.
    fn prompts(&self, session: &str) -> Vec<String> {
        let lines = self.run(&["show", session, "--json"]).json_lines();
        let prompts = lines.iter().filter(|line| line["kind"] == "UserMessage");
        prompts.map(|line| line["data"]["content"].as_str().unwrap().to_owned()).collect()
    }

    /// Says whether the folders of spools and leases are empty.
    fn has_nothing_left(&self) -> bool {
        let folders =
            fs::read_dir(self.world.path("p/.git/azureal")).unwrap().map(|entry| entry.unwrap().path());
        folders.filter_map(|folder| fs::read_dir(folder.join("spool")).ok()).flatten().count() == 0
    }
}

fn host() -> String {
    String::from_utf8(Command::new("uname").arg("-n").output().unwrap().stdout).unwrap().trim().to_owned()
}

fn each_continues_the_session_that_they_used_last<S: Lessor>() {
    let Some(server) = S::shared() else { return };
    let [ada, bob] = ["ada", "bob"].map(|name| Person::new(name, server, "used-last"));
    for (person, session) in [(&ada, "of ada"), (&bob, "of bob")] {
        assert_eq!(person.run(&["run", "-s", session, "-a", "offline", "One"]).code, 0);
    }
    for person in [&ada, &bob] {
        assert_eq!(person.run(&["run", "-c", "Two"]).code, 0);
    }
    assert_eq!(
        (ada.prompts("of ada"), ada.prompts("of bob")),
        (["One", "Two"].map(Into::into).into(), ["One", "Two"].map(Into::into).into())
    );
    // Somebody new takes the newest.
    let eve = Person::new("eve", server, "used-last");
    assert_eq!(eve.run(&["run", "-c", "Three"]).code, 0);
    assert_eq!(eve.prompts("of bob"), ["One", "Two", "Three"]);
}

fn the_second_person_is_told_who_runs_a_turn_and_can_wait<S: Lessor>() {
    let Some(server) = S::shared() else { return };
    let [ada, bob] = ["ada", "bob"].map(|name| Person::new(name, server, "two-people"));
    let first = ada.begin("work", "First");
    let who = format!("claude for [time], run by ada on {}, process {}", host(), first.id());

    let told = bob.run(&["run", "-s", "work", "-a", "offline", "Second"]);
    assert_eq!(told.code, 1, "{told}");
    assert_eq!(
        told.stderr,
        format!(
            "error: a turn of S1 is running: {who}\nhint: wait for it (`run` does with `--wait`), end it with \
             `azureal cancel S1` where it runs, or continue in a copy with `azureal fork S1`\n"
        )
    );
    let there = format!(", process {}, run by ada on {}\n", first.id(), host());
    for (arguments, start, end) in [
        (&["ps"][..], "S1 · claude since ", there.clone()),
        (&["show", "work"], "running: claude since ", there),
        (&["list"], "       claude since ", format!(" on {}\n", host())),
    ] {
        let shown = bob.run(arguments).quiet();
        let line = shown.lines().last().unwrap();
        assert!(line.starts_with(start) && shown.ends_with(&end), "{shown}");
    }
    let seen = bob.run(&["ps", "--json"]).json();
    assert_eq!((&seen[0]["user"], &seen[0]["host"]), (&json!("ada"), &json!(host())));
    assert_eq!(ada.run(&["ps", "--json"]).json()[0]["user"], json!(null), "to ada it is here");
    assert_eq!(bob.run(&["list", "--json"]).json()[0]["running"], true);
    let told = bob.run(&["cancel", "S1"]);
    assert_eq!(
        (told.code, told.stderr.lines().next()),
        (1, Some(&*format!("error: the turn of S1 work runs elsewhere: {who}")))
    );
    assert_eq!(bob.run(&["rm", "S1", "--yes"]).code, 1);
    // A fork is a session of its own.
    assert_eq!(bob.run(&["fork", "S1", "--name", "beside"]).code, 0);
    assert_eq!(bob.run(&["run", "-s", "beside", "-a", "offline", "Beside"]).code, 0);

    let second = bob.start(&["run", "--wait", "-s", "work", "-a", "offline", "Second"]);
    bob.wait_until_waiting();
    ada.let_go_on();
    assert_eq!(ada.finish(first).code, 0);
    let second = bob.finish(second);
    assert_eq!(second.code, 0, "{second}");
    assert!(second.stdout.contains("asked: “First”"), "{second}");
    assert_eq!(ada.prompts("S1"), ["First", "Second"]);
    assert_eq!(ada.run(&["ps", "--json"]).json(), json!([]));
}

fn a_running_turn_of_a_colleague_is_no_loss<S: Lessor>() {
    let Some(server) = S::shared() else { return };
    // On another machine, and in another clone on the same one.
    for (home, project) in [("other", "no-loss-elsewhere"), ("same", "no-loss-here")] {
        let [ada, bob] = ["ada", "bob"].map(|name| Person::new(name, server, project));
        let bobs = |arguments: &[&str]| {
            let mut command = bob.command(arguments);
            let home = if home == "same" { ada.world.path("home") } else { bob.world.path("home") };
            command.env("HOME", home);
            command
        };
        // So that a turn has run here too.
        assert_eq!(
            bob.world.ran(bobs(&["run", "-s", "work", "-a", "offline", "Zero"]).output().unwrap()).code,
            0
        );
        let lines: Vec<&str> = RECORDED.lines().collect();
        let first = ada.world.file("bin/first.jsonl", &format!("{}\n", lines[0]));
        let rest = ada.world.file("bin/rest.jsonl", &format!("{}\n", lines[1..].join("\n")));
        let script = format!(
            "{SAYS_VERSION}\ncat > /dev/null\ncat '{}'\nwhile [ ! -e '{}' ]; do sleep 0.05; done\ncat '{}'",
            first.display(),
            ada.world.path("gate").display(),
            rest.display()
        );
        ada.world.program("claude", &script);
        let mut command = ada.command(&["run", "-s", "work", "-a", "claude", "First"]);
        command.env("HOME", ada.world.path("home"));
        let turn =
            command.stdout(Stdio::piped()).stderr(fs::File::create(ada.log()).unwrap()).spawn().unwrap();
        wait_until("the note of the run", || server.has_noted_run(project));
        let log = fs::File::create(bob.log()).unwrap();
        let mut second = bobs(&["run", "--wait", "-s", "work", "-a", "offline", "Second"]);
        let second = second.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        bob.wait_until_waiting();
        ada.let_go_on();
        assert_eq!(ada.finish(turn).code, 0);
        let second = bob.finish(second);
        assert_eq!(second.code, 0, "{second}");
        let lines: Vec<&str> = second.stderr.lines().filter(|line| line.starts_with("warning")).collect();
        assert_eq!(lines, [""; 0], "{home}: {second}");
    }
}

fn who_dies_lets_others_in<S: Lessor>() {
    let Some(server) = S::shared() else { return };
    let [ada, bob] = ["ada", "bob"].map(|name| Person::new(name, server, "who-dies"));
    let mut first = ada.begin("work", "First");
    signal(&first, "-KILL");
    first.wait().unwrap();
    assert_eq!(bob.run(&["run", "-s", "work", "-a", "offline", "Too soon"]).code, 1);
    let second = bob.start(&["run", "--wait", "-s", "work", "-a", "offline", "Second"]);
    bob.wait_until_waiting();
    let lasts = server.lease_lasts("who-dies").unwrap();
    // To the second.
    assert!(lasts < LEASE + 1.0, "it ends in {lasts} s");
    server.end_lease_in("who-dies", 0);
    let second = bob.finish(second);
    assert_eq!(second.code, 0, "{second}");
    assert_eq!(bob.prompts("S1"), ["Second"]);
    // The agent went on, and what it said comes to the end of the session.
    ada.let_go_on();
    wait_until("the recovery", || ada.run(&["list"]).stderr.contains("recovered the last turn of S1"));
    assert_eq!(bob.prompts("S1"), ["Second", "First"]);
}

fn on_the_same_machine_who_comes_next_need_not_wait<S: Lessor>() {
    let Some(server) = S::shared() else { return };
    let ada = Person::new("ada", server, "same-machine");
    let mut first = ada.begin("work", "First");
    signal(&first, "-KILL");
    first.wait().unwrap();
    assert!(server.lease_lasts("same-machine").unwrap() > 5.0, "the lease of the dead has not ended");
    ada.let_go_on();
    let next = ada.run(&["run", "-s", "work", "-a", "offline", "Second"]);
    assert_eq!(next.code, 0, "{next}");
    assert_eq!(ada.prompts("S1"), ["First", "Second"]);
    assert!(ada.has_nothing_left());
}

fn a_turn_that_takes_long_keeps_its_session<S: Lessor>() {
    let Some(server) = S::shared() else { return };
    let ada = Person::new("ada", server, "takes-long");
    let first = ada.begin("work", "First");
    server.end_lease_in("takes-long", 1);
    wait_until("the lease is renewed", || server.lease_lasts("takes-long").unwrap() > 10.0);
    ada.let_go_on();
    assert_eq!(ada.finish(first).code, 0);
    assert_eq!(server.lease_lasts("takes-long"), None, "it was not given back");
}

/// Makes it so that nobody has renewed a lease for long, and breaks all connections.
fn cut_off(server: &impl Lessor, project: &str) {
    server.break_connections();
    server.end_lease_in(project, -3600);
}

fn who_was_cut_off_and_overtaken_is_stored_apart<S: Lessor>() {
    let Some(server) = S::start_own() else { return };
    let [ada, bob] = ["ada", "bob"].map(|name| Person::new(name, &server, "overtaken"));
    assert_eq!(ada.run(&["run", "-s", "work", "-a", "offline", "Before"]).code, 0);
    let first = ada.begin("work", "First");
    // As a machine that sleeps.
    signal(&first, "-STOP");
    cut_off(&server, "overtaken");
    let second = bob.run(&["run", "-s", "work", "-a", "offline", "Second"]);
    assert_eq!(second.code, 0, "{second}");
    signal(&first, "-CONT");
    ada.let_go_on();
    let first = ada.finish(first);
    assert_eq!(first.code, 1, "{first}");
    assert!(first.stdout.contains("Finished streaming."), "all of it was shown: {first}");
    let said = [
        "S1 was taken over by another process while this turn ran\n",
        "error: the turn is not in S1 but in S2, a fork from where the turn began\n\
         hint: nothing of it is lost: continue with `azureal run -s S2`, or in S1 without it\n",
    ];
    assert!(said.iter().all(|line| first.stderr.contains(line)), "{first}");
    assert_eq!(ada.prompts("S1"), ["Before", "Second"]);
    assert_eq!(ada.prompts("S2"), ["Before", "First"]);
    let last = ada.run(&["show", "S2", "--json"]).json_lines().pop().unwrap();
    assert_eq!(last["data"]["outcome"], "done");
    assert!(ada.has_nothing_left());
    assert_eq!(ada.run(&["list"]).stderr, "", "nothing is left to recover");
}

fn who_was_cut_off_and_not_overtaken_is_stored_where_it_belongs<S: Lessor>() {
    let Some(server) = S::start_own() else { return };
    let ada = Person::new("ada", &server, "cut-off");
    let first = ada.begin("work", "First");
    cut_off(&server, "cut-off");
    ada.let_go_on();
    let first = ada.finish(first);
    assert_eq!(first.code, 0, "{first}");
    assert_eq!(ada.prompts("S1"), ["First"]);
    assert!(ada.has_nothing_left());
}
