//! A server that answers every request with more than anybody can take.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::scratch::{role, text, worker};

/// No reply that we accept is larger, nor are all that fits into buffers on the way.
pub(crate) const MOST_SENT: usize = 256 << 20;
/// The memory that all of it may take.
const MOST_MEMORY_KIB: usize = 700 << 10;

/// A server of one port, which counts what it could send.
pub(crate) struct HostileServer {
    pub(crate) port: u16,
    sent: Arc<AtomicUsize>,
}

impl HostileServer {
    /// Starts a server. `greet` does what comes before the first request; then `begin` is sent once and `repeat` until the
    /// client is gone.
    pub(crate) fn start(
        greet: fn(&mut TcpStream) -> std::io::Result<()>,
        begin: Vec<u8>,
        repeat: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let sent = Arc::new(AtomicUsize::new(0));
        let (count, repeat) = (Arc::clone(&sent), Arc::new(repeat));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(mut client), begin) = (client, begin.clone()) else { return };
                let (count, repeat) = (Arc::clone(&count), Arc::clone(&repeat));
                thread::spawn(move || {
                    let mut flood = || -> std::io::Result<()> {
                        greet(&mut client)?;
                        receive(&mut client)?;
                        client.write_all(&begin)?;
                        for number in 0.. {
                            // A mistake here is not to fill the memory of the machine.
                            if count.load(Ordering::Relaxed) > 4 * MOST_SENT {
                                return Ok(());
                            }
                            let part = repeat(number);
                            client.write_all(&part)?;
                            count.fetch_add(part.len(), Ordering::Relaxed);
                        }
                        Ok(())
                    };
                    // It ends when the client has had enough.
                    drop(flood());
                });
            }
        });
        Self { port, sent }
    }

    /// Checks that the client took no more than it may.
    pub(crate) fn check(&self, what: &str) {
        let sent = self.sent.load(Ordering::Relaxed);
        assert!(sent < MOST_SENT, "{what}: {} MiB were taken", sent >> 20);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak: usize = peak.map_or(0, |peak| peak.trim().trim_end_matches(" kB").parse().unwrap());
        assert!(peak < MOST_MEMORY_KIB, "{what}: {} MiB of memory", peak >> 10);
    }
}

/// Receives some of what a client sends.
pub(crate) fn receive(client: &mut TcpStream) -> std::io::Result<usize> {
    client.read(&mut [0; 1 << 16])
}

/// How often a test is tried on a machine that is too slow to receive so much before the client gives up.
const TRIES: usize = 4;

/// Runs a test in a process of its own, since [`HostileServer::check`] looks at the memory of the whole process. Returns
/// `false` in that process.
pub(crate) fn passes_alone(test: &str) -> bool {
    if role().is_some() {
        return false;
    }
    for attempt in 1..=TRIES {
        let output = worker(test, "alone", Path::new("")).output().unwrap();
        let printed = text(&output);
        if output.status.success() && printed.contains("1 passed") {
            return true;
        }
        // The subject is memory, not time.
        assert!(attempt < TRIES && printed.contains("Unreachable"), "{printed}");
    }
    true
}
