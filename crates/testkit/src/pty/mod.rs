//! A program on a pseudo-terminal, with an emulator that shows its screen.
//!
//! A test waits for a fact on the screen, never for a time. The emulator notes every sequence that is not on the list of the interface.
//!
//! ```
//! use std::process::Command;
//!
//! use azureal_testkit::pty::PtyProgram;
//!
//! let mut shell = Command::new("/bin/sh");
//! shell.env("PATH", "/usr/bin:/bin");
//! let mut shell = PtyProgram::start(&shell, 80, 24);
//! shell.send("echo $((20 + 3))\r");
//! shell.wait_for("23");
//! shell.send("exit\r");
//! assert_eq!(shell.wait_for_exit(), Some(0));
//! ```

mod emulator;

pub use emulator::{Modes, Unlisted};

use std::io::{Read, Write};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

use self::emulator::Emulator;
use crate::until::until_or;

/// A program that runs on a pseudo-terminal. Dropped, it is killed.
pub struct PtyProgram {
    terminal: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keys: Arc<Mutex<Box<dyn Write + Send>>>,
    seen: Arc<Mutex<Emulator>>,
    status: Option<ExitStatus>,
}

impl PtyProgram {
    /// Starts a program. Its environment is that of the command alone.
    pub fn start(command: &Command, columns: u16, rows: u16) -> Self {
        Self::start_with(command, columns, rows, true)
    }

    /// Starts a program on a terminal that answers no question.
    pub fn start_on_silent_terminal(command: &Command, columns: u16, rows: u16) -> Self {
        Self::start_with(command, columns, rows, false)
    }

    fn start_with(command: &Command, columns: u16, rows: u16, answers: bool) -> Self {
        let pair = native_pty_system().openpty(size(columns, rows)).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let keys = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        let seen = Arc::new(Mutex::new(Emulator::new(columns, rows)));
        let child = pair.slave.spawn_command(builder(command)).unwrap();
        // Only the program holds its side: when it ends, there is no more to read.
        drop(pair.slave);
        let (emulator, answers_to) = (Arc::clone(&seen), Arc::clone(&keys));
        thread::spawn(move || {
            let mut bytes = [0; 64 << 10];
            // The end is an error on some systems.
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                let answers_now = lock(&emulator).take(&bytes[..length]);
                if answers {
                    // The program may have gone.
                    lock(&answers_to).write_all(answers_now.as_bytes()).ok();
                }
            }
            lock(&emulator).is_over = true;
        });
        Self { terminal: pair.master, child, keys, seen, status: None }
    }

    /// Types.
    pub fn send(&self, keys: &str) {
        lock(&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    /// Pastes a text, as a terminal with bracketed paste does.
    pub fn paste(&self, text: &str) {
        self.send(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        lock(&self.seen).resize(columns, rows);
        self.terminal.resize(size(columns, rows)).unwrap();
    }

    /// Returns the text on the screen.
    pub fn screen(&self) -> String {
        lock(&self.seen).text()
    }

    /// Waits until the screen has a text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(&format!("`{text}` on the screen"), |screen| screen.contains(text));
    }

    /// Waits until the screen does not have a text.
    #[track_caller]
    pub fn wait_for_no(&self, text: &str) {
        self.wait_until(&format!("no `{text}` on the screen"), |screen| !screen.contains(text));
    }

    /// Waits until the screen is as described.
    #[track_caller]
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        until_or(
            || is_so(&self.screen()).then_some(()),
            || format!("{what}; the screen is\n{}", self.screen()),
        );
    }

    /// Waits until the program has ended and everything that it wrote was shown. Returns its exit code; `None` if a signal ended it.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> Option<u32> {
        let (child, seen) = (&mut self.child, &self.seen);
        let status = until_or(
            || child.try_wait().unwrap(),
            || format!("the end; the screen is\n{}", lock(seen).text()),
        );
        // A process that it left behind may keep the terminal open.
        let shown_by = Instant::now() + Duration::from_secs(2);
        while !lock(seen).is_over && Instant::now() < shown_by {
            thread::sleep(Duration::from_millis(2));
        }
        let code = status.signal().is_none().then(|| status.exit_code());
        self.status = Some(status);
        code
    }

    /// Returns the signal that ended the program, by its name.
    pub fn signal(&self) -> Option<&str> {
        self.status.as_ref()?.signal()
    }

    /// Returns the modes of the terminal.
    pub fn modes(&self) -> Modes {
        lock(&self.seen).modes()
    }

    /// Waits until the terminal has these modes.
    #[track_caller]
    pub fn wait_for_modes(&self, modes: Modes) {
        until_or(
            || (self.modes() == modes).then_some(()),
            || format!("{modes:?}; they are {:?}", self.modes()),
        );
    }

    /// Returns the attributes of the terminal, as text to compare.
    pub fn attributes(&self) -> String {
        let attributes = self.terminal.get_termios().unwrap();
        format!("{:?} {:?} {:?}", attributes.input_flags, attributes.output_flags, attributes.local_flags)
    }

    /// Asserts that the program wrote no sequence that is not on the list of the interface.
    #[track_caller]
    pub fn assert_listed(&self) {
        assert_eq!(lock(&self.seen).unlisted(), Vec::<Unlisted>::new());
    }

    /// Returns the number of bytes of each synchronized frame so far.
    pub fn frames(&self) -> Vec<usize> {
        lock(&self.seen).frames.clone()
    }

    /// Records every screen from now on: after each frame, and after what is no frame.
    pub fn record(&self) {
        lock(&self.seen).record_all();
    }

    /// Returns the recorded screens, in their order.
    pub fn screens(&self) -> Vec<String> {
        lock(&self.seen).screens.clone().unwrap_or_default()
    }

    /// Returns the number of bytes that the program wrote so far.
    pub fn bytes(&self) -> u64 {
        lock(&self.seen).bytes
    }

    /// Returns when the last byte was shown.
    pub fn last_write(&self) -> Instant {
        lock(&self.seen).last_write
    }

    /// Returns the texts that were put into the clipboard, in base64.
    pub fn clipboard(&self) -> Vec<String> {
        lock(&self.seen).clipboard()
    }

    /// Returns the number of bells.
    pub fn bells(&self) -> usize {
        lock(&self.seen).bells()
    }

    /// Returns the process.
    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    /// Sends a signal to the process, such as `TERM`.
    pub fn kill(&self, signal: &str) {
        let status =
            Command::new("kill").arg(format!("-{signal}")).arg(self.pid().to_string()).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for PtyProgram {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn builder(command: &Command) -> CommandBuilder {
    let mut builder = CommandBuilder::new(command.get_program());
    builder.args(command.get_args());
    builder.env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            builder.env(name, value);
        }
    }
    if let Some(directory) = command.get_current_dir() {
        builder.cwd(directory);
    }
    builder
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
