//! A session as a JSON list of messages.

use std::io::Write;

use azureal_core::{Fold, SessionRecord, to_visible_json};

use super::masking::Masking;
use super::paired::paired;
use super::{ExportError, Source, each_event, is_empty_frame};
use crate::DamagedEvents;

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let mut fold = Fold::default();
    let damaged = each_event(source, record.id, masking, |_, event| {
        fold.push(event);
        Ok(())
    })
    .await?;
    write!(out, "[")?;
    // Providers refuse a call without a result.
    let messages = paired(fold.finish());
    for (index, message) in messages.iter().filter(|message| !is_empty_frame(message)).enumerate() {
        let separator = if index == 0 { "\n" } else { ",\n" };
        write!(out, "{separator}{}", to_visible_json(message)?)?;
    }
    writeln!(out, "\n]")?;
    Ok(damaged)
}
