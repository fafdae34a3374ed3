//! The bridge while it runs: one loop that performs the steps of a protocol and handles every input.

use std::fs::File;
use std::io::{self, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::bridge::{
    AgentProgram, AnsweredBy, BridgeEnd, BridgeLimits, BridgeLine, BridgeTask, Exchange, Question,
};
use azureal_core::event::Outcome;
use azureal_process::{
    Child, ChildEnvironment, Exit, Marker, Spawn, StopTimeouts, Stream, adopt_orphans, collect_adopted,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use super::control::{self, ControlSocket, OpenQuestion, Refusal, Request, Response};
use super::http::{self, Http};
use super::json_rpc::JsonRpc;
use super::lines::{Received, read_line};
use super::output::Output;
use super::protocol::{Protocol, Step};

/// The time for an agent to stop by itself after a cancel. Together with [`STOP`] it is less than the two seconds
/// that a process has to end after an interrupt.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// The time for a finished agent to exit.
const FAREWELL: Duration = Duration::from_secs(1);
/// The time for which the rest of its output is read after an agent has exited: processes that it left behind may
/// hold the pipe open.
const REST: Duration = Duration::from_millis(500);
/// The pause between two checks without an input.
const TICK: Duration = Duration::from_millis(250);
/// The largest number of messages that wait for the agent.
const MOST_WAITING: usize = 1024;
/// The most inputs that wait for the loop. Each may hold a message.
const MOST_INPUTS: usize = 2;

/// The time limits for stopping an agent.
const STOP: StopTimeouts = StopTimeouts {
    interrupt: Duration::from_millis(400),
    terminate: Duration::from_millis(200),
    strays: Duration::from_millis(100),
    kill: Duration::from_secs(1),
};

/// An input of the loop.
pub(crate) enum BridgeInput {
    /// A message of the agent.
    Received(Received),
    /// The output of the agent has ended, perhaps with an error.
    Closed(Option<String>),
    /// The program of the agent has ended.
    Exited(Exit),
    /// A front end wants something.
    Control(Request, SyncSender<Response>),
    /// A signal to end. The second one, or a hard one, does not wait for the agent.
    Signal { is_hard: bool },
}

/// The agent's end of the exchange.
enum AgentLink {
    Pipes { child: Child, to_agent: Option<SyncSender<String>> },
    Http,
}

/// A question that waits, and until when.
struct Waiting {
    open: OpenQuestion,
    until: Instant,
}

struct Bridge {
    limits: BridgeLimits,
    output: Output,
    /// The agent writes its errors there itself.
    errors: Option<File>,
    protocol: Box<dyn Protocol>,
    link: AgentLink,
    inputs: Receiver<BridgeInput>,
    questions: Vec<Waiting>,
    /// When the turn must be over.
    deadline: Instant,
    /// When an agent that was asked to stop is stopped.
    cancelled: Option<Instant>,
    /// The time at which a lost agent is given up.
    gone: Option<Instant>,
    exit: Option<Exit>,
    is_closed: bool,
    end: Option<BridgeEnd>,
}

/// Performs a task, and returns its end, which is also the last line that it writes.
pub(crate) fn perform(
    task: BridgeTask,
    environment: ChildEnvironment,
    stdout: File,
    stderr: Option<File>,
) -> io::Result<Outcome> {
    let mut output = Output::new(stdout);
    let (sender, inputs) = sync_channel(MOST_INPUTS);
    let limits = task.limits;
    let prepared = prepare(task, environment, &sender, stderr.as_ref());
    let (protocol, link, _socket) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            let end = BridgeEnd::failed(why);
            output.write(&BridgeLine::End(end.clone()))?;
            return Ok(end.outcome);
        }
    };
    let now = Instant::now();
    let bridge = Bridge {
        limits,
        output,
        errors: stderr,
        protocol,
        link,
        inputs,
        questions: Vec::new(),
        // One that is further off than the clock reaches is none.
        deadline: now.checked_add(limits.turn()).unwrap_or(now + Duration::from_secs(u32::MAX.into())),
        cancelled: None,
        gone: None,
        exit: None,
        is_closed: false,
        end: None,
    };
    bridge.run()
}

type Prepared = (Box<dyn Protocol>, AgentLink, Option<ControlSocket>);

/// Opens the control channel, then starts the agent.
fn prepare(
    task: BridgeTask,
    environment: ChildEnvironment,
    inputs: &SyncSender<BridgeInput>,
    stderr: Option<&File>,
) -> Result<Prepared, String> {
    adopt_orphans().map_err(|error| format!("the bridge cannot keep its processes together: {error}"))?;
    receive_signals(inputs.clone()).map_err(|error| format!("the bridge cannot receive signals: {error}"))?;
    let socket = match &task.control {
        Some(path) => Some(
            control::serve(path, inputs.clone())
                .map_err(|error| format!("the control channel {}: {error}", path.display()))?,
        ),
        None => None,
    };
    let prepared: (Box<dyn Protocol>, AgentLink) = match task.exchange {
        Exchange::JsonRpc(exchange) => {
            let program = task.program.ok_or("the task names no program")?;
            let marker = Marker::new(task.marker, task.run).map_err(|error| error.to_string())?;
            let link = start(program, environment, marker, task.limits.message_bytes, inputs, stderr)?;
            // The directory that the bridge was started in is that of the turn.
            let directory = Path::new(".").canonicalize().map_err(|error| error.to_string())?;
            let can_ask = socket.is_some();
            let protocol = JsonRpc::new(exchange, directory.display().to_string(), can_ask);
            (Box::new(protocol), link)
        }
        Exchange::Http(exchange) => {
            let (inputs, limit) = (inputs.clone(), task.limits.message_bytes);
            thread::spawn(move || {
                let sent = http::exchange(&exchange, limit, &mut |message| {
                    inputs.send(BridgeInput::Received(message)).is_ok()
                });
                drop(inputs.send(BridgeInput::Closed(sent.err())));
            });
            (Box::new(Http::default()), AgentLink::Http)
        }
    };
    Ok((prepared.0, prepared.1, socket))
}

fn receive_signals(inputs: SyncSender<BridgeInput>) -> io::Result<()> {
    // A write beyond `ulimit -f` fails instead of killing us.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGXFSZ])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever().filter(|signal| *signal != SIGXFSZ) {
            drop(inputs.send(BridgeInput::Signal { is_hard: signal == SIGTERM }));
        }
    })?;
    Ok(())
}

/// Starts the agent's program with pipes, and the threads that read, write and wait.
fn start(
    program: AgentProgram,
    environment: ChildEnvironment,
    marker: Marker,
    limit: u64,
    inputs: &SyncSender<BridgeInput>,
    stderr: Option<&File>,
) -> Result<AgentLink, String> {
    let text = |error: io::Error| error.to_string();
    let (stdin, to_agent) = pipe().map_err(text)?;
    let (from_agent, stdout) = pipe().map_err(text)?;
    let stdout = File::from(OwnedFd::from(stdout));
    let mut spawn = Spawn::new(&program.path, ".", environment, stdout, marker);
    spawn.args = program.args.into_iter().map(Into::into).collect();
    for (name, value) in program.env {
        spawn.environment.set(name, value);
    }
    if let Some(stderr) = stderr {
        // Its own handle, so that it can write there after our end.
        spawn.stderr = Stream::File(stderr.try_clone().map_err(text)?);
    }
    let child = spawn.start_reading(stdin).map_err(|error| match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    })?;
    let (waiting, lines) = sync_channel(MOST_WAITING);
    thread::spawn(move || write_lines(to_agent, &lines));
    let reader = inputs.clone();
    thread::spawn(move || read_messages(from_agent, limit, &reader));
    let (waiter, inputs) = (child.clone(), inputs.clone());
    thread::spawn(move || drop(inputs.send(BridgeInput::Exited(waiter.wait()))));
    Ok(AgentLink::Pipes { child, to_agent: Some(waiting) })
}

fn write_lines(mut pipe: PipeWriter, lines: &Receiver<String>) {
    for line in lines {
        // An agent that has closed its input shows the reason by its output or its exit.
        if pipe.write_all(format!("{line}\n").as_bytes()).is_err() {
            return;
        }
    }
}

fn read_messages(pipe: PipeReader, limit: u64, inputs: &SyncSender<BridgeInput>) {
    let mut reader = BufReader::with_capacity(64 << 10, pipe);
    let error = loop {
        match read_line(&mut reader, limit) {
            Ok(Some(line)) if line.is_blank() => {}
            Ok(Some(line)) => {
                if inputs.send(BridgeInput::Received(line)).is_err() {
                    return;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    drop(inputs.send(BridgeInput::Closed(error)));
}

impl Bridge {
    fn run(mut self) -> io::Result<Outcome> {
        let outcome = self.converse().and_then(|end| self.finish(end));
        if let (Err(_), AgentLink::Pipes { child, .. }) = (&outcome, &self.link) {
            // What cannot be recorded must not continue.
            child.stop(&STOP);
        }
        outcome
    }

    /// Talks to the agent, until it is clear how that ends.
    fn converse(&mut self) -> io::Result<BridgeEnd> {
        let steps = self.protocol.open();
        self.perform(steps)?;
        loop {
            if let Some(end) = self.end.take() {
                return Ok(end);
            }
            match self.inputs.recv_timeout(self.pause()) {
                Ok(input) => self.handle(input)?,
                // The signal thread holds a sender, so this is the time.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.look_around()?;
        }
    }

    /// Returns the time until the next check.
    fn pause(&self) -> Duration {
        let questions = self.questions.iter().map(|waiting| waiting.until);
        let times = [Some(self.deadline), self.cancelled, self.gone].into_iter().flatten().chain(questions);
        let next = times.min().unwrap_or(self.deadline);
        next.saturating_duration_since(Instant::now()).min(TICK)
    }

    fn perform(&mut self, steps: Vec<Step>) -> io::Result<()> {
        for step in steps {
            match step {
                Step::Send(line) => self.send(line),
                Step::Ask(question) => self.ask(question)?,
                Step::Record(answered) => {
                    self.questions.retain(|waiting| waiting.open.question.id != answered.question);
                    self.output.write(&BridgeLine::Answer(answered))?;
                }
                Step::Finish(end) => self.end_with(end),
            }
        }
        Ok(())
    }

    /// Ends the run, unless it has ended before.
    fn end_with(&mut self, end: BridgeEnd) {
        self.end.get_or_insert(end);
    }

    fn send(&mut self, line: String) {
        let AgentLink::Pipes { to_agent: Some(to_agent), .. } = &self.link else { return };
        if let Err(TrySendError::Full(_)) = to_agent.try_send(line) {
            self.end_with(BridgeEnd::failed("the agent does not read its input"));
        }
    }

    fn ask(&mut self, question: Question) -> io::Result<()> {
        let now = Instant::now();
        let until = now.checked_add(self.limits.question()).unwrap_or(self.deadline);
        // The nonce stays out of the spool, which the agent may be able to read.
        self.output.write(&BridgeLine::Question(question.clone()))?;
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        self.questions.push(Waiting { open: OpenQuestion { question, nonce }, until });
        Ok(())
    }

    fn handle(&mut self, input: BridgeInput) -> io::Result<()> {
        match input {
            BridgeInput::Received(received) => self.receive(&received),
            BridgeInput::Closed(error) => {
                self.is_closed = true;
                self.gone.get_or_insert(Instant::now() + FAREWELL);
                let steps = self.protocol.closed(error);
                self.perform(steps)
            }
            BridgeInput::Exited(exit) => {
                self.exit = Some(exit);
                self.gone = Some(Instant::now() + REST);
                Ok(())
            }
            BridgeInput::Control(request, reply) => {
                let response = self.respond(request)?;
                // A front end that does not wait for it needs none.
                drop(reply.try_send(response));
                Ok(())
            }
            BridgeInput::Signal { is_hard } => {
                if is_hard || self.cancelled.is_some() {
                    self.end_with(BridgeEnd::new(Outcome::Cancelled));
                    return Ok(());
                }
                self.cancel()
            }
        }
    }

    fn receive(&mut self, received: &Received) -> io::Result<()> {
        let message = self.output.record(received)?;
        if self.output.messages() > self.limits.messages {
            let why = format!("the agent sent more than {} messages", self.limits.messages);
            self.end_with(BridgeEnd::failed(why));
        }
        self.check_size();
        match message {
            Some(message) if self.end.is_none() => {
                let steps = self.protocol.receive(&message);
                self.perform(steps)
            }
            _ => Ok(()),
        }
    }

    fn check_size(&mut self) {
        let errors = self.errors.as_ref().and_then(|file| file.metadata().ok());
        let errors = errors.filter(std::fs::Metadata::is_file).map_or(0, |found| found.len());
        let limit = self.limits.output_bytes;
        if self.output.written().saturating_add(errors) > limit {
            let why = format!("the agent printed more than {limit} bytes");
            self.end_with(BridgeEnd::failed(why));
        }
    }

    fn respond(&mut self, request: Request) -> io::Result<Response> {
        match request {
            Request::Questions => {
                let open = self.questions.iter().map(|waiting| waiting.open.clone());
                Ok(Response::Questions(open.collect()))
            }
            Request::Cancel => {
                self.cancel()?;
                Ok(Response::Done)
            }
            Request::Answer { question, nonce, option } => {
                let found = self.questions.iter().find(|waiting| waiting.open.question.id == question);
                let Some(Waiting { open, .. }) = found else {
                    return Ok(Response::Refused(Refusal::NoSuchQuestion));
                };
                if open.nonce != nonce {
                    return Ok(Response::Refused(Refusal::WrongNonce));
                }
                if !open.question.options.iter().any(|known| known.id == option) {
                    return Ok(Response::Refused(Refusal::NoSuchOption));
                }
                let steps = self.protocol.answer(&question, &option);
                self.perform(steps)?;
                Ok(Response::Done)
            }
        }
    }

    fn cancel(&mut self) -> io::Result<()> {
        if self.cancelled.is_some() {
            return Ok(());
        }
        self.cancelled = Some(Instant::now() + CANCEL_GRACE);
        let steps = self.protocol.cancel();
        self.perform(steps)
    }

    /// Does what is due.
    fn look_around(&mut self) -> io::Result<()> {
        if let AgentLink::Pipes { child, .. } = &self.link {
            collect_adopted(child);
        }
        self.check_size();
        let now = Instant::now();
        let is_due = |waiting: &&Waiting| waiting.until <= now;
        let due: Vec<String> =
            self.questions.iter().filter(is_due).map(|waiting| waiting.open.question.id.clone()).collect();
        for question in due {
            let steps = self.protocol.refuse(&question, AnsweredBy::Timeout);
            self.perform(steps)?;
        }
        // All that it wrote has been read, or is waited for no longer.
        let is_over = self.is_closed && self.exit.is_some();
        if matches!(self.link, AgentLink::Pipes { .. })
            && (is_over || self.gone.is_some_and(|gone| gone <= now))
        {
            let why = match self.exit {
                Some(_) => "the agent exited before its turn was over",
                None => "the agent closed its output before its turn was over",
            };
            self.end_with(match self.cancelled {
                Some(_) => BridgeEnd::new(Outcome::Cancelled),
                None => BridgeEnd { reason: Some(why.to_owned()), ..BridgeEnd::new(Outcome::Interrupted) },
            });
        }
        if self.cancelled.is_some_and(|until| until <= now) {
            self.end_with(BridgeEnd::new(Outcome::Cancelled));
        }
        if self.deadline <= now {
            self.end_with(BridgeEnd::new(Outcome::Timeout));
        }
        Ok(())
    }

    /// Ends the agent, reads the rest of its output, and writes the last line.
    fn finish(&mut self, mut end: BridgeEnd) -> io::Result<Outcome> {
        if let AgentLink::Pipes { child, to_agent } = &mut self.link {
            let child = child.clone();
            // The end of its input tells the agent to exit.
            drop(to_agent.take());
            let is_done = end.outcome == Outcome::Done;
            if is_done {
                self.drain(Instant::now() + FAREWELL)?;
            }
            // An agent that came to its end and has exited may leave something running for the user.
            if !is_done || self.exit.is_none() {
                child.stop(&STOP);
            }
            self.drain(Instant::now() + REST)?;
            match child.try_wait() {
                Some(Exit::Code(code)) => end.code = Some(code),
                Some(Exit::Signal(signal)) => end.signal = Some(signal),
                Some(Exit::Unknown) | None => {}
            }
        }
        for Waiting { open, .. } in std::mem::take(&mut self.questions) {
            let steps = self.protocol.refuse(&open.question.id, AnsweredBy::End);
            self.perform(steps)?;
        }
        self.output.write(&BridgeLine::End(end.clone()))?;
        Ok(end.outcome)
    }

    /// Records what still arrives, until the agent has exited and its output is read, or it is this late.
    fn drain(&mut self, until: Instant) -> io::Result<()> {
        while !(self.is_closed && self.exit.is_some()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.inputs.recv_timeout(left) {
                Ok(BridgeInput::Received(received)) => {
                    let is_full = self.output.messages() >= self.limits.messages
                        || self.output.written() > self.limits.output_bytes;
                    if !is_full {
                        self.output.record(&received)?;
                    }
                }
                Ok(BridgeInput::Closed(_)) => self.is_closed = true,
                Ok(BridgeInput::Exited(exit)) => self.exit = Some(exit),
                Ok(BridgeInput::Control(_, reply)) => drop(reply.try_send(Response::Refused(Refusal::Ended))),
                Ok(BridgeInput::Signal { .. }) => break,
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// Returns our standard output and standard error as files.
pub(crate) fn own_streams() -> io::Result<(File, Option<File>)> {
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    let stderr = io::stderr().as_fd().try_clone_to_owned().ok();
    Ok((File::from(stdout), stderr.map(File::from)))
}
