//! DescribeLogDirs (35), versions 1 to 4: the data folder, the size of each partition, the room on the file system.
//!
//! 2 is flexible · 3 adds an error code for the whole · 4 total and usable bytes.
//! Left out: version 5 (cordoned folders). Partitions that do not exist are passed over, as Kafka does.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::Request;
use super::cluster::Cluster;
use super::response::{self, Body};
use crate::broker::catalog::Catalog;
use crate::ids::TopicPartition;
use crate::runtime::disk::Space;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Existing partitions that are asked for; `None` for all.
type Asked = Option<HashSet<TopicPartition>>;

/// Answers DescribeLogDirs.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let asked = read(&cluster.catalog(), request, body)?;
    let answer = Answer {
        folder: cluster.log_dir(),
        topics: select(cluster.log_sizes().await, &asked),
        space: cluster.disk_space(),
    };
    Ok(response::frame(request, &answer))
}

fn read(catalog: &Catalog, request: &Request, body: Bytes) -> Result<Asked, WireError> {
    let mut reader = request.reader(body);
    let asked = match reader.nullable_count("the topics", 3)? {
        None => None,
        Some(count) => {
            let mut asked = HashSet::new();
            for _ in 0..count {
                read_topic(&mut reader, catalog, &mut asked)?;
            }
            Some(asked)
        }
    };
    reader.skip_tagged("the request")?;
    Ok(asked)
}

fn read_topic(reader: &mut Reader, catalog: &Catalog, asked: &mut HashSet<TopicPartition>) -> Result<(), WireError> {
    let name = reader.text("a topic's name")?;
    let topic = catalog.topic(&name);
    for _ in 0..reader.count("a topic's partitions", 4)? {
        let partition = reader.i32("a partition")?;
        if let Some(topic) = topic.filter(|topic| topic.log_id(partition).is_some()) {
            asked.insert(TopicPartition { topic: Arc::clone(&topic.name), partition });
        }
    }
    reader.skip_tagged("a topic")
}

fn select(sizes: Vec<(TopicPartition, u64)>, asked: &Asked) -> BTreeMap<Arc<str>, Vec<(i32, u64)>> {
    let wanted = |at: &TopicPartition| asked.as_ref().is_none_or(|asked| asked.contains(at));
    let mut topics: BTreeMap<Arc<str>, Vec<(i32, u64)>> = BTreeMap::new();
    for (at, bytes) in sizes.into_iter().filter(|(at, _)| wanted(at)) {
        topics.entry(at.topic).or_default().push((at.partition, bytes));
    }
    topics.values_mut().for_each(|partitions| partitions.sort_unstable());
    topics
}

struct Answer {
    folder: String,
    topics: BTreeMap<Arc<str>, Vec<(i32, u64)>>,
    space: Space,
}

impl Body for Answer {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        if version >= 3 {
            out.i16(0);
        }
        out.count(Some(1));
        out.i16(0);
        out.nullable_text(Some(&self.folder));
        out.count(Some(self.topics.len()));
        for (name, partitions) in &self.topics {
            write_topic(out, name, partitions);
        }
        if version >= 4 {
            out.i64(signed(self.space.total_bytes));
            out.i64(signed(self.space.free_bytes));
        }
        out.no_tagged();
        out.no_tagged();
    }
}

fn write_topic<S: Sink>(out: &mut Writer<'_, S>, name: &str, partitions: &[(i32, u64)]) {
    out.nullable_text(Some(name));
    out.count(Some(partitions.len()));
    for (partition, bytes) in partitions {
        out.i32(*partition);
        out.i64(signed(*bytes));
        out.i64(0); // how far behind: nothing is, there is one replica
        out.i8(0); // not a replica that moves in from another folder
        out.no_tagged();
    }
    out.no_tagged();
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
