//! Time, in two kinds: the wall clock for what is written down, the monotonic clock for waiting.

use std::time::Duration;

use super::host;

/// Milliseconds since 1970, as Kafka writes timestamps.
#[must_use]
pub fn now_ms() -> i64 {
    host::wall_ms()
}

/// Time since some fixed moment; never goes back.
#[must_use]
pub fn monotonic() -> Duration {
    host::monotonic()
}

/// The same in whole milliseconds.
#[must_use]
pub fn uptime_ms() -> u64 {
    u64::try_from(monotonic().as_millis()).unwrap_or(u64::MAX)
}

/// Waits for `duration`.
pub async fn sleep(duration: Duration) {
    host::sleep(duration).await;
}
