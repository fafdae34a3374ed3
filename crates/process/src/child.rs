//! A child that runs, and the two threads that look after it.

use std::io::{self, PipeWriter, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child as Process, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::error::SpawnError;
use crate::excerpt::{Excerpt, Gathering};
use crate::identity::{ProcessIdentity, to_pid};
use crate::input::Feeder;
use crate::marker::Marker;
use crate::reading::{Reading, Source};
use crate::stop::{self, Leader, StopReport, StopTimeouts};
use crate::table;

/// The exit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It has ended and the system does not say how. So it is when this process was started with SIGCHLD ignored.
    Unknown,
}

impl Exit {
    /// Returns whether the status was 0.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

/// A program that was [started](crate::Spawn::start).
///
/// Clones are handles on the same child; any thread may wait for it while another stops it. The child continues if
/// all handles are dropped, and is collected when it ends. Call [`stop`](Self::stop) to end it.
#[derive(Debug, Clone)]
pub struct Child {
    shared: Arc<Shared>,
    identity: ProcessIdentity,
    marker: Marker,
}

impl Child {
    /// Returns the number of the process, which is that of its group as well.
    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Returns what the process can be recognised by later, also by another program.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Returns the marker that it was started with.
    pub fn marker(&self) -> &Marker {
        &self.marker
    }

    /// Waits for the end.
    ///
    /// When it is reported, all that the child wrote is in its files, [`stdout`](Self::stdout) and
    /// [`stderr`](Self::stderr). What the child started may live on.
    pub fn wait(&self) -> Exit {
        let mut exit = self.shared.exit.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(exit) = *exit {
                return exit;
            }
            exit = self.shared.ended.wait(exit).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the end, at most `timeout`.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Exit> {
        self.shared.wait_timeout(timeout)
    }

    /// Returns how the child ended, if it has.
    pub fn try_wait(&self) -> Option<Exit> {
        self.shared.wait_timeout(Duration::ZERO)
    }

    /// Returns the standard output so far: its beginning and its end.
    ///
    /// Empty if it goes to a file.
    pub fn stdout(&self) -> Excerpt {
        lock(&self.shared.stdout).excerpt()
    }

    /// Returns the standard error so far: its beginning and its end.
    ///
    /// Empty if it goes to a file.
    pub fn stderr(&self) -> Excerpt {
        lock(&self.shared.stderr).excerpt()
    }

    /// Ends the child and all processes of its run, and returns when they are gone.
    ///
    /// See [`stop`](crate::stop) for the order. If the child has ended already, this ends the processes that it left
    /// behind.
    pub fn stop(&self, timeouts: &StopTimeouts) -> StopReport {
        stop::stop_run(self.shared.as_ref(), &self.identity, &self.marker, timeouts)
    }

    /// Kills the child, its group and its descendants, and returns at once.
    ///
    /// For a child that need not clean up. [`end_marked`](crate::end_marked) ends the processes that have left the
    /// family, once for all runs of a marker.
    pub fn kill(&self) {
        stop::kill_run(self.shared.as_ref(), &self.identity, &self.marker);
    }
}

/// The state that the handles and the threads share.
#[derive(Debug)]
struct Shared {
    /// The child's process id until it is collected. While this is locked, no other process can get that id.
    uncollected: Mutex<Option<Pid>>,
    exit: Mutex<Option<Exit>>,
    ended: Condvar,
    stdout: Mutex<Gathering>,
    stderr: Mutex<Gathering>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wait_timeout(&self, timeout: Duration) -> Option<Exit> {
        let exit = self.exit.lock().unwrap_or_else(PoisonError::into_inner);
        let (exit, _) = self
            .ended
            .wait_timeout_while(exit, timeout, |exit| exit.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        *exit
    }

    fn uncollected(&self) -> MutexGuard<'_, Option<Pid>> {
        self.uncollected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the child, collects it, and notifies all waiting threads.
    fn collect(
        &self,
        mut process: Process,
        feeder: Option<&Feeder>,
        reader: thread::JoinHandle<()>,
        reader_end: PipeWriter,
    ) {
        // Only waits for the end. Collecting it here would free the process id while another thread is about to
        // signal it.
        let pid = *self.uncollected();
        if let Some(pid) = pid {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(pid), options).is_err_and(|error| error == Errno::INTR) {}
        }
        let exit = loop {
            let mut uncollected = self.uncollected();
            match process.try_wait() {
                Ok(Some(status)) => {
                    *uncollected = None;
                    break Exit::of(status);
                }
                Ok(None) => {}
                Err(_) => {
                    *uncollected = None;
                    break Exit::Unknown;
                }
            }
            drop(uncollected);
            // Where the system could not be asked to wait.
            thread::sleep(Duration::from_millis(10));
        };
        feeder.into_iter().for_each(Feeder::end);
        drop(reader_end);
        // The child has ended, even if the reader panicked.
        let _ = reader.join();
        *self.exit.lock().unwrap_or_else(PoisonError::into_inner) = Some(exit);
        self.ended.notify_all();
    }
}

impl Leader for Shared {
    fn signal(&self, signal: Signal) {
        let uncollected = self.uncollected();
        let Some(pid) = *uncollected else {
            return;
        };
        // The signal fails only if the child has ended, which is the goal.
        let _ = kill_process(pid, signal);
        let entry = table::look(pid.as_raw_nonzero().get().unsigned_abs());
        if entry.is_ok_and(|entry| entry.is_some_and(|entry| entry.stopped)) {
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    fn kill_group(&self) {
        let uncollected = self.uncollected();
        if let Some(pid) = *uncollected {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    fn ended_within(&self, timeout: Duration) -> bool {
        self.wait_timeout(timeout).is_some()
    }
}

/// The threads of a child that is about to be started.
///
/// Dropped without one, they end.
pub(crate) struct Helpers {
    shared: Arc<Shared>,
    marker: Marker,
    to_reader: Sender<Streams>,
    to_collector: Sender<(Process, Option<Feeder>)>,
}

struct Streams {
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Helpers {
    pub(crate) fn start(stdout_limit: usize, stderr_limit: usize, marker: Marker) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            uncollected: Mutex::new(None),
            exit: Mutex::new(None),
            ended: Condvar::new(),
            stdout: Mutex::new(Gathering::new(stdout_limit)),
            stderr: Mutex::new(Gathering::new(stderr_limit)),
        });
        let (ended, reader_end) = pipe()?;
        let (to_reader, streams) = channel::<Streams>();
        let of_reader = Arc::clone(&shared);
        let reader = thread::Builder::new().name("child-reader".to_owned()).spawn(move || {
            if let Ok(Streams { stdout, stderr }) = streams.recv() {
                let stdout = Source::new(stdout, &of_reader.stdout);
                let stderr = Source::new(stderr, &of_reader.stderr);
                Reading { sources: [stdout, stderr], ended: &ended }.run();
            }
        })?;
        let (to_collector, process) = channel::<(Process, Option<Feeder>)>();
        let of_collector = Arc::clone(&shared);
        thread::Builder::new().name("child-collector".to_owned()).spawn(move || {
            if let Ok((process, feeder)) = process.recv() {
                of_collector.collect(process, feeder.as_ref(), reader, reader_end);
            }
        })?;
        Ok(Self { shared, marker, to_reader, to_collector })
    }

    /// Hands the child over to the threads.
    pub(crate) fn take(self, mut process: Process, feeder: Option<Feeder>) -> Result<Child, SpawnError> {
        let pid = process.id();
        // It is not collected yet, so the process of this id is the child.
        let found = table::look(pid).and_then(|entry| entry.ok_or_else(|| io::ErrorKind::NotFound.into()));
        let identity = match found {
            Ok(entry) => entry.identity,
            Err(source) => {
                // Errors are ignored: there is no other way to end it.
                let _ = process.kill();
                let _ = process.wait();
                return Err(SpawnError::Unidentified { source });
            }
        };
        *self.shared.uncollected() = to_pid(pid);
        let streams = Streams {
            stdout: process.stdout.take().map(OwnedFd::from),
            stderr: process.stderr.take().map(OwnedFd::from),
        };
        // They wait for exactly this.
        let _ = self.to_reader.send(streams);
        let _ = self.to_collector.send((process, feeder));
        Ok(Child { shared: self.shared, identity, marker: self.marker })
    }
}
