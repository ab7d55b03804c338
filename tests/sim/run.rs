//! One run: some lives of the broker on one disk, each from a start to an end that nobody wanted, or that somebody did.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use corelane::runtime::clock;
use corelane::runtime::host::{Queue, spawn};

use crate::attacks;
use crate::cluster::Cluster;
use crate::counters::Counters;
use crate::support::dice::Dice;
use crate::support::memory_disk::MemoryDisk;
use crate::support::memory_disk::faults::{Call, End, Failure, Fault, Point};
use crate::support::memory_disk::watch::AtTheEnd;
use crate::support::mini_host::MiniHost;
use crate::world::{Client, Pending, World};
use crate::{admin, checks, cluster, groups, ledger, payers, readers};

/// Operations of clients in a run, at least.
const OPERATIONS: usize = 200;
/// A life that does not end by itself is at its end after so much virtual time.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// How a run is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Make a number of all calls to the disk.
    pub trace: bool,
    /// Print what happens.
    pub tell: bool,
}

/// Where a life was when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Checking,
    Serving,
    Stopping,
}

/// How a life is to go.
#[derive(Debug)]
pub struct Plan {
    pub shards: usize,
    /// In the order of the clients' need: commit, intervals, sizes.
    pub settings: Vec<(&'static str, &'static str)>,
    pub end: End,
    /// The call within which it ends; otherwise it ends at some moment, or in order.
    pub point: Option<Point>,
    pub stops: bool,
    pub operations: usize,
    pub serves: Duration,
    /// Calls that fail while it starts.
    pub fails_to_start: Option<Failure>,
    /// Calls that fail while it serves.
    pub fails: Vec<Failure>,
    /// Room on the disk that is left while it serves, in bytes, from when on and for how long.
    pub room: Option<(u64, Duration, Duration)>,
    /// Files of this kind are spoilt before it begins.
    pub spoils: Option<&'static str>,
}

/// How a life came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Stopped,
    Unstarted,
    Elapsed,
}

pub const SETTINGS: &[(&str, &str)] = &[
    ("message.max.bytes", "30000"),
    ("corelane.log.file.bytes", "1048576"),
    ("corelane.log.file.used.bytes", "65536"),
    ("corelane.log.files.max", "2"),
    ("offsets.topic.num.partitions", "2"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("log.retention.check.interval.ms", "100"),
    ("transaction.state.log.num.partitions", "2"),
];
const INTERVALS: [&str; 3] = ["100", "200", "1000"];
const COMMITS: [&str; 3] = ["auto", "inline", "ring"];
const TAILS: [&str; 3] = ["1048576", "20000", "1000000000"];

/// Calls at which it is bad to end.
const BAD_MOMENTS: &[(Call, &str)] = &[
    (Call::SyncData, ""),
    (Call::SyncData, "checkpoint"),
    (Call::SyncData, "/kafka/"),
    (Call::SyncFolder, ""),
    (Call::SyncFolder, "/kafka/"),
    (Call::SyncAll, ""),
    (Call::Rename, ""),
    (Call::Rename, "checkpoint"),
    (Call::Remove, ""),
    (Call::RemoveFolder, ""),
    (Call::WriteBlocks, "log-"),
    (Call::WriteBlocks, "store"),
    (Call::WriteBlocks, "catalog"),
    (Call::Write, ".log"),
    (Call::Truncate, ""),
    (Call::Open, ".log"),
    (Call::MakeFolder, ""),
];

/// Calls that fail.
const FAILING: &[(Call, &str)] = &[
    (Call::WriteBlocks, "log-"),
    (Call::WriteBlocks, "catalog"),
    (Call::Write, ".log"),
    (Call::Write, "checkpoint"),
    (Call::Write, "index"),
    (Call::SyncData, ".log"),
    (Call::SyncData, "checkpoint"),
    (Call::SyncData, ""),
    (Call::SyncFolder, ""),
    (Call::SyncFolder, "shard-"),
    (Call::Read, ""),
    (Call::Read, ".log"),
    (Call::Open, ""),
    (Call::Open, ".log"),
    (Call::Rename, ""),
    (Call::Remove, ""),
    (Call::RemoveFolder, ""),
    (Call::MakeFolder, ""),
    (Call::SyncAll, ""),
    (Call::Truncate, ""),
];
/// What can be made anew from the rest.
const DERIVED: [&str; 6] =
    ["index", "timeindex", ".snapshot", ".seal", "leader-epoch-checkpoint", "-offset-checkpoint"];

fn failure(dice: &mut Dice) -> Failure {
    let (call, part) = FAILING[dice.below(FAILING.len())];
    let from = Point { call: Some(call), part, after: dice.below(40) as u64 };
    let fault = if dice.below(4) == 0 { Fault::Short } else { Fault::Error };
    // Not for ever: when no checkpoint can be written any more, and the commit log is full, producers wait for ever.
    Failure { from, times: [1, 1, 3, 12][dice.below(4)], fault }
}

impl Plan {
    fn draw(dice: &mut Dice, operations: usize) -> Self {
        let mut settings = SETTINGS.to_vec();
        settings.push(("corelane.checkpoint.interval.ms", INTERVALS[dice.below(3)]));
        settings.push(("corelane.commit", COMMITS[dice.below(3)]));
        settings.push(("corelane.checkpoint.producers.step", ["1", "2", "1024"][dice.below(3)]));
        settings.push(("corelane.tail.cache.bytes", TAILS[dice.below(3)]));
        if dice.below(2) == 0 {
            settings.push(("log.cleaner.min.cleanable.ratio", "0.01"));
        }
        let end = match dice.below(8) {
            0..4 => End::Kill,
            other => End::PowerCut { spoils: other == 7 },
        };
        let point = match dice.below(8) {
            0 | 1 => None,
            2 => Some(Point::any(dice.below(80) as u64)),
            3 => Some(Point::any(dice.below(500) as u64)),
            4 => Some(Point::any(dice.below(4_000) as u64)),
            _ => {
                let (call, part) = BAD_MOMENTS[dice.below(BAD_MOMENTS.len())];
                Some(Point { call: Some(call), part, after: dice.below(30) as u64 })
            }
        };
        let stops = point.is_none() && dice.below(3) == 0;
        let serves = Duration::from_millis(dice.below(2_500) as u64);
        let (mut fails_to_start, mut fails, mut room) = (None, Vec::new(), None);
        match dice.below(16) {
            0 => fails_to_start = Some(failure(dice)),
            1 | 2 => fails.extend((0..1 + dice.below(2)).map(|_| failure(dice))),
            3 => {
                let millis = |dice: &mut Dice| Duration::from_millis(dice.below(1_500) as u64);
                room = Some((dice.below(200_000) as u64, millis(dice), millis(dice)));
            }
            _ => {}
        }
        let spoils = if dice.below(6) == 0 { Some(DERIVED[dice.below(DERIVED.len())]) } else { None };
        let shards = 1 + dice.below(3);
        Self { shards, settings, end, point, stops, operations, serves, fails_to_start, fails, room, spoils }
    }

    /// Nothing bad happens in it.
    fn quiet(dice: &mut Dice, operations: usize) -> Self {
        let drawn = Self::draw(dice, operations);
        Self {
            point: None,
            stops: true,
            serves: LIFE_MAX,
            fails_to_start: None,
            fails: Vec::new(),
            room: None,
            ..drawn
        }
    }
}

/// One run; the number stands for all calls to the disk if they are traced.
pub fn run_one(seed: u64, options: &Options, counters: &mut Counters) -> u64 {
    let mut dice = Dice::of(seed);
    let disk = MemoryDisk::default();
    disk.simulate(dice.other());
    if options.trace {
        disk.trace();
    }
    let world = Rc::new(RefCell::new(new_world(&mut dice)));
    attacks::prepare(&mut world.borrow_mut(), seed);
    ledger::prepare(&mut world.borrow_mut(), seed);
    let lives = 2 + dice.below(4);
    let mut shards = 0;
    for life in 0..lives {
        let mut plan = Plan::draw(&mut dice, OPERATIONS / lives);
        attacks::shape(&mut world.borrow_mut(), &mut plan, &mut dice);
        if life > 0 && plan.shards != shards {
            world.borrow_mut().one("cores changed");
        }
        shards = plan.shards;
        live(&disk, &world, plan, &mut dice, options);
    }
    let left = OPERATIONS.saturating_sub(world.borrow().operations);
    if world.borrow().attack.ends_in_damage() {
        let plan = Plan { stops: false, ..Plan::quiet(&mut dice, left) };
        live(&disk, &world, plan, &mut dice, options);
        attacks::look_back(&disk, &world, &mut dice);
    } else {
        live(&disk, &world, Plan::quiet(&mut dice, left), &mut dice, options);
        live(&disk, &world, Plan::quiet(&mut dice, 0), &mut dice, options);
    }
    let world = &mut *world.borrow_mut();
    world.one("runs");
    world.counters.add("operations", world.operations as u64);
    counters.absorb(&world.counters);
    disk.traced()
}

fn new_world(dice: &mut Dice) -> World {
    let mut world = World::default();
    world.names.push(admin::named(groups::ANCHOR.to_owned(), dice));
    for number in 0..1 + dice.below(3) {
        world.names.push(admin::named(format!("t{number}"), dice));
    }
    world.groups = (0..1 + dice.below(3)).map(groups::made).collect();
    world
}

/// One life, and what comes of the disk at its end.
fn live(disk: &MemoryDisk, world: &Rc<RefCell<World>>, plan: Plan, dice: &mut Dice, options: &Options) {
    if let Some(part) = plan.spoils {
        spoil(disk, part, dice, &mut world.borrow_mut());
    }
    attacks::while_down(disk, &mut world.borrow_mut(), dice);
    if let Some(point) = plan.point {
        disk.end_at(point, plan.end);
    }
    if options.tell {
        println!("a life: {plan:?}");
    }
    let host = MiniHost::new(dice.roll());
    if dice.below(8) > 0 {
        host.shuffle(dice.other());
    }
    cluster::begin_life_on(disk);
    let phase = Rc::new(Cell::new(Phase::Starting));
    let end = plan.end;
    let main = main(disk.clone(), Rc::clone(world), plan, Rc::clone(&phase), host.clone(), dice.other());
    let came = host.run(main, || disk.is_over());
    let world = &mut *world.borrow_mut();
    let at_the_end = disk.at_the_end();
    // After a stop in order everything is on disk, and after a start that failed somebody tries again.
    let end = if came == Some(Came::Unstarted) { End::Kill } else { end };
    disk.limit(None);
    let unflushed = disk.end(end);
    if options.tell {
        println!("  ended {:?} by {end:?}, came {came:?}, {unflushed:?} {at_the_end:?}", phase.get());
        for path in disk.paths() {
            println!("    {} {} bytes", path.display(), disk.content(&path).len());
        }
    }
    match came {
        Some(Came::Stopped) => return world.one("clean stops"),
        Some(Came::Unstarted) => return world.one("starts that failed with the disk"),
        Some(Came::Elapsed) => world.one("ended at some moment"),
        None => world.one("ended within a call"),
    }
    note_end(world, phase.get(), &at_the_end);
    match end {
        End::Kill => world.one("kills"),
        End::PowerCut { .. } => {
            world.one("power cuts");
            if unflushed.files > 0 {
                world.one("power cuts with unflushed data");
            }
            if unflushed.names > 0 {
                world.one("power cuts with unflushed names");
            }
            world.lose_power();
        }
    }
}

fn note_end(world: &mut World, phase: Phase, found: &AtTheEnd) {
    world.one(match phase {
        Phase::Starting => "ended while recovering",
        Phase::Checking => "ended while checking",
        Phase::Serving => "ended while serving",
        Phase::Stopping => "ended while stopping",
    });
    if found.is_on_recycled {
        world.one("ended on a recycled file of the commit log");
    }
    if found.is_in_several {
        world.one("ended with groups in more than one file");
    }
    if let Some((call, path)) = &found.last {
        let path = path.to_str().unwrap_or_default();
        let what = match call {
            Call::WriteBlocks if path.contains("/log-") => "ended within a group (between segment and commit log)",
            Call::WriteBlocks if path.contains("catalog") => "ended within a change of the catalog",
            Call::WriteBlocks => "ended within a write of the store",
            Call::Write if path.ends_with(".log") => "ended within the write of a segment (before the commit log)",
            Call::Write | Call::SyncData | Call::Rename if path.contains("checkpoint") => "ended within a checkpoint",
            Call::SyncData if path.contains("/kafka/") => "ended within the flush of a partition",
            Call::Open if path.ends_with(".log") => "ended within the making of a segment",
            Call::Rename if path.ends_with("log") => "ended while segments are retired",
            Call::Rename => "ended within a rename",
            Call::Remove | Call::RemoveFolder => "ended within a removal",
            Call::SyncFolder | Call::SyncAll => "ended within the flush of names",
            Call::Truncate => "ended within a truncation",
            _ => "ended within another call",
        };
        world.one(what);
    }
}

/// Somebody spoils files while no broker runs.
fn spoil(disk: &MemoryDisk, part: &str, dice: &mut Dice, world: &mut World) {
    let paths: Vec<_> = disk.paths().into_iter().filter(|path| path.to_string_lossy().contains(part)).collect();
    for path in paths {
        match dice.below(6) {
            0 => disk.remove(&path),
            1 => disk.change(&path, |bytes| bytes.truncate(dice.below(bytes.len() + 1))),
            2 => disk.change(&path, |bytes| bytes.fill(0)),
            3 => disk.change(&path, |bytes| {
                let at = dice.below(bytes.len());
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.below(8));
            }),
            _ => continue,
        }
        world.one("derived files spoilt while it was down");
    }
    disk.settle();
}

async fn main(
    disk: MemoryDisk,
    world: Rc<RefCell<World>>,
    plan: Plan,
    phase: Rc<Cell<Phase>>,
    host: MiniHost,
    mut dice: Dice,
) -> Came {
    let failed = disk.failed();
    if let Some(failure) = plan.fails_to_start {
        disk.fail(failure);
    }
    let started = Cluster::start(&disk, &plan.settings, plan.shards).await;
    disk.stop_failing();
    if disk.failed() > failed {
        return Came::Unstarted;
    }
    let cluster = Rc::new(started.unwrap_or_else(|sentence| panic!("the broker does not start: {sentence}")));
    phase.set(Phase::Checking);
    let client = Client {
        cluster: Rc::clone(&cluster),
        world: Rc::clone(&world),
        operations_max: world.borrow().operations + plan.operations,
        token: Rc::default(),
        may_fail: !plan.fails.is_empty() || plan.room.is_some(),
    };
    checks::check(&client, &mut dice).await;
    phase.set(Phase::Serving);
    plan.fails.iter().for_each(|failure| disk.fail(*failure));
    if let Some(room) = plan.room {
        spawn(Queue::Requests, fill_up(disk.clone(), Rc::clone(&world), room));
    }
    begin_clients(&client, &host, &mut dice).await;
    attacks::begin(&client, &disk, &mut dice);
    let until = clock::monotonic() + plan.serves;
    while client.goes_on() && clock::monotonic() < until {
        clock::sleep(Duration::from_millis(1)).await;
    }
    if disk.failed() > failed {
        world.borrow_mut().one("lives with failing calls");
    }
    if !plan.stops {
        return Came::Elapsed;
    }
    phase.set(Phase::Stopping);
    let Client { token, may_fail, .. } = client;
    token.set(true);
    while Rc::strong_count(&token) > 1 {
        clock::sleep(Duration::from_millis(1)).await;
    }
    match cluster.stop().await {
        Ok(()) => Came::Stopped,
        Err(_) if may_fail => Came::Elapsed,
        Err(sentence) => panic!("the stop is not in order: {sentence}"),
    }
}

/// The disk is full for a while.
async fn fill_up(disk: MemoryDisk, world: Rc<RefCell<World>>, (room, after, during): (u64, Duration, Duration)) {
    clock::sleep(after).await;
    disk.limit(Some(disk.total_bytes() + room));
    world.borrow_mut().one("disk full");
    clock::sleep(during).await;
    disk.limit(None);
}

async fn begin_clients(client: &Client, host: &MiniHost, dice: &mut Dice) {
    let count = client.world.borrow().names.len();
    for at in 0..count {
        let is_missing = {
            let named = &client.world.borrow().names[at];
            named.id.is_none() && named.pending == Pending::Nothing
        };
        if is_missing && !admin::make(client, at, dice).await {
            continue;
        }
        admin::begin_producers(client, at, dice);
    }
    let groups = client.world.borrow().groups.len();
    for at in 0..groups {
        spawn(Queue::Requests, groups::commit(client.clone(), at, dice.other()));
    }
    let payers = client.world.borrow().ledger.payers.len();
    if payers > 0 {
        ledger::make(client, dice).await;
        (0..payers).for_each(|at| spawn(Queue::Requests, payers::pay(client.clone(), at, dice.other())));
        spawn(Queue::Requests, ledger::watch(client.clone(), dice.other()));
    }
    for _ in 0..1 + dice.below(2) {
        spawn(Queue::Requests, readers::read(client.clone(), dice.other()));
    }
    spawn(Queue::Requests, admin::manage(client.clone(), dice.other()));
    spawn(Queue::Requests, admin::configure(client.clone(), dice.other()));
    spawn(Queue::Requests, admin::delete_records(client.clone(), dice.other()));
    if dice.below(4) == 0 {
        spawn(Queue::Requests, admin::turn_clock(client.clone(), host.clone(), dice.other()));
    }
}
