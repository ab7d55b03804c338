//! Those who make and delete topics, delete records and turn the clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corelane::broker::catalog::alter::{Alteration, Change, TOPIC, Unnamed};
use corelane::broker::catalog::{Command, Outcome};
use corelane::broker::messages::{Deletion, PartitionKey};
use corelane::ids::Offset;
use corelane::runtime::clock;
use corelane::wire::error_code::ErrorCode;

use crate::cluster::{EARLIEST, LATEST, in_time};
use crate::groups::ANCHOR;
use crate::producers;
use crate::support::dice::Dice;
use crate::support::mini_host::MiniHost;
use crate::world::{Client, Named, Pending};

/// A name that no topic has yet.
pub fn named(name: String, dice: &mut Dice) -> Named {
    let is_anchor = name == ANCHOR;
    Named {
        name,
        id: None,
        pending: Pending::Nothing,
        partitions: if is_anchor { 1 } else { 1 + dice.below(3) as i32 },
        is_weak: !is_anchor && dice.below(4) == 0,
        segment_bytes: [3_000, 8_000, 30_000][dice.below(3)],
        retains: !is_anchor && dice.below(4) == 0,
        configs: BTreeMap::new(),
        doubtful: None,
    }
}

/// Makes the topic of a name that has none; false when that was refused.
pub async fn make(client: &Client, at: usize, dice: &mut Dice) -> bool {
    let (name, partitions, configs) = {
        let world = &mut *client.world.borrow_mut();
        world.operate();
        let named = &mut world.names[at];
        named.pending = Pending::Making;
        let durability = if named.is_weak { "page-cache" } else { "disk" };
        named.configs = BTreeMap::from([
            ("internal.segment.bytes", named.segment_bytes.to_string()),
            ("index.interval.bytes", "1000".to_owned()),
            ("file.delete.delay.ms", "20".to_owned()),
            ("corelane.durability", durability.to_owned()),
        ]);
        if named.retains {
            let (name, value) = [("retention.ms", "400"), ("retention.bytes", "8000")][dice.below(2)];
            named.configs.insert(name, value.to_owned());
        }
        let configs: Vec<_> = named.configs.iter().map(|(name, value)| (*name, value.clone())).collect();
        (named.name.clone(), named.partitions, configs)
    };
    let Ok(result) = client.cluster.create(dice.below(8), &name, partitions, &configs).await else {
        client.note_refused("a topic");
        return false;
    };
    match result.outcome {
        Outcome::Topic(topic) => {
            client.world.borrow_mut().adopt(at, topic.id);
            true
        }
        other => panic!("{name}: {other:?} {:?} {:?}", result.error, result.message),
    }
}

/// Deletes topics and makes them again under the same name, until this life ends.
pub async fn manage(client: Client, mut dice: Dice) {
    while client.goes_on() {
        clock::sleep(Duration::from_micros(dice.below(800_000) as u64)).await;
        let at = 1 + dice.below(client.world.borrow().names.len() - 1);
        let id = client.world.borrow().names[at].id;
        let Some(id) = id else { continue };
        if dice.below(2) == 0 {
            continue;
        }
        client.world.borrow_mut().names[at].pending = Pending::Deleting;
        client.world.borrow_mut().operate();
        let Ok(result) = client.cluster.delete(dice.below(8), id).await else {
            return client.note_refused("a deletion of a topic");
        };
        assert!(result.is_done(), "{result:?}");
        {
            let world = &mut *client.world.borrow_mut();
            world.one("topics deleted");
            world.bury(id);
            (world.names[at].id, world.names[at].pending) = (None, Pending::Nothing);
        }
        if dice.below(3) > 0 {
            clock::sleep(Duration::from_micros(dice.below(20_000) as u64)).await;
        }
        if !make(&client, at, &mut dice).await {
            return;
        }
        begin_producers(&client, at, &mut dice);
    }
}

/// A producer or two for each partition of a topic.
pub fn begin_producers(client: &Client, at: usize, dice: &mut Dice) {
    use corelane::runtime::host::{Queue, spawn};
    let (id, partitions) = {
        let named = &client.world.borrow().names[at];
        (named.id, named.partitions)
    };
    let Some(topic) = id else { return };
    for partition in 0..partitions {
        for _ in 0..dice.below(3) {
            let key = PartitionKey { topic, partition };
            spawn(Queue::Requests, producers::produce(client.clone(), key, dice.other()));
        }
    }
}

/// Deletes records now and then, each time a little more or everything, until this life ends.
pub async fn delete_records(client: Client, mut dice: Dice) {
    while client.goes_on() {
        clock::sleep(Duration::from_micros(dice.below(300_000) as u64)).await;
        if let Some(key) = client.some_log(&mut dice) {
            delete_some(&client, key, &mut dice).await;
        }
    }
}

/// Deletes some records of some partition.
pub async fn delete_once(client: Client, mut dice: Dice) {
    if let Some(key) = client.some_log(&mut dice) {
        delete_some(&client, key, &mut dice).await;
    }
}

async fn delete_some(client: &Client, key: PartitionKey, dice: &mut Dice) {
    let shard = dice.below(8);
    let Ok(start) = client.cluster.offset(shard, key, EARLIEST).await else { return };
    let Ok(end) = client.cluster.offset(shard, key, LATEST).await else { return };
    let before = match dice.below(3) {
        0 => -1,
        _ => start + dice.below((end - start + 2) as usize) as i64,
    };
    {
        let world = &mut *client.world.borrow_mut();
        world.operate();
        let Some(log) = world.log(key) else { return };
        log.note_start(start);
        log.note_end(end);
        log.start_max = if before < 0 { i64::MAX } else { log.start_max.max(before) };
    }
    let shard = client.cluster.shard(shard).clone();
    let items = vec![Deletion { key, before: Offset(before) }];
    let deleting = async move { shard.delete_records(items, Duration::ZERO).await };
    let result = in_time("a deletion", deleting).await[0];
    let world = &mut *client.world.borrow_mut();
    match result.error {
        ErrorCode::None => {
            let low_watermark = result.low_watermark.0;
            assert!(low_watermark >= before.max(end.min(before.max(0))), "{low_watermark} for {before}");
            world.one("records deleted by request");
            if let Some(log) = world.log(key) {
                log.note_start(low_watermark);
            }
        }
        ErrorCode::OffsetOutOfRange => assert!(before > end, "{before} is not above {end}"),
        ErrorCode::RequestTimedOut => {}
        ErrorCode::KafkaStorageError => client.note_refused("a deletion"),
        ErrorCode::UnknownTopicOrPartition => assert!(world.may_be_gone(key.topic)),
        other => panic!("{other:?}"),
    }
}

/// Changes settings of topics, until this life ends.
pub async fn configure(client: Client, mut dice: Dice) {
    while client.goes_on() {
        clock::sleep(Duration::from_micros(dice.below(500_000) as u64)).await;
        let at = dice.below(client.world.borrow().names.len());
        let (config, value) = match dice.below(4) {
            0 => ("corelane.durability", ["disk", "page-cache"][dice.below(2)].to_owned()),
            1 => ("index.interval.bytes", [100, 1_000, 100_000][dice.below(3)].to_string()),
            2 => ("file.delete.delay.ms", [0, 20, 500][dice.below(3)].to_string()),
            _ => ("internal.segment.bytes", (30_000 + dice.below(3) * 10_000).to_string()),
        };
        let (name, id) = {
            let world = &mut *client.world.borrow_mut();
            world.operate();
            let Named { id: Some(id), pending: Pending::Nothing, name, .. } = world.names[at].clone() else { continue };
            if name == ANCHOR && config == "corelane.durability" {
                continue;
            }
            world.names[at].doubtful = Some((config, value.clone()));
            if value == "page-cache" {
                // From some moment on; the other way round is sure only after a start.
                let logs = world.logs.iter_mut().filter(|(key, _)| key.topic == id);
                logs.for_each(|(_, log)| log.is_weak = true);
            }
            (name, id)
        };
        let change = Change {
            name: config.to_owned(),
            operation: Some(corelane::config::Operation::Set),
            value: Some(value.clone()),
        };
        let altered =
            Alteration { resource_type: TOPIC, resource_name: Arc::from(name.as_str()), changes: vec![change] };
        let command = Command::AlterConfigs { resources: vec![altered], unnamed: Unnamed::Stay, validate_only: false };
        let Ok(result) = client.cluster.change(dice.below(8), command).await else {
            return client.note_refused("a setting");
        };
        let shown = client.cluster.topic(&name).is_some_and(|topic| topic.overrides.get(config) == Some(&value));
        let world = &mut *client.world.borrow_mut();
        let named = &mut world.names[at];
        named.doubtful = None;
        match result.error {
            ErrorCode::None => {
                // Somebody may have made it anew meanwhile: it was the old one's setting then, or the new one's.
                if named.id == Some(id) || shown {
                    named.configs.insert(config, value);
                }
                world.one("settings changed");
            }
            ErrorCode::UnknownTopicOrPartition => {}
            other => panic!("{name} {config}={value}: {other:?} {:?}", result.message),
        }
    }
}

/// Turns the wall clock forwards and backwards.
pub async fn turn_clock(client: Client, host: MiniHost, mut dice: Dice) {
    while client.goes_on() {
        clock::sleep(Duration::from_micros(dice.below(1_000_000) as u64)).await;
        let by = [60_000, 3_600_000][dice.below(2)];
        host.step_wall(dice.below(2 * by) as i64 - by as i64);
        client.world.borrow_mut().one("clock stepped");
    }
}
