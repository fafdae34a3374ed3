//! Random turns, edits of the user, undos and redos of the real program in random repositories.
//!
//! The test knows the files before and after each step, and asks git what it ignores. Whatever happens, no file differs after a step that no turn has
//! changed; what a turn has changed and git did not ignore comes back; and an undo is refused for a documented reason alone.
//!
//! `AZUREAL_SEED=N` repeats one repository.

mod acts;
mod check;
mod state;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azureal_testkit::thorough;
use serde_json::Value;

use self::acts::{PREAMBLE, Random, act};
use self::check::Recorded;
use self::state::State;
use crate::run::{SAYS_VERSION, wait_until};
use crate::world::{Ran, World};

/// The steps of one repository.
const STEPS: usize = 25;

/// A repository with a session, and what is known of its steps.
struct Case {
    world: World,
    random: Random,
    /// The acts and commands so far, for a failure.
    log: Vec<String>,
    /// The events that can be undone, in their order.
    recorded: Vec<Recorded>,
    /// The last event of each session that was looked at.
    seen: [u64; 2],
    /// The prompts of each session.
    turns: [usize; 2],
    /// The number of undos that did something.
    undone: usize,
}

#[test]
fn no_step_changes_a_file_that_no_turn_changed_and_every_undo_is_whole() {
    let repositories = thorough(20, 800);
    let seeds: Vec<u64> = match std::env::var("AZUREAL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=repositories).collect(),
    };
    let (next, undone) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (steps, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut case = Case::new(*seed);
                    let run = AssertUnwindSafe(|| (0..STEPS).for_each(|_| case.step()));
                    if catch_unwind(run).is_err() {
                        eprintln!("AZUREAL_SEED={seed}:\n{}", case.log.join("\n"));
                        failures.lock().unwrap().push(*seed);
                    }
                    steps.fetch_add(STEPS as u64, Ordering::Relaxed);
                    undone.fetch_add(case.undone, Ordering::Relaxed);
                }
            });
        }
    });
    let (failures, undone) = (failures.into_inner().unwrap(), undone.into_inner());
    eprintln!("{} steps, {undone} undos and redos", steps.into_inner());
    assert!(failures.is_empty(), "the repositories of these seeds failed: {failures:?}");
    // Not all are refused.
    assert!(undone > seeds.len() * 2 || seeds.len() < 10, "{undone}");
}

impl Case {
    fn new(seed: u64) -> Self {
        let world = World::new();
        fs::remove_dir_all(world.path("p")).unwrap();
        fs::create_dir_all(world.path("p")).unwrap();
        fs::create_dir_all(world.path("lib")).unwrap();
        world.file("home/.config/azureal/azufig.toml", "[changes]\nenabled = true\n");
        let line = |kind: &str| world.file(&format!("bin/{kind}.jsonl"), &answer(kind)).display().to_string();
        let (start, rest) = (line("start"), line("rest"));
        let body = world.path("body").display().to_string();
        let script = format!(
            "cat > /dev/null\ncat '{start}'\nmv '{body}' '{body}'.$$ && sh '{body}'.$$\ncat '{rest}'"
        );
        world.program("claude", &format!("{SAYS_VERSION}\n{script}"));
        let recorded = Vec::new();
        let mut case = Self {
            world,
            random: Random::new(seed),
            log: Vec::new(),
            recorded,
            seen: [0; 2],
            turns: [0; 2],
            undone: 0,
        };
        case.user(b"g init -q -b main; g -C ../lib init -q; echo lib > ../lib/lib; g -C ../lib add -A; g -C ../lib commit -qm x");
        let acts = case.acts(6);
        case.user(&[&acts[..], b"\ng add -A; g commit -qm first --allow-empty"].concat());
        case
    }

    /// Returns a program with the variables of the user.
    fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = match program {
            "azureal" => self.world.with_programs(arguments),
            program => std::ops::Deref::deref(&self.world).command(program, arguments),
        };
        command.env("PATH", self.world.programs()).env("HOME", self.world.path("home"));
        command
    }

    fn azureal(&mut self, arguments: &[&str]) -> Ran {
        let output = self.program("azureal", arguments).output().unwrap();
        let ran = self.world.ran(output);
        let said = ran.stderr.lines().collect::<Vec<_>>().join(" | ");
        self.log.push(format!("azureal {} -> {} {said}", arguments.join(" "), ran.code));
        ran
    }

    fn state(&self) -> State {
        State::of(&self.world.path("p"), &|| self.program("git", &[]))
    }

    fn acts(&mut self, most: usize) -> Vec<u8> {
        let count = 1 + self.random.below(most);
        let acts: Vec<Vec<u8>> = (0..count).map(|_| act(&mut self.random)).collect();
        acts.join(&b'\n')
    }

    /// The user edits.
    fn user(&mut self, acts: &[u8]) {
        self.log.push(format!("user:\n{}", String::from_utf8_lossy(acts)));
        let script = [PREAMBLE.as_bytes(), acts].concat();
        let file = self.world.path("edit");
        fs::write(&file, script).unwrap();
        let mut shell = self.program("sh", &[file.to_str().unwrap()]);
        shell.stdout(Stdio::null()).status().unwrap();
    }

    /// Has the next agent do this.
    fn prepare_agent(&mut self, acts: &[u8]) {
        self.log.push(format!("agent:\n{}", String::from_utf8_lossy(acts)));
        fs::write(self.world.path("body"), [PREAMBLE.as_bytes(), acts, b"\n"].concat()).unwrap();
    }

    fn step(&mut self) {
        if self.random.chance(25) {
            let acts = self.acts(4);
            self.user(&acts);
        }
        match self.random.below(100) {
            0..=39 => self.turn(),
            40..=44 => self.killed_turn(),
            45..=50 => self.turn_within_a_turn(),
            51..=92 => self.undo(),
            _ => self.killed_undo(),
        }
    }

    /// Runs a turn in one of two sessions.
    fn turn(&mut self) {
        let acts = self.acts(8);
        let (before, session) = (self.state(), self.random.below(2));
        self.prepare_agent(&acts);
        let ran = self.run(session);
        self.check_run(&ran);
        let root = fs::canonicalize(self.world.path("p")).unwrap();
        wait_until("the end of each git", || running(&root).is_empty());
        let after = self.state();
        self.note(session, &before, &after, false);
    }

    fn run(&mut self, session: usize) -> Ran {
        let name = format!("S{}", session + 1);
        let mut arguments = vec!["run", "-a", "claude"];
        if self.seen[session] > 0 {
            arguments.extend(["-s", &name]);
        } else if session == 1 && self.seen[0] == 0 {
            // The first one that is created is S1.
            return self.run(0);
        }
        arguments.push("go");
        self.azureal(&arguments)
    }

    fn check_run(&self, ran: &Ran) {
        assert_eq!(ran.code, 0, "{ran}");
        assert!(!ran.stderr.contains("of this turn are not recorded: `git"), "{ran}");
    }

    /// Runs a turn of one session while one of the other runs.
    fn turn_within_a_turn(&mut self) {
        if self.seen.contains(&0) {
            return self.turn();
        }
        let (outer, inner) = if self.random.chance(50) { (0, 1) } else { (1, 0) };
        let (first, last, gate) = (self.acts(4), self.acts(4), self.world.path("gate"));
        let gate = gate.to_str().unwrap();
        let wait = format!("\ntouch '{gate}.1'; until [ -e '{gate}.2' ]; do sleep 0.01; done\n");
        let outer_before = self.state();
        self.prepare_agent(&[&first, wait.as_bytes(), &last].concat());
        let name = format!("S{}", outer + 1);
        let mut command = self.program("azureal", &["run", "-a", "claude", "-s", &name, "go"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the outer turn", || PathBuf::from(format!("{gate}.1")).exists());
        let inner_acts = self.acts(4);
        let inner_before = self.state();
        self.prepare_agent(&inner_acts);
        let ran = self.run(inner);
        self.check_run(&ran);
        let inner_after = self.state();
        self.note(inner, &inner_before, &inner_after, true);
        fs::write(format!("{gate}.2"), "").unwrap();
        let ran = self.world.ran(child.wait_with_output().unwrap());
        self.check_run(&ran);
        for number in 1..=2 {
            fs::remove_file(format!("{gate}.{number}")).unwrap();
        }
        let outer_after = self.state();
        self.note(outer, &outer_before, &outer_after, true);
    }

    /// Kills azureal in a turn. The agent continues.
    fn killed_turn(&mut self) {
        let (acts, before, session) = (self.acts(8), self.state(), self.random.below(2));
        let session = if self.seen[0] == 0 { 0 } else { session };
        self.prepare_agent(&acts);
        let name = format!("S{}", session + 1);
        let arguments = ["run", "-a", "claude", "-s", &name, "go"];
        let known = self.seen[session] > 0;
        let arguments: Vec<&str> =
            arguments.into_iter().filter(|word| known || (*word != "-s" && *word != name)).collect();
        self.kill(&arguments, 150);
        let after = self.state();
        fs::remove_file(self.world.path("body")).ok();
        self.note(session, &before, &after, true);
    }

    /// Starts a command, kills it, waits for its children, and runs the next one.
    fn kill(&mut self, arguments: &[&str], within: usize) {
        let mut command = self.program("azureal", arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let time = self.random.below(within);
        std::thread::sleep(Duration::from_millis(time as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        self.log.push(format!("azureal {}, killed after {time} ms", arguments.join(" ")));
        let root = fs::canonicalize(self.world.path("p")).unwrap();
        let began = Instant::now();
        while let processes @ [_, ..] = &running(&root)[..] {
            assert!(began.elapsed() < Duration::from_secs(30), "these processes stay: {processes:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let next = self.azureal(&["list"]);
        assert_eq!(next.code, 0, "{next}");
    }

    /// Notes the changes that a turn has left, if there are any.
    fn note(&mut self, session: usize, before: &State, after: &State, needs_force: bool) {
        for session in if self.seen[0] == 0 { vec![0, 1] } else { vec![session, 1 - session] } {
            for (seq, kind, data) in self.new_events(session) {
                self.turns[session] += usize::from(kind == "UserMessage");
                let (turn, late) = (self.turns[session], data["late"] == true);
                if kind == "Changes" {
                    let (before, after, needs_force) = (before.clone(), after.clone(), needs_force || late);
                    self.recorded.push(Recorded { session, turn, seq, of: None, before, after, needs_force });
                }
            }
        }
    }

    /// Returns the events of a session that were not looked at.
    fn new_events(&mut self, session: usize) -> Vec<(u64, String, Value)> {
        let name = format!("S{}", session + 1);
        let output = self.program("azureal", &["show", &name, "--json"]).output().unwrap();
        let mut events = Vec::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let seq = event["seq"].as_u64().unwrap();
            if seq > self.seen[session] {
                self.seen[session] = seq;
                events.push((seq, event["kind"].as_str().unwrap().to_owned(), event["data"].clone()));
            }
        }
        events
    }

    /// Chooses changes to undo: mostly the last ones.
    fn choose(&mut self) -> Option<usize> {
        let count = self.recorded.len();
        if count == 0 {
            return None;
        }
        let back = if self.random.chance(60) { 0 } else { self.random.below(count) };
        Some(count - 1 - back)
    }

    fn undo(&mut self) {
        let Some(chosen) = self.choose() else { return self.turn() };
        let (session, seq) = (self.recorded[chosen].session, self.recorded[chosen].seq);
        let (name, number) = (format!("S{}", session + 1), seq.to_string());
        let force = self.random.chance(30);
        let mut arguments = vec!["undo", &name, "--seq", &number, "--json"];
        if force {
            arguments.push("--force");
        }
        self.check_diff(chosen);
        let before = self.state();
        let ran = self.azureal(&arguments);
        let after = self.state();
        if ran.code != 0 {
            return self.check_refused(chosen, &before, &after, force, &ran.stderr);
        }
        self.check_undone(chosen, &before, &after, force);
        let events = self.new_events(session);
        let (seq, kind, _) = events.last().cloned().unwrap_or_else(|| panic!("no event of the undo"));
        assert_eq!(kind, "Undo");
        self.recorded.push(Recorded {
            session,
            turn: 0,
            seq,
            of: Some(chosen),
            before,
            after,
            needs_force: false,
        });
        self.undone += 1;
    }

    fn killed_undo(&mut self) {
        let Some(chosen) = self.choose() else { return self.turn() };
        let (session, seq) = (self.recorded[chosen].session, self.recorded[chosen].seq);
        let (name, number) = (format!("S{}", session + 1), seq.to_string());
        let before = self.state();
        self.kill(&["undo", &name, "--seq", &number, "--force"], 120);
        let after = self.state();
        match self.new_events(session).last() {
            Some((seq, kind, _)) if kind == "Undo" => {
                self.check_undone(chosen, &before, &after, true);
                let (seq, of) = (*seq, Some(chosen));
                self.recorded.push(Recorded { session, turn: 0, seq, of, before, after, needs_force: false });
            }
            _ => assert!(before.files == after.files, "an undo without an event changed files"),
        }
    }
}

/// Lists the processes that run in a folder, without a git that waits for a pipe: it stays if azureal is killed.
fn running(folder: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let found =
        processes.filter(|path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)));
    let described = found.map(|path| {
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default().replace('\0', " ");
        format!("{} {} {}", path.display(), read("cmdline"), read("wchan"))
    });
    let is_stuck = |process: &String| process.contains("git") && process.ends_with("wait_for_partner");
    described.filter(|process| !is_stuck(process)).collect()
}

/// Returns lines of an agent's output: those before its work, or those after it.
fn answer(part: &str) -> String {
    let start =
        r#"{"type":"system","subtype":"init","session_id":"s-1","model":"m","cwd":".","tools":["Bash"]}"#;
    let text = r#"{"type":"assistant","message":{"id":"m1","role":"assistant","model":"m","content":[{"type":"text","text":"done"}]},"session_id":"s-1"}"#;
    let end = r#"{"type":"result","subtype":"success","is_error":false,"duration_ms":5,"num_turns":1,"result":"done","session_id":"s-1","total_cost_usd":0.01,"usage":{"input_tokens":10,"output_tokens":5}}"#;
    if part == "start" { format!("{start}\n") } else { format!("{text}\n{end}\n") }
}
