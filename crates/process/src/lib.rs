//! Runs a program that writes lines, and ends it so that nothing is left.
//!
//! | | |
//! |---|---|
//! | [`ProcessIdentity`] | a process that can be recognised later, also by another program |
//! | [`Marker`], [`find_marked`] | the variable in the environment by which a run's processes are found |

#[cfg(not(unix))]
compile_error!(
    "azureal-process is not supported on this system yet: it needs the signals and process groups of Unix"
);

mod identity;
mod marker;
mod table;

pub use identity::ProcessIdentity;
pub use marker::{InvalidMarker, Marker, find_marked};
