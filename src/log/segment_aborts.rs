//! The abort index of a segment: in memory from the moment that a marker is staged, in `.txnindex` from the next checkpoint
//! on.
//!
//! An entry that is missing would show aborted records, and Kafka's file has no checksum. So a file is believed only where
//! something else vouches for it: the seal of a closed segment, or the checkpoint for the one that was appended to
//! ([`check_of`]). Otherwise it is made anew from the batches ([`rebuild`]), which costs time only (storage rule S15).

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use super::crc::crc32c;
use super::names::Kind;
use super::scan::BatchFacts;
use super::segment::Segment;
use super::txn_index::{self, AbortedTxn, ENTRY_BYTES};
use crate::ids::Offset;
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};
use crate::wire::batch::BatchHeader;
use crate::wire::refill::{self, ControlKind};

/// Checksums of checkpoints have so many bits.
const CHECK_BITS: u32 = 24;

/// What a segment knows of its aborted transactions.
#[derive(Default)]
pub(super) struct Aborts {
    /// By marker; `None` before somebody has looked.
    known: Option<Vec<AbortedTxn>>,
    /// So many of them are in the file.
    written: usize,
    /// What else may be in the file is not to be there.
    must_rewrite: bool,
}

impl Aborts {
    /// All of them, with a file that holds as many.
    pub(super) fn written(all: Vec<AbortedTxn>) -> Self {
        Self { written: all.len(), known: Some(all), must_rewrite: false }
    }

    /// What is on disk need not be kept in memory.
    pub(super) fn let_go(&mut self) {
        let is_large = self.known.as_ref().is_some_and(|known| !known.is_empty() && known.len() == self.written);
        if is_large && !self.must_rewrite {
            self.known = None;
        }
    }
}

impl<D: Disk> Segment<D> {
    /// Adds the entry of a marker that was staged in this segment, the one that is appended to.
    pub fn note_aborted(&self, txn: AbortedTxn) {
        self.aborts.borrow_mut().known.get_or_insert_default().push(txn);
    }

    /// True when [`Self::visit_aborted`] has everything to hand out.
    #[must_use]
    pub fn knows_aborted(&self) -> bool {
        self.aborts.borrow().known.is_some()
    }

    /// Hands out what is known, by marker, until `visit` has seen enough and says so.
    pub fn visit_aborted(&self, mut visit: impl FnMut(&AbortedTxn) -> bool) -> bool {
        self.aborts.borrow().known.iter().flatten().any(&mut visit)
    }

    /// Number of entries and checksum of the index, for the seal.
    #[must_use]
    pub fn abort_facts(&self) -> (u32, u32) {
        let aborts = self.aborts.borrow();
        let known = aborts.known.as_deref().unwrap_or_default();
        (u32::try_from(known.len()).unwrap_or(u32::MAX), crc_of(known))
    }

    /// What a checkpoint says of the index of the segment that is appended to.
    #[must_use]
    pub fn abort_check(&self) -> u32 {
        check_of(self.aborts.borrow().known.as_deref().unwrap_or_default())
    }

    /// All entries, as a start has found them; the file is written anew with the next ones.
    pub fn set_aborted(&self, all: Vec<AbortedTxn>) {
        *self.aborts.borrow_mut() = Aborts { known: Some(all), written: 0, must_rewrite: true };
    }

    /// Reads the index where the seal vouches for it; false where it has to be made anew.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn load_aborted(&self) -> io::Result<bool> {
        if self.knows_aborted() {
            return Ok(true);
        }
        let Some(seal) = self.read_seal().await else { return Ok(false) };
        let read = if seal.abort_entries == 0 { Some(Vec::new()) } else { self.read_abort_index().await? };
        let fits =
            |all: &Vec<AbortedTxn>| (all.len(), crc_of(all)) == (seal.abort_entries as usize, seal.crcs.txnindex);
        let Some(all) = read.filter(fits) else { return Ok(false) };
        let mut aborts = self.aborts.borrow_mut();
        if aborts.known.is_none() {
            *aborts = Aborts::written(all);
        }
        Ok(true)
    }

    /// The entries of the file below `end`, where a checkpoint vouches for them.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn read_checked_aborts(&self, end: Offset, check: u32) -> io::Result<Option<Vec<AbortedTxn>>> {
        if check == 0 {
            return Ok(Some(Vec::new()));
        }
        let mut all = self.read_abort_index().await?.unwrap_or_default();
        all.retain(|txn| txn.last_offset < end);
        Ok(Some(all).filter(|all| check_of(all) == check))
    }

    async fn read_abort_index(&self) -> io::Result<Option<Vec<AbortedTxn>>> {
        self.check_name()?;
        match self.disk.read_file(&self.path(Kind::TxnIndex)).await {
            // One that is cut inside of an entry has whole ones in front.
            Ok(file) => Ok(txn_index::decode(&file[..file.len() - file.len() % ENTRY_BYTES]).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the entries that the file lacks; the caller makes them durable ([`Self::sync_aborts`]). Without an entry there
    /// is no file, as in Kafka.
    ///
    /// # Errors
    /// Those of the disk; entries stay unwritten then.
    pub async fn flush_aborts(&self) -> io::Result<()> {
        let path = self.path(Kind::TxnIndex);
        let (from, entries, must_rewrite) = {
            let aborts = self.aborts.borrow();
            let known = aborts.known.as_deref().unwrap_or_default();
            let from = if aborts.must_rewrite { 0 } else { aborts.written };
            (from, known[from.min(known.len())..].to_vec(), aborts.must_rewrite)
        };
        if entries.is_empty() && !must_rewrite {
            return Ok(());
        }
        self.check_name()?;
        if entries.is_empty() {
            self.disk.remove_file(&path).await?;
        } else {
            let file = self.disk.open(&path, Access::Buffered, Create::IfMissing)?;
            let (at, content) = ((from * ENTRY_BYTES) as u64, txn_index::encode(&entries));
            if file.bytes()? != at {
                file.truncate(at).await?;
            }
            let wanted = content.len();
            let written = file.write_at(at, content).await?;
            if written != wanted {
                return Err(short_write(&path, written, wanted));
            }
        }
        let mut aborts = self.aborts.borrow_mut();
        (aborts.written, aborts.must_rewrite) = (from + entries.len(), false);
        Ok(())
    }

    /// Makes the abort index durable, if there is one.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn sync_aborts(&self) -> io::Result<()> {
        if self.aborts.borrow().written == 0 {
            return Ok(());
        }
        self.check_name()?;
        let file = self.disk.open(&self.path(Kind::TxnIndex), Access::Buffered, Create::Never)?;
        file.sync_data().await
    }
}

/// What a checkpoint keeps of an abort index: 0 for an empty one, else some bits of its checksum.
#[must_use]
pub fn check_of(entries: &[AbortedTxn]) -> u32 {
    if entries.is_empty() { 0 } else { (crc_of(entries) & ((1 << CHECK_BITS) - 1)).max(1) }
}

fn crc_of(entries: &[AbortedTxn]) -> u32 {
    if entries.is_empty() { 0 } else { crc32c(&txn_index::encode(entries)) }
}

/// Makes the abort index of the last of these segments anew, from the batches of all of them.
///
/// Shapes: all segments of a log up to and with the one that is wanted: a transaction may have begun in an earlier one.
///
/// # Errors
/// Those of reading.
pub async fn rebuild<D: Disk>(segments: &[Rc<Segment<D>>]) -> io::Result<Vec<AbortedTxn>> {
    let mut open: HashMap<i64, Offset> = HashMap::new();
    let mut aborted = Vec::new();
    let Some(wanted) = segments.last() else { return Ok(aborted) };
    for segment in segments {
        let mut ended: Vec<(BatchFacts, Offset, Offset)> = Vec::new();
        segment
            .hop(0, segment.bytes(), |batch| {
                if !batch.is_transactional() {
                    return;
                }
                if !batch.is_control() {
                    open.entry(batch.producer_id).or_insert(batch.base_offset);
                } else if let Some(first) = open.remove(&batch.producer_id) {
                    let stable = open.values().min().copied().unwrap_or(batch.next_offset());
                    ended.push((*batch, first, stable));
                }
            })
            .await?;
        if !Rc::ptr_eq(segment, wanted) {
            continue;
        }
        for (facts, first_offset, last_stable_offset) in ended {
            let bytes = segment.read_batch(&facts).await?;
            let is_abort = BatchHeader::read(&bytes)
                .is_ok_and(|header| refill::control_kind(&bytes, &header) == ControlKind::Abort);
            if is_abort {
                let (producer_id, last_offset) = (crate::ids::ProducerId(facts.producer_id), facts.last_offset);
                aborted.push(AbortedTxn { producer_id, first_offset, last_offset, last_stable_offset });
            }
        }
    }
    Ok(aborted)
}
