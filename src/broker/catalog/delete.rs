//! Removing topics. Names, duplicates and unknown ones are settled by the request; here only ids arrive.

use super::CatalogRecord;
use super::command::{Draft, ItemResult, Outcome, Refusal};
use crate::ids::TopicId;
use crate::wire::error_code::ErrorCode;

/// Removes topics; one result per id.
pub(super) fn delete(draft: &mut Draft, ids: &[TopicId]) -> Vec<ItemResult> {
    ids.iter().map(|id| delete_one(draft, *id).into()).collect()
}

fn delete_one(draft: &mut Draft, id: TopicId) -> Result<Outcome, Refusal> {
    if !draft.catalog.config().delete_topics {
        let message = "Topic deletion is disabled.";
        return Err(Refusal::new(ErrorCode::TopicDeletionDisabled, message));
    }
    let Some(topic) = draft.catalog.topic_by_id(id).cloned() else {
        return Err(Refusal::new(ErrorCode::UnknownTopicId, "This server does not host this topic ID."));
    };
    draft.record(CatalogRecord::TopicRemoved { id });
    Ok(Outcome::Topic(topic))
}
