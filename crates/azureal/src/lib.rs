//! azureal
