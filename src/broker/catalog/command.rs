//! What may be asked of the catalog, and the decision about it.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Catalog, CatalogRecord, Topic, alter, create, delete, partitions};
use crate::config;
use crate::ids::{LogId, ProducerId, TopicId};
use crate::wire::error_code::ErrorCode;

/// A wish to change shared facts. Results come back one per item, in the order of the items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make topics.
    CreateTopics {
        /// One item each.
        topics: Vec<create::NewTopic>,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// Make those of the topics that are missing, with the broker's defaults (a client asked for them in Metadata).
    EnsureTopics {
        /// Names, one item each.
        names: Vec<String>,
    },
    /// Remove topics.
    DeleteTopics {
        /// Ids, one item each.
        ids: Vec<TopicId>,
    },
    /// Give topics more partitions.
    CreatePartitions {
        /// One item each.
        topics: Vec<partitions::MorePartitions>,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// Change settings of topics and of the broker.
    AlterConfigs {
        /// One item each.
        resources: Vec<alter::Alteration>,
        /// What becomes of the resources' other settings.
        unnamed: alter::Unnamed,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// Take a block of producer ids; one item.
    AllocateProducerIds {
        /// How many.
        count: u32,
    },
    /// Say who this is, once; one item.
    SetIdentity {
        /// 22 characters of URL-safe base64.
        cluster_id: String,
        /// This broker's id.
        node_id: i32,
    },
}

/// What an item led to, besides its error code.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Nothing to say.
    Nothing,
    /// The topic as it is now (or would be).
    Topic(Arc<Topic>),
    /// The first id of the block.
    ProducerIds(ProducerId),
}

/// The answer to one item of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemResult {
    /// `None` when it was done.
    pub error: ErrorCode,
    /// A sentence for people; none where Kafka has none.
    pub message: Option<Cow<'static, str>>,
    /// What it led to.
    pub outcome: Outcome,
}

impl ItemResult {
    /// It was done.
    #[must_use]
    pub fn done(outcome: Outcome) -> Self {
        Self { error: ErrorCode::None, message: None, outcome }
    }

    /// It was not done, for a reason that needs no sentence.
    #[must_use]
    pub fn failed(error: ErrorCode) -> Self {
        Self { error, message: None, outcome: Outcome::Nothing }
    }

    /// True when it was done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.error == ErrorCode::None
    }

    /// The topic that the result speaks of, if any.
    #[must_use]
    pub fn topic(&self) -> Option<&Arc<Topic>> {
        match &self.outcome {
            Outcome::Topic(topic) => Some(topic),
            Outcome::Nothing | Outcome::ProducerIds(_) => None,
        }
    }
}

/// Why an item is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub error: ErrorCode,
    /// The sentence.
    pub message: Option<Cow<'static, str>>,
}

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(error: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { error, message: Some(message.into()) }
    }
}

impl From<config::Refusal> for Refusal {
    fn from(refusal: config::Refusal) -> Self {
        match refusal {
            config::Refusal::InvalidConfig(message) => Self::new(ErrorCode::InvalidConfig, message),
            config::Refusal::InvalidRequest(message) => Self::new(ErrorCode::InvalidRequest, message),
        }
    }
}

impl From<Refusal> for ItemResult {
    fn from(refusal: Refusal) -> Self {
        Self { error: refusal.error, message: refusal.message, outcome: Outcome::Nothing }
    }
}

impl From<Result<Outcome, Refusal>> for ItemResult {
    fn from(result: Result<Outcome, Refusal>) -> Self {
        result.map_or_else(Self::from, Self::done)
    }
}

/// What is to be done about a command.
///
/// The records are to be made durable together; then `next` is what everybody sees. Without records `next` equals the
/// catalog that was asked, and nothing needs to be written.
#[derive(Clone, Debug)]
pub struct Decision {
    /// To be made durable, in this order, in one commit.
    pub records: Vec<CatalogRecord>,
    /// One per item of the command.
    pub results: Vec<ItemResult>,
    /// The catalog after the records.
    pub next: Catalog,
}

/// Decides about a command; changes nothing.
///
/// Shapes: one result per item, in order. `new_id` is called once per topic that is made; its answers must be random.
#[must_use]
pub fn decide(catalog: &Catalog, command: &Command, new_id: impl FnMut() -> TopicId) -> Decision {
    let mut draft = Draft::of(catalog);
    let results = match command {
        Command::CreateTopics { topics, validate_only } => {
            let results = create::create(&mut draft, topics, new_id);
            draft.keep_unless(*validate_only, catalog);
            results
        }
        Command::EnsureTopics { names } => create::ensure(&mut draft, names, new_id),
        Command::DeleteTopics { ids } => delete::delete(&mut draft, ids),
        Command::CreatePartitions { topics, validate_only } => {
            let results = partitions::add(&mut draft, topics);
            draft.keep_unless(*validate_only, catalog);
            results
        }
        Command::AlterConfigs { resources, unnamed, validate_only } => {
            let results = alter::alter(&mut draft, resources, *unnamed);
            draft.keep_unless(*validate_only, catalog);
            results
        }
        Command::AllocateProducerIds { count } => vec![allocate(&mut draft, *count)],
        Command::SetIdentity { cluster_id, node_id } => {
            draft.record(CatalogRecord::Identity { cluster_id: cluster_id.clone(), node_id: *node_id });
            vec![ItemResult::done(Outcome::Nothing)]
        }
    };
    Decision { records: draft.records, results, next: draft.catalog }
}

/// A catalog in the making: each record is applied at once, so that later items see what earlier ones did.
pub(super) struct Draft {
    pub(super) catalog: Catalog,
    records: Vec<CatalogRecord>,
}

impl Draft {
    fn of(catalog: &Catalog) -> Self {
        Self { catalog: catalog.clone(), records: Vec::new() }
    }

    pub(super) fn record(&mut self, record: CatalogRecord) {
        self.catalog.apply(&record);
        self.records.push(record);
    }

    /// The next `count` log ids, not yet taken.
    pub(super) fn log_ids(&self, count: usize) -> Vec<LogId> {
        (self.catalog.next_log_id().0..).take(count).map(LogId).collect()
    }

    fn keep_unless(&mut self, validate_only: bool, before: &Catalog) {
        if validate_only {
            self.records.clear();
            self.catalog = before.clone();
        }
    }
}

fn allocate(draft: &mut Draft, count: u32) -> ItemResult {
    let first = draft.catalog.next_producer_id();
    let Some(next_producer_id) = first.0.checked_add(i64::from(count)) else {
        return Refusal::new(ErrorCode::UnknownServerError, "All producer ids have been given out.").into();
    };
    let next_log_id = draft.catalog.next_log_id().0;
    draft.record(CatalogRecord::Counters { next_log_id, next_producer_id });
    ItemResult::done(Outcome::ProducerIds(first))
}
