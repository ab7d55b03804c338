//! Producers: idempotent ones with up to five batches under way, and such that do not number theirs.

use std::time::Duration;

use bytes::Bytes;
use corelane::broker::messages::{AckLevel, Answer, PartitionKey, Produced};
use corelane::broker::shard::LocalFuture;
use corelane::ids::{ProducerEpoch, ProducerId, Sequence};
use corelane::runtime::clock;
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;

use crate::attacks;
use crate::cluster::{in_time, produced};
use crate::support::dice::Dice;
use crate::world::{Client, Promise, Sent, Session, WINDOW, World};

/// Tries of one batch before the producer waits for better times.
const TRIES: usize = 3;
const STAMP: i64 = 1_700_000_000_000;

impl World {
    /// Makes the next batch of a session and notes that it is sent.
    pub fn make(&mut self, at: usize, dice: &mut Dice) -> Bytes {
        self.next_stamp += 1;
        let stamp = STAMP + self.next_stamp;
        let session = &mut self.sessions[at];
        let bytes_max = self.logs.get(&session.key).map_or(1_000, |log| log.segment_bytes / 2);
        let first = session.next_sequence;
        let mut builder = BatchBuilder::new();
        if session.is_idempotent() {
            builder = builder.producer(ProducerId(session.id), ProducerEpoch(session.epoch), Sequence(first));
        }
        let size = match bytes_max {
            attacks::WIDE_BYTES.. => attacks::WIDE_BYTES,
            _ => [20, 200, 1_000, 4_000, 12_000][dice.below(5)].min(bytes_max),
        };
        let records = 1 + dice.below(3);
        let value = attacks::value(self.attack, self.newest_log_file, size / records, dice);
        for _ in 0..records {
            builder = builder.value(stamp, &value);
        }
        session.next_sequence += records as i32;
        let bytes = builder.build().freeze();
        let sent = Sent { bytes: bytes.clone(), records: records as i64, offset: None, promise: Promise::None };
        session.sent.push(sent);
        let mark = match session.is_idempotent() {
            true => (session.id, session.epoch, first, stamp),
            false => (-1, -1, -1, stamp),
        };
        self.batches.insert(mark, (at, session.sent.len() - 1));
        bytes
    }

    /// An answer says where a batch is.
    fn acknowledge(&mut self, at: usize, batch: usize, offset: i64, level: AckLevel) {
        let key = self.sessions[at].key;
        let promise = match (self.logs.get(&key).map(|log| log.promise()), level) {
            (_, AckLevel::None) => return,
            (Some(promise), AckLevel::Durable) => promise,
            _ => Promise::Kill,
        };
        let session = &mut self.sessions[at];
        let Some(sent) = session.sent.get_mut(batch) else { return };
        let known = *sent.offset.get_or_insert(offset);
        assert_eq!(known, offset, "a retry got another offset: producer {} batch {batch}", session.id);
        sent.promise = sent.promise.max(promise);
        let end = offset + sent.records;
        if level == AckLevel::Durable
            && let Some(log) = self.logs.get_mut(&key)
        {
            log.note_end(end);
        }
        self.one("batches acknowledged");
    }

    /// A session goes on under the next epoch, as a client does that cannot know what became of its batches.
    pub fn bump(&mut self, at: usize) -> usize {
        let old = &mut self.sessions[at];
        old.is_open = false;
        let next =
            Session { epoch: old.epoch + 1, sent: Vec::new(), next_sequence: 0, is_open: true, is_busy: true, ..*old };
        self.sessions.push(next);
        self.one("epochs bumped");
        self.sessions.len() - 1
    }
}

/// A session with an id of its own, or without any.
pub async fn begin(client: &Client, key: PartitionKey, dice: &mut Dice) -> Option<usize> {
    let level =
        [AckLevel::Durable, AckLevel::Durable, AckLevel::Durable, AckLevel::Written, AckLevel::None][dice.below(5)];
    let is_idempotent = level != AckLevel::None || dice.below(2) == 0;
    let id = if is_idempotent { producer_id(client, dice).await? } else { -1 };
    let world = &mut *client.world.borrow_mut();
    world.log(key)?; // deleted meanwhile
    world.sessions.push(Session {
        id,
        epoch: 0,
        key,
        level,
        sent: Vec::new(),
        next_sequence: 0,
        is_open: true,
        is_busy: true,
    });
    Some(world.sessions.len() - 1)
}

async fn producer_id(client: &Client, dice: &mut Dice) -> Option<i64> {
    loop {
        client.world.borrow_mut().operate();
        let shard = client.cluster.shard(dice.below(8)).clone();
        match in_time("a producer id", async move { shard.new_producer_id().await }).await {
            Ok(id) => {
                let is_new = client.world.borrow_mut().producer_ids.insert(id.0);
                assert!(is_new, "producer id {} was given out twice", id.0);
                return Some(id.0);
            }
            Err(ErrorCode::CoordinatorLoadInProgress) => clock::sleep(Duration::from_millis(2)).await,
            Err(_) => return None,
        }
    }
}

/// How a round of sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Done,
    Refused,
    /// The topic is no more.
    Gone,
    /// A gap before the batch.
    OutOfOrder,
}

/// The first good answer, or the last.
async fn first_good(asked: Vec<LocalFuture<Answer>>) -> Produced {
    let mut last = None;
    // The retry is asked first: it must not be answered before its original is safe.
    for answer in asked.into_iter().rev() {
        let result = produced(in_time("a batch", answer).await);
        if result.error.is_none() {
            return result;
        }
        last = Some(result);
    }
    last.unwrap()
}

/// Sends batches of a session from `first` on, all at once, and takes the answers in order.
pub async fn send(client: &Client, at: usize, first: usize, level: AckLevel, from_shard: usize) -> Round {
    let (key, batches) = {
        let world = &mut *client.world.borrow_mut();
        let session = &world.sessions[at];
        let batches: Vec<_> =
            session.sent.get(first..).unwrap_or_default().iter().map(|sent| sent.bytes.clone()).collect();
        world.operations += batches.len();
        (world.sessions[at].key, batches)
    };
    let copies = {
        let world = client.world.borrow();
        world.attack.copies(level, world.sessions[at].is_idempotent())
    };
    let ask = |bytes| (0..copies).map(|_| client.cluster.send(from_shard, key, bytes, level)).collect::<Vec<_>>();
    let asked: Vec<_> = batches.iter().map(ask).collect();
    let mut round = Round::Done;
    for (batch, answer) in (first..).zip(asked) {
        let result = first_good(answer).await;
        let found = match result.error {
            ErrorCode::None => {
                client.world.borrow_mut().acknowledge(at, batch, result.base_offset.0, level);
                Round::Done
            }
            ErrorCode::KafkaStorageError => {
                // What is under way when its topic is deleted ends so, too.
                if !client.world.borrow().may_be_gone(key.topic) {
                    client.note_refused("a batch");
                }
                Round::Refused
            }
            ErrorCode::UnknownTopicOrPartition => Round::Gone,
            ErrorCode::OutOfOrderSequenceNumber => Round::OutOfOrder,
            other => panic!("{other:?} for batch {batch} of producer {}", client.world.borrow().sessions[at].id),
        };
        if round == Round::Done {
            round = found;
        }
    }
    round
}

/// Writes to one partition until this life ends or the topic goes.
pub async fn produce(client: Client, key: PartitionKey, mut dice: Dice) {
    let shard = dice.below(8);
    let known = {
        let world = &mut *client.world.borrow_mut();
        let is_free = |session: &Session| {
            session.key == key
                && session.is_open
                && !session.is_busy
                && (session.open_batches() == 0 || !session.is_idempotent())
        };
        let all: Vec<_> = (0..world.sessions.len()).filter(|at| is_free(&world.sessions[*at])).collect();
        let known = if all.is_empty() || dice.below(4) == 0 { None } else { Some(all[dice.below(all.len())]) };
        if let Some(at) = known {
            world.sessions[at].is_busy = true;
        }
        known
    };
    let mut at = match known {
        Some(at) => at,
        None => match begin(&client, key, &mut dice).await {
            Some(at) => at,
            None => return,
        },
    };
    while client.goes_on() {
        if !produce_some(&client, &mut at, shard, &mut dice).await {
            return;
        }
        clock::sleep(Duration::from_micros(dice.below(60_000) as u64)).await;
    }
}

/// One round of new batches, tried again while they are refused; false when it is over.
async fn produce_some(client: &Client, at: &mut usize, shard: usize, dice: &mut Dice) -> bool {
    let (first, level, is_idempotent) = {
        let world = &mut *client.world.borrow_mut();
        if world.sessions[*at].is_idempotent() && dice.below(50) == 0 {
            *at = world.bump(*at);
        }
        let first = world.sessions[*at].sent.len();
        for _ in 0..1 + dice.below(WINDOW) {
            world.make(*at, dice);
        }
        (first, world.sessions[*at].level, world.sessions[*at].is_idempotent())
    };
    for _ in 0..TRIES {
        match send(client, *at, first, level, shard).await {
            Round::Gone => {
                let world = client.world.borrow();
                assert!(world.may_be_gone(world.sessions[*at].key.topic), "a topic is not known that is there");
                return false;
            }
            Round::Done => return true,
            // Nobody can say which of these are there.
            _ if !is_idempotent || level == AckLevel::None => {
                if is_idempotent {
                    *at = client.world.borrow_mut().bump(*at);
                }
                return true;
            }
            Round::OutOfOrder if client.may_fail && client.world.borrow().sessions[*at].was_overtaken() => {
                let world = &mut *client.world.borrow_mut();
                *at = world.bump(*at);
                world.one("first batches that were overtaken on a failing disk");
                return true;
            }
            Round::OutOfOrder => {
                panic!("a gap before batch {first} of producer {}", client.world.borrow().sessions[*at].id)
            }
            Round::Refused => clock::sleep(Duration::from_millis(dice.below(30) as u64)).await,
        }
    }
    // It is tried again later: in the next life, or when somebody takes the session.
    client.world.borrow_mut().sessions[*at].is_busy = false;
    false
}
