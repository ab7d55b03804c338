//! The store file: which generation this data folder is in, and whether it was left in order.
//!
//! Two slots of 64 bytes, at 0 and at 4096, written in turn with one direct synchronous write each; the intact slot with
//! the higher counter counts. A torn write so leaves what was true before, and writing needs no free space.
//!
//! | at | 0 | 8 | 10 | 12 | 16 | 24 | 32 | 40 | 56 | 60 |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | | magic `CLSTORE1` | version u16 | block_log2 u16 | flags u32 (1 clean) | counter u64 | generation u64 | live_generation u64 | store id 16 B | reserved | crc of 0–59 |

use std::io;
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut};

use super::log_file::{Fault, HEADER_BYTES, VERSION, seal, sealed, take, version};
use super::log_files::{named, unknown_version};
use crate::runtime::aligned::{AlignedBuf, BLOCK};
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};
use crate::runtime::host;

const MAGIC: &[u8; 8] = b"CLSTORE1";
const FLAG_CLEAN: u32 = 1;
/// Where the slots are: fixed, whatever the block size of the log is.
const SLOTS_AT: [usize; 2] = [0, BLOCK];

/// What the store file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreState {
    /// The last stop was in order: nothing needs to be repaired.
    pub clean: bool,
    /// One more with each write of the file; set by [`Store::write`].
    pub counter: u64,
    /// One more with each start; leader epoch and coordinator epoch.
    pub generation: u64,
    /// Generation whose commit log is replayed.
    pub live_generation: u64,
    /// Of this data folder, for ever.
    pub store_id: [u8; 16],
    /// log2 of the block size of the log in bytes.
    pub block_log2: u16,
}

impl StoreState {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut into = bytes.as_mut_slice();
        into.put_slice(MAGIC);
        into.put_u16_le(VERSION);
        into.put_u16_le(self.block_log2);
        into.put_u32_le(if self.clean { FLAG_CLEAN } else { 0 });
        into.put_u64_le(self.counter);
        into.put_u64_le(self.generation);
        into.put_u64_le(self.live_generation);
        into.put_slice(&self.store_id);
        seal(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let mut from = sealed(bytes, MAGIC)?;
        version(from.get_u16_le())?;
        let block_log2 = from.get_u16_le();
        let clean = from.get_u32_le() & FLAG_CLEAN != 0;
        Ok(Self {
            clean,
            counter: from.get_u64_le(),
            generation: from.get_u64_le(),
            live_generation: from.get_u64_le(),
            store_id: take(&mut from),
            block_log2,
        })
    }
}

/// The store file of a data folder, open.
#[derive(Debug)]
pub struct Store<F> {
    file: F,
    path: PathBuf,
    state: StoreState,
    /// The slot that does not hold `state`.
    spare_slot: usize,
}

impl<F: DiskFile> Store<F> {
    /// Opens `store` in `folder` (`corelane/` of the data folder), or makes it where there is nothing yet.
    ///
    /// # Errors
    /// What the disk says; `InvalidData` when the file is damaged, of a later version, or missing beside a catalog or logs.
    pub async fn open_or_create<D: Disk<File = F>>(disk: &D, folder: &Path, block_log2: u16) -> io::Result<Self> {
        let path = folder.join("store");
        match disk.file_bytes(&path) {
            Ok(_) => Self::open(disk, path).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(disk, folder, path, block_log2).await,
            Err(error) => Err(named(&path, "cannot find")(error)),
        }
    }

    async fn open<D: Disk<File = F>>(disk: &D, path: PathBuf) -> io::Result<Self> {
        let file = disk.open(&path, Access::DirectSync, Create::Never).map_err(named(&path, "cannot open"))?;
        let mut newest: Option<(usize, StoreState)> = None;
        for (slot, content) in read_slots(&file, &path).await?.into_iter().enumerate() {
            match content {
                Ok(state) if newest.is_none_or(|(_, other)| other.counter < state.counter) => {
                    newest = Some((slot, state))
                }
                Ok(_) | Err(Fault::Damaged) => {}
                Err(Fault::UnknownVersion(version)) => return Err(unknown_version(&path, version)),
            }
        }
        let (slot, state) = newest.ok_or_else(|| damaged(&path))?;
        Ok(Self { file, path, state, spare_slot: 1 - slot })
    }

    /// The name appears only when the content is on disk, so a store file without an intact slot is always damage.
    async fn create<D: Disk<File = F>>(disk: &D, folder: &Path, path: PathBuf, block_log2: u16) -> io::Result<Self> {
        disk.create_dir_all(folder).map_err(named(folder, "cannot make"))?;
        refuse_orphans(disk, folder, &path)?;
        let (low, high) = (host::random(), host::random());
        let mut store_id = [0; 16];
        store_id[..8].copy_from_slice(&low.to_le_bytes());
        store_id[8..].copy_from_slice(&high.to_le_bytes());
        let state = StoreState { clean: true, counter: 1, generation: 0, live_generation: 0, store_id, block_log2 };
        let making = path.with_extension("new");
        let file = disk.open(&making, Access::DirectSync, Create::Truncate).map_err(named(&making, "cannot make"))?;
        let mut store = Self { file, path: making, state, spare_slot: 1 };
        store.write_at(0, blocks(&state, 2 * BLOCK)).await?;
        store.file.sync_data().await.map_err(named(&store.path, "cannot flush"))?;
        disk.rename(&store.path, &path).map_err(named(&path, "cannot make"))?;
        disk.sync_dir(folder).await.map_err(named(folder, "cannot flush"))?;
        store.path = path;
        Ok(store)
    }

    /// What the file says.
    #[must_use]
    pub fn state(&self) -> StoreState {
        self.state
    }

    /// Makes `next` (with the next counter) what the file says, durably.
    ///
    /// # Errors
    /// What the disk says; then either the old or the new state is found at the next start.
    pub async fn write(&mut self, next: StoreState) -> io::Result<()> {
        let next = StoreState { counter: self.state.counter + 1, ..next };
        self.write_at(SLOTS_AT[self.spare_slot], blocks(&next, BLOCK)).await?;
        self.spare_slot = 1 - self.spare_slot;
        self.state = next;
        Ok(())
    }

    async fn write_at(&self, position: usize, blocks: AlignedBuf) -> io::Result<()> {
        let wanted = blocks.bytes().len();
        let written =
            self.file.write_blocks(position as u64, blocks).await.map_err(named(&self.path, "cannot write"))?;
        if written == wanted { Ok(()) } else { Err(short_write(&self.path, written, wanted)) }
    }
}

/// What the two slots of a store file hold.
///
/// # Errors
/// What the disk says.
pub async fn read_slots<F: DiskFile>(file: &F, path: &Path) -> io::Result<[Result<StoreState, Fault>; 2]> {
    let bytes = file.read_at(0, 2 * BLOCK).await.map_err(named(path, "cannot read"))?;
    Ok(SLOTS_AT.map(|at| StoreState::decode(bytes.get(at..).unwrap_or_default())))
}

fn blocks(state: &StoreState, bytes: usize) -> AlignedBuf {
    let mut blocks = AlignedBuf::zeroed(bytes);
    blocks.bytes_mut()[..HEADER_BYTES].copy_from_slice(&state.encode());
    blocks
}

fn damaged(path: &Path) -> io::Error {
    let sentence = format!(
        "{}: both copies of the store's state are damaged; put the file back from a copy of the data folder",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

/// A folder with a catalog or logs once had a store: going on with a new one would take its data for a stranger's.
fn refuse_orphans<D: Disk>(disk: &D, folder: &Path, path: &Path) -> io::Result<()> {
    let entries = disk.list(folder).map_err(named(folder, "cannot list"))?;
    let orphan = entries.iter().find(|entry| entry.name.starts_with("catalog-") || entry.name.starts_with("shard-"));
    let Some(orphan) = orphan else { return Ok(()) };
    let sentence = format!(
        "{} is missing although {} is there; put the file back from a copy of the data folder",
        path.display(),
        folder.join(&orphan.name).display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
}
