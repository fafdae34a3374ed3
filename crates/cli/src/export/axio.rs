//! A session as a JSON list of messages.

use std::io::Write;

use azureal_core::{Fold, SessionRecord, SessionStore};

use super::each_event;
use crate::failure::Failure;
use crate::output::to_json;

pub(super) async fn write(
    store: &dyn SessionStore,
    record: &SessionRecord,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut fold = Fold::default();
    each_event(store, record.id, |event| {
        fold.push(event);
        Ok(())
    })
    .await?;
    write!(out, "[")?;
    for (index, message) in fold.finish().iter().enumerate() {
        let separator = if index == 0 { "\n" } else { ",\n" };
        write!(out, "{separator}{}", to_json(message)?)?;
    }
    writeln!(out, "\n]")?;
    Ok(())
}
