//! Which checkpoint files of a shard's folder count: the full ones, each with the unbroken deltas behind it.
//!
//! A chain is a full checkpoint and the deltas that name each other as predecessor, of one generation. A damaged delta
//! ends its chain; a damaged full one leaves the chain before it. **Every** chain that can be read is merged, per log id
//! the one with the newest entry by (generation, seq) wins with all of its producers: when a start that changes the
//! number of cores is cut short, a partition's newest entry may stand in the folder of a shard that no longer owns it,
//! before a newer full one without it. Partitions that the catalog no longer knows are the reader's to drop.
//!
//! ```text
//! checkpoint-<seq>.full, checkpoint-<seq>.delta   checkpoint.spare: zero-filled ahead, becomes the next one
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::checkpoint::{Checkpoint, Damage, Encoder, HEADER_BYTES, Header, Kind, PartitionEntry, ProducerEntry};
use crate::ids::{IdMap, LogId};
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};

/// Deltas behind one full checkpoint.
const DELTAS_MAX: usize = 16;
const SPARE: &str = "checkpoint.spare";
const FILL_BYTES: usize = 1 << 20;

/// One partition out of all checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Generation and seq of the file that holds the partition's newest entry.
    pub age: (u64, u64),
    /// The partition.
    pub partition: PartitionEntry,
    /// The chain that holds its producers.
    chain: usize,
}

/// What all checkpoints together say, per partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// By log id.
    pub logs: IdMap<LogId, Merged>,
    chains: Vec<Vec<Arc<Checkpoint>>>,
}

impl View {
    /// Adds one shard's checkpoints, given in any order; see the module.
    pub fn absorb(&mut self, checkpoints: &[Arc<Checkpoint>]) {
        for full in checkpoints.iter().filter(|checkpoint| checkpoint.header.kind == Kind::Full) {
            let chain = chain_from(full, checkpoints);
            for (log_id, merged) in merge_chain(&chain, self.chains.len()) {
                match self.logs.get(&log_id) {
                    Some(known) if known.age >= merged.age => {}
                    _ => _ = self.logs.insert(log_id, merged),
                }
            }
            self.chains.push(chain);
        }
    }

    /// Every producer of every partition in [`View::logs`], in the order of the checkpoints: of two entries the later one
    /// counts, and may say that the producer was forgotten.
    pub fn producers(&self) -> impl Iterator<Item = ProducerEntry> {
        self.chains.iter().enumerate().flat_map(move |(number, chain)| {
            let is_used = self.logs.values().any(|merged| merged.chain == number);
            let checkpoints = chain.iter().filter(move |_| is_used);
            let entries = checkpoints.flat_map(|checkpoint| checkpoint.producers());
            entries.filter(move |entry| self.logs.get(&entry.log_id).is_some_and(|merged| merged.chain == number))
        })
    }
}

/// The full checkpoint and the deltas that follow it without a break.
fn chain_from(full: &Arc<Checkpoint>, all: &[Arc<Checkpoint>]) -> Vec<Arc<Checkpoint>> {
    let mut chain = vec![Arc::clone(full)];
    let mut newest = full.header;
    while let Some(next) = all.iter().find(|candidate| follows(&candidate.header, &newest)) {
        newest = next.header;
        chain.push(Arc::clone(next));
    }
    chain
}

fn follows(candidate: &Header, newest: &Header) -> bool {
    candidate.kind == Kind::Delta
        && candidate.generation == newest.generation
        && candidate.previous == newest.seq
        && candidate.seq > newest.seq
}

/// Partitions that were removed within the chain are not in the result.
fn merge_chain(chain: &[Arc<Checkpoint>], number: usize) -> IdMap<LogId, Merged> {
    let mut logs: IdMap<LogId, Merged> = IdMap::default();
    for checkpoint in chain {
        let age = (checkpoint.header.generation, checkpoint.header.seq);
        for partition in &checkpoint.partitions {
            if partition.removed {
                logs.remove(&partition.log_id);
            } else {
                logs.insert(partition.log_id, Merged { age, partition: *partition, chain: number });
            }
        }
    }
    logs
}

/// A checkpoint file by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Where it is.
    pub path: PathBuf,
    /// Number in the name.
    pub seq: u64,
    /// Kind in the name.
    pub kind: Kind,
    /// Size of the file.
    pub bytes: u64,
}

/// What a shard's folder holds.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    /// Every checkpoint file, oldest first.
    pub names: Vec<Named>,
    /// Those that can be read, oldest first.
    pub checkpoints: Vec<Arc<Checkpoint>>,
    /// Those that cannot, and why.
    pub damaged: Vec<(PathBuf, Damage)>,
}

impl Folder {
    /// The oldest log file that the newest checkpoint of this generation needs; `None` without such a checkpoint.
    #[must_use]
    pub fn oldest_needed(&self, generation: u64) -> Option<u64> {
        let headers = self.checkpoints.iter().map(|checkpoint| &checkpoint.header);
        let newest = headers.filter(|header| header.generation == generation).max_by_key(|header| header.seq);
        newest.map(|header| header.oldest_needed_file)
    }

    /// The number for the next checkpoint: above every name, readable or not.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.names.iter().map(|named| named.seq + 1).max().unwrap_or(1)
    }
}

/// Reads every checkpoint of a shard's folder; a folder that is not there holds none.
///
/// # Errors
/// Those of the disk, with the file's name, and `InvalidData` with it for a version of a later release.
pub async fn read_folder<D: Disk>(disk: &D, folder: &Path) -> io::Result<Folder> {
    let mut found = Folder { names: list(disk, folder)?, ..Folder::default() };
    for named in &found.names {
        // An error of the disk says nothing of what is in the file, and may pass; without it older ones would be believed.
        let content = disk.read_file(&named.path).await.map_err(|error| unreadable(&named.path, &error))?;
        match Checkpoint::decode(&content) {
            Ok(checkpoint) if (checkpoint.header.seq, checkpoint.header.kind) == (named.seq, named.kind) => {
                found.checkpoints.push(Arc::new(checkpoint));
            }
            Ok(_) => found.damaged.push((named.path.clone(), Damage::Counts)),
            Err(damage @ Damage::Version(_)) => return Err(refused(&named.path, damage)),
            Err(damage) => found.damaged.push((named.path.clone(), damage)),
        }
    }
    Ok(found)
}

fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    let what = format!(
        "{}: it cannot be read: {error}; try again, and if it stays so, move it away: older checkpoints and the commit \
         logs are used then",
        path.display()
    );
    io::Error::new(error.kind(), what)
}

fn refused(path: &Path, damage: Damage) -> io::Error {
    let what = format!("{}: {damage}; start the release that wrote it", path.display());
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Checkpoint files of a folder, oldest first.
///
/// # Errors
/// Those of the disk.
pub fn list<D: Disk>(disk: &D, folder: &Path) -> io::Result<Vec<Named>> {
    let entries = match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let mut names: Vec<Named> = entries
        .iter()
        .filter_map(|entry| {
            let (seq, kind) = parse_name(&entry.name)?;
            Some(Named { path: folder.join(&entry.name), seq, kind, bytes: entry.bytes })
        })
        .collect();
    names.sort_by_key(|named| named.seq);
    Ok(names)
}

/// Name of a checkpoint file.
#[must_use]
pub fn name(seq: u64, kind: Kind) -> String {
    match kind {
        Kind::Full => format!("checkpoint-{seq}.full"),
        Kind::Delta => format!("checkpoint-{seq}.delta"),
    }
}

/// True for the names that checkpoints have, finished or not.
#[must_use]
pub fn is_own_name(name: &str) -> bool {
    name == SPARE || parse_name(name).is_some()
}

fn parse_name(text: &str) -> Option<(u64, Kind)> {
    let (seq, kind) = text.strip_prefix("checkpoint-")?.split_once('.')?;
    let kind = match kind {
        "full" => Kind::Full,
        "delta" => Kind::Delta,
        _ => return None,
    };
    Some((seq.parse().ok()?, kind))
}

/// Files that nobody needs once the newest full checkpoint is durable: all before the full one before it, oldest first.
///
/// Not before recovery has ended: full checkpoints of an unfinished start do not replace those of the start before it.
#[must_use]
pub fn deletable(names: &[Named]) -> Vec<PathBuf> {
    let mut fulls: Vec<u64> = names.iter().filter(|named| named.kind == Kind::Full).map(|named| named.seq).collect();
    fulls.sort_unstable();
    let Some(kept_from) = fulls.len().checked_sub(2).map(|at| fulls[at]) else { return Vec::new() };
    let mut old: Vec<&Named> = names.iter().filter(|named| named.seq < kept_from).collect();
    old.sort_by_key(|named| named.seq);
    old.into_iter().map(|named| named.path.clone()).collect()
}

/// True when the next checkpoint should be a full one.
#[must_use]
pub fn wants_full(names: &[Named]) -> bool {
    let Some(full) = names.iter().filter(|named| named.kind == Kind::Full).max_by_key(|named| named.seq) else {
        return true;
    };
    let deltas = || names.iter().filter(|named| named.kind == Kind::Delta && named.seq > full.seq);
    deltas().count() >= DELTAS_MAX || deltas().map(|named| named.bytes).sum::<u64>() > full.bytes / 2
}

/// A checkpoint on its way to disk, over the spare where there is one: it is there whole or not at all.
pub struct Writer<'a, D: Disk> {
    disk: &'a D,
    folder: &'a Path,
    spare: PathBuf,
    file: D::File,
    position: u64,
    encoder: Encoder,
}

impl<'a, D: Disk> Writer<'a, D> {
    /// Begins one in `folder`.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn begin(disk: &'a D, folder: &'a Path) -> io::Result<Self> {
        let spare = folder.join(SPARE);
        let file = disk.open(&spare, Access::Buffered, Create::IfMissing)?;
        Ok(Self { disk, folder, spare, file, position: HEADER_BYTES as u64, encoder: Encoder::default() })
    }

    /// Adds entries; they are written by [`Writer::write_out`] and [`Writer::finish`].
    pub fn entries(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    /// Hands full blocks to the kernel.
    ///
    /// # Errors
    /// Those of the disk; the folder then holds what it held before.
    pub async fn write_out(&mut self) -> io::Result<()> {
        let closed = self.encoder.take_closed();
        self.write(closed).await
    }

    /// Brings it to disk, under its name.
    ///
    /// # Errors
    /// Those of the disk; the folder then holds what it held before.
    pub async fn finish(mut self, header: &Header) -> io::Result<Named> {
        let (beginning, rest) = std::mem::take(&mut self.encoder).finish(header);
        self.write(rest).await?;
        write_whole(&self.file, &self.spare, 0, beginning).await?;
        let bytes = self.position;
        self.file.truncate(bytes).await?;
        self.file.sync_data().await?;
        let (seq, kind) = (header.seq, header.kind);
        let path = self.folder.join(name(seq, kind));
        self.disk.rename(&self.spare, &path)?;
        self.disk.sync_dir(self.folder).await?;
        Ok(Named { path, seq, kind, bytes })
    }

    async fn write(&mut self, blocks: Vec<Bytes>) -> io::Result<()> {
        for block in blocks {
            let bytes = block.len() as u64;
            write_whole(&self.file, &self.spare, self.position, block).await?;
            self.position += bytes;
        }
        Ok(())
    }
}

/// Makes a spare of at least `bytes` bytes, so that the next checkpoint needs no room on a full disk.
///
/// # Errors
/// Those of the disk; checkpoints work without a spare too.
pub async fn prepare_spare<D: Disk>(disk: &D, folder: &Path, bytes: u64) -> io::Result<()> {
    let spare = folder.join(SPARE);
    let file = disk.open(&spare, Access::Buffered, Create::IfMissing)?;
    let zeros = Bytes::from(vec![0; FILL_BYTES]);
    let mut position = file.bytes()?;
    while position < bytes {
        let wanted = usize::try_from(bytes - position).unwrap_or(FILL_BYTES).min(FILL_BYTES);
        write_whole(&file, &spare, position, zeros.slice(..wanted)).await?;
        position += wanted as u64;
    }
    file.sync_data().await
}

async fn write_whole<F: DiskFile>(file: &F, path: &Path, position: u64, content: Bytes) -> io::Result<()> {
    let wanted = content.len();
    let written = file.write_at(position, content).await?;
    if written == wanted { Ok(()) } else { Err(short_write(path, written, wanted)) }
}
