//! Log files as things on a disk: made zero-filled, begun with a header, found again by name.
//!
//! A file is zero-filled when it is made, so that a commit into it changes neither size nor extents (a commit into a
//! growing file takes twice as long), and it is used again for ever after.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::log_file::{BLOCK_LOG2, Fault, FileHeader};
use crate::runtime::aligned::AlignedBuf;
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};

/// Sizes of log files are multiples of this many bytes; zeros are written in such steps.
pub(super) const MIB: u64 = 1 << 20;

/// The longest beginning of a file that is needed to find either copy of its header.
const BEGINNING_BYTES: usize = 2 << *BLOCK_LOG2.end();

/// A log file that is open for writing.
#[derive(Debug)]
pub(super) struct LogFile<F> {
    pub(super) file: Rc<F>,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl<F> Clone for LogFile<F> {
    fn clone(&self) -> Self {
        Self { file: Rc::clone(&self.file), path: self.path.clone(), bytes: self.bytes }
    }
}

impl<F: DiskFile> LogFile<F> {
    /// Opens a file, or makes an empty one in its place.
    pub(super) fn open<D: Disk<File = F>>(disk: &D, path: &Path, create: Create) -> io::Result<Self> {
        let file = disk.open(path, Access::DirectSync, create).map_err(named(path, "cannot open"))?;
        let bytes = file.bytes().map_err(named(path, "cannot find the size of"))?;
        Ok(Self { file: Rc::new(file), path: path.to_owned(), bytes: bytes / MIB * MIB })
    }

    /// Writes blocks; on disk when this returns without an error.
    pub(super) async fn write(&self, position: u64, blocks: AlignedBuf) -> io::Result<()> {
        let wanted = blocks.bytes().len();
        let written = self.file.write_blocks(position, blocks).await;
        self.all_written(written, wanted)
    }

    fn all_written(&self, written: io::Result<usize>, wanted: usize) -> io::Result<()> {
        let written = written.map_err(named(&self.path, "cannot write"))?;
        if written == wanted { Ok(()) } else { Err(short_write(&self.path, written, wanted)) }
    }

    /// Adds one step of zeros at the end.
    pub(super) async fn add_zeros(&mut self) -> io::Result<()> {
        let written = self.file.write_zeros(self.bytes, step_bytes()).await;
        self.all_written(written, step_bytes())?;
        self.bytes += MIB;
        Ok(())
    }

    /// Adds zeros at full speed; for times when no commit is disturbed by it.
    pub(super) async fn fill(&mut self, bytes: u64) -> io::Result<()> {
        while self.bytes < bytes {
            self.add_zeros().await?;
        }
        Ok(())
    }

    /// The file's size as its header states it.
    pub(super) fn size_mib(&self) -> u32 {
        u32::try_from(self.bytes / MIB).expect("a log file is smaller than 4 PiB")
    }

    /// Ends a use that nobody needs any more: what the file held is nothing from here on.
    pub(super) async fn end(&self, block_log2: u16) -> io::Result<()> {
        self.write(0, AlignedBuf::zeroed(2 << block_log2)).await
    }

    /// Begins a new use: everything that the file held is nothing from here on.
    pub(super) async fn begin(&self, header: &FileHeader) -> io::Result<()> {
        self.write(0, header.encode_blocks()).await
    }
}

/// True for the errors of a disk without room: told outright, or by a write that took only a part.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero)
}

/// Puts what was tried and the file's name before the system's words.
pub(super) fn named<'a>(path: &'a Path, tried: &'a str) -> impl Fn(io::Error) -> io::Error + 'a {
    move |error| io::Error::new(error.kind(), format!("{tried} {}: {error}", path.display()))
}

/// The sentence for a file of a later program.
pub(super) fn unknown_version(path: &Path, version: u16) -> io::Error {
    let sentence = format!(
        "{}: written in version {version} of its format, this program knows version {}; start the program that wrote it",
        path.display(),
        super::log_file::VERSION
    );
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

/// A log file of a shard folder, as found at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLog {
    /// Where it is.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// What it was begun as; `None` when neither copy of the header is intact.
    pub header: Option<FileHeader>,
}

/// The `log-<k>` files of a shard folder, by name.
///
/// # Errors
/// What the disk says; `InvalidData` for a header of a later version.
pub async fn list_log_files<D: Disk>(disk: &D, folder: &Path) -> io::Result<Vec<FoundLog>> {
    let mut found = Vec::new();
    for entry in disk.list(folder).map_err(named(folder, "cannot list"))? {
        if entry.is_dir || name_number(&entry.name).is_none() {
            continue;
        }
        let path = folder.join(&entry.name);
        let header = read_header(disk, &path).await?;
        found.push(FoundLog { path, bytes: entry.bytes, header });
    }
    Ok(found)
}

/// The header that a file was begun with, if one is intact.
pub(crate) async fn read_header<D: Disk>(disk: &D, path: &Path) -> io::Result<Option<FileHeader>> {
    let file = disk.open(path, Access::DirectSync, Create::Never).map_err(named(path, "cannot open"))?;
    let beginning = file.read_at(0, BEGINNING_BYTES).await.map_err(named(path, "cannot read"))?;
    match FileHeader::find(&beginning) {
        Ok(header) => Ok(Some(header)),
        Err(Fault::Damaged) => Ok(None),
        Err(Fault::UnknownVersion(version)) => Err(unknown_version(path, version)),
    }
}

/// Where the log file with this number in its name is; the number says nothing about order.
pub(super) fn log_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("log-{number}"))
}

/// The number in a log file's name.
pub(super) fn name_number(name: &str) -> Option<u64> {
    name.strip_prefix("log-")?.parse().ok()
}

fn step_bytes() -> usize {
    usize::try_from(MIB).expect("1 MiB is an address")
}
