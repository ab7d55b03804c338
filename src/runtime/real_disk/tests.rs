use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;
use crate::runtime::startup;

/// A folder of its own for each test, on the file system of the build.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tmp").join(format!("{name}-{}", std::process::id()));
        let _old = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn store(folder: &Path) -> PathBuf {
    let store = folder.join("store");
    fs::write(&store, [1; 4096]).unwrap();
    store
}

/// Runs `test` twice: on a shard, and on this thread where every call blocks.
fn on_and_off_a_shard<F: Future<Output = ()> + 'static>(
    name: &str,
    test: impl Fn(PathBuf) -> F + Copy + Send + 'static,
) {
    let folder = Folder::new(name);
    let path = folder.0.clone();
    let cpus = startup::choose_cpus(Some(1)).unwrap();
    let shards = executors::start(&cpus, Duration::ZERO, move |_| {
        let path = path.clone();
        async move {
            settle_device(&store(&path)).await.unwrap();
            test(path).await;
        }
    });
    shards.unwrap().join().remove(0).unwrap();
    let folder = Folder::new(&format!("{name}-off"));
    let mut off = pin!(test(folder.0.clone()));
    while off.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {}
}

#[test]
fn what_is_written_is_read_back() {
    on_and_off_a_shard("written", |folder| async move {
        let file = RealDisk.open(&folder.join("a"), Access::Buffered, Create::IfMissing).unwrap();
        let long: Bytes = (0..=250).cycle().take(3 * INLINE_WRITE_BYTES + 17).collect();
        assert_eq!(file.write_now(0, &[b"one", b"", b"two"]).unwrap(), 6);
        assert_eq!(file.write_at(6, long.clone()).await.unwrap(), long.len());
        file.sync_data().await.unwrap();
        assert_eq!(file.bytes().unwrap(), 6 + long.len() as u64);
        assert_eq!(file.read_at(6, long.len()).await.unwrap(), long);
        assert_eq!(file.read_at(3, 3).await.unwrap(), "two");
        assert_eq!(file.read_at(6 + long.len() as u64 - 2, 100).await.unwrap(), long.slice(long.len() - 2..));
        assert_eq!(file.read_at(1 << 40, 100).await.unwrap(), "");
        file.truncate(3).await.unwrap();
        assert_eq!(RealDisk.read_file(&folder.join("a")).await.unwrap(), "one");
    });
}

#[test]
fn more_slices_than_one_call_takes_are_written() {
    let folder = Folder::new("slices");
    let file = RealDisk.open(&folder.0.join("a"), Access::Buffered, Create::IfMissing).unwrap();
    let parts: Vec<&[u8]> = vec![b"ab"; SLICES_MAX * 2 + 1];
    assert_eq!(file.write_now(0, &parts).unwrap(), parts.len() * 2);
    assert_eq!(file.bytes().unwrap(), parts.len() as u64 * 2);
}

#[test]
fn blocks_are_written_inline_and_through_the_ring() {
    on_and_off_a_shard("blocks", |folder| async move {
        let path = folder.join("log");
        let file = RealDisk.open(&path, Access::DirectSync, Create::IfMissing).unwrap();
        let mut blocks = AlignedBuf::zeroed(8192);
        blocks.bytes_mut().fill(7);
        assert_eq!(file.write_blocks_now(0, blocks.bytes()).unwrap(), 8192);
        blocks.bytes_mut().fill(8);
        assert_eq!(file.write_blocks(8192, blocks).await.unwrap(), 8192);
        file.sync_data().await.unwrap();
        assert_eq!(file.read_at(8190, 3).await.unwrap(), [7, 7, 8][..], "direct files are read at any position");
        let content = RealDisk.read_file(&path).await.unwrap();
        assert_eq!(content.len(), 16384);
        assert!(content[..8192].iter().all(|byte| *byte == 7) && content[8192..].iter().all(|byte| *byte == 8));
    });
}

/// glommio would take the device of the first, empty file for one that can be polled, and later reads would fail.
#[test]
fn an_empty_file_cannot_settle_the_device() {
    on_and_off_a_shard("empty", |folder| async move {
        fs::write(folder.join("none"), []).unwrap();
        assert_eq!(settle_device(&folder.join("none")).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let file = RealDisk.open(&folder.join("log"), Access::DirectSync, Create::IfMissing).unwrap();
        assert_eq!(file.write_blocks(0, AlignedBuf::zeroed(4096)).await.unwrap(), 4096);
        let other = RealDisk.open(&folder.join("log"), Access::Buffered, Create::Never).unwrap();
        assert_eq!(other.read_at(0, 4096).await.unwrap().len(), 4096);
    });
}

/// The ring opens by path; what it opens must be the file that was opened first.
#[test]
fn a_renamed_and_a_removed_file_stay_what_they_were() {
    on_and_off_a_shard("moved", |folder| async move {
        let (old, new) = (folder.join("old"), folder.join("new"));
        let file = RealDisk.open(&old, Access::Buffered, Create::IfMissing).unwrap();
        file.write_now(0, &[b"kept"]).unwrap();
        RealDisk.rename(&old, &new).unwrap();
        fs::write(&old, "other").unwrap();
        RealDisk.remove_file(&new).await.unwrap();
        RealDisk.remove_file(&new).await.unwrap();
        file.sync_data().await.unwrap();
        assert_eq!(file.read_at(0, 9).await.unwrap(), "kept");
    });
}

#[test]
fn folders_are_made_listed_synced_and_removed() {
    on_and_off_a_shard("folders", |folder| async move {
        let inner = folder.join("x/y");
        RealDisk.create_dir_all(&inner).unwrap();
        RealDisk.create_dir_all(&inner).unwrap();
        RealDisk.write_file_atomically(&folder.join("x/b"), Bytes::from_static(b"12")).await.unwrap();
        RealDisk.write_file_atomically(&folder.join("x/b"), Bytes::from_static(b"123")).await.unwrap();
        let entry = |name: &str, is_dir, bytes| Entry { name: name.to_string(), is_dir, bytes };
        assert_eq!(RealDisk.list(&folder.join("x")).unwrap(), [entry("b", false, 3), entry("y", true, 0)]);
        assert_eq!(RealDisk.file_bytes(&folder.join("x/b")).unwrap(), 3);
        RealDisk.sync_dir(&inner).await.unwrap();
        RealDisk.sync_fs(&inner).await.unwrap();
        RealDisk.remove_dir_all(&folder.join("x")).await.unwrap();
        RealDisk.remove_dir_all(&folder.join("x")).await.unwrap();
        assert_eq!(RealDisk.file_bytes(&folder.join("x/b")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let space = RealDisk.space(&folder).unwrap();
        assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes);
    });
}

/// What a failed write says must keep its number: a full disk is told from a broken one by it.
#[test]
fn errors_keep_the_number_of_the_system_call() {
    on_and_off_a_shard("errors", |_folder| async move {
        let full = RealDisk.open(Path::new("/dev/full"), Access::Buffered, Create::Never).unwrap();
        assert_eq!(full.write_at(0, Bytes::from_static(b"x")).await.unwrap_err().kind(), io::ErrorKind::StorageFull);
        let missing = RealDisk.sync_dir(Path::new("/nowhere/at/all")).await.unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.raw_os_error().is_some());
    });
}

#[test]
#[should_panic(expected = "opened as Buffered")]
fn a_direct_write_to_a_buffered_file_is_a_bug() {
    let folder = Folder::new("misused");
    let file = RealDisk.open(&folder.0.join("a"), Access::Buffered, Create::IfMissing).unwrap();
    let _never = file.write_blocks_now(0, &[0; 4096]);
}

/// `--data-dir data` is as good as its full path.
#[test]
fn a_folder_may_be_named_relative_to_the_present_one() {
    on_and_off_a_shard("relative", |_| async { RealDisk.sync_dir(Path::new("src")).await.unwrap() });
}
