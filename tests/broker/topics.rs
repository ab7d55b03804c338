//! Topics that go, and come again under the same name (field case WIRE-14).

use std::fs;

use super::harness::batches::Writer;
use super::harness::client::Produced;
use super::harness::{Client, Folder, Start};

const TOPIC: &str = "again";
const PARTITIONS: i32 = 4;

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
    broker.stop_cleanly();
    assert!(!left.exists());
    assert!(strange.join("00000000000000000000.log").exists());
}
