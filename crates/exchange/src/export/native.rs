//! stub
use azureal_core::{Message, SessionRecord, SessionStore};
use jiff::Timestamp;
use super::{ExportError, Source};
/// stub
pub struct NativeHistory { /// m
pub messages: Vec<Message>, /// s
pub started: Timestamp, /// t
pub title: Option<String> }
impl NativeHistory {
/// c
pub fn conversation<'a>(&'a self, id: &'a str, cwd: &'a std::path::Path) -> azureal_agents::native::NativeConversation<'a> { azureal_agents::native::NativeConversation { id, cwd, started: self.started, title: self.title.as_deref(), messages: &self.messages } } }
/// stub
pub async fn native_history(store: &dyn SessionStore, record: &SessionRecord, _threshold: azureal_core::Threshold) -> Result<(NativeHistory, crate::DamagedEvents), ExportError> {
    let source = Source { store, events: None };
    let mut masking = super::masking::Masking::new(None);
    let (conversation, damaged) = super::provider::conversation(&source, record, &mut masking).await?;
    Ok((NativeHistory { messages: conversation.messages, started: Timestamp::now(), title: Some(record.name.clone()) }, damaged))
}
