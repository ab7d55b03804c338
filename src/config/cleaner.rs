//! The settings of compaction that are the broker's and not a topic's.

use super::origin::Values;

/// What compaction heeds; each field names the setting it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanerConfig {
    /// `log.cleaner.enable`.
    pub is_enabled: bool,
    /// `log.cleaner.backoff.ms`.
    pub backoff_ms: u64,
    /// `log.cleaner.dedupe.buffer.size`, of all shards together.
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`.
    pub load_factor: f64,
    /// `log.cleaner.io.max.bytes.per.second`, of each shard.
    pub io_bytes_per_second: f64,
}

impl CleanerConfig {
    pub(super) fn of(values: &Values) -> Self {
        let decimal = |name, otherwise| values.text(name).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
        Self {
            is_enabled: values.flag("log.cleaner.enable"),
            backoff_ms: u64::try_from(values.long("log.cleaner.backoff.ms")).unwrap_or(0),
            dedupe_buffer_bytes: values.size("log.cleaner.dedupe.buffer.size"),
            load_factor: decimal("log.cleaner.io.buffer.load.factor", 0.9),
            io_bytes_per_second: decimal("log.cleaner.io.max.bytes.per.second", f64::MAX),
        }
    }
}
