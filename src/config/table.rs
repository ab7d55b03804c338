//! The broker's settings: one row each, with name, type, default, allowed values and what it is for.
//!
//! A name without `corelane.` in front is Apache Kafka's and means what it means there, with Kafka's default.

use super::value::{Allowed, Domain, Kind, Only};

/// One setting of the broker.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name, as in the file and after `--set`.
    pub name: &'static str,
    /// Type and allowed values.
    pub domain: Domain,
    /// Value where nobody sets it; none means: unset.
    pub default: Option<&'static str>,
    /// Whether IncrementalAlterConfigs may change it while the broker runs.
    pub dynamic: bool,
    /// Whether DescribeConfigs leaves it out, as Kafka leaves out its internal settings.
    pub internal: bool,
    /// What it is for, in a sentence or two.
    pub doc: &'static str,
}

impl Setting {
    const fn new(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Self {
        let domain = Domain { kind, allowed: Allowed::Any, only: None };
        Self { name, domain, default, dynamic: false, internal: false, doc }
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

    const fn dynamic(mut self) -> Self {
        self.dynamic = true;
        self
    }

    const fn internal(mut self) -> Self {
        self.internal = true;
        self
    }
}

/// The row of a name.
#[must_use]
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// A setting that can be given in several units: the first that is set counts, in the unit of the first.
///
/// Source: apache/kafka `DynamicBrokerConfig.brokerConfigSynonyms`.
pub struct Family(pub &'static [(&'static str, i64)]);

/// Every such family, finest unit first, with the factor to it.
pub const FAMILIES: &[Family] = &[
    Family(&[("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)]),
    Family(&[("log.roll.ms", 1), ("log.roll.hours", 3_600_000)]),
    Family(&[("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)]),
    Family(&[("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)]),
];

/// The family that a setting belongs to.
#[must_use]
pub fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.0.iter().any(|(member, _)| *member == name))
}

const TIERED: &str = "corelane keeps all data on its own disk";
const LEVELS: &str = "corelane stores batches as the producer compressed them";
const FOREVER: &str = "9223372036854775807";

use Kind::{Boolean, Double, Int, List, Long, Short, Text};

/// Every served setting, sorted by name.
pub const SETTINGS: &[Setting] = &[
    Setting::new(
        "advertised.listeners",
        List,
        None,
        "The address that clients are told to connect to, as PLAINTEXT://host:port; unset means the address of `listeners`. The flag --advertise sets it.",
    ),
    Setting::new(
        "auto.create.topics.enable",
        Boolean,
        Some("true"),
        "Whether asking for an unknown topic in Metadata creates it.",
    ),
    Setting::new(
        "broker.id",
        Int,
        Some("-1"),
        "Older name of `node.id`; where both are set they must agree. -1 means unset.",
    )
    .at_least(-1),
    Setting::new("compression.gzip.level", Int, Some("-1"), "Kafka's level for gzip when the broker compresses anew.")
        .only("-1", LEVELS)
        .dynamic(),
    Setting::new("compression.lz4.level", Int, Some("9"), "Kafka's level for lz4 when the broker compresses anew.")
        .only("9", LEVELS)
        .dynamic(),
    Setting::new("compression.type", Text, Some("producer"), "How stored batches are compressed.")
        .allow(Allowed::OneOf(CODECS))
        .only("producer", LEVELS)
        .dynamic(),
    Setting::new("compression.zstd.level", Int, Some("3"), "Kafka's level for zstd when the broker compresses anew.")
        .only("3", LEVELS)
        .dynamic(),
    Setting::new(
        "connections.max.idle.ms",
        Long,
        Some("600000"),
        "A connection on which nothing arrives for this long is closed.",
    )
    .at_least(1),
    Setting::new(
        "controller.listener.names",
        List,
        Some(""),
        "Entries of `listeners` with one of these names are skipped: they belong to Kafka's controller, which corelane does not need.",
    ),
    Setting::new(
        "corelane.checkpoint.interval.ms",
        Long,
        Some("60000"),
        "A shard writes a checkpoint at least this often while it appends; half a commit log brings one sooner.",
    )
    .at_least(100),
    Setting::new("corelane.checkpoint.producers.step", Int, Some("1024"), "For tests: producers that a checkpoint takes from a partition before other tasks run; 1024 take about 50 µs.")
        .at_least(1)
        .internal(),
    Setting::new(
        "corelane.commit",
        Text,
        Some("auto"),
        "How a group is written to the commit log: inline blocks the core for the write, ring goes through io_uring, auto takes whichever is faster on this device.",
    )
    .allow(Allowed::OneOf(&["auto", "inline", "ring"])),
    Setting::new(
        "corelane.cores",
        Int,
        None,
        "Number of cores to use, one shard each; unset means all. The flag --cores sets it.",
    )
    .allow(Allowed::Between(1, 1024)),
    Setting::new(
        "corelane.durability",
        Text,
        Some("disk"),
        "What acks=all waits for: disk (survives a power failure) or page-cache (survives a crash of the broker, as Kafka's default). Topics may differ.",
    )
    .allow(Allowed::OneOf(&["disk", "page-cache"]))
    .dynamic(),
    Setting::new(
        "corelane.log",
        Text,
        Some("info"),
        "Which log lines go to standard error: a level (error, warn, info, debug) or a list of target=level.",
    ),
    Setting::new(
        "corelane.log.file.bytes",
        Long,
        Some("67108864"),
        "Size of one file of a shard's commit log; smaller where the file system is small.",
    )
    .allow(Allowed::Between(1 << 20, 1 << 34)),
    Setting::new("corelane.log.file.used.bytes", Long, Some("17179869184"), "For tests: so much of a file of the commit log is used before the next one is begun.")
        .at_least(1 << 16)
        .internal(),
    Setting::new(
        "corelane.log.files.max",
        Int,
        Some("8"),
        "Most files in a shard's commit log; when all hold data that no checkpoint covers yet, produce waits.",
    )
    .allow(Allowed::Between(2, 1024)),
    Setting::new(
        "corelane.memory.budget.bytes",
        Long,
        Some("67108864"),
        "Memory that requests in progress may take, per shard; beyond it connections are not read until some are answered. Fetched records on their way to clients may take as much again; beyond that fetches are answered with less.",
    )
    .at_least(1 << 20),
    Setting::new(
        "corelane.producers.max",
        Int,
        Some("1000000"),
        "Most producers whose last batches a shard remembers, counted per partition; the least recently used is forgotten first.",
    )
    .at_least(1),
    Setting::new(
        "corelane.spin.us",
        Int,
        Some("0"),
        "How long an idle core looks for work before it sleeps, in microseconds: lower latency for more power.",
    )
    .allow(Allowed::Between(0, 1_000_000)),
    Setting::new(
        "corelane.tail.cache.bytes",
        Long,
        Some("268435456"),
        "Memory for the newest batches, from which consumers that keep up are served, per shard; taken as data comes, not at the start.",
    )
    .at_least(0),
    Setting::new(
        "corelane.transactions.enable",
        Boolean,
        Some("true"),
        "Whether transactional ids are served; without, they are answered with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and producers are idempotent at most.",
    ),
    Setting::new(
        "corelane.unpacked.batch.max.bytes",
        Long,
        Some("268435456"),
        "A compressed batch that unpacks to more than this is refused with INVALID_RECORD.",
    )
    .at_least(1024),
    Setting::new(
        "default.replication.factor",
        Int,
        Some("1"),
        "Replication factor of topics that are created without one; more than 1 cannot be met by one broker and is refused at creation, as by Kafka.",
    )
    .allow(Allowed::Between(1, 32767)),
    Setting::new("delete.topic.enable", Boolean, Some("true"), "Whether topics can be deleted."),
    Setting::new(
        "fetch.max.bytes",
        Int,
        Some("57671680"),
        "Most bytes in the answer to one fetch; the first batch is sent whole even if it is larger.",
    )
    .at_least(1024),
    Setting::new("group.initial.rebalance.delay.ms", Int, Some("3000"), "How long the first round of an empty group waits for more members; each that comes prolongs it by as much, up to the longest rebalance time-out of them."),
    Setting::new("group.max.session.timeout.ms", Int, Some("1800000"), "Longest session time-out that a member may ask for."),
    Setting::new("group.max.size", Int, Some("2147483647"), "Most members of one group.").at_least(1),
    Setting::new("group.min.session.timeout.ms", Int, Some("6000"), "Shortest session time-out that a member may ask for."),
    Setting::new(
        "listener.security.protocol.map",
        Text,
        Some("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "Which protocol each name in `listeners` speaks, as NAME:PROTOCOL pairs; PLAINTEXT is served.",
    ),
    Setting::new(
        "listeners",
        List,
        Some("PLAINTEXT://127.0.0.1:9092"),
        "The address to listen on, as PLAINTEXT://host:port; an empty host means every interface, port 0 a free port. The flag --listen sets it.",
    ),
    Setting::new(
        "log.cleaner.backoff.ms",
        Long,
        Some("15000"),
        "How long compaction sleeps when there is nothing to do.",
    )
    .at_least(0)
    .dynamic(),
    Setting::new(
        "log.cleaner.dedupe.buffer.size",
        Long,
        Some("134217728"),
        "Memory for the keys of a round of compaction, of all shards together: 24 bytes a key, taken while a round runs. A log with more dirty keys is compacted in several rounds.",
    )
    .at_least(4096)
    .dynamic(),
    Setting::new(
        "log.cleaner.delete.retention.ms",
        Long,
        Some("86400000"),
        "How long a compacted topic keeps the mark of a deleted key.",
    )
    .at_least(0)
    .dynamic(),
    Setting::new(
        "log.cleaner.enable",
        Boolean,
        Some("true"),
        "Whether compacted topics are compacted. Without it, topics like `__consumer_offsets` grow for ever.",
    ),
    Setting::new(
        "log.cleaner.io.buffer.load.factor",
        Double,
        Some("0.9"),
        "How full the memory for keys may become; fuller means more keys in a round, and slower look-ups.",
    )
    .allow(Allowed::Between(0, 1))
    .dynamic(),
    Setting::new(
        "log.cleaner.io.max.bytes.per.second",
        Double,
        Some("1.7976931348623157E308"),
        "Most bytes that compaction reads and writes in a second, on each shard.",
    )
    .dynamic(),
    Setting::new(
        "log.cleaner.max.compaction.lag.ms",
        Long,
        Some(FOREVER),
        "A record of a compacted topic stays uncompacted for at most this long.",
    )
    .at_least(1)
    .dynamic(),
    Setting::new(
        "log.cleaner.min.cleanable.ratio",
        Double,
        Some("0.5"),
        "Share of not yet compacted bytes at which a log is compacted.",
    )
    .allow(Allowed::Between(0, 1))
    .dynamic(),
    Setting::new(
        "log.cleaner.min.compaction.lag.ms",
        Long,
        Some("0"),
        "A record of a compacted topic stays uncompacted for at least this long.",
    )
    .at_least(0)
    .dynamic(),
    Setting::new(
        "log.cleaner.threads",
        Int,
        Some("1"),
        "Kafka's number of threads that compact.",
    )
    .only("1", "each core compacts the partitions that it owns, beside its other work")
    .dynamic(),
    Setting::new(
        "log.cleanup.policy",
        List,
        Some("delete"),
        "What becomes of old data: delete removes old segments, compact keeps the last record of each key; both may be given.",
    )
    .allow(Allowed::OneOf(POLICIES))
    .dynamic(),
    Setting::new("log.dir", List, Some("./corelane-data"), "The data folder, where `log.dirs` is unset."),
    Setting::new("log.dirs", List, None, "The data folder; exactly one. The flag --data-dir sets it."),
    Setting::new(
        "log.flush.interval.messages",
        Long,
        Some(FOREVER),
        "Most records of a partition that are not flushed; 1 makes acks=all wait for the disk whatever `corelane.durability` says. Group commit flushes sooner than larger values ask.",
    )
    .at_least(1)
    .dynamic(),
    Setting::new(
        "log.flush.interval.ms",
        Long,
        None,
        "Longest time that a record stays unflushed. Group commit flushes sooner than any value asks.",
    )
    .at_least(0)
    .dynamic(),
    Setting::new(
        "log.flush.scheduler.interval.ms",
        Long,
        Some(FOREVER),
        "Stands for `log.flush.interval.ms` where that is unset.",
    )
    .at_least(0),
    Setting::new(
        "log.index.interval.bytes",
        Int,
        Some("4096"),
        "Bytes of a segment between two entries of its offset index.",
    )
    .at_least(0)
    .dynamic(),
    Setting::new("log.index.size.max.bytes", Int, Some("10485760"), "Largest size of an index file.")
        .at_least(4)
        .dynamic(),
    Setting::new("log.local.retention.bytes", Long, Some("-2"), "Kafka's limit on local data of tiered topics.")
        .only("-2", TIERED)
        .dynamic(),
    Setting::new("log.local.retention.ms", Long, Some("-2"), "Kafka's limit on the age of local data of tiered topics.")
        .only("-2", TIERED)
        .dynamic(),
    Setting::new(
        "log.message.timestamp.after.max.ms",
        Long,
        Some("3600000"),
        "A record whose timestamp is this far ahead of the broker's clock is refused.",
    )
    .at_least(0)
    .dynamic(),
    Setting::new(
        "log.message.timestamp.before.max.ms",
        Long,
        Some(FOREVER),
        "A record whose timestamp is this far behind the broker's clock is refused.",
    )
    .at_least(0)
    .dynamic(),
    Setting::new(
        "log.message.timestamp.type",
        Text,
        Some("CreateTime"),
        "Whose clock a record's timestamp shows: the producer's (CreateTime) or the broker's (LogAppendTime).",
    )
    .allow(Allowed::OneOf(TIMESTAMP_TYPES))
    .dynamic(),
    Setting::new("log.preallocate", Boolean, Some("false"), "Whether segments get their whole size at creation.")
        .only("false", "segments grow as data comes; the commit log, which decides latency, is always allocated ahead")
        .dynamic(),
    Setting::new("log.remote.copy.lag.bytes", Long, Some("-1"), "Kafka's wait before a segment is tiered, in bytes.")
        .only("-1", TIERED)
        .dynamic(),
    Setting::new("log.remote.copy.lag.ms", Long, Some("0"), "Kafka's wait before a segment is tiered.")
        .only("0", TIERED)
        .dynamic(),
    Setting::new("log.retention.bytes", Long, Some("-1"), "Largest size of a partition before its oldest segments go; -1 means no limit.")
        .dynamic(),
    Setting::new("log.retention.check.interval.ms", Long, Some("300000"), "How often old segments are looked for.")
        .at_least(1),
    Setting::new("log.retention.hours", Int, Some("168"), "How long segments are kept, in hours, where neither `log.retention.ms` nor `log.retention.minutes` is set; -1 means no limit."),
    Setting::new("log.retention.minutes", Int, None, "How long segments are kept, in minutes, where `log.retention.ms` is unset; -1 means no limit."),
    Setting::new("log.retention.ms", Long, None, "How long segments are kept; -1 means no limit.").dynamic(),
    Setting::new("log.roll.hours", Int, Some("168"), "Age at which a segment is closed, in hours, where `log.roll.ms` is unset.")
        .at_least(1),
    Setting::new("log.roll.jitter.hours", Int, Some("0"), "Largest random part taken off the age at which a segment is closed, in hours, where `log.roll.jitter.ms` is unset.")
        .at_least(0),
    Setting::new("log.roll.jitter.ms", Long, None, "Largest random part taken off the age at which a segment is closed.")
        .at_least(0)
        .dynamic(),
    Setting::new("log.roll.ms", Long, None, "Age at which a segment is closed and a new one begun.").at_least(1).dynamic(),
    Setting::new("log.segment.bytes", Int, Some("1073741824"), "Size at which a segment is closed and a new one begun.")
        .at_least(1 << 20)
        .dynamic(),
    Setting::new("log.segment.delete.delay.ms", Long, Some("60000"), "How long the files of deleted segments and topics stay on disk, for readers that are still on them.")
        .at_least(0)
        .dynamic(),
    Setting::new("max.connections", Int, Some("2147483647"), "Most connections at a time; a further one waits until one is closed.")
        .at_least(0)
        .dynamic(),
    Setting::new("max.decompressed.message.bytes", Int, Some("2147483639"), "Kafka's limit on the unpacked size of one record.")
        .only("2147483639", "corelane limits the unpacked size of whole batches: corelane.unpacked.batch.max.bytes")
        .dynamic(),
    Setting::new(
        "max.incremental.fetch.session.cache.slots",
        Int,
        Some("1000"),
        "Most fetch sessions, over all cores; a client for which there is none asks for everything in each fetch.",
    )
    .at_least(0),
    Setting::new("message.max.bytes", Int, Some("1048588"), "Largest record batch that is accepted, as it is sent (compressed).")
        .at_least(0)
        .dynamic(),
    Setting::new("min.insync.replicas", Int, Some("1"), "Replicas that must hold a batch before acks=all is answered; more than 1 cannot be met by one broker: NOT_ENOUGH_REPLICAS, as Kafka answers.")
        .at_least(1)
        .dynamic(),
    Setting::new("node.id", Int, Some("1"), "Number of this broker.").at_least(0),
    Setting::new("num.partitions", Int, Some("1"), "Number of partitions of topics that are created without one.").at_least(1),
    Setting::new("offset.metadata.max.bytes", Int, Some("4096"), "Longest text that a client may keep beside a committed offset.")
        .at_least(0),
    Setting::new("offsets.commit.timeout.ms", Int, Some("5000"), "How long a commit of offsets waits for the disk before it is answered with COORDINATOR_NOT_AVAILABLE, which clients try again.")
        .at_least(1),
    Setting::new("offsets.load.buffer.size", Int, Some("5242880"), "Bytes of `__consumer_offsets` that are read at a time at the start.")
        .at_least(1),
    Setting::new("offsets.retention.check.interval.ms", Long, Some("600000"), "How often committed offsets are looked for that nobody wants any more.")
        .at_least(1),
    Setting::new("offsets.retention.minutes", Int, Some("10080"), "How long the offsets of a group without members are kept, in minutes.")
        .at_least(1),
    Setting::new("offsets.topic.compression.codec", Int, Some("0"), "How the broker's own batches in `__consumer_offsets` are compressed: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.")
        .allow(Allowed::Between(0, 4)),
    Setting::new("offsets.topic.num.partitions", Int, Some("50"), "Partitions of `__consumer_offsets` when it is made; later changes do not count.")
        .at_least(1),
    Setting::new("offsets.topic.replication.factor", Short, Some("1"), "Replicas of `__consumer_offsets`, of which this one broker always keeps one: any number is accepted, so that the file of a larger cluster is, too.")
        .at_least(1),
    Setting::new("offsets.topic.segment.bytes", Int, Some("104857600"), "Segment size of `__consumer_offsets` when it is made.")
        .at_least(1 << 20),
    Setting::new("producer.id.expiration.check.interval.ms", Int, Some("600000"), "How often idle producers are looked for.")
        .at_least(1)
        .internal(),
    Setting::new("producer.id.expiration.ms", Int, Some("86400000"), "A producer that has been idle for this long is forgotten by the partition.")
        .at_least(1)
        .dynamic(),
    Setting::new("socket.request.max.bytes", Int, Some("104857600"), "Largest request; a connection that announces a larger one is closed.")
        .at_least(1),
    Setting::new("transaction.abort.timed.out.transaction.cleanup.interval.ms", Int, Some("10000"), "How often transactions are looked for that have been open for longer than their producers asked for; they are aborted.")
        .at_least(1),
    Setting::new("transaction.max.timeout.ms", Int, Some("900000"), "Longest time-out that a producer may ask for its transactions.")
        .at_least(1),
    Setting::new("transaction.partition.verification.enable", Boolean, Some("true"), "Whether a partition asks before the first batch of a transaction of older producers (Produce up to version 11) if it was added to it; newer ones are always asked about."),
    Setting::new("transaction.remove.expired.transaction.cleanup.interval.ms", Int, Some("3600000"), "How often transactional ids are looked for that nobody uses any more.")
        .at_least(1),
    Setting::new("transaction.state.log.load.buffer.size", Int, Some("5242880"), "Bytes of `__transaction_state` that are read at a time at the start.")
        .at_least(1),
    Setting::new("transaction.state.log.min.isr", Int, Some("1"), "Replicas that must hold a record of `__transaction_state`, of which this one broker always keeps one: any number is accepted.")
        .at_least(1),
    Setting::new("transaction.state.log.num.partitions", Int, Some("50"), "Partitions of `__transaction_state` when it is made; later changes do not count.")
        .at_least(1),
    Setting::new("transaction.state.log.replication.factor", Short, Some("1"), "Replicas of `__transaction_state`, of which this one broker always keeps one: any number is accepted, so that the file of a larger cluster is, too.")
        .at_least(1),
    Setting::new("transaction.state.log.segment.bytes", Int, Some("104857600"), "Segment size of `__transaction_state` when it is made.")
        .at_least(1 << 20),
    Setting::new("transaction.two.phase.commit.enable", Boolean, Some("false"), "Whether transactions may be prepared by the client and ended by somebody else.")
        .only("false", "two-phase commit of clients is not served"),
    Setting::new("transactional.id.expiration.ms", Int, Some("604800000"), "A transactional id that nobody has used for this long, and that has no open transaction, is forgotten.")
        .at_least(1),
    Setting::new("unclean.leader.election.enable", Boolean, Some("false"), "Whether a replica that lags may lead a partition; with one replica there is nothing to elect, so both values mean the same.")
        .dynamic(),
];

/// Words of `compression.type`.
pub(super) const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
/// Words of `cleanup.policy`.
pub(super) const POLICIES: &[&str] = &["compact", "delete"];
/// Words of `message.timestamp.type`.
pub(super) const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_defaults_are_allowed() {
        assert!(SETTINGS.is_sorted_by(|a, b| a.name < b.name), "sorted by name, each once");
        for setting in SETTINGS {
            if let Some(default) = setting.default {
                assert_eq!(setting.domain.canonical(default).as_deref(), Ok(default), "{}", setting.name);
            }
        }
    }
}
