//! A real browser without a window, for tests of pages: Chromium, found on the machine.
//!
//! It is controlled through a pipe, so it has no port, and it ends when the other end of the pipe is closed: also if the test is killed.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The names of the program.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// The time for one answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running browser.
pub struct Browser {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<Value>,
    /// Messages that came while another was waited for.
    events: VecDeque<Value>,
    count: u64,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser. `None` means that there is none and the test has been reported as skipped, and should return.
    ///
    /// # Panics
    ///
    /// If there is none where `AZUREAL_REQUIRE_TOOLS` is set.
    pub fn start() -> Option<Self> {
        let Some(program) = find() else {
            crate::servers::skip("there is no Chromium");
            return None;
        };
        let profile = TempDir::new().unwrap();
        // The browser reads orders from 3 and answers to 4. A shell can open these without unsafe code.
        let mut child = Command::new("/bin/sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 0</dev/null 1>&2"#, "browser"])
            .arg(program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                match lines.read_until(0, &mut message) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {
                        message.pop();
                        let Ok(message) = serde_json::from_slice(&message) else { return };
                        if sender.send(message).is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Some(Self { child, orders, answers, events: VecDeque::new(), count: 0, _profile: profile })
    }

    /// Opens a file as a page, and waits until it is loaded. Its requests are recorded from the beginning.
    pub fn open(&mut self, file: &Path) -> Page<'_> {
        let target = self.call(None, "Target.createTarget", &json!({"url": "about:blank"}));
        let attached = json!({"targetId": target["targetId"], "flatten": true});
        let session =
            self.call(None, "Target.attachToTarget", &attached)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Network.enable", "Runtime.enable"] {
            self.call(Some(&session), domain, &json!({}));
        }
        self.events.clear();
        let started = Instant::now();
        self.call(Some(&session), "Page.navigate", &json!({"url": format!("file://{}", file.display())}));
        let mut page = Page { browser: self, session, requests: Vec::new(), loading: Duration::ZERO };
        page.wait_for("Page.loadEventFired");
        page.loading = started.elapsed();
        page
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Value {
        self.count += 1;
        let id = self.count;
        let mut order = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            order["sessionId"] = json!(session);
        }
        let orders = self.orders.as_mut().unwrap();
        orders.write_all(format!("{order}\0").as_bytes()).unwrap();
        orders.flush().unwrap();
        loop {
            let message =
                self.answers.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.orders.take();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An open page.
pub struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
    requests: Vec<String>,
    loading: Duration,
}

impl Page<'_> {
    /// Returns the time that it took to load.
    pub fn loading(&self) -> Duration {
        self.loading
    }

    /// Evaluates an expression in the page, and waits for a promise.
    ///
    /// # Panics
    ///
    /// If it throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.browser.call(Some(&self.session), "Runtime.evaluate", &params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Sets a feature of the media, such as `prefers-color-scheme`, or the type: `print`.
    pub fn emulate(&mut self, media: &str, features: &[(&str, &str)]) {
        let features: Vec<Value> =
            features.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let params = json!({"media": media, "features": features});
        self.browser.call(Some(&self.session), "Emulation.setEmulatedMedia", &params);
    }

    /// Returns the addresses of all requests so far, that of the page too.
    pub fn requests(&mut self) -> &[String] {
        // A call brings what was sent before its answer.
        self.evaluate("0");
        self.take_events();
        &self.requests
    }

    fn take_events(&mut self) -> Vec<String> {
        let mut methods = Vec::new();
        while let Some(event) = self.browser.events.pop_front() {
            let method = event["method"].as_str().unwrap_or_default();
            if matches!(method, "Network.requestWillBeSent" | "Network.webSocketCreated") {
                let params = &event["params"];
                let address = params["request"]["url"].as_str().or(params["url"].as_str());
                self.requests.push(address.unwrap_or("?").to_owned());
            }
            methods.push(method.to_owned());
        }
        methods
    }

    fn wait_for(&mut self, event: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.take_events().iter().any(|method| method == event) {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.browser.answers.recv_timeout(left).unwrap_or_else(|_| panic!("no {event}"));
            self.browser.events.push_back(message);
        }
    }
}

/// Finds the program: `AZUREAL_BROWSER`, or on the path.
fn find() -> Option<PathBuf> {
    match std::env::var_os("AZUREAL_BROWSER") {
        Some(program) => Some(program.into()),
        None => PROGRAMS.into_iter().find_map(crate::servers::find),
    }
}
