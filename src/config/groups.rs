//! The settings of consumer groups and of `__consumer_offsets`.

use super::origin::Values;

/// What coordinators heed; each field names the setting it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`.
    pub members_max: i32,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_bytes_max: usize,
    /// `offsets.commit.timeout.ms`.
    pub commit_timeout_ms: u64,
    /// `offsets.load.buffer.size`.
    pub load_bytes: usize,
    /// `offsets.retention.check.interval.ms`.
    pub retention_check_interval_ms: u64,
    /// `offsets.retention.minutes`, in ms.
    pub retention_ms: i64,
    /// `offsets.topic.compression.codec`, as the number in a batch's attributes.
    pub codec: i16,
    /// `offsets.topic.num.partitions`.
    pub topic_partitions: i32,
    /// `offsets.topic.segment.bytes`.
    pub topic_segment_bytes: i32,
}

impl GroupConfig {
    pub(super) fn of(values: &Values) -> Self {
        let wait = |name| u64::try_from(values.long(name)).unwrap_or(0);
        Self {
            session_timeout_ms_min: values.int("group.min.session.timeout.ms"),
            session_timeout_ms_max: values.int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms: values.int("group.initial.rebalance.delay.ms"),
            members_max: values.int("group.max.size"),
            offset_metadata_bytes_max: values.size("offset.metadata.max.bytes"),
            commit_timeout_ms: wait("offsets.commit.timeout.ms"),
            load_bytes: values.size("offsets.load.buffer.size"),
            retention_check_interval_ms: wait("offsets.retention.check.interval.ms"),
            retention_ms: values.long("offsets.retention.minutes").saturating_mul(60_000),
            codec: i16::try_from(values.int("offsets.topic.compression.codec")).unwrap_or(0),
            topic_partitions: values.int("offsets.topic.num.partitions"),
            topic_segment_bytes: values.int("offsets.topic.segment.bytes"),
        }
    }
}
