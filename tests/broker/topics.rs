//! Topics that go, and come again under the same name (field case WIRE-14).

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::harness::batches::Writer;
use super::harness::client::Produced;
use super::harness::{Broker, Client, Folder, Start};

const TOPIC: &str = "again";
/// Nothing that is done in the background takes so long here.
const PATIENCE: Duration = Duration::from_secs(60);
const PARTITIONS: i32 = 4;

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not so");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_topic_made_again_has_nothing_of_the_old_one_also_after_a_kill() {
    let folder = Folder::new("again");
    let start = Start::on(&folder);
    let mut broker = start.start();
    let mut client = Client::connect(broker.address);
    let mut ids = Vec::new();
    let mut old_batch: Option<Vec<u8>> = None;
    for cycle in 0..4 {
        client.create_topic(TOPIC, PARTITIONS, &[]);
        let (id, partitions) = client.topic(TOPIC).unwrap();
        assert!(!id.is_nil() && !ids.contains(&id));
        ids.push(id);
        assert_eq!(partitions, PARTITIONS as usize);
        for partition in 0..PARTITIONS {
            assert_eq!(client.end(TOPIC, partition), 0);
        }
        if let Some(old) = &old_batch {
            // The old topic's producers are not known here: this is no retry but the first batch.
            assert_eq!(client.produce(TOPIC, 0, old), Produced { error: 0, base_offset: 0 });
        }
        let batch = Writer::new(client.init_producer_id()).batch(3, "again", 100);
        for partition in 1..PARTITIONS {
            assert_eq!(client.produce(TOPIC, partition, &batch).base_offset, 0);
        }
        let before: Vec<_> = (0..PARTITIONS).map(|partition| client.read_all(TOPIC, partition)).collect();
        if cycle % 2 == 0 {
            broker.kill9()
        } else {
            broker.stop_cleanly()
        }
        broker = start.clone().cores(1 + cycle % 2).start();
        client = Client::connect(broker.address);
        assert_eq!(client.topic(TOPIC).unwrap().0, id);
        for (partition, bytes) in (0..).zip(&before) {
            assert!(client.read_all(TOPIC, partition) == *bytes, "partition {partition}");
        }
        client.delete_topic(TOPIC);
        assert_eq!(client.topic(TOPIC), None);
        old_batch = Some(batch);
    }
    broker.kill9();
    let broker = start.start();
    assert_eq!(Client::connect(broker.address).topic(TOPIC), None);
    broker.stop_cleanly();
}

#[test]
fn a_kill_right_after_the_answer_keeps_what_was_made_and_deleted() {
    let folder = Folder::new("made-and-deleted");
    let start = Start::on(&folder);
    for cycle in 0..4 {
        let broker = start.start();
        let mut client = Client::connect(broker.address);
        if cycle > 0 {
            assert!(client.topic(&format!("made-{}", cycle - 1)).is_some());
            assert_eq!(client.topic(&format!("gone-{}", cycle - 1)), None);
        }
        client.create_topic(&format!("gone-{cycle}"), 3, &[]);
        client.create_topic(&format!("made-{cycle}"), 3, &[]);
        client.delete_topic(&format!("gone-{cycle}"));
        broker.kill9();
    }
    let broker = start.start();
    let folders: Vec<_> = fs::read_dir(folder.data().join("kafka")).unwrap().map(|entry| entry.unwrap()).collect();
    let gone = folders.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with("gone-"));
    let names: Vec<_> = gone.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| name.ends_with("-delete")), "{names:?}");
    broker.stop_cleanly();
}

#[test]
fn what_a_deletion_left_goes_at_the_next_start_and_strange_folders_stay() {
    let folder = Folder::new("leftovers");
    Start::on(&folder).start().stop_cleanly();
    let kafka = folder.data().join("kafka");
    let left = kafka.join("old-0.0123456789abcdef0123456789abcdef-delete");
    let strange = kafka.join("strange-0");
    for path in [&left, &strange] {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("00000000000000000000.log"), "something").unwrap();
    }
    let broker = Start::on(&folder).start();
    assert!(broker.log().contains("strange-0: belongs to no topic"), "{}", broker.log());
    until(|| !left.exists());
    broker.stop_cleanly();
    assert!(strange.join("00000000000000000000.log").exists());
}

/// Folders of deleted partitions that are still there.
fn deleted_folders(folder: &Folder) -> usize {
    let entries = fs::read_dir(folder.data().join("kafka")).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with("-delete")).count()
}

/// Writes the same batch to each partition, where nothing was written before.
fn fill(client: &mut Client, partitions: i32, batch: &[u8]) {
    for partition in 0..partitions {
        assert_eq!(client.end(TOPIC, partition), 0, "{TOPIC}-{partition}");
        assert_eq!(client.produce(TOPIC, partition, batch), Produced { error: 0, base_offset: 0 });
    }
}

/// A topic of many partitions is made again at once, several times, while the files of its earlier lives are still going;
/// a kill comes in between, and in the end only the last life is left.
#[test]
fn a_topic_of_many_partitions_is_made_again_while_its_old_files_go() {
    let folder = Folder::new("many-again");
    let start = Start::on(&folder);
    let restart = |broker: Broker| {
        broker.kill9();
        start.start()
    };
    let mut broker = start.start();
    let partitions = 150;
    let mut client = Client::connect(broker.address);
    let batch = Writer::new(client.init_producer_id()).batch(3, "many", 2_000);
    for cycle in 0..4 {
        client.create_topic(TOPIC, partitions, &[("file.delete.delay.ms", "0")]);
        fill(&mut client, partitions, &batch);
        client.delete_topic(TOPIC);
        if cycle == 1 {
            assert!(deleted_folders(&folder) > 0, "the kill comes too late to show anything");
            broker = restart(broker);
            client = Client::connect(broker.address);
        }
    }
    client.create_topic(TOPIC, partitions, &[]);
    fill(&mut client, partitions, &batch);
    broker = restart(broker);
    until(|| deleted_folders(&folder) == 0);
    client = Client::connect(broker.address);
    for partition in 0..partitions {
        assert_eq!((client.offset_at(TOPIC, partition, -2), client.end(TOPIC, partition)), (0, 3));
        assert_eq!(client.produce(TOPIC, partition, &batch), Produced { error: 0, base_offset: 0 }, "a retry");
    }
    broker.stop_cleanly();
}
