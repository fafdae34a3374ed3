//! The standard input of a child: all of it is in a file without a name before the child starts.
//!
//! No thread of this process writes it. A pipe holds 64 KiB: a child whose parent ended before it had read the rest got a part of
//! its input, and took it for the whole.
//!
//! On Linux the file is in memory (`memfd_create`): there is no folder to choose, it has no name at any moment, no full disk
//! prevents a start, and the last process that holds it open frees it. Elsewhere it is a temporary file that has lost its name.

use std::fs::File;
use std::io::{self, Seek, Write, pipe};
use std::os::fd::OwnedFd;

use crate::environment::ChildEnvironment;

/// Returns a standard input that consists of these bytes.
pub(crate) fn with(bytes: &[u8], environment: &ChildEnvironment) -> io::Result<OwnedFd> {
    if bytes.is_empty() {
        // Its other end is closed here.
        return Ok(pipe()?.0.into());
    }
    let mut file = nameless(environment)?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(target_os = "linux")]
fn nameless(_: &ChildEnvironment) -> io::Result<File> {
    use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
    use rustix::io::Errno;
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
