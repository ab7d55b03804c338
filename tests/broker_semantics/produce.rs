//! Produce requests as wholes: acks, topics, versions, times.

use bytes::Bytes;
use corelane::ids::Offset;
use corelane::wire::batch::Codec;
use corelane::wire::builder::BatchBuilder;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::TransactionalId;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use uuid::Uuid;

use super::harness::Client;
use super::harness::batches::whole;
use super::harness::client::text;
use super::world::*;

/// Also WIRE-22. As Kafka does it, what is wrong with partition or records comes first.
#[test]
fn eos_b15_other_acks_are_refused_for_every_partition() {
    let mut world = World::new("b15");
    let good = plain(1).build();
    let good = Some(&good[..]);
    for acks in [2, -2] {
        let asked = request(acks, &[(TOPIC, 0, good), (TOPIC, 1, good), (TOPIC, 2, Some(b"")), ("nope", 0, good)]);
        let answers = world.answers(9, &asked);
        assert_eq!(errors(&answers), [21, 21, 87, 3]);
        assert!(answers.iter().all(|one| (one.base_offset, one.log_start_offset) == (-1, -1)));
    }
    assert_eq!(world.end(), 0);
}

#[test]
fn eos_b27_the_others_are_written_where_one_is_not_known() {
    let mut world = World::new("b27");
    let good = plain(1).build();
    let good = Some(&good[..]);
    let asked =
        request(-1, &[("nope", 0, good), (TOPIC, 0, good), (TOPIC, 99, good), (TOPIC, -1, good), (TOPIC, 1, good)]);
    assert_eq!(errors(&world.answers(9, &asked)), [3, 0, 3, 3, 0]);
    assert_eq!((world.end(), world.client.end(TOPIC, 1)), (1, 1));
}

#[test]
fn transactional_batches_are_refused_with_all_others_of_the_request() {
    let mut world = World::new("txn");
    let (good, bad) = (plain(1).build(), of(9, 0, 1).transactional().build());
    for acks in [-1, 2] {
        let asked =
            request(acks, &[(TOPIC, 0, Some(&bad[..])), (TOPIC, 1, Some(&good[..])), ("nope", 0, Some(&good[..]))]);
        assert_eq!(errors(&world.answers(9, &asked)), [53, 53, 53]);
    }
    assert_eq!(world.client.end(TOPIC, 1), 0);
    let of_nobody = plain(1).transactional().build();
    let asked = request(-1, &[(TOPIC, 0, Some(&of_nobody[..])), (TOPIC, 1, Some(&good[..]))]);
    assert_eq!(errors(&world.answers(9, &asked)), [53, 53], "without a transactional id");
    let asked = asked.with_transactional_id(Some(TransactionalId(text("x"))));
    assert_eq!(errors(&world.answers(9, &asked)), [87, 0], "a transaction needs a producer");
    let named = request(-1, &[(TOPIC, 1, Some(&good[..]))]).with_transactional_id(Some(TransactionalId(text("x"))));
    assert_eq!(errors(&world.answers(9, &named)), [0], "a name alone makes no transaction");
}

#[test]
fn errors_without_acks_close_the_connection() {
    let mut world = World::new("acks0");
    let good = plain(1).build();
    let mut broken = good.clone();
    *broken.last_mut().unwrap() ^= 1;
    for (topic, partition, batch) in [("nope", 0, &good), (TOPIC, 99, &good), (TOPIC, 0, &broken)] {
        let mut client = Client::connect(world.broker.address);
        client.send_batch(topic, partition, 0, batch);
        assert!(client.is_closed(), "{topic}-{partition}");
    }
    world.client.send_batch(TOPIC, 0, 0, &good);
    world.client.send(9, &request(0, &[]));
    world.await_end(1);
}

#[test]
fn a_request_for_nothing_gets_an_answer_with_nothing() {
    let mut world = World::new("nothing");
    assert!(world.client.ask(9, &request(-1, &[])).responses.is_empty());
    let without = TopicProduceData::default().with_name(super::harness::client::name(TOPIC));
    assert!(world.client.ask(9, &request(-1, &[]).with_topic_data(vec![without])).responses.is_empty());
}

/// As Kafka does it: of several batches for one partition the last that can be told is appended, and what is wrong with
/// one that cannot is the answer.
#[test]
fn a_partition_that_is_named_twice_is_appended_to_and_answered_once() {
    let mut world = World::new("named-twice");
    let batch = |sequence| of(9, sequence, 1).build().to_vec();
    let elsewhere = of(9, 0, 1).header(|header| header.base_offset = Offset(5)).build().to_vec();
    let nothing = Vec::new();
    let mut ask = |parts: &[(&str, i32, &Vec<u8>)], acks| {
        let parts: Vec<_> = parts.iter().map(|(topic, index, records)| (*topic, *index, Some(&records[..]))).collect();
        let answers = world.answers(9, &request(acks, &parts));
        let short: Vec<_> = answers.iter().map(|one| (one.index, one.error_code, one.base_offset)).collect();
        (short, world.client.end(TOPIC, 1))
    };
    assert_eq!(ask(&[(TOPIC, 1, &batch(7)), (TOPIC, 1, &batch(0))], -1), (vec![(1, 0, 0)], 1), "the last one");
    assert_eq!(ask(&[(TOPIC, 1, &batch(0)), (TOPIC, 1, &batch(0))], -1), (vec![(1, 0, 0)], 1));
    let apart = [(TOPIC, 1, &batch(9)), ("nope", 0, &batch(0)), (TOPIC, 2, &batch(0)), (TOPIC, 1, &batch(1))];
    assert_eq!(ask(&apart, -1), (vec![(1, 0, 1), (2, 0, 0), (0, 3, -1)], 2), "also where topics are named twice");
    assert_eq!(
        ask(&[(TOPIC, 1, &nothing), (TOPIC, 1, &batch(2))], -1),
        (vec![(1, 87, -1)], 3),
        "appended all the same"
    );
    assert_eq!(ask(&[(TOPIC, 1, &batch(3)), (TOPIC, 1, &nothing)], -1), (vec![(1, 87, -1)], 4));
    assert_eq!(ask(&[(TOPIC, 1, &batch(4)), (TOPIC, 1, &elsewhere)], -1), (vec![(1, 87, -1)], 4), "this one is told");
    assert_eq!(ask(&[(TOPIC, 1, &elsewhere), (TOPIC, 1, &batch(4))], -1), (vec![(1, 0, 4)], 5));
    assert_eq!(ask(&[(TOPIC, 1, &nothing), (TOPIC, 1, &batch(5))], 2), (vec![(1, 87, -1)], 5));
    assert_eq!(ask(&[(TOPIC, 1, &batch(5)), (TOPIC, 1, &batch(5))], 2), (vec![(1, 21, -1)], 5));
    assert_eq!(ask(&[(TOPIC, 77, &batch(5)), (TOPIC, 77, &nothing)], -1), (vec![(77, 3, -1)], 5));
    let many: Vec<_> = (0..20).map(batch).collect();
    let many: Vec<_> = many.iter().map(|records| (TOPIC, 1, records)).chain([(TOPIC, 1, &many[5])]).collect();
    assert_eq!(ask(&many, -1), (vec![(1, 0, 5)], 6));
}

fn by_id(id: Uuid, partition: i32) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(plain(1).build().freeze()));
    let topic = TopicProduceData::default().with_topic_id(id).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// Also WIRE-14: the id of a topic that was deleted and made again is another one.
#[test]
fn topics_are_named_by_id_from_version_thirteen_on() {
    let mut world = World::new("v13");
    let (id, _) = world.client.topic(TOPIC).unwrap();
    assert_eq!(errors(&world.answers(13, &by_id(id, 0))), [0]);
    assert_eq!(errors(&world.answers(13, &by_id(id, 99))), [3]);
    assert_eq!(errors(&world.answers(13, &by_id(Uuid::from_u128(77), 0))), [100]);
    assert_eq!(errors(&world.answers(13, &by_id(Uuid::nil(), 0))), [100]);
    world.client.delete_topic(TOPIC);
    world.client.create_topic(TOPIC, 3, &[]);
    assert_eq!(errors(&world.answers(13, &by_id(id, 0))), [100]);
    let (new_id, _) = world.client.topic(TOPIC).unwrap();
    assert_ne!(new_id, id);
    assert_eq!(world.end(), 0);
    assert_eq!(errors(&world.answers(13, &by_id(new_id, 0))), [0]);
}

#[test]
fn every_version_from_three_on_is_served() {
    let mut world = World::new("versions");
    let good = plain(2).build();
    for version in 3..=12 {
        let answer = world.answers(version, &request(-1, &[(TOPIC, 0, Some(&good[..]))])).remove(0);
        let log_start = if version >= 5 { 0 } else { -1 };
        assert_eq!(shortened(&answer), (0, i64::from(version - 3) * 2, -1, log_start), "version {version}");
    }
}

#[test]
fn min_insync_replicas_is_at_most_the_one_replica() {
    let mut world = World::with_special("isr", "min.insync.replicas", "2");
    assert_eq!(world.short("special", 0, plain(1)), (0, 0, -1, 0));
}

#[test]
fn wire_16_the_brokers_time_is_in_the_answer_and_in_the_batch() {
    let mut world = World::with_special("wire16", "message.timestamp.type", "LogAppendTime");
    let before = now_ms();
    let (error, _, time, _) = world.short("special", 0, plain(3));
    assert!(error == 0 && time >= before && time <= now_ms());
    let all = world.client.read_all("special", 0);
    let stored = &whole(&all)[0];
    assert_eq!((stored.facts.max_timestamp, stored.facts.attributes & 8), (time, 8));
    assert_eq!(corelane::wire::batch::computed_crc(stored.bytes), stored.facts.crc);
    assert_eq!(world.short(TOPIC, 0, plain(3)), (0, 0, -1, 0));
    let far_ahead = BatchBuilder::new().value(now_ms() + 7_200_000, b"a");
    assert_eq!(world.short("special", 0, far_ahead).0, 0, "the client's time does not matter there");
}

#[test]
fn wire_18_every_codec_is_stored_as_it_came() {
    let mut world = World::new("wire18");
    let batch = || (0..100).fold(BatchBuilder::new(), |batch, record| batch.value(TIME + record, b"the same value"));
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    let sent: Vec<Bytes> = codecs
        .iter()
        .map(|codec| batch().codec(*codec))
        .chain([batch().raw_snappy()])
        .map(|one| one.build().freeze())
        .collect();
    for batch in &sent {
        assert_eq!(world.answer(TOPIC, 0, batch).error_code, 0);
    }
    let all = world.client.read_all(TOPIC, 0);
    let stored = whole(&all);
    assert_eq!(stored.len(), sent.len());
    for (stored, sent) in stored.iter().zip(&sent) {
        assert_eq!(stored.content(), &sent[16..]);
    }
}
