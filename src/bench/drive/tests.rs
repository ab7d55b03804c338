//! Against a broker of a few lines, which answers what a test wants.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use super::*;
use crate::bench::bytes::{Put, Take};
use crate::bench::frame::FrameSpec;

/// What the broker does with one request.
#[derive(Clone, Copy)]
struct Reply {
    correlation: i32,
    error: i16,
    offset: i64,
}

/// Answers `groups` groups of `size` requests, each group when it is there; `reply` says what the request with that
/// number gets, and may take its time.
fn broker(groups: usize, size: usize, reply: impl Fn(i32) -> Reply + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        for _ in 0..groups {
            // The client may have given up, as some tests want: then this ends too.
            let Some(correlations) = (0..size).map(|_| read_request(&mut stream)).collect::<Option<Vec<_>>>() else {
                return;
            };
            for correlation in correlations {
                if stream.write_all(&answer(reply(correlation))).is_err() {
                    return;
                }
            }
        }
    };
    (address, std::thread::spawn(serve))
}

/// The correlation id of the next request; none at the end of the connection.
fn read_request(stream: &mut TcpStream) -> Option<i32> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut body).ok()?;
    Take(&body[4..]).i32().ok()
}

fn answer(reply: Reply) -> Vec<u8> {
    let mut body = Put::default();
    body.i32(reply.correlation).unsigned_varint(0).compact_count(1).compact_string("t").compact_count(1);
    body.i32(0).i16(reply.error).i64(reply.offset).i64(-1).i64(0).unsigned_varint(1).unsigned_varint(0);
    body.unsigned_varint(0).unsigned_varint(0).i32(0).unsigned_varint(0);
    let mut frame = Put::default();
    frame.count(body.0.len()).raw(&body.0);
    frame.0
}

fn well(correlation: i32) -> Reply {
    Reply { correlation, error: 0, offset: i64::from(correlation) }
}

fn plan(requests: u64, in_flight: usize, interval: Option<Duration>) -> Plan {
    let start = clock::monotonic();
    Plan {
        answered: true,
        idempotent: false,
        records: 1,
        partitions: 1,
        in_flight,
        start,
        measure_from: start,
        end: Duration::MAX,
        overtime: Duration::ZERO,
        requests,
        interval,
        phase: Duration::ZERO,
    }
}

fn drive(address: SocketAddr, plan: Plan) -> Result<Tally, String> {
    let (client_id, topic) = ("c", "t");
    let spec = FrameSpec {
        client_id,
        topic,
        partition: 0,
        acks: -1,
        timeout_ms: 0,
        record_bytes: 10,
        records: 1,
        producer: None,
        transactional_id: None,
    };
    let mut connection = Connection::open(&address.to_string()).unwrap();
    let stamper = Stamper::new(ProduceFrame::new(&spec), &plan, &(0..).take(plan.partitions).collect::<Vec<_>>());
    Worker { connection: &mut connection, stamper, plan, live: &Live::default() }.run()
}

#[test]
fn the_closed_loop_keeps_its_requests_in_flight() {
    // The broker answers only when four requests are there: a window of three would wait for ever.
    let (address, broker) = broker(12, 4, well);
    let tally = drive(address, plan(48, 4, None)).unwrap();
    broker.join().unwrap();
    assert_eq!((tally.requests, tally.latency.len(), tally.failed()), (48, 48, 0));
}

#[test]
fn a_stall_counts_against_the_requests_behind_it() {
    const STALL: Duration = Duration::from_millis(100);
    for in_flight in [1, 8] {
        let stalls_once = |correlation| {
            if correlation == 10 {
                std::thread::sleep(STALL);
            }
            well(correlation)
        };
        let (address, broker) = broker(150, 1, stalls_once);
        let tally = drive(address, plan(150, in_flight, Some(Duration::from_millis(1)))).unwrap();
        broker.join().unwrap();
        let above = |histogram: &Histogram<u64>| histogram.count_between(nanoseconds(STALL / 4), u64::MAX / 2);
        // About 75 requests fell due in the first three quarters of the stall.
        assert!(above(&tally.latency) >= 50, "{} late with {in_flight} in flight", above(&tally.latency));
        // Only those that were on their way felt it as the time between sent and answered.
        assert!(above(&tally.service) <= 40, "{} slow with {in_flight} in flight", above(&tally.service));
        assert_eq!(tally.requests, 150);
    }
}

#[test]
fn what_was_never_sent_counts_with_its_wait() {
    for in_flight in [1, 4] {
        let (address, _broker) = broker(20, 1, |correlation| {
            if correlation == 0 {
                std::thread::sleep(Duration::from_millis(100));
            }
            well(correlation)
        });
        // Twenty requests fall due while the broker sleeps, and the run is over when it wakes.
        let mut plan = plan(u64::MAX, in_flight, Some(Duration::from_millis(1)));
        plan.end = plan.start + Duration::from_millis(20);
        plan.overtime = Duration::ZERO;
        let tally = drive(address, plan).unwrap();
        assert_eq!(tally.requests + tally.unsent, 20, "{} unsent", tally.unsent);
        assert!(tally.unsent >= 10, "{} unsent", tally.unsent);
        assert_eq!(tally.latency.count_between(nanoseconds(Duration::from_millis(70)), u64::MAX / 2), 20);
    }
}

#[test]
fn refused_requests_are_counted_by_their_error() {
    let third = |correlation| Reply { error: if correlation % 3 == 0 { 56 } else { 0 }, ..well(correlation) };
    let (address, broker) = broker(9, 1, third);
    let tally = drive(address, plan(9, 1, None)).unwrap();
    broker.join().unwrap();
    assert_eq!((tally.requests, tally.failed(), tally.errors.get(&56)), (6, 3, Some(&3)));
}

#[test]
fn answers_out_of_order_and_offsets_that_go_back_end_the_run() {
    let swapped = |correlation| Reply { correlation: correlation ^ 1, ..well(correlation) };
    let (address, _broker) = broker(1, 2, swapped);
    let error = drive(address, plan(2, 2, None)).err();
    assert_eq!(error.as_deref(), Some("answer 1 came where 0 was due"));
    let stuck = |correlation| Reply { offset: 7, ..well(correlation) };
    let (address, _broker) = broker(2, 1, stuck);
    let error = drive(address, plan(2, 1, None)).err();
    assert_eq!(error.as_deref(), Some("offset 7 came after 7"));
}

#[test]
fn partitions_by_turns_have_offsets_of_their_own() {
    let halves = |correlation| Reply { offset: i64::from(correlation / 2), ..well(correlation) };
    let (address, broker) = broker(9, 1, halves);
    let tally = drive(address, Plan { partitions: 2, ..plan(9, 1, None) }).unwrap();
    broker.join().unwrap();
    assert_eq!((tally.requests, tally.failed()), (9, 0));
    let (address, _broker) = broker_of_two_turns();
    let error = drive(address, Plan { partitions: 2, ..plan(4, 1, None) }).err();
    assert_eq!(error.as_deref(), Some("offset 1 came after 1"));
}

/// The second partition stands still.
fn broker_of_two_turns() -> (SocketAddr, JoinHandle<()>) {
    broker(4, 1, |correlation| Reply {
        offset: if correlation % 2 == 0 { i64::from(correlation) } else { 1 },
        ..well(correlation)
    })
}
