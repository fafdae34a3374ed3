//! A chat in the terminal, with several turns at once: `cargo run -p azureal --example chat [AGENT]`.
#![expect(clippy::disallowed_macros, clippy::disallowed_methods, reason = "a front end")]

use std::sync::{Arc, atomic::AtomicU32, atomic::Ordering::Relaxed};
use std::{env, io, path::Path, process::ExitCode, thread};

use azureal::{AgentOutput, Config, Environment, Error, Event, Options, Prompt, SessionId, TurnEvent};
use azureal::{TurnHandle, TurnSettings, Workspace, block_on, config::trust, visible_line};

const HELP: &str = "\
TEXT          send a prompt in the current session
/in S2 TEXT   send a prompt in another session
/list         list the sessions of this worktree: > is the current one, * has a running turn
/new [NAME]   create a session, and make it the current one
/follow S2    make S2 the current one, and show the output of no other until its turn ends
/cancel S2    cancel the turn of S2
/quit         leave when the running turns have ended";

struct Chat {
    workspace: Workspace,
    config: Arc<Config>,
    /// The number of the only session whose output is shown; 0 for all.
    followed: AtomicU32,
}

fn main() -> ExitCode {
    // azureal starts this program again for the built-in agent, and for agents behind a bridge.
    if let Some(status) = azureal::child_main(env::args_os(), env::vars_os()) {
        return status;
    }
    let Err(error) = chat() else { return ExitCode::SUCCESS };
    report(&error);
    ExitCode::FAILURE
}

fn chat() -> Result<(), Error> {
    let program = env::current_exe().map_err(|error| Error::new("program", error.to_string()))?;
    let environment = Environment::new(env::vars_os()).with_own_program(program);
    let workspace = Workspace::open(Path::new("."), &environment, &Options::default())?;
    workspace.notices().iter().for_each(|notice| println!("warning: {notice}"));
    let config = Arc::new(load_config(&workspace)?);
    // Before the first turn: stores the turns that were interrupted.
    let found = block_on(workspace.recover())?;
    found.iter().for_each(|found| println!("{found}"));
    let mut current = block_on(workspace.session_to_continue(&found))?;
    let chat = &Chat { workspace, config, followed: AtomicU32::new(0) };
    println!("{HELP}");
    // At its end, the scope waits for the turns that are still running.
    thread::scope(|scope| {
        for line in io::stdin().lines().map_while(Result::ok).take_while(|line| line != "/quit") {
            match chat.line(line.trim(), &mut current) {
                Ok(Some(turn)) => drop(scope.spawn(move || chat.show_turn(turn))),
                Ok(None) => {}
                Err(error) => report(&error),
            }
        }
    });
    Ok(())
}

/// Loads the configuration. Files of the project take effect only if the user trusts them.
fn load_config(workspace: &Workspace) -> Result<Config, Error> {
    let mut config = workspace.load_config()?;
    if let Some(required) = trust::required(&config) {
        println!("{}\nTrust this, so that it is in effect? [y/N]", required.content);
        let mut answer = String::new();
        if io::stdin().read_line(&mut answer).is_ok() && answer.trim() == "y" {
            trust::approve(&mut config)?;
        }
    }
    Ok(config)
}

impl Chat {
    /// Does what a line says. Returns the turn that it started.
    fn line(&self, line: &str, current: &mut Option<SessionId>) -> Result<Option<TurnHandle>, Error> {
        let engine = self.workspace.engine()?;
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let named = || block_on(self.workspace.find_session(name)).map(|record| record.id);
        match command {
            "/list" => {
                for record in block_on(self.workspace.list_sessions())? {
                    let current = if *current == Some(record.id) { '>' } else { ' ' };
                    let running = if engine.turn(record.id).is_some() { '*' } else { ' ' };
                    println!("{current}{running} {} {}", record.id, visible_line(&record.name));
                }
            }
            "/new" => *current = Some(block_on(self.workspace.create_session(rest))?),
            "/in" if !text.is_empty() => return self.submit(named()?, text).map(Some),
            "/cancel" => engine.turn(named()?).ok_or_else(|| Error::usage("no turn is running"))?.cancel(),
            "/follow" => self.followed.store(current.insert(named()?).number(), Relaxed),
            _ if line.is_empty() || line.starts_with('/') => println!("{HELP}"),
            _ => {
                let session = current.ok_or_else(|| Error::usage("`/new` creates a session"))?;
                return self.submit(session, line).map(Some);
            }
        }
        Ok(None)
    }

    fn submit(&self, session: SessionId, text: &str) -> Result<TurnHandle, Error> {
        let settings = TurnSettings { agent: env::args().nth(1), ..TurnSettings::default() };
        self.workspace.submit(&self.config, Prompt::new(session, text), settings)
    }

    fn show_turn(&self, mut turn: TurnHandle) {
        // Known from the beginning, since it is not created for the turn.
        let Some(session) = turn.session() else { return };
        while let Some(event) = turn.next_event() {
            if [0, session.number()].contains(&self.followed.load(Relaxed)) {
                show(session, &event);
            }
        }
        match turn.result() {
            Ok(finished) => say(session, &format!("({})", finished.complete.ending())),
            Err(error) => report(&error.into()),
        }
        // If it was the only one that was shown, all are shown again.
        self.followed.compare_exchange(session.number(), 0, Relaxed, Relaxed).ok();
        azureal::block_on(self.workspace.finish_originals()).unwrap_or_else(|error| report(&error));
    }
}

fn show(session: SessionId, event: &TurnEvent) {
    match event {
        TurnEvent::Accepted(accepted) => say(session, &format!("({} is asked)", accepted.agent)),
        TurnEvent::Notice(text) => say(session, text),
        TurnEvent::Output(output) => match &**output {
            AgentOutput::Event(Event::AssistantText(said)) => say(session, &said.text),
            AgentOutput::Event(Event::ToolCall(call)) => say(session, &format!("({})", call.tool_name)),
            AgentOutput::Event(Event::Error(error)) => say(session, &error.message),
            // Not answered here: nothing is allowed by default. `Began::control` takes answers.
            AgentOutput::Question(question) => say(session, &format!("(asks: {})", question.title)),
            AgentOutput::Notice(text) | AgentOutput::Retry(text) => say(session, text),
            _ => {}
        },
        _ => {}
    }
}

/// Prints a text, each line with its session. Text from outside must not act on the terminal.
fn say(session: SessionId, text: &str) {
    text.lines().for_each(|line| println!("{session} | {}", visible_line(line)));
}

fn report(error: &Error) {
    println!("error ({}): {}", error.kind(), visible_line(error.message()));
    error.hint().into_iter().for_each(|hint| println!("hint: {}", visible_line(hint)));
}
