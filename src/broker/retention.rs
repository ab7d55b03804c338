//! Retention on the owning core: looks for segments that are too old or too many, and moves the log start over them.
//!
//! What goes is decided in [`crate::state::retention`]; how it goes is the way of every log start (`log_start.rs`): durable
//! in the commit log, then seen by clients, then the files. None of it needs free space, so that a full disk heals.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::partition::Partition;
use super::shard::Shard;
use crate::config::TopicSettings;
use crate::ids::Offset;
use crate::log::segment::Segment;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host;
use crate::state::retention::{Bounds, Candidate, Decision, Limits, decide};

/// The longest time to the first look, so that a broker that is started often looks at all.
///
/// Source: apache/kafka `log.initial.task.delay.ms`.
const FIRST_LOOK: Duration = Duration::from_secs(30);
/// Partitions looked at before other tasks run.
const LOOKED_AT_IN_A_ROW: usize = 16;

impl<D: Disk> Shard<D> {
    /// Looks each `log.retention.check.interval.ms`, as long as the shard runs.
    pub(super) async fn keep_retention(self: Rc<Self>) {
        let interval = Duration::from_millis(self.config().retention_check_interval_ms);
        clock::sleep(interval.min(FIRST_LOOK)).await;
        while !self.is_stopping() {
            self.retain_all().await;
            clock::sleep(interval).await;
        }
    }

    async fn retain_all(self: &Rc<Self>) {
        for (at, partition) in self.all_partitions().iter().enumerate() {
            match self.retain(partition).await {
                // Somebody deletes it at this moment; the next look sees what is left.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("{}: cannot see how old its data is: {error}", partition.name);
                }
                _ => {}
            }
            if at % LOOKED_AT_IN_A_ROW == LOOKED_AT_IN_A_ROW - 1 {
                host::yield_now().await;
            }
        }
    }

    async fn retain(self: &Rc<Self>, partition: &Rc<Partition<D>>) -> io::Result<()> {
        while !partition.is_closed() && !self.is_stopping() {
            let Some(limits) = self.limits_of(partition) else { return Ok(()) };
            let asked = {
                let log = partition.log.borrow();
                let candidates: Vec<_> = log.segments().iter().map(|segment| candidate(segment)).collect();
                let bounds = bounds_of(partition, log.end());
                match decide(&candidates, &bounds, &limits, clock::now_ms()) {
                    Decision::Keep => return Ok(()),
                    Decision::HowOld(at) => Ok(Rc::clone(&log.segments()[at])),
                    Decision::BeginAt(start) => Err(start),
                }
            };
            match asked {
                Ok(segment) => _ = segment.newest_ms().await?,
                Err(start) => {
                    self.begin_at(partition, start);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// `None` for a topic that has been deleted meanwhile.
    fn limits_of(&self, partition: &Partition<D>) -> Option<Limits> {
        let catalog = self.catalog();
        catalog.topic_by_id(partition.key.topic).map(|topic| limits(&topic.settings))
    }

    fn begin_at(self: &Rc<Self>, partition: &Rc<Partition<D>>, start: Offset) {
        let before = partition.planned_start();
        if start <= before {
            // An earlier attempt moved the start and could not begin a segment or rename the files.
            self.begin_segment_behind(partition, start);
            if partition.log_start() >= start {
                self.remove_below_start(partition);
            }
        } else if self.move_log_start(partition, start).is_ok() {
            tracing::info!("{}: too old or too large, the log begins at {start} instead of {before}", partition.name);
        }
    }
}

/// With a policy that does not delete, only what lies below the log start goes.
fn limits(settings: &TopicSettings) -> Limits {
    if settings.cleanup_delete {
        Limits { bytes: settings.retention_bytes, age_ms: settings.retention_ms }
    } else {
        Limits::default()
    }
}

fn candidate<D: Disk>(segment: &Segment<D>) -> Candidate {
    Candidate { base: segment.base(), bytes: segment.bytes(), newest_ms: segment.known_newest_ms() }
}

fn bounds_of<D: Disk>(partition: &Partition<D>, end: Offset) -> Bounds {
    Bounds { start: partition.planned_start(), high_watermark: partition.high_watermark(), end }
}
