//! The process table of the system.
//!
//! On Linux that is `/proc`; elsewhere the program `ps`, since asking the kernel itself takes `unsafe` code.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(not(target_os = "linux"), test))]
mod ps;

#[cfg(target_os = "linux")]
pub(crate) use linux::{all, environments_with, holds_open, look, marked};
#[cfg(not(target_os = "linux"))]
pub(crate) use ps::{all, environments_with, holds_open, look, marked};

use crate::identity::ProcessIdentity;

/// One process of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) identity: ProcessIdentity,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    /// Not so once it has ended and only waits to be collected.
    pub(crate) runs: bool,
    /// By SIGSTOP or the like: it notices no signal but SIGKILL until it is continued.
    pub(crate) stopped: bool,
}
