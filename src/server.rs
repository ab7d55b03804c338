//! Start order, shutdown order.
//!
//! Start: checks in the main thread, each one sentence → listener → executors → recovery (shard 0 leads) → acceptor →
//! ready. Stop: no new connections → no new requests, what was taken is finished → everything flushed, one full
//! checkpoint per shard → the store says clean → out. A crash at any moment is as good as the stop, only slower to recover.

use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use bytes::Bytes;

use crate::broker::messages::Message;
use crate::broker::shard::{Shard, ShardParts};
use crate::broker::{lifecycle, recovery};
use crate::config::{Config, refuse_kafka_log_dir};
use crate::ids::ShardId;
use crate::log::layout::Layout;
use crate::log::store::Store;
use crate::net::acceptor::Acceptor;
use crate::net::connection;
use crate::net::{Begun, Charge, ConnectionInfo, Connections, FrameHead, Limits, Service, Terms};
use crate::requests::{self, Api};
use crate::runtime::budget::Budget;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::executors;
use crate::runtime::host::{self, Queue};
use crate::runtime::lane::{LaneReceiver, LaneSenders, mesh};
use crate::runtime::real_disk::{RealDisk, bound_descriptors, settle_device};
use crate::runtime::startup::{self, StopSignals};

/// Largest frame of everything but Produce.
const COLD_FRAME_BYTES_MAX: usize = 8 << 20;
/// Requests of one connection that may be unanswered.
const UNANSWERED_MAX: usize = 64;
/// A stop that makes no progress for so long is given up.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Connections that do not take their last answers are closed after this.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What a shard tells the main thread.
enum Report {
    /// Every shard answers.
    Ready,
    /// The start or the stop failed, in a sentence.
    Failed(String),
    /// The data folder is closed in order.
    Closed,
}

/// Runs the broker until a signal stops it.
///
/// # Errors
/// A sentence: why it could not start, or could not stop in order.
pub fn run(mut config: Config) -> Result<(), String> {
    executors::abort_on_panic();
    let signals = StopSignals::block()?;
    let _log_lines = start_logging(&config.log_filter)?;
    let signals = signals.watch();
    refuse_kafka_log_dir(&config.data_dir)?;
    let _lock = startup::lock_data_dir(&config.data_dir)?;
    startup::check_memlock()?;
    startup::check_io_uring()?;
    let cpus = startup::choose_cpus(config.cores)?;
    let descriptors = startup::share_descriptors(startup::raise_open_files(), cpus.len());
    bound_descriptors(descriptors.of_files / cpus.len());
    config.max_connections = config.max_connections.min(descriptors.of_connections);
    let listener = startup::bind(address_of(&config)?)?;
    tracing::info!("descriptors: {} for files, {} for connections", descriptors.of_files, descriptors.of_connections);
    let address = listener.local_addr().map_err(|error| format!("the listener has no address: {error}"))?;
    let broker = start(config, &cpus, listener, address)?;
    signals.serving();
    println!("corelane ready on {address}");
    io::stdout().flush().map_err(|error| format!("standard output cannot be written: {error}"))?;
    let signal = signals.wait();
    tracing::info!("{signal}: stopping");
    broker.stop()
}

fn start_logging(filter: &str) -> Result<tracing_appender::non_blocking::WorkerGuard, String> {
    let (writer, guard) = tracing_appender::non_blocking(io::stderr());
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| format!("corelane.log: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .init();
    Ok(guard)
}

fn address_of(config: &Config) -> Result<SocketAddr, String> {
    let listen = &config.listen;
    let host = if listen.host.is_empty() { "::" } else { &listen.host };
    let mut addresses = (host, listen.port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    addresses.next().ok_or_else(|| format!("{host} has no address: name another host with --listen"))
}

/// A broker that serves.
struct Broker {
    acceptor: Acceptor,
    lanes: LaneSenders<Message>,
    shards: executors::Shards<()>,
    reports: Receiver<Report>,
    progress: Arc<AtomicU64>,
}

fn start(config: Config, cpus: &[usize], listener: TcpListener, address: SocketAddr) -> Result<Broker, String> {
    let config = Arc::new(config);
    let layout = Layout::new(&config.data_dir);
    make_store(&layout)?;
    let (lanes, receivers) = mesh::<Message>(cpus.len());
    let (reporter, reports) = mpsc::channel();
    let progress = Arc::new(AtomicU64::new(0));
    let advertised = advertised(&config, address);
    let spin = Duration::from_micros(config.spin_us);
    let task = ShardTask {
        config: Arc::clone(&config),
        layout,
        advertised,
        lanes: lanes.clone(),
        reporter,
        progress: Arc::clone(&progress),
    };
    let started = executors::start_with(cpus, spin, receivers, move |id, lane| task.clone().run(id, lane));
    let shards = started.map_err(|error| format!("a shard's thread cannot be started: {error}"))?;
    match reports.recv() {
        Ok(Report::Ready) => {}
        Ok(Report::Failed(sentence)) => return Err(sentence),
        Ok(Report::Closed) | Err(_) => return Err(end_of(shards)),
    }
    let to_shards = lanes.clone();
    let hand_over = move |shard, accepted| to_shards.send_from_thread(shard, Message::Connection(accepted));
    let acceptor = Acceptor::start(listener, cpus.len(), config.max_connections, hand_over)
        .map_err(|error| format!("the acceptor cannot be started: {error}"))?;
    Ok(Broker { acceptor, lanes, shards, reports, progress })
}

/// The first file that an executor opens must exist and not be empty, so the store is made before they start.
fn make_store(layout: &Layout) -> Result<(), String> {
    let own = layout.own();
    let opened = executors::block_on(Store::open_or_create(&RealDisk, &own, recovery::BLOCK_LOG2));
    opened.map(drop).map_err(|error| format!("cannot open the store: {error}"))
}

/// What clients are told; a port 0 stands for the one that was bound.
fn advertised(config: &Config, address: SocketAddr) -> (String, i32) {
    let port = if config.advertised.port == 0 { address.port() } else { config.advertised.port };
    (config.advertised.host.clone(), i32::from(port))
}

fn end_of(shards: executors::Shards<()>) -> String {
    let failed = shards.join().into_iter().find_map(Result::err);
    failed.map_or_else(
        || "the shards ended before they were ready".to_string(),
        |error| format!("a shard cannot start: {error}"),
    )
}

impl Broker {
    fn stop(self) -> Result<(), String> {
        self.acceptor.stop();
        self.lanes.send_from_thread(ShardId(0), Message::Stop);
        let mut seen = self.progress.load(Ordering::Relaxed);
        loop {
            match self.reports.recv_timeout(STOP_PATIENCE) {
                Ok(Report::Closed) => break,
                Ok(Report::Failed(sentence)) => return Err(sentence),
                Ok(Report::Ready) => {}
                Err(RecvTimeoutError::Timeout) if self.progress.load(Ordering::Relaxed) != seen => {
                    seen = self.progress.load(Ordering::Relaxed);
                }
                Err(_) => {
                    return Err("the stop made no progress for 10 s: leaving; the next start recovers".to_string());
                }
            }
        }
        let failed = self.shards.join().into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |error| Err(format!("a shard ended with an error: {error}")))
    }
}

/// What each shard's thread begins with.
#[derive(Clone)]
struct ShardTask {
    config: Arc<Config>,
    layout: Layout,
    advertised: (String, i32),
    lanes: LaneSenders<Message>,
    reporter: Sender<Report>,
    progress: Arc<AtomicU64>,
}

impl ShardTask {
    async fn run(self, id: ShardId, lane: LaneReceiver<Message>) {
        if let Err(error) = settle_device(&self.layout.own().join("store")).await {
            return self.report(Report::Failed(format!("{id} cannot open the store: {error}")));
        }
        let shard = Shard::new(ShardParts {
            id,
            disk: RealDisk,
            config: Arc::clone(&self.config),
            advertised: self.advertised.clone(),
            layout: self.layout.clone(),
            lanes: self.lanes.clone(),
            progress: Arc::clone(&self.progress),
        });
        let budget = Budget::new(self.config.memory_budget_bytes);
        let connections = Connections::new(id, self.limits(), budget);
        let service = Rc::new(BrokerService { shard: Rc::clone(&shard) });
        stop_with(&shard, &connections);
        if id == ShardId(0) {
            host::spawn(Queue::Requests, lead(Rc::clone(&shard), self.reporter.clone()));
        }
        shard
            .receive(lane, move |accepted| {
                let serving = connection::serve(accepted, Rc::clone(&service), Rc::clone(&connections));
                host::spawn(Queue::Requests, serving);
            })
            .await;
    }

    fn limits(&self) -> Limits {
        Limits {
            frame_bytes_max: self.config.request_max_bytes,
            unanswered_max: UNANSWERED_MAX,
            idle_max: Duration::from_millis(self.config.connections_max_idle_ms),
            ..Limits::default()
        }
    }

    fn report(&self, report: Report) {
        // The main thread may have left already.
        let _ = self.reporter.send(report);
    }
}

/// When the shard drains, its connections read no more, and leave once they have their answers.
fn stop_with<D: Disk>(shard: &Rc<Shard<D>>, connections: &Rc<Connections>) {
    let connections = Rc::clone(connections);
    shard.on_drain(Box::new(move || {
        let connections = Rc::clone(&connections);
        Box::pin(async move {
            connections.stop_reading();
            let late = Rc::clone(&connections);
            host::spawn(Queue::Requests, async move {
                clock::sleep(LAST_ANSWERS).await;
                late.close_all();
            });
            connections.all_closed().await;
        })
    }));
}

/// Shard 0 leads the start and the stop of all.
async fn lead(shard: Rc<Shard<RealDisk>>, reporter: Sender<Report>) {
    let report = |report| {
        // The main thread may have left already.
        let _ = reporter.send(report);
    };
    let store = match lifecycle::bring_up(&shard).await {
        Ok(store) => store,
        Err(sentence) => return report(Report::Failed(sentence)),
    };
    report(Report::Ready);
    shard.stop_asked().await;
    match lifecycle::shut_down(&shard, store).await {
        Ok(()) => report(Report::Closed),
        Err(sentence) => report(Report::Failed(sentence)),
    }
    shard.send_to_all(|| Message::Leave);
}

/// The requests of all connections of one shard.
struct BrokerService<D: Disk> {
    shard: Rc<Shard<D>>,
}

impl<D: Disk> Service for BrokerService<D> {
    fn admit(&self, head: FrameHead) -> Result<Terms, String> {
        let api = Api::from_key(head.api_key);
        if api != Some(Api::Produce) && head.bytes > COLD_FRAME_BYTES_MAX {
            let named = api.map_or_else(|| format!("API key {}", head.api_key), |api| format!("{api:?}"));
            return Err(format!(
                "a frame of {} bytes for {named}: only Produce may exceed {COLD_FRAME_BYTES_MAX} bytes",
                head.bytes
            ));
        }
        let cost = requests::cost(head.api_key, head.bytes);
        Ok(Terms { may_overlap: api == Some(Api::Produce), cost })
    }

    async fn begin(&self, connection: &ConnectionInfo, frame: Bytes, charge: &Charge) -> Begun {
        let api = frame.first_chunk().and_then(|key| Api::from_key(i16::from_be_bytes(*key)));
        if api == Some(Api::Fetch) {
            // A fetch may wait long, and its memory is the answer's, not the request's.
            charge.park();
        }
        let begun = requests::begin(&self.shard, connection.peer.ip(), frame).await;
        if matches!(api, Some(Api::JoinGroup | Api::SyncGroup)) && matches!(begun, Begun::Later(_)) {
            // Other members are waited for, minutes if need be; what was read is the group's from now on.
            charge.park();
        }
        begun
    }
}
