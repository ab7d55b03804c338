//! Topic configs: every one that Apache Kafka 4.4 knows, and what a topic's settings come to.
//!
//! A config that a topic does not set has the value of a broker setting. Of a config that corelane does not serve, only
//! the value that asks for nothing is accepted; nothing is accepted and ignored.

use super::origin::Values;
use super::table::{CODECS, POLICIES, TIMESTAMP_TYPES};
use super::value::{Allowed, Domain, Kind, Only, list};
use super::{Config, Durability};
use std::collections::BTreeMap;

/// What a topic sets itself, by config name, in canonical spelling; kept in the catalog.
pub type Overrides = BTreeMap<String, String>;

/// One topic config.
#[derive(Clone, Copy, Debug)]
pub struct TopicConfig {
    /// Name.
    pub name: &'static str,
    /// Type and allowed values.
    pub domain: Domain,
    /// The broker setting whose value it has where the topic does not set it.
    pub broker: Option<&'static str>,
    /// Its value where it comes from no broker setting.
    pub default: &'static str,
    /// Whether DescribeConfigs leaves it out.
    pub internal: bool,
    /// What it is for.
    pub doc: &'static str,
}

impl TopicConfig {
    /// With the type and the doc of its broker setting; `allowed` may be narrower.
    const fn of(name: &'static str, broker: &'static str, kind: Kind, doc: &'static str) -> Self {
        let domain = Domain { kind, allowed: Allowed::Any, only: None };
        Self { name, domain, broker: Some(broker), default: "", internal: false, doc }
    }

    const fn alone(name: &'static str, default: &'static str, kind: Kind, doc: &'static str) -> Self {
        let domain = Domain { kind, allowed: Allowed::Any, only: None };
        Self { name, domain, broker: None, default, internal: false, doc }
    }

    const fn allow(mut self, allowed: Allowed) -> Self {
        self.domain.allowed = allowed;
        self
    }

    const fn at_least(self, least: i64) -> Self {
        self.allow(Allowed::AtLeast(least))
    }

    const fn only(mut self, value: &'static str, because: &'static str) -> Self {
        self.domain.only = Some(Only { value, because });
        self
    }

    const fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    /// The value where the topic sets none.
    pub(super) fn inherited(&self, values: &Values) -> String {
        let Some(broker) = self.broker else { return self.default.to_owned() };
        let number = matches!(self.domain.kind, Kind::Int | Kind::Long).then(|| values.number(broker)).flatten();
        let value = number.map(|number| number.to_string()).or_else(|| values.text(broker).map(str::to_owned));
        // A broker may say "no limit" by any negative number, a topic only by -1.
        match self.name {
            "retention.ms" if number.is_some_and(|ms| ms < 0) => "-1".to_owned(),
            _ => value.unwrap_or_else(|| self.default.to_owned()),
        }
    }
}

/// The row of a name.
#[must_use]
pub fn topic_config(name: &str) -> Option<&'static TopicConfig> {
    TOPIC_CONFIGS.iter().find(|config| config.name == name)
}

const TIERED: &str = "corelane keeps all data on its own disk";
const LEVELS: &str = "corelane stores batches as the producer compressed them";
const ALONE: &str = "each partition has one replica, so there is no replication to slow down";

use Kind::{Boolean, Double, Int, List, Long, Text};

/// Every topic config, sorted by name.
pub const TOPIC_CONFIGS: &[TopicConfig] = &[
    TopicConfig::of("cleanup.policy", "log.cleanup.policy", List, "What becomes of old data: delete removes old segments, compact keeps the last record of each key; both may be given.")
        .allow(Allowed::OneOf(POLICIES)),
    TopicConfig::of("compression.gzip.level", "compression.gzip.level", Int, "Level for gzip when the broker compresses anew.").only("-1", LEVELS),
    TopicConfig::of("compression.lz4.level", "compression.lz4.level", Int, "Level for lz4 when the broker compresses anew.").only("9", LEVELS),
    TopicConfig::of("compression.type", "compression.type", Text, "How stored batches are compressed.")
        .allow(Allowed::OneOf(CODECS))
        .only("producer", LEVELS),
    TopicConfig::of("compression.zstd.level", "compression.zstd.level", Int, "Level for zstd when the broker compresses anew.").only("3", LEVELS),
    TopicConfig::of("corelane.durability", "corelane.durability", Text, "What acks=all waits for: disk or page-cache.")
        .allow(Allowed::OneOf(&["disk", "page-cache"])),
    TopicConfig::of("delete.retention.ms", "log.cleaner.delete.retention.ms", Long, "How long a compacted topic keeps the mark of a deleted key.").at_least(0),
    TopicConfig::alone("errors.deadletterqueue.group.enable", "false", Boolean, "Whether share groups may use the topic as a dead letter queue.")
        .only("false", "share groups are not served"),
    TopicConfig::of("file.delete.delay.ms", "log.segment.delete.delay.ms", Long, "How long the files of deleted segments, and of the topic when it is deleted, stay on disk.").at_least(0),
    TopicConfig::of("flush.messages", "log.flush.interval.messages", Long, "Most records of a partition that are not flushed; 1 makes acks=all wait for the disk. Group commit flushes sooner than larger values ask.").at_least(1),
    TopicConfig::of("flush.ms", "log.flush.interval.ms", Long, "Longest time that a record stays unflushed. Group commit flushes sooner than any value asks.").at_least(0),
    TopicConfig::alone("follower.replication.throttled.replicas", "", List, "Replicas whose copying is slowed down on the follower's side.").only("", ALONE),
    TopicConfig::of("index.interval.bytes", "log.index.interval.bytes", Int, "Bytes of a segment between two entries of its offset index.").at_least(0),
    TopicConfig::alone("internal.segment.bytes", "", Int, "For tests: like segment.bytes, without its lower bound; it wins.").at_least(1).internal(),
    TopicConfig::alone("leader.replication.throttled.replicas", "", List, "Replicas whose copying is slowed down on the leader's side.").only("", ALONE),
    TopicConfig::of("local.retention.bytes", "log.local.retention.bytes", Long, "Limit on local data of a tiered topic.").only("-2", TIERED),
    TopicConfig::of("local.retention.ms", "log.local.retention.ms", Long, "Limit on the age of local data of a tiered topic.").only("-2", TIERED),
    TopicConfig::of("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", Long, "A record stays uncompacted for at most this long.").at_least(1),
    TopicConfig::of("max.decompressed.message.bytes", "max.decompressed.message.bytes", Int, "Limit on the unpacked size of one record.")
        .only("2147483639", "corelane limits the unpacked size of whole batches: corelane.unpacked.batch.max.bytes"),
    TopicConfig::of("max.message.bytes", "message.max.bytes", Int, "Largest record batch that is accepted, as it is sent (compressed).").at_least(0),
    TopicConfig::of("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", Long, "A record whose timestamp is this far ahead of the broker's clock is refused.").at_least(0),
    TopicConfig::of("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", Long, "A record whose timestamp is this far behind the broker's clock is refused.").at_least(0),
    TopicConfig::of("message.timestamp.type", "log.message.timestamp.type", Text, "Whose clock a record's timestamp shows: CreateTime or LogAppendTime.")
        .allow(Allowed::OneOf(TIMESTAMP_TYPES)),
    TopicConfig::of("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", Double, "Share of not yet compacted bytes at which a log is compacted.")
        .allow(Allowed::Between(0, 1)),
    TopicConfig::of("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", Long, "A record stays uncompacted for at least this long.").at_least(0),
    TopicConfig::of("min.insync.replicas", "min.insync.replicas", Int, "Replicas that must hold a batch before acks=all is answered; more than 1 cannot be met by one broker.").at_least(1),
    TopicConfig::of("preallocate", "log.preallocate", Boolean, "Whether segments get their whole size at creation.")
        .only("false", "segments grow as data comes; the commit log, which decides latency, is always allocated ahead"),
    TopicConfig::of("remote.copy.lag.bytes", "log.remote.copy.lag.bytes", Long, "Wait before a segment is tiered, in bytes.").only("-1", TIERED),
    TopicConfig::of("remote.copy.lag.ms", "log.remote.copy.lag.ms", Long, "Wait before a segment is tiered.").only("0", TIERED),
    TopicConfig::alone("remote.log.copy.disable", "false", Boolean, "Whether a tiered topic stops copying.").only("false", TIERED),
    TopicConfig::alone("remote.log.delete.on.disable", "false", Boolean, "Whether tiered data goes when tiering is switched off.").only("false", TIERED),
    TopicConfig::alone("remote.storage.enable", "false", Boolean, "Whether the topic's old segments are kept elsewhere.").only("false", TIERED),
    TopicConfig::of("retention.bytes", "log.retention.bytes", Long, "Largest size of a partition before its oldest segments go; -1 means no limit."),
    TopicConfig::of("retention.ms", "log.retention.ms", Long, "How long segments are kept; -1 means no limit.").at_least(-1),
    TopicConfig::of("segment.bytes", "log.segment.bytes", Int, "Size at which a segment is closed and a new one begun.").at_least(1 << 20),
    TopicConfig::of("segment.index.bytes", "log.index.size.max.bytes", Int, "Largest size of an index file.").at_least(4),
    TopicConfig::of("segment.jitter.ms", "log.roll.jitter.ms", Long, "Largest random part taken off the age at which a segment is closed.").at_least(0),
    TopicConfig::of("segment.ms", "log.roll.ms", Long, "Age at which a segment is closed and a new one begun.").at_least(1),
    TopicConfig::of("unclean.leader.election.enable", "unclean.leader.election.enable", Boolean, "Whether a replica that lags may lead; with one replica both values mean the same."),
];

/// Whose clock a record's timestamp shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's.
    LogAppendTime,
}

/// What a topic's settings come to, ready for use on the append path.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    /// `cleanup.policy` has `compact`: null keys are refused.
    pub cleanup_compact: bool,
    /// `cleanup.policy` has `delete`.
    pub cleanup_delete: bool,
    /// What acks=all waits for: `corelane.durability`, or disk where `flush.messages` is 1.
    pub durability: Durability,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: i64,
    /// `flush.messages`.
    pub flush_messages: i64,
    /// `flush.ms`.
    pub flush_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `max.compaction.lag.ms`.
    pub max_compaction_lag_ms: i64,
    /// `max.message.bytes`: largest batch, its 12 bytes of offset and length included.
    pub max_message_bytes: usize,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `min.cleanable.dirty.ratio`, 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `min.insync.replicas`; above 1, acks=all is answered with NOT_ENOUGH_REPLICAS.
    pub min_insync_replicas: i32,
    /// `retention.bytes`; none means no limit.
    pub retention_bytes: Option<u64>,
    /// `retention.ms`; none means no limit.
    pub retention_ms: Option<i64>,
    /// `segment.bytes` (or `internal.segment.bytes`).
    pub segment_bytes: u64,
    /// `segment.index.bytes`.
    pub segment_index_bytes: u32,
    /// `segment.jitter.ms`, at most `segment.ms`.
    pub segment_jitter_ms: i64,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
}

/// Checks one config of a topic and returns its value in canonical spelling.
///
/// # Errors
/// Kafka's sentence, to go with INVALID_CONFIG.
pub fn validate(name: &str, value: &str) -> Result<String, String> {
    let config = topic_config(name).ok_or_else(|| format!("Unknown topic config name: {name}"))?;
    config
        .domain
        .canonical(value)
        .map_err(|why| format!("Invalid value {} for configuration {name}: {why}", value.trim()))
}

/// What a topic's settings come to on this broker.
///
/// # Errors
/// A sentence, to go with INVALID_CONFIG: a bad value or name, or values that contradict each other.
pub fn resolve(config: &Config, overrides: &Overrides) -> Result<TopicSettings, String> {
    resolve_on(config.values(), overrides)
}

pub(super) fn resolve_on(values: &Values, overrides: &Overrides) -> Result<TopicSettings, String> {
    for (name, value) in overrides {
        validate(name, value)?;
    }
    let settings = Reader { values, overrides }.settings();
    let (min, max) = (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms);
    if min > max {
        return Err(format!(
            "conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})"
        ));
    }
    // A batch must fit into half a file of the commit log, or a file could end up holding nothing else.
    let batch_bytes_max = values.size("corelane.log.file.bytes") / 2;
    if settings.max_message_bytes > batch_bytes_max {
        return Err(format!(
            "max.message.bytes ({}) is more than half of corelane.log.file.bytes: raise that setting and restart the broker",
            settings.max_message_bytes
        ));
    }
    Ok(settings)
}

/// What the settings of a topic that exists come to, whatever has been changed on the broker since it was checked.
///
/// What no longer can be served has the broker's value, and of two lags that contradict each other the smaller counts.
#[must_use]
pub fn settle(config: &Config, overrides: &Overrides) -> TopicSettings {
    let mut kept = overrides.clone();
    kept.retain(|name, value| validate(name, value).is_ok());
    let mut settings = Reader { values: config.values(), overrides: &kept }.settings();
    settings.min_compaction_lag_ms = settings.min_compaction_lag_ms.min(settings.max_compaction_lag_ms);
    settings
}

/// Reads checked values.
struct Reader<'a> {
    values: &'a Values,
    overrides: &'a Overrides,
}

impl Reader<'_> {
    fn settings(&self) -> TopicSettings {
        let policy = self.text("cleanup.policy");
        let flush_messages = self.long("flush.messages");
        let segment_ms = self.long("segment.ms");
        TopicSettings {
            cleanup_compact: list(&policy).any(|word| word == "compact"),
            cleanup_delete: list(&policy).any(|word| word == "delete"),
            durability: if flush_messages == 1 { Durability::Disk } else { self.durability() },
            delete_retention_ms: self.long("delete.retention.ms"),
            file_delete_delay_ms: self.long("file.delete.delay.ms"),
            flush_messages,
            flush_ms: self.long("flush.ms"),
            index_interval_bytes: self.unsigned("index.interval.bytes"),
            max_compaction_lag_ms: self.long("max.compaction.lag.ms"),
            max_message_bytes: self.unsigned("max.message.bytes"),
            timestamp_after_max_ms: self.long("message.timestamp.after.max.ms"),
            timestamp_before_max_ms: self.long("message.timestamp.before.max.ms"),
            timestamp_type: self.timestamp_type(),
            min_cleanable_dirty_ratio: self.text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
            min_compaction_lag_ms: self.long("min.compaction.lag.ms"),
            min_insync_replicas: self.unsigned("min.insync.replicas"),
            retention_bytes: u64::try_from(self.long("retention.bytes")).ok(),
            retention_ms: Some(self.long("retention.ms")).filter(|ms| *ms >= 0),
            segment_bytes: self.segment_bytes(),
            segment_index_bytes: self.unsigned("segment.index.bytes"),
            segment_jitter_ms: self.long("segment.jitter.ms").min(segment_ms),
            segment_ms,
            unclean_leader_election: self.text("unclean.leader.election.enable") == "true",
        }
    }

    fn text(&self, name: &str) -> String {
        match self.overrides.get(name) {
            Some(value) => value.trim().to_owned(),
            None => topic_config(name).map(|config| config.inherited(self.values)).unwrap_or_default(),
        }
    }

    fn long(&self, name: &str) -> i64 {
        let text = self.text(name);
        text.parse().unwrap_or_else(|_| panic!("{name} = {text:?} is no number: the tables contradict each other"))
    }

    /// A number whose row has a lower bound that fits the type.
    fn unsigned<N: TryFrom<i64>>(&self, name: &str) -> N {
        let number = self.long(name);
        N::try_from(number).unwrap_or_else(|_| panic!("{name} = {number} does not fit: its row needs narrower bounds"))
    }

    fn durability(&self) -> Durability {
        Durability::from_word(&self.text("corelane.durability"))
    }

    fn timestamp_type(&self) -> TimestampType {
        match self.text("message.timestamp.type").as_str() {
            "LogAppendTime" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        }
    }

    fn segment_bytes(&self) -> u64 {
        let name = "internal.segment.bytes";
        self.unsigned(if self.overrides.contains_key(name) { name } else { "segment.bytes" })
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::setting;
    use super::*;

    fn overrides(pairs: &[(&str, &str)]) -> Overrides {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn rows_are_sorted_and_agree_with_the_broker_settings() {
        assert!(TOPIC_CONFIGS.is_sorted_by(|a, b| a.name < b.name), "sorted by name, each once");
        for config in TOPIC_CONFIGS {
            let inherited = config.inherited(&Values::default());
            if !config.internal {
                assert_eq!(config.domain.canonical(&inherited), Ok(inherited.clone()), "{}", config.name);
            }
            if let Some(broker) = config.broker {
                let broker = setting(broker).unwrap_or_else(|| panic!("{} comes from no setting", config.name));
                assert_eq!(broker.domain.kind, config.domain.kind, "{}", config.name);
                assert_eq!(broker.domain.only, config.domain.only, "{}", config.name);
            }
        }
    }

    #[test]
    fn defaults_are_kafkas() {
        let settings = resolve_on(&Values::default(), &Overrides::new()).unwrap();
        assert!(settings.cleanup_delete && !settings.cleanup_compact);
        assert_eq!(settings.retention_ms, Some(604_800_000));
        assert_eq!(settings.retention_bytes, None);
        assert_eq!((settings.segment_bytes, settings.segment_ms), (1 << 30, 604_800_000));
        assert_eq!(settings.max_message_bytes, 1_048_588);
        assert_eq!(settings.durability, Durability::Disk);
    }

    #[test]
    fn overrides_win_and_contradictions_are_refused() {
        let set = overrides(&[
            ("cleanup.policy", "compact,delete"),
            ("retention.ms", "-1"),
            ("segment.jitter.ms", "99999999999"),
        ]);
        let settings = resolve_on(&Values::default(), &set).unwrap();
        assert!(settings.cleanup_compact && settings.cleanup_delete);
        assert_eq!((settings.retention_ms, settings.segment_jitter_ms), (None, settings.segment_ms));
        let lags = overrides(&[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]);
        assert!(resolve_on(&Values::default(), &lags).unwrap_err().starts_with("conflict topic config setting"));
    }

    #[test]
    fn flush_every_message_means_disk() {
        let set = overrides(&[("flush.messages", "1"), ("corelane.durability", "page-cache")]);
        assert_eq!(resolve_on(&Values::default(), &set).unwrap().durability, Durability::Disk);
        let set = overrides(&[("corelane.durability", "page-cache")]);
        assert_eq!(resolve_on(&Values::default(), &set).unwrap().durability, Durability::PageCache);
    }

    #[test]
    fn refusals_are_kafkas_sentences() {
        let refused = |name, value| validate(name, value).unwrap_err();
        assert_eq!(refused("nosuch", "1"), "Unknown topic config name: nosuch");
        assert_eq!(
            refused("segment.bytes", "100"),
            "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576"
        );
        assert_eq!(
            refused("retention.ms", "1.5"),
            "Invalid value 1.5 for configuration retention.ms: Not a number of type LONG"
        );
        assert_eq!(
            refused("cleanup.policy", "foo"),
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"
        );
        assert!(refused("compression.type", "gzip").contains("only producer is served"));
        assert!(refused("remote.storage.enable", "true").contains("only false is served"));
    }
}
