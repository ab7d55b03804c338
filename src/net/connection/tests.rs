//! A small service behind real sockets, one shard per test.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::*;
use crate::ids::ShardId;
use crate::net::acceptor::Acceptor;
use crate::net::{FrameHead, Limits, Terms};
use crate::runtime::budget::Budget;
use crate::runtime::executors::{self, Shards};
use crate::runtime::lane::{LaneReceiver, LaneSenders, mesh};
use crate::runtime::{clock, host, startup};

/// May overlap; answers after as many milliseconds as the payload says.
const LATER: i16 = 0;
/// Must not overlap; answers at once.
const ECHO: i16 = 1;
/// May overlap; no answer.
const SILENT: i16 = 2;
const CLOSE: i16 = 3;
/// Must not overlap; holds no memory while it waits as many milliseconds as the payload says.
const POLL: i16 = 4;
/// Must not overlap; answers as many bytes as the payload says.
const LARGE: i16 = 5;
/// Not taken in at all.
const UNKNOWN: i16 = 99;

#[derive(Debug, PartialEq)]
enum Event {
    /// A frame longer than most was taken in.
    Admitted,
    Begun(i16),
    Left,
}

struct Echo {
    events: mpsc::Sender<Event>,
}

impl Service for Echo {
    fn admit(&self, head: FrameHead) -> Result<Terms, String> {
        if head.bytes > 500 {
            self.events.send(Event::Admitted).unwrap();
        }
        match head.api_key {
            UNKNOWN => Err("unknown key".to_string()),
            key => Ok(Terms { may_overlap: matches!(key, LATER | SILENT), cost: head.bytes }),
        }
    }

    async fn begin(&self, _connection: &ConnectionInfo, mut frame: Bytes, charge: &Charge) -> Begun {
        let key = frame.get_i16();
        frame.advance(2);
        self.events.send(Event::Begun(key)).unwrap();
        let number = frame.slice(4..).first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
        match key {
            SILENT => Begun::Now(Outcome::Nothing),
            CLOSE => Begun::Now(Outcome::Close("asked to".to_string())),
            LATER => Begun::Later(Box::pin(answer_after(number, frame, None))),
            POLL => {
                charge.park();
                let left = Left(self.events.clone());
                Begun::Later(Box::pin(answer_after(number, frame, Some(left))))
            }
            LARGE => {
                let mut answer = BytesMut::from(&frame[..4]);
                answer.put_bytes(7, number as usize);
                Begun::Now(framed(&answer))
            }
            _ => Begun::Now(framed(&frame)),
        }
    }
}

struct Left(mpsc::Sender<Event>);

impl Drop for Left {
    fn drop(&mut self) {
        let _over = self.0.send(Event::Left);
    }
}

async fn answer_after(milliseconds: u32, frame: Bytes, _left: Option<Left>) -> Outcome {
    clock::sleep(Duration::from_millis(u64::from(milliseconds))).await;
    framed(&frame)
}

fn framed(content: &[u8]) -> Outcome {
    let mut answer = BytesMut::with_capacity(content.len() + 4);
    answer.put_i32(i32::try_from(content.len()).unwrap());
    answer.put_slice(content);
    Outcome::Answer(answer.freeze())
}

enum Message {
    Accept(Accepted),
    Stop,
}

/// One shard with its acceptor.
struct Broker {
    address: SocketAddr,
    acceptor: Option<Acceptor>,
    lane: LaneSenders<Message>,
    shards: Option<Shards<usize>>,
    events: mpsc::Receiver<Event>,
}

impl Broker {
    fn start(limits: Limits, budget: usize, connections_max: usize) -> Self {
        let listener = startup::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (lane, receivers) = mesh(1);
        let (sender, events) = mpsc::channel();
        let cpus = startup::choose_cpus(Some(1)).unwrap();
        let shards = executors::start_with(&cpus, Duration::ZERO, receivers, move |shard, receiver| {
            run_shard(shard, receiver, limits, budget, Echo { events: sender.clone() })
        });
        let to_shard = lane.clone();
        let acceptor = Acceptor::start(listener, 1, connections_max, move |shard, accepted| {
            to_shard.send_from_thread(shard, Message::Accept(accepted));
        });
        Self { address, acceptor: Some(acceptor.unwrap()), lane, shards: Some(shards.unwrap()), events }
    }

    fn usual() -> Self {
        Self::start(Limits::default(), 1 << 20, 100)
    }

    fn connect(&self) -> Client {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket }
    }

    fn begun(&self, key: i16) {
        assert_eq!(self.events.recv_timeout(Duration::from_secs(20)), Ok(Event::Begun(key)));
    }

    /// Stops cleanly; returns what is free of the budget then.
    fn stop(mut self) -> usize {
        self.ask_to_stop();
        self.shards.take().unwrap().join().remove(0).unwrap()
    }

    fn ask_to_stop(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.stop();
        }
        self.lane.send_from_thread(ShardId(0), Message::Stop);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.ask_to_stop();
    }
}

async fn run_shard(
    shard: ShardId,
    mut lane: LaneReceiver<Message>,
    limits: Limits,
    budget: usize,
    service: Echo,
) -> usize {
    let connections = Connections::new(shard, limits, Budget::new(budget));
    let service = Rc::new(service);
    let mut batch = Vec::new();
    while lane.next_batch(16, &mut batch).await {
        for message in batch.drain(..) {
            let Message::Accept(accepted) = message else {
                connections.stop_reading();
                connections.all_closed().await;
                return connections.budget().free();
            };
            host::spawn(host::Queue::Requests, serve(accepted, Rc::clone(&service), Rc::clone(&connections)));
        }
    }
    0
}

struct Client {
    socket: TcpStream,
}

fn request(key: i16, correlation: u32, number: u32) -> Vec<u8> {
    let mut frame = 16_i32.to_be_bytes().to_vec();
    frame[3] = 12;
    frame.extend(key.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(correlation.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame
}

impl Client {
    fn send(&mut self, key: i16, correlation: u32, number: u32) {
        self.socket.write_all(&request(key, correlation, number)).unwrap();
    }

    /// Reads one answer; returns its correlation and its length behind that.
    fn answer(&mut self) -> (u32, usize) {
        let mut head = [0; 8];
        self.socket.read_exact(&mut head).unwrap();
        let (length, correlation) = head.split_at(4);
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize - 4;
        self.socket.read_exact(&mut vec![0; length]).unwrap();
        (u32::from_be_bytes(correlation.try_into().unwrap()), length)
    }

    /// Waits until the broker has closed; returns after how long.
    fn closed(&mut self) -> Duration {
        let before = clock::monotonic();
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the broker did not close: {error}"),
        }
        clock::monotonic() - before
    }
}

#[test]
fn answers_come_in_the_order_of_asking() {
    let broker = Broker::usual();
    let mut client = broker.connect();
    let mut all = Vec::new();
    let mut expected = Vec::new();
    for correlation in 0..400 {
        let key = [LATER, LATER, ECHO, SILENT, LATER, LARGE, POLL][correlation as usize % 7];
        all.extend(request(key, correlation, (correlation * 7) % 5));
        if key != SILENT {
            expected.push(correlation);
        }
    }
    client.socket.write_all(&all).unwrap();
    let answered: Vec<u32> = expected.iter().map(|_| client.answer().0).collect();
    assert_eq!(answered, expected);
    assert_eq!(broker.stop(), 1 << 20);
}

#[test]
fn what_may_overlap_begins_before_earlier_answers_and_the_rest_after_them() {
    let broker = Broker::usual();
    let mut client = broker.connect();
    client.send(LATER, 1, 300);
    client.send(LATER, 2, 0);
    broker.begun(LATER);
    broker.begun(LATER);
    client.send(ECHO, 3, 0);
    assert_eq!(broker.events.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
    assert_eq!([client.answer().0, client.answer().0, client.answer().0], [1, 2, 3]);
    broker.begun(ECHO);
}

#[test]
fn no_more_requests_than_allowed_are_unanswered() {
    let broker = Broker::start(Limits { unanswered_max: 4, ..Limits::default() }, 1 << 20, 10);
    let mut client = broker.connect();
    (0..6).for_each(|correlation| client.send(LATER, correlation, 200));
    (0..4).for_each(|_| broker.begun(LATER));
    assert_eq!(broker.events.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
    assert_eq!((0..6).map(|_| client.answer().0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_is_not_the_protocol_closes_its_connection_and_no_other() {
    let broker = Broker::usual();
    let mut other = broker.connect();
    let large = 104_857_601_i32.to_be_bytes();
    let unknown = request(UNKNOWN, 1, 1);
    let hostile: [&[u8]; 6] =
        [b"GET / HTTP/1.1\r\n", &[0x16, 3, 1, 2, 0, 1], &[0xff; 4], &large, &[0, 0, 0, 3, 1, 2, 3], &unknown];
    for bytes in hostile {
        let mut client = broker.connect();
        client.socket.write_all(bytes).unwrap();
        assert!(client.closed() < Duration::from_secs(1), "{bytes:?}");
        other.send(ECHO, 1, 1);
        assert_eq!(other.answer(), (1, 4));
    }
    assert_eq!(broker.stop(), 1 << 20);
}

#[test]
fn a_refused_request_closes_behind_earlier_answers() {
    let broker = Broker::usual();
    let mut client = broker.connect();
    let all = [request(LATER, 1, 50), request(CLOSE, 2, 0), request(ECHO, 3, 0)].concat();
    client.socket.write_all(&all).unwrap();
    assert_eq!(client.answer().0, 1);
    client.closed();
    broker.begun(LATER);
    broker.begun(CLOSE);
    assert_eq!(broker.events.recv_timeout(Duration::from_millis(20)), Err(mpsc::RecvTimeoutError::Timeout));
}

#[test]
fn a_large_frame_arrives_in_pieces() {
    let broker = Broker::start(Limits::default(), 1 << 20, 10);
    let mut client = broker.connect();
    let payload = 3_000_000;
    let mut frame = request(ECHO, 5, 0);
    frame.resize(payload + 12, 9);
    let length = i32::try_from(payload + 8).unwrap().to_be_bytes();
    frame[..4].copy_from_slice(&length);
    let both = [frame, request(ECHO, 6, 0)].concat();
    let mut writing = client.socket.try_clone().unwrap();
    let writer = std::thread::spawn(move || both.chunks(100_000).for_each(|part| writing.write_all(part).unwrap()));
    assert_eq!(client.answer(), (5, payload));
    assert_eq!(client.answer(), (6, 4));
    writer.join().unwrap();
    assert_eq!(broker.stop(), 1 << 20, "what costs more than the budget takes all of it and gives it back");
}

#[test]
fn memory_is_taken_before_a_frame_is_read_and_others_wait_for_it() {
    let broker = Broker::start(Limits::default(), 1000, 10);
    let (mut first, mut second) = (broker.connect(), broker.connect());
    let mut half = request(ECHO, 1, 0);
    half[2..4].copy_from_slice(&995_i16.to_be_bytes());
    first.socket.write_all(&half).unwrap();
    first.send(ECHO, 0, 0);
    assert_eq!(broker.events.recv_timeout(Duration::from_secs(20)), Ok(Event::Admitted));
    second.send(ECHO, 2, 0);
    assert_eq!(broker.events.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
    first.socket.shutdown(Shutdown::Both).unwrap();
    assert_eq!(second.answer().0, 2);
    assert_eq!(broker.stop(), 1000);
}

#[test]
fn a_parked_request_holds_no_memory() {
    let broker = Broker::start(Limits::default(), 12, 10);
    let (mut first, mut second) = (broker.connect(), broker.connect());
    first.send(POLL, 1, 500);
    broker.begun(POLL);
    second.send(ECHO, 2, 0);
    assert_eq!(second.answer().0, 2);
    assert_eq!(first.answer().0, 1);
}

const IDLE: Duration = Duration::from_millis(400);

#[test]
fn the_silent_are_closed_and_those_who_wait_for_the_broker_are_not() {
    let broker = Broker::start(Limits { idle_max: IDLE, ..Limits::default() }, 1 << 20, 10);
    let (mut idle, mut half, mut polling) = (broker.connect(), broker.connect(), broker.connect());
    half.socket.write_all(&request(ECHO, 1, 0)[..9]).unwrap();
    polling.send(POLL, 1, 1500);
    for client in [&mut idle, &mut half] {
        assert!(client.closed() < IDLE * 3);
    }
    assert_eq!(polling.answer().0, 1);
    assert!(polling.closed() >= IDLE / 2);
}

#[test]
fn a_half_sent_frame_does_not_keep_memory_that_others_wait_for() {
    let limits = Limits { stalled_max: IDLE, ..Limits::default() };
    let broker = Broker::start(limits, 1000, 10);
    let (mut first, mut second) = (broker.connect(), broker.connect());
    let mut half = request(ECHO, 1, 0);
    half[2..4].copy_from_slice(&995_i16.to_be_bytes());
    first.socket.write_all(&half).unwrap();
    assert_eq!(broker.events.recv_timeout(Duration::from_secs(20)), Ok(Event::Admitted));
    second.send(ECHO, 2, 0);
    assert_eq!(second.answer().0, 2);
    first.closed();
}

#[test]
fn a_client_that_does_not_read_holds_one_answer_and_is_closed() {
    let broker = Broker::start(Limits { idle_max: IDLE, ..Limits::default() }, 1 << 20, 10);
    let mut client = broker.connect();
    (0..20).for_each(|correlation| client.send(LARGE, correlation, 16_000_000));
    broker.begun(LARGE);
    let mut begun = 1;
    while broker.events.recv_timeout(IDLE * 4) == Ok(Event::Begun(LARGE)) {
        begun += 1;
    }
    assert!(begun <= 2, "{begun} answers of 16 MB were made for a client that reads none");
    client.closed();
    assert_eq!(broker.stop(), 1 << 20);
}

#[test]
fn a_client_that_leaves_during_a_long_poll_is_noticed() {
    let broker = Broker::usual();
    let mut client = broker.connect();
    client.send(POLL, 1, 60_000);
    broker.begun(POLL);
    drop(client);
    assert_eq!(broker.events.recv_timeout(Duration::from_secs(5)), Ok(Event::Left));
}

#[test]
fn a_flood_is_turned_away_and_leaves_no_trace() {
    let broker = Broker::start(Limits::default(), 1 << 20, 3);
    let mut kept: Vec<Client> = (0..3).map(|_| broker.connect()).collect();
    kept.iter_mut().for_each(|client| {
        client.send(ECHO, 1, 1);
        client.answer();
    });
    for _ in 0..50 {
        assert!(broker.connect().closed() < Duration::from_secs(1));
    }
    kept[1].send(ECHO, 2, 1);
    assert_eq!(kept[1].answer().0, 2);
    kept.pop();
    while broker.acceptor.as_ref().unwrap().connections() > 2 {
        std::thread::yield_now();
    }
    let mut late = broker.connect();
    late.send(ECHO, 3, 1);
    assert_eq!(late.answer().0, 3);
}

#[test]
fn a_stop_answers_what_has_begun_and_reads_nothing_more() {
    let broker = Broker::usual();
    let (mut busy, mut idle) = (broker.connect(), broker.connect());
    idle.send(ECHO, 1, 0);
    idle.answer();
    broker.begun(ECHO);
    busy.send(LATER, 1, 200);
    broker.begun(LATER);
    let address = broker.address;
    assert_eq!(broker.stop(), 1 << 20);
    assert_eq!(busy.answer().0, 1);
    busy.closed();
    idle.closed();
    assert!(TcpStream::connect(address).is_err());
}
