//! The standard input of a child: all of it is there before the child starts, and none of it depends on this process.
//!
//! It is a pipe, as every program expects: Claude Code takes a regular file in its place for an empty input, in its stream mode.
//! What a pipe holds is written before the child starts. The rest is in a file without a name, from which another process
//! (`cat`) feeds the child: it outlives this process, ends with the child, and carries the marker of the run.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Seek, Write, pipe};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use process_wrap::std::{CommandWrap, CommandWrapper, ProcessSession};

use crate::environment::ChildEnvironment;
use crate::identity::ProcessIdentity;
use crate::marker::Marker;
use crate::table;

/// The bytes that a pipe is asked to hold: what Linux allows every user.
#[cfg(target_os = "linux")]
const PIPE: usize = 1 << 20;
/// The bytes that it holds in any case, on Linux.
#[cfg(target_os = "linux")]
const USUAL_PIPE: usize = 64 << 10;

/// The process that feeds a child with the rest of its input.
#[derive(Debug)]
pub(crate) struct Feeder(ProcessIdentity);

impl Feeder {
    /// Ends it: its child has ended.
    pub(crate) fn end(&self) {
        self.0.signal(rustix::process::Signal::KILL);
        // Killed, it has nothing to wait for.
        self.0.wait_timeout(std::time::Duration::from_secs(1));
    }
}

/// Returns a pipe with this input, and the process that has what the pipe does not hold.
pub(crate) fn with(
    input: &[u8],
    environment: &ChildEnvironment,
    marker: &Marker,
) -> io::Result<(PipeReader, Option<Feeder>)> {
    let (reader, mut writer) = pipe()?;
    let written = fill(&mut writer, input)?;
    let feeder = match input.get(written..) {
        Some(rest) if !rest.is_empty() => Some(feed(rest, writer, environment, marker)?),
        _ => None,
    };
    Ok((reader, feeder))
}

/// Writes as much as a pipe holds, and returns how much that was.
fn fill(writer: &mut PipeWriter, input: &[u8]) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    if input.len() > USUAL_PIPE {
        // The user may have too many of such pipes: then this one holds less.
        rustix::pipe::fcntl_setpipe_size(&*writer, input.len().min(PIPE)).ok();
    }
    rustix::io::ioctl_fionbio(&*writer, true)?;
    let mut written = 0;
    while let Some(rest) = input.get(written..).filter(|rest| !rest.is_empty()) {
        match writer.write(rest) {
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    rustix::io::ioctl_fionbio(&*writer, false)?;
    Ok(written)
}

/// Starts the process that writes `rest` to the pipe.
fn feed(
    rest: &[u8],
    writer: PipeWriter,
    environment: &ChildEnvironment,
    marker: &Marker,
) -> io::Result<Feeder> {
    let mut file = nameless(environment)?;
    file.write_all(rest)?;
    file.rewind()?;
    let is_there = |program: &&&str| Path::new(program).exists();
    // Some systems have it elsewhere: there it is searched in the child's PATH.
    let program = ["/bin/cat", "/usr/bin/cat"].iter().find(is_there).copied().unwrap_or("cat");
    let mut command = Command::new(program);
    command.env_clear().env(marker.key(), marker.value()).current_dir("/");
    command.envs(environment.get("PATH").map(|path| ("PATH", path)));
    command.stdin(file).stdout(writer).stderr(Stdio::null());
    leads_session(&mut command)?;
    let mut process = command.spawn()?;
    // It is not collected yet, so the process of this number is the one that was started.
    let found = table::look(process.id()).and_then(|entry| entry.ok_or_else(|| ErrorKind::NotFound.into()));
    thread::Builder::new().name("feeder-collector".to_owned()).spawn(move || drop(process.wait()))?;
    Ok(Feeder(found?.identity))
}

/// Gives a child a session of its own, without a terminal.
///
/// `std` has no stable `setsid`. The crate is asked for that alone: its children wait for whole groups.
pub(crate) fn leads_session(command: &mut Command) -> io::Result<()> {
    ProcessSession.pre_spawn(command, &CommandWrap::from(Command::new("")))
}

#[cfg(target_os = "linux")]
fn nameless(_: &ChildEnvironment) -> io::Result<File> {
    use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
    use rustix::io::Errno;
    // In memory: there is no folder to choose, and no full disk prevents a start.
    let created = match memfd_create(c"input", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3.
        Err(Errno::INVAL) => memfd_create(c"input", MemfdFlags::CLOEXEC),
        created => created,
    };
    let file = File::from(created?);
    // Another process reaches it by `/proc` alone, which asks for these permissions too.
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn nameless(environment: &ChildEnvironment) -> io::Result<File> {
    let folder = environment.get("TMPDIR").filter(|folder| !folder.is_empty());
    // Only this user can read it.
    tempfile::tempfile_in(folder.unwrap_or(std::ffi::OsStr::new("/tmp")))
}
