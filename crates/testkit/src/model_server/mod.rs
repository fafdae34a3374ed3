//! A model server for tests, which the real coding agents take for the service that they talk to.
//!
//! It implements the Messages API of Anthropic, the Responses and Chat completions APIs of OpenAI and the Gemini API
//! of Google, streamed or not, on its own loopback port. A test writes the answers of the model, runs the agent, and then checks the agent's requests:
//!
//! ```
//! use azureal_testkit::model_server::{Answer, ModelServer};
//! use serde_json::json;
//! # use std::io::{Read, Write};
//! # fn run_an_agent(server: &ModelServer) -> String {
//! #     let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
//! #     let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}).to_string();
//! #     write!(stream, "POST /v1/messages HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
//! #     let mut answer = String::new();
//! #     stream.read_to_string(&mut answer).unwrap();
//! #     answer
//! # }
//!
//! let server = ModelServer::scripted([
//!     Answer::error(500, "out of order"),
//!     Answer::new().text("Let me look.").tool("Bash", json!({"command": "ls"})),
//!     Answer::from("Nothing there."),
//! ]);
//! let said = run_an_agent(&server); // with `server.url()` as its base URL
//! assert!(said.contains("out of order"));
//! assert_eq!(server.requests()[0].prompt(), Some("Hello?"));
//! ```
//!
//! Answers are used up in order, by any client. If several agents run at once, or an answer depends on the question,
//! [`ModelServer::answering`] takes a function of the request.
//!
//! With [`ModelServer::with_cache`] the server has the prompt caches of Anthropic and OpenAI, and reports measured
//! usage.
//!
//! It uses only plain threads, and none is left when the server is dropped.

mod answer;
mod cache;
mod chat;
mod gemini;
mod http;
mod messages;
mod request;
mod responses;
mod stream;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use answer::{Ending, Failure, Wait};
use cache::Measured;
use http::{Connection, LOOK, Message};

pub use answer::{Answer, Gate, StreamPosition, Usage};
pub use cache::{Cache, CacheKeys, Clock, IMAGE_TOKENS};
pub use request::{Api, Request};

/// A model server that runs until it is dropped.
///
/// Dropping it closes every connection and waits for its threads. If the function that answers has panicked,
/// the panic continues there, so that an assertion in it fails the test.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// `None` once it has been joined.
    accepting: Option<JoinHandle<Option<Panic>>>,
}

type Panic = Box<dyn Any + Send>;

struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    stopping: AtomicBool,
    /// The answers after the list is used up.
    model: Box<dyn Fn(&Request) -> Answer + Send + Sync>,
}

#[derive(Default)]
struct State {
    answers: VecDeque<Answer>,
    requests: Vec<Arc<Request>>,
    /// The number of requests that wanted an answer.
    asked: usize,
    cache: Option<Cache>,
    served: Vec<Served>,
}

/// A request and how it was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// The request, which also knows its [breakpoints](Request::breakpoints).
    pub request: Arc<Request>,
    /// The status of the response.
    pub status: u16,
    /// The usage that was reported; `None` if the request was refused.
    pub usage: Option<Usage>,
}

impl ModelServer {
    /// Starts a server that gives these answers, one for each request that wants one.
    ///
    /// A request after the last of them is refused with status 400, which agents do not repeat.
    pub fn scripted<A: Into<Answer>>(answers: impl IntoIterator<Item = A>) -> Self {
        let server = Self::answering(|_| Answer::error(400, "the script has no answer left"));
        for answer in answers {
            server.push(answer);
        }
        server
    }

    /// Starts a server that gives one answer for ever.
    pub fn always(answer: impl Into<Answer>) -> Self {
        let answer = answer.into();
        Self::answering(move |_| answer.clone())
    }

    /// Starts a server that answers by a function of the request. It is called on several threads at once when
    /// several requests are.
    pub fn answering(model: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            arrived: Condvar::new(),
            stopping: AtomicBool::new(false),
            model: Box::new(model),
        });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { address, shared, accepting: Some(accepting) }
    }

    /// Gives the server a prompt cache: from now on it measures the input of every request and refuses those
    /// that the Messages API refuses for their `cache_control`. Such a request uses up no answer.
    ///
    /// Of [`Answer::usage`] only output and reasoning count then.
    #[must_use]
    pub fn with_cache(self, cache: Cache) -> Self {
        self.shared.state.lock().unwrap().cache = Some(cache);
        self
    }

    /// Adds an answer to the list, which goes before any function.
    pub fn push(&self, answer: impl Into<Answer>) {
        self.shared.state.lock().unwrap().answers.push_back(answer.into());
    }

    /// Returns where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL, without a path and without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests so far that wanted an answer of the model, oldest first.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        asking(&self.shared.state.lock().unwrap().requests)
    }

    /// Returns every request so far, oldest first: also probes, and what belonged to no API.
    pub fn all_requests(&self) -> Vec<Arc<Request>> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// Returns the number of requests so far that wanted an answer.
    pub fn request_count(&self) -> usize {
        self.shared.state.lock().unwrap().asked
    }

    /// Returns every request whose response has begun, oldest first, with the usage that was reported.
    pub fn served(&self) -> Vec<Served> {
        let mut served = self.shared.state.lock().unwrap().served.clone();
        served.sort_by_key(|served| served.request.number);
        served
    }

    /// Returns the largest number of cache breakpoints in any request, also of those that were refused.
    pub fn most_breakpoints(&self) -> usize {
        self.requests().iter().map(|request| request.breakpoints()).max().unwrap_or(0)
    }

    /// Waits until `count` requests that want an answer have arrived, and returns all of them.
    ///
    /// # Panics
    ///
    /// If that takes longer than `within`.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize, within: Duration) -> Vec<Arc<Request>> {
        let end = Instant::now() + within;
        let mut state = self.shared.state.lock().unwrap();
        while state.asked < count {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} requests arrived within {within:?}", state.asked);
            state = self.shared.arrived.wait_timeout(state, left).unwrap().0;
        }
        asking(&state.requests)
    }
}

fn asking(requests: &[Arc<Request>]) -> Vec<Arc<Request>> {
    requests.iter().filter(|request| request.api.wants_answer()).cloned().collect()
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts; it looks at the flag and never at this connection.
        let woken = TcpStream::connect(self.address);
        let panic = match self.accepting.take() {
            // Not woken, it would be waited for in vain.
            Some(accepting) if woken.is_ok() => accepting.join().unwrap_or_else(Some),
            _ => None,
        };
        if let Some(panic) = panic
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}

/// A thread that serves a connection, and a handle to end it with.
struct Serving {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

/// Serves connections until the server stops, then ends them all. Returns the first panic of any.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) -> Option<Panic> {
    let mut panic = None;
    let mut serving: Vec<Serving> = Vec::new();
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        for ended in serving.extract_if(.., |serving| serving.thread.is_finished()) {
            panic = panic.or(ended.thread.join().err());
        }
        // A client that has gone before it was accepted is nobody's mistake.
        let Ok(stream) = stream else { continue };
        let Ok(connection) = stream.try_clone().and_then(Connection::new) else { continue };
        let shared = Arc::clone(shared);
        let thread = thread::spawn(move || serve(connection, &shared));
        serving.push(Serving { stream, thread });
    }
    for serving in &serving {
        // Ends reads and waits of the thread; an error means that the other side was quicker.
        let _ = serving.stream.shutdown(Shutdown::Both);
    }
    for serving in serving {
        panic = panic.or(serving.thread.join().err());
    }
    panic
}

fn serve(connection: Connection, shared: &Shared) {
    /// The handle that `accept` keeps would otherwise hold the connection open, after a panic too.
    struct Closing(Connection);
    impl Drop for Closing {
        fn drop(&mut self) {
            self.0.close();
        }
    }
    let mut connection = Closing(connection);
    // An error means that the client has gone or sends something other than HTTP: there is nobody to tell.
    while let Ok(Some(message)) = connection.0.read() {
        let goes_on = message.header("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close"));
        if !matches!(respond(&mut connection.0, shared, message), Ok(Next::Request)) || !goes_on {
            break;
        }
    }
}

/// What comes after a response.
enum Next {
    Request,
    Close,
}

fn respond(connection: &mut Connection, shared: &Shared, message: Message) -> io::Result<Next> {
    let Message { method, target, headers, body } = message;
    let (request, measured, answer) = {
        let mut state = shared.state.lock().unwrap();
        let wants_answer = Api::of(&method, &target).wants_answer();
        state.asked += usize::from(wants_answer);
        let request = Arc::new(Request::new(method, target, headers, &body, state.asked));
        state.requests.push(Arc::clone(&request));
        let measured = state.cache.as_mut().and_then(|cache| cache.look_up(&request));
        let answer = match &measured {
            Some(Err(refusal)) => Some(Answer::error(400, refusal)),
            _ if wants_answer => state.answers.pop_front(),
            _ => None,
        };
        (request, measured.and_then(Result::ok), answer)
    };
    shared.arrived.notify_all();

    match request.api {
        Api::Messages | Api::Responses | Api::Chat | Api::Gemini => {
            let mut answer = answer.unwrap_or_else(|| (shared.model)(&request));
            if let Some(measured) = &measured {
                answer.usage = measured.usage(answer.usage);
            }
            connection.pause(answer.delay)?;
            note_response(shared, &request, &answer, measured.as_ref());
            return give(connection, &request, &answer);
        }
        Api::CountTokens => {
            let caches = shared.state.lock().unwrap().cache.is_some();
            let tokens = if caches { cache::count_tokens(&request.body) } else { body.len() as u64 / 4 + 1 };
            let is_gemini = request.path.contains(":countTokens");
            let name = if is_gemini { "totalTokens" } else { "input_tokens" };
            send(connection, 200, &[], &json!({name: tokens}))?;
        }
        Api::Other => match request.method.as_str() {
            "HEAD" => connection.head(200, "application/json", Some(0), &[])?,
            // Each API has the list under another name.
            "GET" if request.path.split('?').next().is_some_and(|path| path.ends_with("/models")) => {
                send(connection, 200, &[], &json!({"data": [], "models": [], "has_more": false}))?;
            }
            _ => {
                let error = json!({"message": format!("no such path: {}", request.path)});
                send(connection, 404, &[], &json!({"error": error}))?;
            }
        },
    }
    Ok(Next::Request)
}

/// Notes that the response to a request begins now, which is when its cache entries come to exist.
fn note_response(shared: &Shared, request: &Arc<Request>, answer: &Answer, measured: Option<&Measured>) {
    let mut state = shared.state.lock().unwrap();
    let (status, usage) = match &answer.failure {
        Some(failure) => (failure.status, None),
        None => (200, Some(answer.usage)),
    };
    if let (Some(cache), Some(measured), Some(_)) = (&mut state.cache, measured, usage) {
        cache.write(measured);
    }
    state.served.push(Served { request: Arc::clone(request), status, usage });
}

fn send(
    connection: &mut Connection,
    status: u16,
    headers: &[(String, String)],
    body: &Value,
) -> io::Result<()> {
    let body = body.to_string();
    connection.head(status, "application/json", Some(body.len()), headers)?;
    connection.write(body.as_bytes())
}

/// Sends an answer in the way that the request asks for.
fn give(connection: &mut Connection, request: &Request, answer: &Answer) -> io::Result<Next> {
    let format = match request.api {
        Api::Messages => messages::FORMAT,
        Api::Chat => chat::FORMAT,
        Api::Gemini => gemini::FORMAT,
        Api::Responses | Api::CountTokens | Api::Other => responses::FORMAT,
    };
    if let Some(Failure { status, message, body }) = &answer.failure {
        let body = body.clone().unwrap_or_else(|| (format.error_body)(*status, message));
        send(connection, *status, &answer.headers, &body)?;
        return Ok(Next::Request);
    }

    let mut rendered = (format.render)(answer, request.model().unwrap_or("unnamed"));
    if !request.streams() {
        let body = rendered.whole.to_string();
        connection.head(200, "application/json", Some(body.len()), &answer.headers)?;
        return match answer.ending {
            Ending::Whole | Ending::Error { .. } => {
                connection.write(body.as_bytes())?;
                Ok(Next::Request)
            }
            Ending::Cut(_) | Ending::Stall(_) => {
                connection.write(&body.as_bytes()[..body.len() / 2])?;
                if matches!(answer.ending, Ending::Stall(_)) {
                    connection.stall()?;
                }
                Ok(Next::Close)
            }
        };
    }

    match &answer.ending {
        Ending::Whole => {}
        Ending::Cut(place) | Ending::Stall(place) => {
            rendered.events.truncate(place.position(&rendered.events));
        }
        Ending::Error { place, kind, message } => {
            rendered.events.truncate(place.position(&rendered.events));
            rendered.events.push((format.error_event)(kind, message).after(&answer.next));
        }
    }
    connection.head(200, "text/event-stream", None, &answer.headers)?;
    for (index, event) in rendered.events.iter().enumerate() {
        let pace = if index == 0 { Duration::ZERO } else { answer.pace };
        connection.pause(pace)?;
        wait(connection, &event.wait)?;
        connection.chunk(event.line().as_bytes())?;
    }
    match answer.ending {
        Ending::Whole | Ending::Error { .. } => {
            connection.chunk(b"")?;
            Ok(Next::Request)
        }
        Ending::Cut(_) => {
            wait(connection, &answer.next)?;
            Ok(Next::Close)
        }
        Ending::Stall(_) => {
            wait(connection, &answer.next)?;
            connection.stall()?;
            Ok(Next::Close)
        }
    }
}

fn wait(connection: &mut Connection, wait: &Wait) -> io::Result<()> {
    connection.pause(wait.time)?;
    if let Some(gate) = &wait.gate {
        while !gate.pass(LOOK) {
            connection.look()?;
        }
    }
    Ok(())
}
