//! The modes of the terminal: set for the interface, and put back as they were.
//!
//! They belong to the process, not to a value: a panic on any thread and a signal put them back too. Everything here may be called in any
//! order and any number of times.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// The attributes of the terminal before the interface began.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
/// Whether the interface has the terminal.
static IS_OURS: AtomicBool = AtomicBool::new(false);
/// Whether the kitty keyboard protocol is on.
static HAS_KEYBOARD: AtomicBool = AtomicBool::new(false);
/// Held while bytes are written.
static WRITING: Mutex<()> = Mutex::new(());

/// Time to wait for a frame that is being written, before the modes are put back in the middle of it.
const FRAME_LIMIT: Duration = Duration::from_millis(500);

/// Sets the modes: alternate screen, no automatic wrap, bracketed paste, focus reports. A crashed program may have left the mouse on, and
/// keys encoded.
const BEGIN: &str = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1049h\x1b[?7l\x1b[?25l\x1b[?2004h\x1b[?1004h\x1b[0m\x1b[H\x1b[2J";
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1000l\x1b[?1006l";
const KEYBOARD_ON: &str = "\x1b[>1u";
const KEYBOARD_OFF: &str = "\x1b[<u";
/// Puts the modes back, also in the middle of a frame.
const END: &str =
    "\x1b[?2026l\x1b[r\x1b[0m\x1b[?1000l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?7h\x1b[?1049l\x1b[?25h";

fn input() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

fn output() -> BorrowedFd<'static> {
    rustix::stdio::stdout()
}

/// Takes the terminal: raw mode and the screen of the interface. Sets everything again if the terminal is taken: another program may have
/// changed it while this one was stopped.
pub(super) fn take(has_mouse: bool) -> io::Result<()> {
    let _writing = writing();
    let now = tcgetattr(input())?;
    let mut raw = now.clone();
    raw.make_raw();
    if !IS_OURS.swap(true, Ordering::SeqCst) {
        *lock(&BEFORE) = Some(usual(now));
    }
    tcsetattr(input(), OptionalActions::Now, &raw)?;
    if HAS_KEYBOARD.swap(false, Ordering::SeqCst) {
        write_all(KEYBOARD_OFF.as_bytes())?;
    }
    write_all(BEGIN.as_bytes())?;
    if has_mouse {
        write_all(MOUSE_ON.as_bytes())?;
    }
    Ok(())
}

/// Returns the attributes of a terminal that a crashed program left raw, as they usually are.
fn usual(mut now: Termios) -> Termios {
    let is_raw = !now.local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
        && !now.output_modes.contains(OutputModes::OPOST);
    if is_raw {
        now.local_modes |=
            LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHOE | LocalModes::ISIG | LocalModes::IEXTEN;
        now.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
        now.input_modes |= InputModes::ICRNL | InputModes::IXON;
    }
    now
}

/// Gives the terminal back as it was. Safe from every thread, also in a panic.
pub(super) fn give_back() {
    let deadline = Instant::now() + FRAME_LIMIT;
    // Not for long: the thread that writes may be stuck, or be the one that panics.
    let _writing = loop {
        match WRITING.try_lock() {
            Ok(guard) => break Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => break None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
        }
    };
    if !IS_OURS.swap(false, Ordering::SeqCst) {
        return;
    }
    // A terminal that is gone needs nothing.
    if HAS_KEYBOARD.swap(false, Ordering::SeqCst) {
        drop(write_all(KEYBOARD_OFF.as_bytes()));
    }
    drop(write_all(END.as_bytes()));
    if let Some(before) = lock(&BEFORE).as_ref() {
        tcsetattr(input(), OptionalActions::Now, before).ok();
    }
}

/// Returns whether the interface has the terminal.
pub(super) fn is_ours() -> bool {
    IS_OURS.load(Ordering::SeqCst)
}

/// Switches the mouse.
pub(super) fn set_mouse(is_on: bool) -> io::Result<()> {
    write(if is_on { MOUSE_ON } else { MOUSE_OFF }.as_bytes())
}

/// Turns the kitty keyboard protocol on. Only for terminals that have said that they know it.
pub(super) fn use_keyboard() -> io::Result<()> {
    let _writing = writing();
    if IS_OURS.load(Ordering::SeqCst) && !HAS_KEYBOARD.swap(true, Ordering::SeqCst) {
        write_all(KEYBOARD_ON.as_bytes())?;
    }
    Ok(())
}

/// Writes bytes, unless the interface does not have the terminal.
pub(super) fn write(bytes: &[u8]) -> io::Result<()> {
    let _writing = writing();
    if bytes.is_empty() || !IS_OURS.load(Ordering::SeqCst) {
        return Ok(());
    }
    write_all(bytes)
}

/// Returns the columns and rows of the terminal. A terminal that does not know them has 80 and 24.
pub(super) fn size() -> (u16, u16) {
    match tcgetwinsize(output()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => (80, 24),
    }
}

fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(output(), bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another program may have made the terminal non-blocking.
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(output(), PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn writing() -> MutexGuard<'static, ()> {
    lock(&WRITING)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
