//! Kafka's producer snapshots of one partition: as of the base of each segment that is begun, and of the end at a clean stop.
//!
//! The moment is fixed in the step that begins the segment; the file comes later, in the background, under a name of its
//! own until it is whole. A few producers are encoded in that step. Many are taken a few at a time from a table that goes on
//! changing ([`Producers::freeze`]), so that a million of them neither stop a core nor are held twice in memory; a segment
//! that is begun while that goes on gets no snapshot. Derived (storage rule S15): one that is missing costs Kafka time only.
//!
//! Source: apache/kafka `UnifiedLog.roll`, `ProducerStateManager.takeSnapshot`, `removeStraySnapshots`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::partition::Partition;
use super::shard::Shard;
use crate::ids::{Offset, ProducerId};
use crate::log::names::{self, Kind};
use crate::log::snapshot::{self, Encoder, PREFIX_BYTES, SnapshotEntry};
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};
use crate::runtime::host::{self, Queue};
use crate::runtime::signal::Turns;
use crate::state::producers::{ProducerState, Producers};

/// Producers that are encoded in the step that begins a segment: some microseconds, where making the file takes twenty.
const AT_ONCE_MAX: usize = 256;
/// Producers taken before other tasks run: about 50 µs.
const TAKE_STEP: usize = 512;
/// What is written at once.
const PIECE_BYTES: usize = 64 << 10;

/// Snapshots of a partition whose moment has come and whose file is not there yet.
#[derive(Default)]
pub(super) struct Snapshots {
    small: RefCell<VecDeque<(Offset, Bytes)>>,
    /// As of which offset the producers are frozen, and how many they are.
    large: Cell<Option<(Offset, usize)>>,
    /// As of which offset the newest file is.
    newest: Cell<Option<Offset>>,
    turns: Turns,
}

impl Snapshots {
    /// What recovery found.
    pub(super) fn found(&self, newest: Option<Offset>) {
        self.newest.set(newest);
    }
}

/// Whether a file must be on disk before it has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// A power cut leaves a whole file or none.
    Each,
    /// The whole file system is flushed afterwards.
    Later,
}

impl<D: Disk> Partition<D> {
    /// The producers as they are now are those as of `at`; [`Shard::write_snapshots_soon`] makes the file. One that is there
    /// is not made again.
    pub(super) fn take_snapshot(&self, at: Offset) {
        if self.snapshots.newest.get() == Some(at) {
            return;
        }
        let mut producers = self.producers.borrow_mut();
        if producers.len() <= AT_ONCE_MAX {
            self.snapshots.small.borrow_mut().push_back((at, encode_all(&producers)));
        } else if let Some(count) = producers.freeze() {
            self.snapshots.large.set(Some((at, count)));
        } else {
            tracing::debug!("{}: no snapshot as of {at}, an earlier one is still being taken", self.name);
        }
    }

    /// Somebody still wants the snapshot: the segment is there, or the log ends at that offset.
    fn wants_snapshot(&self, at: Offset) -> bool {
        let log = self.log.borrow();
        !self.is_closed() && (log.end() == at || log.segments().binary_search_by_key(&at, |one| one.base()).is_ok())
    }
}

impl<D: Disk> Shard<D> {
    /// Writes what [`Partition::take_snapshot`] has taken. Nobody waits for it.
    pub(super) fn write_snapshots_soon(&self, partition: &Rc<Partition<D>>) {
        let (disk, partition) = (self.disk.clone(), Rc::clone(partition));
        host::spawn(Queue::Background, async move {
            if let Err(error) = write(&disk, &partition, Flush::Each).await {
                tracing::warn!("{}: a producer snapshot could not be written: {error}", partition.name);
            }
        });
    }
}

/// Writes everything that was taken, after what is being written already.
///
/// # Errors
/// Those of the disk; what was taken is given up then.
pub(super) async fn write<D: Disk>(disk: &D, partition: &Partition<D>, flush: Flush) -> io::Result<()> {
    let snapshots = &partition.snapshots;
    let _turn = snapshots.turns.mine().await;
    loop {
        let Some((at, content)) = snapshots.small.borrow_mut().pop_front() else { break };
        let written = write_small(disk, partition, (at, content), flush).await;
        tidy_up(disk, partition, at, written).await?;
    }
    let Some((at, count)) = snapshots.large.get() else { return Ok(()) };
    let written = write_large(disk, partition, (at, count), flush).await;
    partition.producers.borrow_mut().thaw();
    snapshots.large.set(None);
    tidy_up(disk, partition, at, written).await
}

/// What could not be finished takes no room: the disk may be full.
async fn tidy_up<D: Disk>(disk: &D, partition: &Partition<D>, at: Offset, written: io::Result<()>) -> io::Result<()> {
    if written.is_err() && !partition.is_closed() {
        let folder = Rc::clone(partition.log.borrow().folder());
        disk.remove_file(&names::unfinished_snapshot(&folder, at)).await?;
    }
    written
}

async fn write_small<D: Disk>(
    disk: &D,
    partition: &Partition<D>,
    (at, content): (Offset, Bytes),
    flush: Flush,
) -> io::Result<()> {
    let Some(mut file) = NewFile::begin(disk, partition, at)? else { return Ok(()) };
    file.push(content).await?;
    file.end(flush).await
}

async fn write_large<D: Disk>(
    disk: &D,
    partition: &Partition<D>,
    (at, count): (Offset, usize),
    flush: Flush,
) -> io::Result<()> {
    let Some(mut file) = NewFile::begin(disk, partition, at)? else { return Ok(()) };
    file.position = PREFIX_BYTES as u64;
    let mut encoder = Encoder::of(count);
    let mut piece = BytesMut::with_capacity(PIECE_BYTES);
    loop {
        let mut take = |id, state: &ProducerState| encoder.add(&entry(id, state), &mut piece);
        let goes_on = partition.producers.borrow_mut().take_frozen(TAKE_STEP, &mut take);
        if piece.len() >= PIECE_BYTES || !goes_on {
            file.push(piece.split().freeze()).await?;
        }
        if !goes_on {
            break;
        }
        host::yield_now().await;
    }
    file.position = 0;
    file.push(Bytes::copy_from_slice(&encoder.prefix())).await?;
    file.end(flush).await
}

/// A snapshot that is not whole yet.
struct NewFile<'a, D: Disk> {
    disk: &'a D,
    partition: &'a Partition<D>,
    at: Offset,
    folder: Rc<Path>,
    temporary: PathBuf,
    file: D::File,
    position: u64,
}

impl<'a, D: Disk> NewFile<'a, D> {
    /// `None` where nobody wants it any more. Looking and opening are one step: the name of a closed partition's folder may
    /// belong to another one.
    fn begin(disk: &'a D, partition: &'a Partition<D>, at: Offset) -> io::Result<Option<Self>> {
        if !partition.wants_snapshot(at) {
            return Ok(None);
        }
        let folder = Rc::clone(partition.log.borrow().folder());
        let temporary = names::unfinished_snapshot(&folder, at);
        let file = disk.open(&temporary, Access::Buffered, Create::Truncate)?;
        Ok(Some(Self { disk, partition, at, folder, temporary, file, position: 0 }))
    }

    async fn push(&mut self, piece: Bytes) -> io::Result<()> {
        let wanted = piece.len();
        let written = self.file.write_at(self.position, piece).await?;
        self.position += written as u64;
        if written == wanted { Ok(()) } else { Err(short_write(&self.temporary, written, wanted)) }
    }

    /// Gives the whole file its name.
    async fn end(self, flush: Flush) -> io::Result<()> {
        if flush == Flush::Each {
            self.file.sync_data().await?;
        }
        if self.partition.wants_snapshot(self.at) {
            self.disk.rename(&self.temporary, &names::path(&self.folder, self.at, Kind::Snapshot))?;
            self.partition.snapshots.newest.set(Some(self.at));
            Ok(())
        } else if self.partition.is_closed() {
            Ok(()) // gone with its folder
        } else {
            self.disk.remove_file(&self.temporary).await
        }
    }
}

fn encode_all(producers: &Producers) -> Bytes {
    let entries: Vec<_> = producers.iter().map(|(id, state)| entry(id, state)).collect();
    snapshot::encode(&entries)
}

/// What Kafka remembers of a producer: its newest batch.
fn entry(producer_id: ProducerId, state: &ProducerState) -> SnapshotEntry {
    let newest = state.window.newest();
    SnapshotEntry {
        producer_id,
        epoch: state.epoch,
        last_sequence: newest.map_or(-1, |batch| batch.last_sequence().0),
        last_offset: newest.map_or(-1, |batch| batch.last_offset().0),
        offset_delta: newest.map_or(0, |batch| batch.last_offset_delta),
        timestamp: newest.map_or(-1, |batch| batch.max_timestamp),
        coordinator_epoch: state.coordinator_epoch,
        txn_first_offset: state.txn_first_offset(),
    }
}
