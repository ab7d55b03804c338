//! Batches and records of a segment.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;

use super::{Printer, Stop};
use crate::broker::catalog::settings::OFFSETS_TOPIC;
use crate::ids::Offset;
use crate::log::scan::{BatchFacts, Scanner};
use crate::offline::value::Value;
use crate::wire::batch::{Attributes, BatchHeader, Codec};
use crate::wire::contents::{Contents, WholeRecord};
use crate::wire::internal::{GroupRecord, KeyValue};
use crate::wire::unpack::Unpacker;

const READ_BYTES: usize = 1 << 20;
/// What a batch may unpack to here: it is held in memory.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// Prints a segment.
pub(super) fn print(printer: &mut Printer, path: &Path) -> Result<(), Stop> {
    let cannot = |error: std::io::Error| Stop::File(format!("it cannot be read: {error}"));
    let file = File::open(path).map_err(cannot)?;
    let bytes = file.metadata().map_err(cannot)?.len();
    let mut printing = Printing { is_offsets: is_of_offsets(path), unpacker: Unpacker::new(), result: Ok(()) };
    let mut scanner = Scanner::new(bytes, 0, Offset(0));
    let mut buffer = vec![0; READ_BYTES];
    while !scanner.is_done() && printing.result.is_ok() {
        let read = file.read_at(&mut buffer, scanner.wants()).map_err(cannot)?;
        if read == 0 {
            break;
        }
        scanner.feed(&buffer[..read], &mut |facts: &BatchFacts, batch: &[u8]| printing.batch(printer, facts, batch));
    }
    printing.result?;
    let end = scanner.finish();
    match end.stop {
        None => Ok(()),
        Some(stop) => {
            Err(Stop::File(format!("{stop} at byte {}; {} bytes follow it", end.position, bytes - end.position)))
        }
    }
}

/// Segments of the topic in which groups keep their offsets.
fn is_of_offsets(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| folder.file_name());
    folder.is_some_and(|folder| {
        folder.to_string_lossy().rsplit_once('-').is_some_and(|(topic, _)| topic == OFFSETS_TOPIC)
    })
}

struct Printing {
    is_offsets: bool,
    unpacker: Unpacker,
    result: Result<(), Stop>,
}

impl Printing {
    fn batch(&mut self, printer: &mut Printer, facts: &BatchFacts, batch: &[u8]) {
        if self.result.is_ok() {
            self.result = self.print_batch(printer, facts, batch);
        }
    }

    fn print_batch(&mut self, printer: &mut Printer, facts: &BatchFacts, batch: &[u8]) -> Result<(), Stop> {
        printer.item(vec![("batch", batch_value(facts))])?;
        let Ok(header) = BatchHeader::read(batch) else { return Ok(()) };
        let batch = Bytes::copy_from_slice(batch);
        let mut contents = match Contents::of(&batch, &header, UNPACKED_BYTES_MAX, &mut self.unpacker) {
            Ok(contents) => contents,
            Err(error) => return Ok(printer.item(vec![("broken", error.to_string().into())])?),
        };
        while let Some(record) = contents.next_whole() {
            match record {
                Ok(record) => self.print_record(printer, facts, record)?,
                Err(error) => printer.item(vec![("broken", error.to_string().into())])?,
            }
        }
        Ok(())
    }

    fn print_record(&self, printer: &mut Printer, facts: &BatchFacts, record: WholeRecord) -> Result<(), Stop> {
        let log_append_time = Attributes(facts.attributes).is_log_append_time();
        let timestamp = if log_append_time {
            facts.max_timestamp
        } else {
            facts.base_timestamp.wrapping_add(record.timestamp_delta)
        };
        let length = |bytes: Option<&Bytes>| Value::Number(bytes.map_or(-1, |bytes| bytes.len() as i128));
        let mut pairs = vec![
            ("offset", facts.base_offset.plus(i64::from(record.offset_delta)).into()),
            ("timestamp", timestamp.into()),
            ("key_bytes", length(record.key.as_ref())),
            ("value_bytes", length(record.value.as_ref())),
        ];
        if !record.headers.is_empty() {
            let one = |(name, value): &(Bytes, Option<Bytes>)| {
                let name = ("name", super::super::value::readable(name).into());
                Value::Named(vec![name, ("value", printer.content(value.as_deref()))])
            };
            pairs.push(("headers", Value::List(record.headers.iter().map(one).collect())));
        }
        if printer.values.is_some() {
            pairs.push(("key", printer.content(record.key.as_deref())));
            pairs.push(("value", printer.content(record.value.as_deref())));
        }
        if facts.is_control() {
            pairs.push(("marker", marker(record.key.as_deref())));
        } else if self.is_offsets {
            let record = KeyValue { key: record.key.unwrap_or_default(), value: record.value };
            pairs.push(("group_record", group_value(record)));
        }
        Ok(printer.item(vec![("record", Value::Named(pairs))])?)
    }
}

fn batch_value(facts: &BatchFacts) -> Value {
    let attributes = Attributes(facts.attributes);
    Value::Named(vec![
        ("base_offset", facts.base_offset.into()),
        ("last_offset", facts.last_offset.into()),
        ("position", facts.position.into()),
        ("bytes", facts.bytes.into()),
        ("records", facts.records_count.into()),
        ("leader_epoch", facts.leader_epoch.into()),
        ("codec", codec_name(attributes.codec()).into()),
        ("timestamps", if attributes.is_log_append_time() { "LogAppendTime" } else { "CreateTime" }.into()),
        ("base_timestamp", facts.base_timestamp.into()),
        ("max_timestamp", facts.max_timestamp.into()),
        ("producer_id", facts.producer_id.into()),
        ("producer_epoch", facts.producer_epoch.into()),
        ("base_sequence", facts.base_sequence.into()),
        ("transactional", facts.is_transactional().into()),
        ("control", facts.is_control().into()),
        ("crc", facts.crc.into()),
    ])
}

fn codec_name(codec: Option<Codec>) -> &'static str {
    match codec {
        Some(Codec::None) => "none",
        Some(Codec::Gzip) => "gzip",
        Some(Codec::Snappy) => "snappy",
        Some(Codec::Lz4) => "lz4",
        Some(Codec::Zstd) => "zstd",
        None => "unknown",
    }
}

/// Key of a control record: version i16, type i16.
fn marker(key: Option<&[u8]>) -> Value {
    match key.and_then(|key| key.get(2..4)) {
        Some([0, 0]) => "abort".into(),
        Some([0, 1]) => "commit".into(),
        Some(other) => format!("{other:?}").into(),
        None => Value::Null,
    }
}

fn group_value(record: KeyValue) -> Value {
    match GroupRecord::decode(record) {
        Err(error) => error.to_string().into(),
        Ok(GroupRecord::Offset { group, topic, partition, value }) => Value::Named(vec![
            ("group", group.into()),
            ("topic", topic.into()),
            ("partition", partition.into()),
            ("offset", value.as_ref().map(|value| value.offset).into()),
            ("leader_epoch", value.as_ref().map(|value| value.leader_epoch).into()),
            ("metadata", value.as_ref().map(|value| value.metadata.clone()).into()),
            ("commit_ms", value.as_ref().map(|value| value.commit_ms).into()),
            ("expire_ms", value.as_ref().and_then(|value| value.expire_ms).into()),
            ("topic_id", value.as_ref().map(|value| value.topic_id.to_string()).into()),
        ]),
        Ok(GroupRecord::Group { group, value }) => {
            let members = value.as_ref().map(|value| {
                let one = |member: &crate::wire::internal::GroupMember| {
                    Value::Named(vec![
                        ("member_id", member.member_id.as_str().into()),
                        ("instance_id", member.instance_id.clone().into()),
                        ("client_id", member.client_id.as_str().into()),
                        ("client_host", member.client_host.as_str().into()),
                        ("session_timeout_ms", member.session_timeout_ms.into()),
                        ("rebalance_timeout_ms", member.rebalance_timeout_ms.into()),
                    ])
                };
                value.members.iter().map(one).collect::<Vec<_>>()
            });
            Value::Named(vec![
                ("group", group.into()),
                ("protocol_type", value.as_ref().map(|value| value.protocol_type.clone()).into()),
                ("generation", value.as_ref().map(|value| value.generation).into()),
                ("protocol", value.as_ref().and_then(|value| value.protocol.clone()).into()),
                ("leader", value.as_ref().and_then(|value| value.leader.clone()).into()),
                ("members", members.into()),
            ])
        }
    }
}
