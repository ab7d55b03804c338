//! A blocking connection and the handful of requests that come before a measurement.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::bytes::{Malformed, Put, Take};
use crate::ids::{ProducerEpoch, ProducerId};
use crate::runtime::clock;

/// How long a broker may take for one answer before the measurement is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a new topic may take to get its leaders, and a new broker to hand out producer ids.
const READY_TIMEOUT: Duration = Duration::from_secs(15);
/// No answer that this client asks for is larger.
const ANSWER_BYTES_MAX: usize = 64 << 20;
pub(super) const CLIENT_ID: &str = "corelane-bench";

/// The key of EndTxn, and the version that gives the producer a new epoch with each transaction (KIP-890).
pub(super) const END_TXN_KEY: i16 = 26;
pub(super) const END_TXN_VERSION: i16 = 5;
/// The last transaction is still being completed.
pub(super) const CONCURRENT_TRANSACTIONS: i16 = 51;

const TOPIC_ALREADY_EXISTS: i16 = 36;
pub(super) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const LEADER_NOT_AVAILABLE: i16 = 5;

/// One connection; requests and answers one after another, or pipelined by the caller.
pub(super) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// Where the unread part of `received` starts.
    read: usize,
    correlation: i32,
}

/// Where a partition is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    pub(super) partition: i32,
    pub(super) address: String,
}

impl Connection {
    /// Connects without Nagle's delay.
    pub(super) fn open(address: &str) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot connect to {address}: {error}; is the broker running?");
        let resolved = address.to_socket_addrs().map_err(failed)?.next();
        let resolved = resolved.ok_or_else(|| format!("{address} has no address"))?;
        let stream = TcpStream::connect_timeout(&resolved, Duration::from_secs(10)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(failed)?;
        Ok(Self { stream, received: Vec::new(), read: 0, correlation: 0 })
    }

    /// A second handle to the same socket, for a thread that only writes.
    pub(super) fn writer(&self) -> Result<TcpStream, String> {
        self.stream.try_clone().map_err(|error| error.to_string())
    }

    /// Sends bytes as they are.
    pub(super) fn send(&mut self, frames: &[u8]) -> Result<(), String> {
        self.stream.write_all(frames).map_err(|error| format!("the broker closed the connection: {error}"))
    }

    /// True if a whole answer was received already, so that [`Self::receive`] will not wait.
    pub(super) fn has_answer(&self) -> bool {
        matches!(self.whole(), Ok(Some(_)))
    }

    /// Waits for the next answer; without its length prefix.
    pub(super) fn receive(&mut self) -> Result<&[u8], String> {
        loop {
            if let Some(bytes) = self.whole()? {
                let start = self.read + 4;
                self.read = start + bytes;
                return Ok(&self.received[start..self.read]);
            }
            self.fill()?;
        }
    }

    fn whole(&self) -> Result<Option<usize>, String> {
        let unread = &self.received[self.read..];
        let Some((prefix, rest)) = unread.split_first_chunk::<4>() else { return Ok(None) };
        let bytes = usize::try_from(i32::from_be_bytes(*prefix)).map_err(|_| Malformed)?;
        if bytes > ANSWER_BYTES_MAX {
            return Err(format!("the broker's answer says that it has {bytes} bytes"));
        }
        Ok((rest.len() >= bytes).then_some(bytes))
    }

    fn fill(&mut self) -> Result<(), String> {
        self.received.drain(..self.read);
        self.read = 0;
        let held = self.received.len();
        self.received.resize(held + 64 * 1024, 0);
        let count = self.stream.read(&mut self.received[held..]);
        self.received.truncate(held + *count.as_ref().unwrap_or(&0));
        match count {
            Ok(0) => Err("the broker closed the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))
            }
            Err(error) => Err(format!("the connection broke: {error}")),
        }
    }

    /// Sends one request with a header of version 1 and gives the answer's body behind the correlation id.
    fn ask(&mut self, key: i16, version: i16, body: &Put) -> Result<Take<'_>, String> {
        self.exchange(key, version, &[], body)
    }

    /// The same with the header of flexible versions, which has room for tags.
    fn ask_flexible(&mut self, key: i16, version: i16, body: &Put) -> Result<Take<'_>, String> {
        let mut take = self.exchange(key, version, &[0], body)?;
        take.skip_tags()?;
        Ok(take)
    }

    fn exchange(&mut self, key: i16, version: i16, tags: &[u8], body: &Put) -> Result<Take<'_>, String> {
        self.correlation += 1;
        let correlation = self.correlation;
        let mut frame = Put::default();
        frame.i32(0).i16(key).i16(version).i32(correlation).string(CLIENT_ID).raw(tags).raw(&body.0);
        let length = i32::try_from(frame.0.len() - 4).map_err(|_| "the request is too large")?;
        frame.0[..4].copy_from_slice(&length.to_be_bytes());
        self.send(&frame.0)?;
        let mut take = Take(self.receive()?);
        if take.i32()? != correlation {
            return Err("the broker answered another request than the one that was asked".to_owned());
        }
        Ok(take)
    }

    /// The highest version of `key` that the broker serves (ApiVersions v0).
    pub(super) fn max_version(&mut self, key: i16) -> Result<i16, String> {
        let mut take = self.ask(18, 0, &Put::default())?;
        refuse("ApiVersions", take.i16()?)?;
        for _ in 0..take.count()? {
            let (served, _, max) = (take.i16()?, take.i16()?, take.i16()?);
            if served == key {
                return Ok(max);
            }
        }
        Err(format!("the broker does not serve requests with key {key}"))
    }

    /// The leaders of a topic's partitions, in order, or the topic's error (Metadata v4, no automatic creation).
    fn leaders(&mut self, topic: &str) -> Result<Result<Vec<Leader>, i16>, String> {
        let mut body = Put::default();
        body.count(1).string(topic).i8(0);
        let mut take = self.ask(3, 4, &body)?;
        take.i32()?;
        let mut brokers = Vec::new();
        for _ in 0..take.count()? {
            let (id, host, port) = (take.i32()?, take.string()?, take.i32()?);
            take.string()?;
            brokers.push((id, format!("{host}:{port}")));
        }
        take.string()?;
        take.i32()?;
        if take.count()? != 1 {
            return Err(Malformed.into());
        }
        let error = take.i16()?;
        take.string()?;
        take.bool()?;
        if error != 0 {
            return Ok(Err(error));
        }
        read_partitions(&mut take, &brokers)
    }

    /// Makes a topic with Kafka's default settings (CreateTopics v2); one that exists is left as it is.
    pub(super) fn create_topic(&mut self, topic: &str, partitions: i32) -> Result<(), String> {
        let mut body = Put::default();
        body.count(1).string(topic).i32(partitions).i16(1).count(0).count(0).i32(30_000).i8(0);
        let mut take = self.ask(19, 2, &body)?;
        take.i32()?;
        for _ in 0..take.count()? {
            take.string()?;
            let error = take.i16()?;
            let message = take.string()?.to_owned();
            if error != 0 && error != TOPIC_ALREADY_EXISTS {
                return Err(format!("CreateTopics of '{topic}': {} {message}", error_name(error)));
            }
        }
        Ok(())
    }

    /// The leaders of a topic, which is made with `partitions` partitions when it is missing.
    pub(super) fn leaders_of(&mut self, topic: &str, partitions: i32) -> Result<Vec<Leader>, String> {
        until_ready(|| match self.leaders(topic)? {
            Ok(leaders) => Ok(Ok(leaders)),
            Err(UNKNOWN_TOPIC_OR_PARTITION) => {
                self.create_topic(topic, partitions)?;
                Ok(Err(UNKNOWN_TOPIC_OR_PARTITION))
            }
            Err(error) => Ok(Err(error)),
        })
        .map_err(|error| format!("topic '{topic}': {error}"))
    }

    /// A producer id of its own (InitProducerId v0, no transactional id).
    pub(super) fn init_producer_id(&mut self) -> Result<(ProducerId, ProducerEpoch), String> {
        until_ready(|| {
            let mut body = Put::default();
            body.i16(-1).i32(60_000);
            let mut take = self.ask(22, 0, &body)?;
            take.i32()?;
            Ok(match take.i16()? {
                0 => Ok((ProducerId(take.i64()?), ProducerEpoch(take.i16()?))),
                error => Err(error),
            })
        })
        .map_err(|error| format!("InitProducerId: {error}"))
    }

    /// Where a transactional id has its coordinator (FindCoordinator v1).
    pub(super) fn coordinator_of(&mut self, transactional_id: &str) -> Result<String, String> {
        const TRANSACTION: i8 = 1;
        until_ready(|| {
            let mut body = Put::default();
            body.string(transactional_id).i8(TRANSACTION);
            let mut take = self.ask(10, 1, &body)?;
            take.i32()?;
            let error = take.i16()?;
            take.string()?;
            take.i32()?;
            let (host, port) = (take.string()?, take.i32()?);
            Ok(if error == 0 { Ok(format!("{host}:{port}")) } else { Err(error) })
        })
        .map_err(|error| format!("FindCoordinator of '{transactional_id}': {error}"))
    }

    /// The producer id and epoch of a transactional id; what was open there is aborted (InitProducerId v1).
    pub(super) fn init_transactions(&mut self, transactional_id: &str) -> Result<(ProducerId, ProducerEpoch), String> {
        until_ready(|| {
            let mut body = Put::default();
            body.string(transactional_id).i32(60_000);
            let mut take = self.ask(22, 1, &body)?;
            take.i32()?;
            Ok(match take.i16()? {
                0 => Ok((ProducerId(take.i64()?), ProducerEpoch(take.i16()?))),
                error => Err(error),
            })
        })
        .map_err(|error| format!("InitProducerId of '{transactional_id}': {error}"))
    }

    /// Commits (EndTxn v5); the producer id and epoch to go on with, or the error.
    pub(super) fn commit(
        &mut self,
        transactional_id: &str,
        (id, epoch): (ProducerId, ProducerEpoch),
    ) -> Result<Result<(ProducerId, ProducerEpoch), i16>, String> {
        let mut body = Put::default();
        body.compact_string(transactional_id).i64(id.0).i16(epoch.0).i8(1).unsigned_varint(0);
        let mut take = self.ask_flexible(END_TXN_KEY, END_TXN_VERSION, &body)?;
        take.i32()?;
        let error = take.i16()?;
        Ok(if error == 0 { Ok((ProducerId(take.i64()?), ProducerEpoch(take.i16()?))) } else { Err(error) })
    }
}

fn read_partitions(take: &mut Take<'_>, brokers: &[(i32, String)]) -> Result<Result<Vec<Leader>, i16>, String> {
    let mut leaders = Vec::new();
    for _ in 0..take.count()? {
        let error = take.i16()?;
        let (partition, leader) = (take.i32()?, take.i32()?);
        for _ in 0..2 {
            let replicas = take.count()?;
            take.raw(replicas.saturating_mul(4))?;
        }
        let known = brokers.iter().find(|(id, _)| *id == leader);
        match (error, known) {
            (0, Some((_, address))) => leaders.push(Leader { partition, address: address.clone() }),
            (0, None) => return Ok(Err(LEADER_NOT_AVAILABLE)),
            _ => return Ok(Err(error)),
        }
    }
    leaders.sort_by_key(|one| one.partition);
    Ok(Ok(leaders))
}

/// Asks again while the broker answers an error that time heals.
fn until_ready<T>(mut ask: impl FnMut() -> Result<Result<T, i16>, String>) -> Result<T, String> {
    let deadline = clock::monotonic() + READY_TIMEOUT;
    loop {
        match ask()? {
            Ok(value) => return Ok(value),
            Err(error) if !heals(error) || clock::monotonic() > deadline => return Err(error_name(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn heals(error: i16) -> bool {
    const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    const NOT_COORDINATOR: i16 = 16;
    [
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        CONCURRENT_TRANSACTIONS,
    ]
    .contains(&error)
}

fn refuse(request: &str, error: i16) -> Result<(), String> {
    if error == 0 { Ok(()) } else { Err(format!("{request}: {}", error_name(error))) }
}

/// An error code with its name, for those that a produce may meet.
pub(super) fn error_name(error: i16) -> String {
    let name = match error {
        2 => "CORRUPT_MESSAGE",
        3 => "UNKNOWN_TOPIC_OR_PARTITION",
        5 => "LEADER_NOT_AVAILABLE",
        6 => "NOT_LEADER_OR_FOLLOWER",
        7 => "REQUEST_TIMED_OUT",
        10 => "MESSAGE_TOO_LARGE",
        17 => "INVALID_TOPIC_EXCEPTION",
        18 => "RECORD_LIST_TOO_LARGE",
        29 => "TOPIC_AUTHORIZATION_FAILED",
        31 => "CLUSTER_AUTHORIZATION_FAILED",
        35 => "UNSUPPORTED_VERSION",
        45 => "OUT_OF_ORDER_SEQUENCE_NUMBER",
        47 => "INVALID_PRODUCER_EPOCH",
        48 => "INVALID_TXN_STATE",
        49 => "INVALID_PRODUCER_ID_MAPPING",
        CONCURRENT_TRANSACTIONS => "CONCURRENT_TRANSACTIONS",
        53 => "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        56 => "KAFKA_STORAGE_ERROR",
        59 => "UNKNOWN_PRODUCER_ID",
        87 => "INVALID_RECORD",
        90 => "PRODUCER_FENCED",
        _ => return format!("error {error}"),
    };
    format!("error {error} ({name})")
}
