//! Transactional ids: whose they are, and what their coordinator says.

use kafka_protocol::messages::{
    FindCoordinatorRequest, InitProducerIdRequest, InitProducerIdResponse, ProducerId, TransactionalId,
};

use super::harness::Client;
use super::harness::client::text;
use super::world::World;

/// A world in which somebody has looked for a coordinator, as every client does first.
pub fn world(name: &str) -> World {
    let mut world = World::new(name);
    look(&mut world.client);
    world
}

pub fn look(client: &mut Client) {
    let asked = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("tx")]);
    assert_eq!(client.ask(4, &asked).coordinators[0].error_code, 0);
}

pub fn init_request(id: &str, known: (i64, i16), timeout_ms: i32) -> InitProducerIdRequest {
    let request = InitProducerIdRequest::default().with_transactional_id(Some(TransactionalId(text(id))));
    let request = request.with_transaction_timeout_ms(timeout_ms);
    request.with_producer_id(ProducerId(known.0)).with_producer_epoch(known.1)
}

/// Error, id and epoch of the answer; asked again as long as an earlier step is under way.
pub fn init_as(client: &mut Client, version: i16, id: &str, known: (i64, i16)) -> (i16, i64, i16) {
    short(&client.ask(version, &init_request(id, known, 60_000)))
}

pub fn init(client: &mut Client, id: &str) -> (i16, i64, i16) {
    init_as(client, 5, id, (-1, -1))
}

pub fn short(answer: &InitProducerIdResponse) -> (i16, i64, i16) {
    (answer.error_code, answer.producer_id.0, answer.producer_epoch)
}

#[test]
fn eos_a07_time_outs_that_are_no_time_outs() {
    let mut world = world("a07");
    let mut with = |timeout_ms| short(&world.client.ask(5, &init_request("a07", (-1, -1), timeout_ms)));
    for timeout_ms in [0, -1, 900_001] {
        assert_eq!(with(timeout_ms), (50, -1, -1), "{timeout_ms} ms");
    }
    let (error, id, epoch) = with(900_000);
    assert!((error, epoch) == (0, 0) && id >= 0);
    let nobody = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(0);
    assert_eq!(world.client.ask(5, &nobody).error_code, 0, "nobody's time-out is not looked at");
}

#[test]
fn eos_a08_a_second_call_gets_the_next_epoch() {
    let mut world = world("a08");
    let (error, id, epoch) = init(&mut world.client, "a08");
    assert!((error, epoch) == (0, 0) && id >= 0);
    for (version, next) in (0..=5).zip(1..) {
        assert_eq!(init_as(&mut world.client, version, "a08", (-1, -1)), (0, id, next));
    }
    let other = init(&mut world.client, "another");
    assert!(other.1 != id && other.2 == 0);
}

#[test]
fn eos_a09_a_resumed_producer_gets_the_next_epoch_once() {
    let mut world = world("a09");
    let (_, id, _) = init(&mut world.client, "a09");
    assert_eq!(init(&mut world.client, "a09"), (0, id, 1));
    for _ in 0..2 {
        assert_eq!(init_as(&mut world.client, 4, "a09", (id, 1)), (0, id, 2), "also when its answer was lost");
    }
    // Who begins anew fences those who resume.
    assert_eq!(init(&mut world.client, "a09"), (0, id, 3));
    assert_eq!(init_as(&mut world.client, 4, "a09", (id, 2)), (90, -1, -1));
    assert_eq!(init_as(&mut world.client, 4, "a09", (id, 1)), (90, -1, -1));
}

#[test]
fn eos_a10_an_older_epoch_is_fenced() {
    let mut world = world("a10");
    let (_, id, _) = init(&mut world.client, "a10");
    init(&mut world.client, "a10");
    assert_eq!(init(&mut world.client, "a10"), (0, id, 2));
    for (version, code) in [(3, 47), (4, 90), (5, 90)] {
        assert_eq!(init_as(&mut world.client, version, "a10", (id, 0)), (code, -1, -1), "version {version}");
        assert_eq!(init_as(&mut world.client, version, "a10", (id, 3)), (code, -1, -1), "version {version}");
    }
}

#[test]
fn eos_a11_another_producer_is_fenced() {
    let mut world = world("a11");
    let (_, id, _) = init(&mut world.client, "a11");
    assert_eq!(init_as(&mut world.client, 5, "a11", (id + 1, 0)), (90, -1, -1));
    assert_eq!(init_as(&mut world.client, 3, "a11", (id + 1, 0)), (47, -1, -1));
}

#[test]
fn eos_a12_what_a_producer_says_of_itself_is_not_taken_over() {
    let mut world = world("a12");
    let (error, id, epoch) = init_as(&mut world.client, 5, "a12", (12_345, 7));
    assert!((error, epoch) == (0, 0) && id != 12_345);
}

#[test]
fn before_anybody_looks_there_is_no_coordinator() {
    let mut world = World::new("no-coordinator");
    assert_eq!(init(&mut world.client, "x"), (16, -1, -1));
    look(&mut world.client);
    assert_eq!(init(&mut world.client, "x").0, 0);
    assert_eq!(world.client.topic("__transaction_state").map(|(_, partitions)| partitions), Some(50));
}

#[test]
fn transactions_can_be_switched_off() {
    let mut world = World::with("tx-off", |start| start.set("corelane.transactions.enable=false"));
    assert_eq!(init(&mut world.client, "x"), (53, -1, -1));
    let asked = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("x")]);
    assert_eq!(world.client.ask(4, &asked).coordinators[0].error_code, 53);
    let nobody = InitProducerIdRequest::default().with_transactional_id(None);
    assert_eq!(world.client.ask(4, &nobody).error_code, 0, "idempotent producers are served");
}
