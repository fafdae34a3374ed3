//! Marks for people whose terminal has no characters but ASCII.

use std::borrow::Cow;
use std::sync::OnceLock;

use azureal::config::ui;
use azureal::transcript::ascii_marks;

use crate::environment::environment;

/// Returns whether marks are ASCII, as the user has set it or as the locale is. It is found out once.
pub(crate) fn is_ascii() -> bool {
    static IS_ASCII: OnceLock<bool> = OnceLock::new();
    // A configuration that cannot be read is reported where it is needed.
    *IS_ASCII.get_or_init(|| ui(&environment()).is_ok_and(|ui| ui.ascii))
}

/// Returns a text of our own with the marks of this terminal.
pub(crate) fn with_marks(text: &str) -> Cow<'_, str> {
    if !text.is_ascii() && is_ascii() { ascii_marks(text).into() } else { text.into() }
}
