//! The settings of transactions and of `__transaction_state`.

use super::origin::Values;

/// What coordinators of transactions heed; each field names the setting it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionConfig {
    /// `corelane.transactions.enable`.
    pub enable: bool,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
    pub time_out_check_interval_ms: u64,
    /// `transaction.max.timeout.ms`.
    pub timeout_ms_max: i32,
    /// `transaction.partition.verification.enable`.
    pub partition_verification: bool,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`.
    pub expiration_check_interval_ms: u64,
    /// `transaction.state.log.load.buffer.size`.
    pub load_bytes: usize,
    /// `transaction.state.log.num.partitions`.
    pub topic_partitions: i32,
    /// `transaction.state.log.segment.bytes`.
    pub topic_segment_bytes: i32,
    /// `transactional.id.expiration.ms`.
    pub expiration_ms: i64,
}

impl TransactionConfig {
    pub(super) fn of(values: &Values) -> Self {
        let wait = |name| u64::try_from(values.int(name)).unwrap_or(0);
        Self {
            enable: values.flag("corelane.transactions.enable"),
            time_out_check_interval_ms: wait("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            timeout_ms_max: values.int("transaction.max.timeout.ms"),
            partition_verification: values.flag("transaction.partition.verification.enable"),
            expiration_check_interval_ms: wait("transaction.remove.expired.transaction.cleanup.interval.ms"),
            load_bytes: values.size("transaction.state.log.load.buffer.size"),
            topic_partitions: values.int("transaction.state.log.num.partitions"),
            topic_segment_bytes: values.int("transaction.state.log.segment.bytes"),
            expiration_ms: values.int("transactional.id.expiration.ms").into(),
        }
    }
}
