//! Records of `__consumer_offsets`: Kafka's own bytes, round trips, older forms, and bytes that are anything.

use bytes::{BufMut, Bytes, BytesMut};
use corelane::ids::{Offset, TopicId};
use corelane::wire::batch::{BatchHeader, Batches, Codec};
use corelane::wire::builder::{BatchBuilder, Record};
use corelane::wire::contents::Contents;
use corelane::wire::internal::{CommittedOffset, GroupMember, GroupMetadata, GroupRecord, KeyValue, RecordError};
use corelane::wire::unpack::Unpacker;
use proptest::prelude::*;

use crate::sample::fixture;

/// Every record of a file of batches.
fn records(file: &[u8]) -> Vec<KeyValue> {
    let file = Bytes::copy_from_slice(file);
    let mut unpacker = Unpacker::new();
    let batches = Batches::checked(&file).map(Result::unwrap);
    batches.flat_map(|batch| contents(&file.slice_ref(batch.bytes), &mut unpacker).unwrap()).collect()
}

fn contents(batch: &Bytes, unpacker: &mut Unpacker) -> Result<Vec<KeyValue>, String> {
    let header = BatchHeader::read(batch).map_err(|error| error.to_string())?;
    let contents = Contents::of(batch, &header, 1 << 20, unpacker).map_err(|error| error.to_string())?;
    contents.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn offset(group: &str, partition: i32, value: Option<CommittedOffset>) -> GroupRecord {
    GroupRecord::Offset { group: group.to_owned(), topic: "t".to_owned(), partition, value }
}

const TOPIC: TopicId =
    TopicId([0xf1, 0xeb, 0x01, 0x4c, 0x6c, 0x7d, 0x46, 0xe9, 0xac, 0x5a, 0x21, 0xdb, 0x5b, 0x4a, 0x31, 0x7b]);

#[test]
fn kafkas_records_are_read_and_written_to_the_same_bytes() {
    for file in ["kafka-groups/member.log", "kafka-groups/simple.log"] {
        let records = records(&fixture(file));
        assert!(records.len() >= 5);
        for record in records {
            let read = GroupRecord::decode(record.clone()).unwrap();
            assert_eq!(read.encode().unwrap(), record, "{read:?}");
        }
    }
}

#[test]
fn kafkas_records_say_what_was_asked_of_it() {
    let read = |file| records(&fixture(file)).into_iter().map(|record| GroupRecord::decode(record).unwrap());
    let simple: Vec<_> = read("kafka-groups/simple.log").collect();
    let with_expiry = CommittedOffset {
        offset: Offset(42),
        leader_epoch: -1,
        metadata: "r".to_owned(),
        commit_ms: 1_795_998_954_318,
        expire_ms: Some(1_795_998_959_318),
        topic_id: TopicId::ZERO,
    };
    assert_eq!(simple[0], offset("simple", 2, Some(with_expiry)));
    let GroupRecord::Offset { value: Some(by_id), .. } = &simple[1] else { panic!() };
    assert_eq!((by_id.offset, by_id.topic_id, by_id.expire_ms), (Offset(43), TOPIC, None));
    assert_eq!(simple[2], offset("simple", 2, None));
    let member: Vec<_> = read("kafka-groups/member.log").collect();
    let GroupRecord::Group { value: Some(founded), .. } = &member[0] else { panic!() };
    assert_eq!((founded.generation, &*founded.protocol_type, founded.members.len()), (0, "", 0));
    let GroupRecord::Group { group, value: Some(stable) } = &member[1] else { panic!() };
    let only = &stable.members[0];
    assert_eq!((group.as_str(), stable.generation, stable.protocol.as_deref()), ("g", 1, Some("range")));
    assert_eq!(stable.leader.as_ref(), Some(&only.member_id));
    assert_eq!((only.instance_id.as_deref(), &*only.client_host), (Some("static-1"), "/127.0.0.1"));
    assert_eq!((only.rebalance_timeout_ms, only.session_timeout_ms), (20_000, 10_000));
    assert_eq!((&*only.subscription, &*only.assignment), (&b"meta"[..], &b"assigned"[..]));
    assert_eq!(member.last(), Some(&GroupRecord::Group { group: "g".to_owned(), value: None }));
}

fn put_text(out: &mut BytesMut, text: &str) {
    out.put_i16(text.len() as i16);
    out.put_slice(text.as_bytes());
}

fn offset_key(version: i16) -> Bytes {
    let mut key = BytesMut::new();
    key.put_i16(version);
    put_text(&mut key, "g");
    put_text(&mut key, "t");
    key.put_i32(7);
    key.freeze()
}

/// An offset as the versions below 4 have it.
fn old_offset(version: i16) -> Bytes {
    let mut value = BytesMut::new();
    value.put_i16(version);
    value.put_i64(5);
    if version >= 3 {
        value.put_i32(9);
    }
    put_text(&mut value, "m");
    value.put_i64(1000);
    if version == 1 {
        value.put_i64(-1);
    }
    value.freeze()
}

#[test]
fn offsets_in_older_forms_are_read() {
    for (key, version) in [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)] {
        let record = KeyValue { key: offset_key(key), value: Some(old_offset(version)) };
        let expected = CommittedOffset {
            offset: Offset(5),
            leader_epoch: if version == 3 { 9 } else { -1 },
            metadata: "m".to_owned(),
            commit_ms: 1000,
            expire_ms: None,
            topic_id: TopicId::ZERO,
        };
        assert_eq!(GroupRecord::decode(record).unwrap(), offset("g", 7, Some(expected)), "version {version}");
    }
}

fn put_compact(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u8(bytes.len() as u8 + 1);
    out.put_slice(bytes);
}

/// A group with one member, as the versions other than 3 have it.
fn old_group(version: i16) -> Bytes {
    let mut value = BytesMut::new();
    let flexible = version == 4;
    let text = |value: &mut BytesMut, text: &str| {
        if flexible { put_compact(value, text.as_bytes()) } else { put_text(value, text) }
    };
    let data = |value: &mut BytesMut, data: &[u8]| {
        if flexible {
            return put_compact(value, data);
        }
        value.put_i32(data.len() as i32);
        value.put_slice(data);
    };
    value.put_i16(version);
    text(&mut value, "consumer");
    value.put_i32(3);
    text(&mut value, "range");
    text(&mut value, "m1");
    if version >= 2 {
        value.put_i64(77);
    }
    if flexible {
        value.put_u8(2)
    } else {
        value.put_i32(1)
    }
    text(&mut value, "m1");
    if flexible {
        value.put_u8(0);
    }
    text(&mut value, "client");
    text(&mut value, "/host");
    if version >= 1 {
        value.put_i32(20_000);
    }
    value.put_i32(10_000);
    data(&mut value, b"sub");
    data(&mut value, b"got");
    if flexible {
        // Of the member none, of the whole one that nobody knows.
        value.put_slice(&[0, 1, 5, 2, 1, 2]);
    }
    value.freeze()
}

#[test]
fn groups_in_other_forms_are_read() {
    let key = GroupRecord::Group { group: "g".to_owned(), value: None }.encode().unwrap().key;
    for version in [0, 1, 2, 4] {
        let record = KeyValue { key: key.clone(), value: Some(old_group(version)) };
        let GroupRecord::Group { value: Some(read), .. } = GroupRecord::decode(record).unwrap() else { panic!() };
        assert_eq!((read.generation, read.leader.as_deref()), (3, Some("m1")), "version {version}");
        assert_eq!(read.state_since_ms, if version >= 2 { 77 } else { -1 });
        let rebalance_timeout_ms = if version >= 1 { 20_000 } else { 10_000 };
        let member = GroupMember {
            member_id: "m1".to_owned(),
            instance_id: None,
            client_id: "client".to_owned(),
            client_host: "/host".to_owned(),
            rebalance_timeout_ms,
            session_timeout_ms: 10_000,
            subscription: Bytes::from_static(b"sub"),
            assignment: Bytes::from_static(b"got"),
        };
        assert_eq!(read.members, [member], "version {version}");
    }
}

#[test]
fn other_kinds_are_told_from_broken_ones() {
    let decode = |key: &[u8], value: Option<Bytes>| {
        GroupRecord::decode(KeyValue { key: Bytes::copy_from_slice(key), value }).unwrap_err()
    };
    // The new kind of consumer group.
    assert_eq!(decode(&[0, 3, 0, 1, b'g'], None), RecordError::UnknownKey(3));
    assert!(matches!(decode(&[0], None), RecordError::Broken(_)));
    assert!(matches!(decode(&[0, 2, 0, 9, b'g'], None), RecordError::Broken(_)));
    let newer = Bytes::from_static(&[0, 5, 0, 0]);
    assert_eq!(decode(&offset_key(1), Some(newer)), RecordError::UnknownValue(5));
    // A million members in a few bytes.
    let mut lying = BytesMut::from(&old_group(0)[..]);
    let at = 2 + 10 + 4 + 7 + 4;
    lying[at..at + 4].copy_from_slice(&1_000_000_i32.to_be_bytes());
    assert!(matches!(decode(&[0, 2, 0, 1, b'g'], Some(lying.freeze())), RecordError::Broken(_)));
}

#[test]
fn a_name_that_the_schema_cannot_hold_is_refused_instead_of_cut() {
    let long = "x".repeat(32_768);
    assert!(offset(&long, 0, None).encode().is_err());
    assert!(offset(&long[1..], 0, None).encode().is_ok());
    let metadata = CommittedOffset { metadata: long, ..committed() };
    assert!(offset("g", 0, Some(metadata.clone())).encode().is_ok(), "there it has more than 16 bits");
    let with_expiry = CommittedOffset { expire_ms: Some(1), ..metadata };
    assert!(offset("g", 0, Some(with_expiry)).encode().is_err());
}

fn committed() -> CommittedOffset {
    CommittedOffset {
        offset: Offset(1),
        leader_epoch: -1,
        metadata: String::new(),
        commit_ms: 5,
        expire_ms: None,
        topic_id: TopicId::ZERO,
    }
}

prop_compose! {
    fn an_offset()(offset: i64, epoch: i32, metadata in ".{0,200}", commit_ms: i64, expire_ms: Option<i64>, id: [u8; 16])
        -> CommittedOffset {
        // -1 stands for none; with an expiry there is room neither for an epoch nor for an id.
        let expire_ms = expire_ms.filter(|at| *at != -1);
        let (leader_epoch, topic_id) = if expire_ms.is_some() { (-1, TopicId::ZERO) } else { (epoch, TopicId(id)) };
        CommittedOffset { offset: Offset(offset), leader_epoch, metadata, commit_ms, expire_ms, topic_id }
    }
}

prop_compose! {
    fn a_member()(texts in prop::array::uniform3(".{0,40}"), instance_id in prop::option::of(".{0,20}"),
        rebalance_timeout_ms in 0..i32::MAX, session_timeout_ms: i32,
        subscription in prop::collection::vec(any::<u8>(), 0..300), assignment in prop::collection::vec(any::<u8>(), 0..300))
        -> GroupMember {
        let [member_id, client_id, client_host] = texts;
        GroupMember {
            member_id, instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms,
            subscription: subscription.into(), assignment: assignment.into(),
        }
    }
}

prop_compose! {
    fn a_group()(protocol_type in ".{0,20}", generation: i32, protocol in prop::option::of(".{0,20}"),
        leader in prop::option::of(".{0,20}"), state_since_ms: i64, members in prop::collection::vec(a_member(), 0..4))
        -> GroupMetadata {
        GroupMetadata { protocol_type, generation, protocol, leader, state_since_ms, members }
    }
}

fn a_record() -> impl Strategy<Value = GroupRecord> {
    let of_offset = (".{0,40}", ".{0,40}", any::<i32>(), prop::option::of(an_offset()));
    let of_group = (".{0,40}", prop::option::of(a_group()));
    prop_oneof![
        of_offset.prop_map(|(group, topic, partition, value)| GroupRecord::Offset { group, topic, partition, value }),
        of_group.prop_map(|(group, value)| GroupRecord::Group { group, value }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(record in a_record()) {
        prop_assert_eq!(GroupRecord::decode(record.encode().unwrap()).unwrap(), record);
    }

    #[test]
    fn what_is_cut_is_refused(record in a_record(), cut: prop::sample::Index) {
        let KeyValue { key, value } = record.encode().unwrap();
        let short = key.slice(..cut.index(key.len()));
        let read = GroupRecord::decode(KeyValue { key: short, value: value.clone() });
        prop_assert!(read.is_err());
        if let Some(value) = value {
            let short = value.slice(..cut.index(value.len()));
            let read = GroupRecord::decode(KeyValue { key, value: Some(short) });
            prop_assert!(read.is_err());
        }
    }

    #[test]
    fn anything_is_read_or_refused(
        kind in 0..5_i16,
        key in prop::collection::vec(any::<u8>(), 0..60),
        version in -1..6_i16,
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..200)),
    ) {
        let with = |version: i16, rest: &[u8]| [&version.to_be_bytes()[..], rest].concat().into();
        let value = value.map(|rest| with(version, &rest));
        let _any = GroupRecord::decode(KeyValue { key: with(kind, &key), value });
    }

    #[test]
    fn contents_are_what_was_put_in(
        records in prop::collection::vec((".{0,30}", prop::option::of(".{0,300}")), 1..20),
        codec in prop::sample::select(vec![Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]),
        flip: prop::sample::Index,
        bit in 0..8,
    ) {
        let mut batch = BatchBuilder::new().codec(codec);
        for (key, value) in &records {
            let value = value.as_ref().map(String::as_bytes);
            batch = batch.record(Record { timestamp: 5, key: Some(key.as_bytes()), value, headers: &[("h", None)] });
        }
        let batch = batch.build();
        let expected = records.iter().map(|(key, value)| KeyValue {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: value.as_ref().map(|value| Bytes::copy_from_slice(value.as_bytes())),
        });
        let mut unpacker = Unpacker::new();
        prop_assert_eq!(contents(&batch.clone().freeze(), &mut unpacker), Ok(expected.collect::<Vec<_>>()));
        // Damage behind the header is noticed or not (the CRC is not looked at here), but never more than that.
        let mut damaged = batch;
        let at = 61 + flip.index(damaged.len() - 61);
        damaged[at] ^= 1_u8 << bit;
        let _any = contents(&damaged.freeze(), &mut unpacker);
    }
}
