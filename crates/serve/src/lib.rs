//! Servers for other programs, over the library.
//!
//! [`mcp`] lets agents look things up in the stored sessions, over the Model Context Protocol.

pub mod mcp;
