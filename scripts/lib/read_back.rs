//! Reads a whole topic with librdkafka and prints how many records it holds and a sum over their values.
//!
//! `read-back HOST:PORT TOPIC` prints `RECORDS SUM`. The sum does not depend on the order, so that two brokers that
//! hold the same records print the same line. Used by `scripts/perf-equality`.

use std::process::ExitCode;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use twox_hash::XxHash3_64;

const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(bootstrap), Some(topic), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprintln!("usage: read-back HOST:PORT TOPIC");
        return ExitCode::from(2);
    };
    match read(&bootstrap, &topic) {
        Ok((records, sum)) => {
            println!("{records} {sum:016x}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("read-back: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(bootstrap: &str, topic: &str) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    // A group id must be given to be able to assign partitions by hand; the group is never joined.
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "read-back")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("check.crcs", "true")
        .set("auto.offset.reset", "error")
        .create()?;
    let mut open = assign_all(&consumer, topic)?;
    let (mut records, mut sum) = (0_u64, 0_u64);
    while open > 0 {
        match consumer.poll(PATIENCE) {
            Some(Ok(message)) => {
                records += 1;
                sum = sum.wrapping_add(XxHash3_64::oneshot(message.payload().unwrap_or_default()));
            }
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => return Err(error.into()),
            None => return Err(format!("nothing came for {} s", PATIENCE.as_secs()).into()),
        }
    }
    Ok((records, sum))
}

/// Assigns every partition from its beginning; returns how many there are.
fn assign_all(consumer: &BaseConsumer, topic: &str) -> Result<usize, Box<dyn std::error::Error>> {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let found = metadata.topics().first().ok_or("the topic is not there")?;
    let mut list = TopicPartitionList::new();
    for partition in found.partitions() {
        list.add_partition_offset(topic, partition.id(), Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    Ok(list.count())
}
