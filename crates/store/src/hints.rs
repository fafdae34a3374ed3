//! Hints: what a user can do about an error, by the database that it comes from.

use azureal_core::StoreError;

/// Returns what a user can do about the error of a store of this crate. Hints that name commands are a front end's.
///
/// ```
/// use azureal_store::core::StoreError;
///
/// let error = StoreError::Busy { place: "/p/.azureal/sessions.azs".to_owned(), seconds: 60 };
/// assert_eq!(azureal_store::hint(&error), Some("try again, or find out who holds it with `fuser`"));
/// ```
pub fn hint(error: &StoreError) -> Option<&'static str> {
    let place = error.place()?;
    match error {
        StoreError::Newer { .. } => return Some("use a newer azureal; nothing was changed"),
        StoreError::Full { .. } => return Some("make room and do it again; nothing that was stored is lost"),
        _ => {}
    }
    match place.split_once("://") {
        #[cfg(feature = "postgres")]
        Some(("postgres", _)) => crate::postgres::hint(error).or_else(|| crate::server::hint(error)),
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss", _)) => crate::redis::hint(error).or_else(|| crate::server::hint(error)),
        #[cfg(feature = "sqlite")]
        None => crate::sqlite::hint(error),
        _ => None,
    }
}
