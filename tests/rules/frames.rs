//! Produce and Fetch in every version, against another's reading and writing of the same messages.

use bytes::{Bytes, BytesMut};
use corelane::ids::{Offset, ProducerId, TopicId};
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;
use corelane::wire::fetch::{
    self, AbortedTxn, FetchRequest, FetchResponse, FetchedPartition, FetchedTopic, NodeEndpoint,
};
use corelane::wire::frame::read_request_header;
use corelane::wire::produce::{self, PartitionAppended, ProduceRequest, ProduceResponse, RecordFault, TopicAppended};
use corelane::wire::reader::WireError;
use corelane::wire::stored::{RecordData, StoredBatch};
use corelane::wire::topic::TopicRef;
use kafka_protocol::messages::{
    ApiKey, BrokerId, RequestHeader, ResponseHeader, TopicName, TransactionalId, fetch_request, fetch_response,
    produce_request, produce_response,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use uuid::Uuid;

const NAME: &str = "a-topic";
const ID: TopicId = TopicId([7; 16]);

fn topic(by_id: bool) -> TopicRef {
    if by_id { TopicRef::Id(ID) } else { TopicRef::Name(StrBytes::from_static_str(NAME)) }
}

fn name(by_id: bool) -> TopicName {
    TopicName(StrBytes::from_static_str(if by_id { "" } else { NAME }))
}

fn uuid(by_id: bool) -> Uuid {
    if by_id { Uuid::from_bytes(ID.0) } else { Uuid::nil() }
}

/// A request with its header, as the protocol crate writes it.
fn request(api_key: ApiKey, version: i16, body: &impl Encodable) -> Bytes {
    let mut out = BytesMut::new();
    let header = RequestHeader::default()
        .with_request_api_key(api_key as i16)
        .with_request_api_version(version)
        .with_correlation_id(5)
        .with_client_id(Some(StrBytes::from_static_str("me")));
    header.encode(&mut out, api_key.request_header_version(version)).unwrap();
    body.encode(&mut out, version).unwrap();
    out.freeze()
}

/// A produce request for two topics, with as much set as the version knows.
pub(crate) fn produce_frame(version: i16, records: &Bytes) -> Bytes {
    use produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
    let by_id = version >= 13;
    let partition = |index, records| PartitionProduceData::default().with_index(index).with_records(records);
    let topic =
        TopicProduceData::default().with_name(name(by_id)).with_topic_id(uuid(by_id)).with_partition_data(vec![
            partition(3, Some(records.clone())),
            partition(4, None),
            partition(5, Some(Bytes::new())),
        ]);
    let empty = TopicProduceData::default().with_name(name(by_id)).with_topic_id(uuid(by_id));
    let body = ProduceRequest::default()
        .with_transactional_id(Some(TransactionalId(StrBytes::from_static_str("tx"))))
        .with_acks(-1)
        .with_timeout_ms(1_500)
        .with_topic_data(vec![topic, empty]);
    request(ApiKey::Produce, version, &body)
}

/// A fetch request with as much set as the version knows.
pub(crate) fn fetch_frame(version: i16) -> Bytes {
    use fetch_request::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState};
    let by_id = version >= 13;
    let mut partition = FetchPartition::default().with_partition(2).with_fetch_offset(77).with_partition_max_bytes(99);
    if version >= 5 {
        partition.log_start_offset = 6;
    }
    if version >= 9 {
        partition.current_leader_epoch = 8;
    }
    if version >= 12 {
        partition.last_fetched_epoch = 9;
    }
    let topic =
        FetchTopic::default().with_topic(name(by_id)).with_topic_id(uuid(by_id)).with_partitions(vec![partition]);
    let mut body = FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(1_000)
        .with_isolation_level(1)
        .with_topics(vec![topic]);
    if version >= 15 {
        body.replica_state = ReplicaState::default().with_replica_id(BrokerId(4)).with_replica_epoch(1);
    } else {
        body.replica_id = BrokerId(4);
    }
    if version >= 7 {
        body.session_id = 11;
        body.session_epoch = 12;
        body.forgotten_topics_data = vec![
            ForgottenTopic::default().with_topic(name(by_id)).with_topic_id(uuid(by_id)).with_partitions(vec![1, 2]),
        ];
    }
    if version >= 11 {
        body.rack_id = StrBytes::from_static_str("r1");
    }
    request(ApiKey::Fetch, version, &body)
}

#[test]
fn produce_requests_of_every_version_are_read() {
    let records = Bytes::from_static(b"some records");
    for version in produce::VERSION_MIN..=produce::VERSION_MAX {
        let frame = produce_frame(version, &records);
        let (header, body) = read_request_header(frame.clone()).unwrap();
        assert_eq!((header.api_key, header.api_version, header.correlation_id), (ApiKey::Produce, version, 5));
        let read = ProduceRequest::read(body, version).unwrap();
        assert_eq!(read.transactional_id.as_deref(), Some("tx"));
        assert_eq!((read.acks, read.timeout_ms), (-1, 1_500));
        assert_eq!(read.topics.len(), 2);
        assert_eq!(read.topics[0].topic, topic(version >= 13));
        let partitions: Vec<_> = read.topics[0].partitions.iter().map(|p| (p.index, p.records.clone())).collect();
        assert_eq!(partitions, [(3, Some(records.clone())), (4, None), (5, Some(Bytes::new()))]);
        let inside = frame.as_ptr_range().contains(&partitions[0].1.as_ref().unwrap().as_ptr());
        assert!(inside, "records are a slice of the frame");
    }
}

#[test]
fn fetch_requests_of_every_version_are_read() {
    for version in fetch::VERSION_MIN..=fetch::VERSION_MAX {
        let (header, body) = read_request_header(fetch_frame(version)).unwrap();
        assert_eq!((header.api_key, header.api_version), (ApiKey::Fetch, version));
        let read = FetchRequest::read(body, version).unwrap();
        assert_eq!((read.replica_id, read.max_wait_ms, read.min_bytes, read.max_bytes), (4, 500, 1, 1_000));
        assert_eq!(read.isolation_level, 1);
        assert_eq!((read.session_id, read.session_epoch), if version >= 7 { (11, 12) } else { (0, -1) });
        assert_eq!(read.topics[0].topic, topic(version >= 13));
        let partition = read.topics[0].partitions[0];
        assert_eq!((partition.index, partition.fetch_offset, partition.max_bytes), (2, Offset(77), 99));
        assert_eq!(partition.log_start_offset, Offset(if version >= 5 { 6 } else { -1 }));
        assert_eq!(partition.current_leader_epoch, if version >= 9 { 8 } else { -1 });
        assert_eq!(partition.last_fetched_epoch, if version >= 12 { 9 } else { -1 });
        assert_eq!(
            read.forgotten.iter().map(|f| f.partitions.clone()).collect::<Vec<_>>(),
            match version {
                7.. => vec![vec![1, 2]],
                _ => vec![],
            }
        );
        assert_eq!(&*read.rack_id, if version >= 11 { "r1" } else { "" });
    }
}

/// A cut request is refused, wherever it is cut.
#[test]
fn every_cut_of_a_request_is_refused() {
    for version in produce::VERSION_MIN..=produce::VERSION_MAX {
        let (_, body) = read_request_header(produce_frame(version, &Bytes::from_static(b"records"))).unwrap();
        for cut in 0..body.len() {
            assert!(ProduceRequest::read(body.slice(..cut), version).is_err(), "version {version} cut at {cut}");
        }
    }
    for version in fetch::VERSION_MIN..=fetch::VERSION_MAX {
        let (_, body) = read_request_header(fetch_frame(version)).unwrap();
        for cut in 0..body.len() {
            assert!(FetchRequest::read(body.slice(..cut), version).is_err(), "version {version} cut at {cut}");
        }
    }
}

#[test]
fn counts_that_the_frame_cannot_hold_are_refused_before_anything_is_reserved() {
    let plain = [&[0xff, 0xff, 0, 1, 0, 0, 0, 1][..], &[0x7f, 0xff, 0xff, 0xff]].concat();
    let flexible = [&[0, 0, 1, 0, 0, 0, 1][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
    for (version, body) in [(3, plain), (9, flexible.clone()), (13, flexible)] {
        let error = ProduceRequest::read(body.into(), version).unwrap_err();
        assert!(matches!(error, WireError::Length { field: "the topics", .. }), "version {version}: {error}");
    }
    let error = ProduceRequest::read(Bytes::from_static(&[0xff, 0xff, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe]), 3);
    assert!(matches!(error, Err(WireError::Length { length: -2, .. })));
    assert!(matches!(ProduceRequest::read(Bytes::new(), 2), Err(WireError::Version { .. })));
    assert!(matches!(FetchRequest::read(Bytes::new(), 19), Err(WireError::Version { .. })));
}

/// Takes prefix and header off a response and gives it to the protocol crate's reader.
fn read_response<T: Decodable>(frame: BytesMut, api_key: ApiKey, version: i16) -> T {
    let mut bytes = frame.freeze();
    let length = i32::from_be_bytes(bytes.split_to(4)[..].try_into().unwrap());
    assert_eq!(usize::try_from(length).unwrap(), bytes.len());
    let header = ResponseHeader::decode(&mut bytes, api_key.response_header_version(version)).unwrap();
    assert_eq!(header.correlation_id, 5);
    let response = T::decode(&mut bytes, version).unwrap();
    assert!(bytes.is_empty(), "version {version}: {} bytes left", bytes.len());
    response
}

#[test]
fn produce_responses_of_every_version_are_understood() {
    for version in produce::VERSION_MIN..=produce::VERSION_MAX {
        let refused = PartitionAppended {
            record_errors: vec![
                RecordFault { index: 2, message: Some("no key".into()) },
                RecordFault { index: 4, message: None },
            ],
            error_message: Some("bad".into()),
            current_leader: Some((1, 7)),
            ..PartitionAppended::refused(1, ErrorCode::InvalidRecord)
        };
        let appended = PartitionAppended::appended(0, Offset(10), 11, Offset(12));
        let ours = ProduceResponse {
            topics: vec![TopicAppended { topic: topic(version >= 13), partitions: vec![appended, refused] }],
            throttle_ms: 13,
        };
        let frame = ours.encode(version, 5);
        assert_eq!(frame.capacity(), frame.len(), "the size is known before");
        let theirs: produce_response::ProduceResponse = read_response(frame, ApiKey::Produce, version);
        assert_eq!(theirs.throttle_time_ms, 13);
        let topic = &theirs.responses[0];
        assert_eq!((&topic.name, topic.topic_id), (&name(version >= 13), uuid(version >= 13)));
        let [first, second] = &topic.partition_responses[..] else { panic!("two partitions") };
        assert_eq!((first.error_code, first.base_offset, first.log_append_time_ms), (0, 10, 11));
        assert_eq!(first.log_start_offset, if version >= 5 { 12 } else { -1 });
        assert_eq!((second.index, second.error_code, second.base_offset), (1, 87, -1));
        let errors: Vec<_> =
            second.record_errors.iter().map(|e| (e.batch_index, e.batch_index_error_message.as_deref())).collect();
        assert_eq!(errors, if version >= 8 { vec![(2, Some("no key")), (4, None)] } else { vec![] });
        assert_eq!(second.error_message.as_deref(), (version >= 8).then_some("bad"));
        let leader = (second.current_leader.leader_id.0, second.current_leader.leader_epoch);
        assert_eq!(leader, if version >= 10 { (1, 7) } else { (-1, -1) });
    }
}

#[test]
fn fetch_responses_of_every_version_are_understood() {
    for version in fetch::VERSION_MIN..=fetch::VERSION_MAX {
        let received = BatchBuilder::new().value(1, b"two").build().freeze();
        let batch = StoredBatch::place(&received, Offset(41), 3);
        let full = FetchedPartition {
            high_watermark: Offset(50),
            last_stable_offset: Offset(40),
            log_start_offset: Offset(30),
            aborted: Some(vec![AbortedTxn { producer_id: ProducerId(9), first_offset: Offset(35) }]),
            preferred_read_replica: 3,
            current_leader: Some((1, 7)),
            diverging_epoch: Some((4, Offset(20))),
            records: vec![RecordData::Whole(Bytes::from_static(b"one ")), RecordData::Batch(batch.clone())],
            ..FetchedPartition::failed(0, ErrorCode::None)
        };
        let failed = FetchedPartition::failed(1, ErrorCode::OffsetOutOfRange);
        let ours = FetchResponse {
            throttle_ms: 13,
            error: ErrorCode::None,
            session_id: 14,
            topics: vec![FetchedTopic { topic: topic(version >= 13), partitions: vec![full, failed] }],
            leader: Some(NodeEndpoint { id: 1, host: "broker.example".into(), port: 9092 }),
        };
        let frame = ours.encode(version, 5);
        assert_eq!((frame.capacity(), frame.len()), (ours.encoded_size(version), ours.encoded_size(version)));
        let theirs: fetch_response::FetchResponse = read_response(frame, ApiKey::Fetch, version);
        assert_eq!((theirs.throttle_time_ms, theirs.session_id), (13, if version >= 7 { 14 } else { 0 }));
        let topic = &theirs.responses[0];
        assert_eq!((&topic.topic, topic.topic_id), (&name(version >= 13), uuid(version >= 13)));
        let endpoints: Vec<_> =
            theirs.node_endpoints.iter().map(|one| (one.node_id.0, &one.host[..], one.port)).collect();
        assert_eq!(endpoints, if version >= 16 { vec![(1, "broker.example", 9092)] } else { vec![] });
        let [full, failed] = &topic.partitions[..] else { panic!("two partitions") };
        assert_eq!((full.high_watermark, full.last_stable_offset), (50, 40));
        assert_eq!(full.log_start_offset, if version >= 5 { 30 } else { -1 });
        assert_eq!(full.aborted_transactions.as_ref().unwrap()[0].first_offset, 35);
        assert_eq!(full.preferred_read_replica.0, if version >= 11 { 3 } else { -1 });
        let placed = BatchBuilder::new().place(Offset(41), 3).value(1, b"two").build();
        assert_eq!(full.records.as_deref(), Some(&[b"one ", &placed[..]].concat()[..]));
        let tagged = (full.current_leader.leader_epoch, full.diverging_epoch.end_offset);
        assert_eq!(tagged, if version >= 12 { (7, 20) } else { (-1, -1) });
        assert_eq!((failed.error_code, failed.high_watermark, failed.log_start_offset), (1, -1, -1));
        assert_eq!(failed.aborted_transactions, None);
        assert_eq!(failed.records.as_deref(), Some(&b""[..]), "without records: empty, never null");
    }
}

/// A text longer than 16 bits can say is cut at a character, not in the middle of one.
#[test]
fn long_texts_are_cut_where_the_version_has_no_room() {
    let refused = PartitionAppended {
        error_message: Some("ä".repeat(20_000).into()),
        ..PartitionAppended::refused(1, ErrorCode::InvalidRecord)
    };
    let ours = ProduceResponse {
        topics: vec![TopicAppended { topic: topic(false), partitions: vec![refused] }],
        throttle_ms: 0,
    };
    for (version, bytes) in [(8, 32_766), (9, 40_000)] {
        let theirs: produce_response::ProduceResponse =
            read_response(ours.encode(version, 5), ApiKey::Produce, version);
        assert_eq!(theirs.responses[0].partition_responses[0].error_message.as_ref().unwrap().len(), bytes);
    }
}
