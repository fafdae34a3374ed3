//! The contract that every store keeps.
