//! D12: no frame makes memory grow by more than 64 × its size + 1 MiB, whatever it repeats and however small its parts.
//!
//! A binary of its own, because it counts every allocation of its process; one test, because counts would mix.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "../rules/bare.rs"]
mod bare;
mod counting;

use bare::Bare;
use bytes::{BufMut, Bytes, BytesMut};
use corelane::requests::{self, Api, Outcome};
use counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Elements of the arrays: as many as are looked at one by one.
const MANY: u32 = 10_000;

/// What an answer takes whatever the size of its request.
fn more(api: Api) -> usize {
    if api == Api::DescribeConfigs { 960 << 10 } else { 64 << 10 }
}

/// Writes one element of an array, given its number.
type Element = fn(&mut Body, u32);

/// A request body in the making.
struct Body {
    bytes: BytesMut,
    flexible: bool,
}

impl Body {
    fn count(&mut self, count: u32) {
        if self.flexible { self.varint(count + 1) } else { self.bytes.put_u32(count) }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.put_u8(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        self.bytes.put_u8(u8::try_from(value).unwrap());
    }

    fn text(&mut self, text: &[u8]) {
        let length = u16::try_from(text.len()).unwrap();
        if self.flexible {
            self.varint(u32::from(length) + 1)
        } else {
            self.bytes.put_u16(length)
        }
        self.bytes.put_slice(text);
    }

    /// The shortest text that no other number has.
    fn distinct(&mut self, mut number: u32) {
        const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
        let mut text = Vec::new();
        loop {
            text.push(LETTERS[(number % 64) as usize]);
            number /= 64;
            if number == 0 {
                return self.text(&text);
            }
        }
    }

    fn id(&mut self, number: u32) {
        self.bytes.put_u128(u128::from(number) << 64 | 0xabcd);
    }

    fn end(&mut self) {
        if self.flexible {
            self.bytes.put_u8(0);
        }
    }

    /// A tagged field of number 9 without content: what a decoder might keep for whoever asks.
    fn end_with_tag(&mut self) {
        if self.flexible {
            self.bytes.put_slice(&[1, 9, 0]);
        }
    }
}

/// A request that is an array of many small things, then a tail.
struct Case {
    what: &'static str,
    api: Api,
    version: i16,
    element: Element,
    tail: &'static [u8],
}

const fn case(what: &'static str, api: Api, version: i16, tail: &'static [u8], element: Element) -> Case {
    Case { what, api, version, element, tail }
}

const CASES: &[Case] = &[
    case("empty names", Api::Metadata, 0, &[], |body, _| body.text(b"")),
    case("distinct names", Api::Metadata, 1, &[], Body::distinct),
    case("distinct names, flexible", Api::Metadata, 9, &[0, 0, 0, 0], |body, number| {
        body.distinct(number);
        body.end();
    }),
    case("names with tagged fields", Api::Metadata, 9, &[0, 0, 0, 0], |body, _| {
        body.text(b"");
        body.end_with_tag();
    }),
    case("ids", Api::Metadata, 12, &[0, 0, 0], |body, number| {
        body.id(number);
        body.bytes.put_u8(0);
        body.end();
    }),
    case("refused pairs", Api::Metadata, 10, &[0, 0, 0, 0], |body, number| {
        body.id(number);
        body.text(b"x");
        body.end();
    }),
    case("distinct topics", Api::CreateTopics, 5, &[0, 0, 0, 0, 0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_slice(&[0, 0, 0, 0, 0, 1, 1, 1]);
        body.end();
    }),
    case("the same topic", Api::CreateTopics, 7, &[0, 0, 0, 0, 0, 0], |body, _| {
        body.text(b"t");
        body.bytes.put_slice(&[0, 0, 0, 1, 0, 1, 1, 1]);
        body.end();
    }),
    case("bad names", Api::CreateTopics, 5, &[0, 0, 0, 0, 0, 0], |body, number| {
        body.text(&[b"!".as_slice(), number.to_string().as_bytes()].concat());
        body.bytes.put_slice(&[0, 0, 0, 1, 0, 1, 1, 1]);
        body.end();
    }),
    case("topics with a config", Api::CreateTopics, 5, &[0, 0, 0, 0, 0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_slice(&[0, 0, 0, 1, 0, 1, 1, 2, 2, b'a', 1, 0]);
        body.end();
    }),
    case("distinct names", Api::DeleteTopics, 1, &[0, 0, 0, 0], Body::distinct),
    case("distinct names, flexible", Api::DeleteTopics, 5, &[0, 0, 0, 0, 0], Body::distinct),
    case("empty names", Api::DeleteTopics, 5, &[0, 0, 0, 0, 0], |body, _| body.text(b"")),
    case("ids", Api::DeleteTopics, 6, &[0, 0, 0, 0, 0], |body, number| {
        body.bytes.put_u8(0);
        body.id(number);
        body.end();
    }),
    case("distinct topics", Api::DeleteRecords, 2, &[0, 0, 0, 1, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        body.end();
    }),
    case("empty names", Api::DeleteRecords, 0, &[0, 0, 0, 1], |body, number| {
        body.text(b"");
        body.count(1);
        body.bytes.put_u32(number);
        body.bytes.put_u64(0);
    }),
    case("topics without a partition", Api::DeleteRecords, 2, &[0, 0, 0, 1, 0], |body, _| {
        body.text(b"");
        body.count(0);
        body.end();
    }),
    case("distinct topics", Api::CreatePartitions, 2, &[0, 0, 0, 0, 0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_slice(&[0, 0, 0, 1, 0]);
        body.end();
    }),
    case("distinct topics", Api::IncrementalAlterConfigs, 1, &[0, 0], |body, number| {
        body.bytes.put_u8(2);
        body.distinct(number);
        body.count(0);
        body.end();
    }),
    case("the same resource", Api::IncrementalAlterConfigs, 1, &[0, 0], |body, _| {
        body.bytes.put_u8(2);
        body.text(b"");
        body.count(0);
        body.end();
    }),
    case("distinct topics", Api::AlterConfigs, 2, &[0, 0], |body, number| {
        body.bytes.put_u8(2);
        body.distinct(number);
        body.count(0);
        body.end();
    }),
    case("the same resource", Api::AlterConfigs, 2, &[0, 0], |body, _| {
        body.bytes.put_u8(2);
        body.text(b"");
        body.count(0);
        body.end();
    }),
    case("unknown resources", Api::DescribeConfigs, 4, &[0, 0, 0], |body, _| {
        body.bytes.put_u8(9);
        body.text(b"");
        body.bytes.put_u8(0);
        body.end();
    }),
    case("this broker", Api::DescribeConfigs, 4, &[1, 1, 0], |body, _| {
        body.bytes.put_u8(4);
        body.text(b"1");
        body.bytes.put_u8(0);
        body.end();
    }),
    case("keys", Api::DescribeConfigs, 4, &[0, 0, 0], |body, _| {
        body.bytes.put_slice(&[4, 2, b'1', 3, 1, 1]);
        body.end();
    }),
    case("distinct topics", Api::DescribeLogDirs, 2, &[0], |body, number| {
        body.distinct(number);
        body.count(1);
        body.bytes.put_u32(0);
        body.end();
    }),
    case("distinct topics", Api::DescribeTopicPartitions, 0, &[0, 0, 0, 1, 0xff, 0], |body, number| {
        body.distinct(number);
        body.end();
    }),
    case("distinct groups", Api::DescribeGroups, 6, &[1, 0], Body::distinct),
    case("empty groups", Api::DescribeGroups, 0, &[], |body, _| body.text(b"")),
    case("distinct groups", Api::DeleteGroups, 3, &[0], Body::distinct),
    case("states", Api::ListGroups, 4, &[0], Body::distinct),
    case("distinct groups without topics", Api::OffsetFetch, 8, &[0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_u8(1);
        body.end();
    }),
    case("all of distinct groups", Api::OffsetFetch, 8, &[0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_u8(0);
        body.end();
    }),
    case("the same group", Api::OffsetFetch, 8, &[0, 0], |body, _| {
        body.text(b"g");
        body.bytes.put_u8(0);
        body.end();
    }),
    case("empty names", Api::DescribeTopicPartitions, 0, &[0, 0, 0, 1, 0xff, 0], |body, _| {
        body.text(b"");
        body.end();
    }),
];

/// What it is, key, version, what stands before the array, what stands behind it, one element.
type Nested = (&'static str, Api, i16, &'static [u8], &'static [u8], Element);

/// One resource with many changes, one topic with many configs or assignments: arrays one level down.
const NESTED: &[Nested] = &[
    ("changes", Api::IncrementalAlterConfigs, 1, &[2, 2, 2, b't'], &[0, 0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_slice(&[0, 2, b'1']);
        body.end();
    }),
    ("empty changes", Api::IncrementalAlterConfigs, 1, &[2, 2, 2, b't'], &[0, 0, 0], |body, _| {
        body.bytes.put_slice(&[1, 0, 1]);
        body.end();
    }),
    ("settings", Api::AlterConfigs, 2, &[2, 2, 2, b't'], &[0, 0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_slice(&[2, b'1']);
        body.end();
    }),
    ("empty settings", Api::AlterConfigs, 2, &[2, 2, 2, b't'], &[0, 0, 0], |body, _| {
        body.bytes.put_slice(&[1, 1]);
        body.end();
    }),
    ("configs", Api::CreateTopics, 5, &[2, 2, b'u', 0, 0, 0, 1, 0, 1, 1], &[0, 0, 0, 0, 0, 0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_slice(&[2, b'1']);
        body.end();
    }),
    ("null configs", Api::CreateTopics, 5, &[2, 2, b'u', 0, 0, 0, 1, 0, 1, 1], &[0, 0, 0, 0, 0, 0, 0], |body, _| {
        body.bytes.put_slice(&[1, 0]);
        body.end();
    }),
    (
        "assignments",
        Api::CreateTopics,
        5,
        &[2, 2, b'u', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        |body, number| {
            body.bytes.put_u32(number);
            body.bytes.put_slice(&[2, 0, 0, 0, 1]);
            body.end();
        },
    ),
    ("assignments", Api::CreatePartitions, 2, &[2, 2, b't', 0, 1, 0, 0], &[0, 0, 0, 0, 0, 0, 0], |body, _| {
        body.bytes.put_slice(&[1]);
        body.end();
    }),
    ("keys", Api::DescribeConfigs, 4, &[2, 4, 2, b'1'], &[0, 0, 0, 0], |body, number| body.distinct(number)),
    ("empty keys", Api::DescribeConfigs, 4, &[2, 4, 2, b'1'], &[0, 0, 0, 0], |body, _| body.text(b"")),
    ("partitions", Api::DeleteRecords, 2, &[2, 2, b't'], &[0, 0, 0, 0, 1, 0], |body, number| {
        body.bytes.put_u32(number);
        body.bytes.put_u64(0);
        body.end();
    }),
    ("protocols", Api::JoinGroup, 6, &[2, b'g', 0, 0, 0x27, 0x10, 0, 0, 0, 1, 1, 0, 2, b'c'], &[0], |body, number| {
        body.distinct(number);
        body.bytes.put_u8(1);
        body.end();
    }),
    (
        "protocols of a member that is taken in",
        Api::JoinGroup,
        3,
        &[0, 1, b'g', 0, 0, 0x27, 0x10, 0, 0, 0x27, 0x10, 0, 0, 0, 1, b'c'],
        &[],
        |body, number| {
            body.distinct(number);
            body.bytes.put_u32(0);
        },
    ),
    ("groups", Api::FindCoordinator, 6, &[0], &[0], Body::distinct),
    ("members", Api::LeaveGroup, 4, &[2, b'g'], &[0], |body, number| {
        body.distinct(number);
        body.bytes.put_u8(0);
        body.end();
    }),
    ("assignments", Api::SyncGroup, 4, &[2, b'g', 0, 0, 0, 1, 2, b'm', 0], &[0], |body, number| {
        body.distinct(number);
        body.bytes.put_u8(1);
        body.end();
    }),
    (
        "partitions",
        Api::OffsetCommit,
        8,
        &[2, b'g', 0xff, 0xff, 0xff, 0xff, 1, 0, 2, 2, b't'],
        &[0, 0],
        |body, number| {
            body.bytes.put_u32(number % 2);
            body.bytes.put_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 1]);
            body.end();
        },
    ),
    (
        "partitions",
        Api::TxnOffsetCommit,
        3,
        &[2, b'x', 2, b'g', 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 2, 2, b't'],
        &[0, 0],
        |body, number| {
            body.bytes.put_u32(number % 2);
            body.bytes.put_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 1]);
            body.end();
        },
    ),
    ("missing topics", Api::OffsetCommit, 8, &[2, b'g', 0xff, 0xff, 0xff, 0xff, 1, 0], &[0], |body, number| {
        body.distinct(number);
        body.bytes.put_u8(1);
        body.end();
    }),
    ("partitions", Api::OffsetFetch, 7, &[2, b'g', 2, 2, b't'], &[0, 0, 0], |body, number| body.bytes.put_u32(number)),
    ("topics", Api::OffsetFetch, 7, &[2, b'g'], &[0, 0], |body, number| {
        body.distinct(number);
        body.bytes.put_u8(1);
        body.end();
    }),
    ("ids", Api::OffsetFetch, 10, &[2, 2, b'g', 1, 0, 0, 0, 0], &[0, 0, 0], |body, number| {
        body.id(number);
        body.bytes.put_slice(&[2, 0, 0, 0, 0]);
        body.end();
    }),
    ("partitions", Api::OffsetDelete, 0, &[0, 1, b'g', 0, 0, 0, 1, 0, 1, b't'], &[], |body, number| {
        body.bytes.put_u32(number % 2);
    }),
    ("missing topics", Api::OffsetDelete, 0, &[0, 1, b'g'], &[], |body, number| {
        body.distinct(number);
        body.bytes.put_u32(0);
    }),
    ("partitions", Api::DescribeLogDirs, 2, &[2, 2, b't'], &[0, 0], |body, number| body.bytes.put_u32(number)),
];

fn frame(api: Api, version: i16, head: &[u8], element: Element, tail: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(api.key());
    bytes.put_i16(version);
    bytes.put_slice(&[0, 0, 0, 7, 0xff, 0xff]);
    let flexible = api.is_flexible(version);
    if flexible {
        bytes.put_u8(0);
    }
    let mut body = Body { bytes, flexible };
    body.bytes.put_slice(head);
    body.count(MANY);
    for number in 0..MANY {
        element(&mut body, number);
    }
    body.bytes.put_slice(tail);
    body.bytes.freeze()
}

/// Memory above the frame itself while it is answered, at its highest.
fn peak(bare: &Bare, frame: Bytes, what: &str) -> usize {
    let before = ALLOCATOR.start();
    let begun = bare.send(frame);
    let peak = ALLOCATOR.peak() - before;
    assert!(matches!(begun, Outcome::Answer(_)), "{what} is not answered: the case tests nothing");
    peak
}

fn check(bare: &Bare, what: &str, api: Api, version: i16, frame: Bytes) {
    let what = format!("{api:?} version {version}, {what}");
    let bytes = frame.len();
    let peak = peak(bare, frame, &what);
    let times = peak / bytes;
    println!("{what}: {bytes} bytes take {peak} ({times} ×)");
    let charged = requests::cost(api.key(), bytes);
    assert!(charged <= 64 * bytes, "{api:?} is charged more than it may take");
    assert!(peak <= charged + more(api), "{what}: {bytes} bytes take {peak} ({times} ×), charged are {charged}");
}

#[test]
fn no_frame_takes_more_than_is_charged_for_it() {
    for case in CASES {
        let bare = Bare::with(&[("auto.create.topics.enable", "false")]);
        let frame = frame(case.api, case.version, &[], case.element, case.tail);
        check(&bare, case.what, case.api, case.version, frame);
    }
    for (what, api, version, head, tail, element) in NESTED {
        let bare = Bare::new();
        let topic = frame_of_one_topic();
        assert!(matches!(bare.send(topic), Outcome::Answer(_)));
        check(&bare, what, *api, *version, frame(*api, *version, head, *element, tail));
    }
}

/// Makes topic "t" with one partition.
fn frame_of_one_topic() -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_slice(&[0, 19, 0, 5, 0, 0, 0, 7, 0xff, 0xff, 0]);
    bytes.put_slice(&[2, 2, b't', 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.freeze()
}
