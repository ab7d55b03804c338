//! One pinned glommio executor per shard: start, stop, what a panic does.

use std::future::Future;
use std::time::Duration;

use super::host::Queue;

pub(super) fn spawn(_queue: Queue, task: impl Future<Output = ()> + 'static) {
    glommio::spawn_local(task).detach();
}

pub(super) async fn sleep(duration: Duration) {
    glommio::timer::sleep(duration).await;
}
