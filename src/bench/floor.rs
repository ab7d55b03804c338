//! `corelane bench floor`: what the hardware and the kernel cost without any broker.
//!
//! One blocking thread answers a loopback connection; before each answer it makes one durable block write, as a
//! commit log would: direct and synchronous, into a file that was filled with zeros before. The same without the
//! write, and the write without the connection, say where the time goes. The three take turns, so that a change of
//! the host's mood meets all of them.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use nix::fcntl::OFlag;

use super::Output;
use super::drive::{histogram, nanoseconds};
use super::frame::{FrameSpec, ProduceFrame};
use super::report::{Fields, Value, latency_fields, print};
use crate::runtime::aligned::{AlignedBuf, BLOCK};
use crate::runtime::clock;

/// Arguments of `corelane bench floor`.
#[derive(Args, Clone, Debug)]
pub struct FloorArgs {
    /// Folder on the file system that is measured; a file of 16 MiB is made in it and removed again
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Bytes of the record whose produce request is sent
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub record_bytes: usize,
    /// How long each of the three is measured
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    pub seconds: f64,
    /// Form of the result
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
}

/// Size of the file that is written round and round.
const FILE_BYTES: u64 = 16 << 20;
/// Bytes of a produce answer for a topic with a short name.
const ANSWER_BYTES: usize = 64;
/// How often the three take turns.
const TURNS: u32 = 10;

/// The first byte of a request says whether a write is wanted before the answer.
const WITH_WRITE: u8 = 1;

/// Measures and prints, one result for each of the three.
pub(super) fn run(args: &FloorArgs) -> Result<(), String> {
    if !(args.seconds.is_finite() && args.seconds > 0.0) {
        return Err("--seconds must be above 0".to_owned());
    }
    let path = args.dir.join(format!("corelane-bench-floor-{}", std::process::id()));
    let measured = measure(args, &path);
    // The file may never have come to be.
    let _ = std::fs::remove_file(&path);
    for (name, histogram) in &measured? {
        print(args.output, &fields(args, name, histogram));
    }
    Ok(())
}

fn measure(args: &FloorArgs, path: &Path) -> Result<[(&'static str, Histogram<u64>); 3], String> {
    let says = |error: std::io::Error| format!("{}: {error}", path.display());
    fill(path).map_err(says)?;
    let mut own_log = DurableLog::open(path).map_err(says)?;
    let mut request = vec![0; request_bytes(args.record_bytes)];
    let bytes = request.len();
    let listener = TcpListener::bind("127.0.0.1:0").map_err(says)?;
    let address = listener.local_addr().map_err(says)?;
    std::thread::scope(|scope| {
        let server = scope.spawn(move || serve(&listener, bytes, path));
        let turns = take_turns(TcpStream::connect(address), &mut request, &mut own_log, args.seconds);
        // The connection is closed by now, so the server ends.
        let served = server.join().unwrap_or_else(|_| Err(std::io::Error::other("the echo panicked")));
        turns.and_then(|all| served.map(|()| all))
    })
    .map_err(says)
}

fn take_turns(
    stream: std::io::Result<TcpStream>,
    request: &mut [u8],
    log: &mut DurableLog,
    seconds: f64,
) -> std::io::Result<[(&'static str, Histogram<u64>); 3]> {
    let mut stream = stream?;
    stream.set_nodelay(true)?;
    let turn = Duration::from_secs_f64(seconds / f64::from(TURNS));
    let (mut both, mut echo, mut write) = (histogram(), histogram(), histogram());
    for _ in 0..TURNS {
        request[0] = WITH_WRITE;
        repeat(turn, &mut both, || ask(&mut stream, request))?;
        request[0] = 0;
        repeat(turn, &mut echo, || ask(&mut stream, request))?;
        repeat(turn, &mut write, || log.write())?;
    }
    Ok([("floor_echo_and_write", both), ("floor_echo", echo), ("floor_write", write)])
}

fn request_bytes(record_bytes: usize) -> usize {
    let (client_id, topic) = (super::client::CLIENT_ID, "corelane-bench");
    let spec = FrameSpec {
        client_id,
        topic,
        partition: 0,
        acks: -1,
        timeout_ms: 0,
        record_bytes,
        records: 1,
        producer: None,
        transactional_id: None,
    };
    ProduceFrame::new(&spec).len()
}

fn repeat(
    duration: Duration,
    histogram: &mut Histogram<u64>,
    mut step: impl FnMut() -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut before = clock::monotonic();
    let end = before + duration;
    while before < end {
        step()?;
        let after = clock::monotonic();
        histogram.saturating_record(nanoseconds(after.saturating_sub(before)));
        before = after;
    }
    Ok(())
}

fn ask(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<()> {
    stream.write_all(request)?;
    stream.read_exact(&mut [0; ANSWER_BYTES])
}

fn serve(listener: &TcpListener, request_bytes: usize, path: &Path) -> std::io::Result<()> {
    let mut log = DurableLog::open(path)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut request = vec![0; request_bytes];
    loop {
        match stream.read_exact(&mut request) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        if request[0] == WITH_WRITE {
            log.write()?;
        }
        stream.write_all(&[0; ANSWER_BYTES])?;
    }
}

/// Makes the file full of zeros: a write that changes the file's size or extents would be measured with the journal.
fn fill(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let zeros = vec![0; 1 << 20];
    for _ in 0..FILE_BYTES / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all()
}

/// A file whose every block write is durable when it returns.
struct DurableLog {
    file: File,
    block: AlignedBuf,
    position: u64,
}

impl DurableLog {
    fn open(path: &Path) -> std::io::Result<Self> {
        let flags = (OFlag::O_DIRECT | OFlag::O_DSYNC).bits();
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        let mut block = AlignedBuf::zeroed(BLOCK);
        block.bytes_mut().fill(0x5a);
        Ok(Self { file, block, position: 0 })
    }

    fn write(&mut self) -> std::io::Result<()> {
        self.file.write_all_at(self.block.bytes(), self.position)?;
        self.position = (self.position + BLOCK as u64) % FILE_BYTES;
        Ok(())
    }
}

fn fields(args: &FloorArgs, name: &str, histogram: &Histogram<u64>) -> Fields {
    let mut fields = vec![
        ("bench", Value::Text(name.to_owned())),
        ("dir", Value::Text(args.dir.display().to_string())),
        ("record_bytes", Value::Whole(args.record_bytes as u64)),
        ("requests", Value::Whole(histogram.len())),
    ];
    fields.extend(latency_fields("", histogram));
    fields
}
