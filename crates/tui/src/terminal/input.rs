//! The thread that reads the terminal.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::decode::Input;

/// The most bytes of one read.
const PIECE: usize = 64 << 10;

/// The thread that reads the terminal. It can be paused, so that another program can read it.
#[derive(Debug)]
pub(super) struct Reader {
    orders: SyncSender<Order>,
    wake: PipeWriter,
    pauses: Receiver<()>,
}

#[derive(Debug)]
enum Order {
    Pause,
    Resume,
}

impl Reader {
    /// Starts to read. `None` is sent when the terminal is gone.
    pub(super) fn start(
        parser: impl Parse + Send + 'static,
        send: impl Fn(Option<Input>) + Send + 'static,
    ) -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        let (orders, taken) = sync_channel(4);
        let (paused, pauses) = sync_channel(4);
        thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || Loop { woken, taken, paused, parser }.run(send))?;
        Ok(Self { orders, wake, pauses })
    }

    /// Stops reading, and returns when no byte is read any more.
    pub(super) fn pause(&mut self) {
        if self.orders.send(Order::Pause).is_ok() && self.wake.write_all(b".").is_ok() {
            // An error: the thread has ended, and reads no more either.
            self.pauses.recv().ok();
        }
    }

    /// Reads again.
    pub(super) fn resume(&mut self) {
        drop(self.orders.send(Order::Resume));
    }
}

/// Turns bytes into input.
pub(super) trait Parse {
    /// Takes bytes.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Input>);
    /// Returns how long to wait for more bytes before [`give_up`](Self::give_up).
    fn timeout(&self) -> Option<Duration>;
    /// Takes what waits for more bytes as it is.
    fn give_up(&mut self, out: &mut Vec<Input>);
}

struct Loop<P> {
    woken: PipeReader,
    taken: Receiver<Order>,
    paused: SyncSender<()>,
    parser: P,
}

impl<P: Parse> Loop<P> {
    fn run(mut self, send: impl Fn(Option<Input>)) {
        let mut bytes = vec![0; PIECE];
        let mut inputs = Vec::new();
        loop {
            let timeout = self.parser.timeout().and_then(|timeout| Timespec::try_from(timeout).ok());
            let terminal = rustix::stdio::stdin();
            let mut ready =
                [PollFd::from_borrowed_fd(terminal, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
            match poll(&mut ready, timeout.as_ref()) {
                Ok(0) => self.parser.give_up(&mut inputs),
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return send(None),
            }
            let [keys, woken] = ready.map(|ready| !ready.revents().is_empty());
            // First: keys that follow may be for another program.
            if woken && self.obey().is_none() {
                return;
            }
            if keys && !woken {
                match rustix::io::read(terminal, &mut bytes) {
                    Ok(0) => {
                        self.parser.give_up(&mut inputs);
                        inputs.drain(..).for_each(|input| send(Some(input)));
                        return send(None);
                    }
                    Ok(length) => {
                        self.parser.push(bytes.get(..length).unwrap_or_default(), &mut inputs);
                    }
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(_) => return send(None),
                }
            }
            for input in inputs.drain(..) {
                send(Some(input));
            }
        }
    }

    /// Takes an order. Returns `None` if nobody is there to give one.
    fn obey(&mut self) -> Option<()> {
        self.woken.read_exact(&mut [0]).ok()?;
        if matches!(self.taken.recv().ok()?, Order::Pause) {
            self.paused.send(()).ok()?;
            while !matches!(self.taken.recv().ok()?, Order::Resume) {}
        }
        Some(())
    }
}
