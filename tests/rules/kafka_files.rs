//! Kafka's small files, byte for byte as Apache Kafka 4.4.0 wrote them.

use std::sync::Arc;

use corelane::ids::{Offset, TopicId, TopicPartition};
use corelane::log::kafka_files::{self, LeaderEpoch, MetaProperties};
use corelane::log::snapshot;

use crate::sample::fixture;

fn text(name: &str) -> String {
    String::from_utf8(fixture(name)).unwrap()
}

/// A line per partition, in the order of Kafka's map.
const RECOVERY_POINTS: &str = "0\n5\nt-zstd 0 0\nt-gzip 0 3000\nfx-plain 0 150\nt-none 0 20000\nfx-gzip 0 170\n";

const META_PROPERTIES: &str = "#\n#Sun Nov 29 21:31:30 UTC 2026\nnode.id=1\ndirectory.id=9uiP8CwxTCeUJTN8hyIQrg\n\
                               version=1\ncluster.id=_YHmkuUhRpmZWPPNZdxMNA\n";

#[test]
fn offset_checkpoints_are_kafkas() {
    let entries = kafka_files::parse_offsets(RECOVERY_POINTS).unwrap();
    let plain = TopicPartition { topic: Arc::from("fx-plain"), partition: 0 };
    assert_eq!((entries.len(), &entries[2]), (5, &(plain, Offset(150))));
    let again = kafka_files::encode_offsets(entries.iter().map(|(of, offset)| (of, *offset)));
    assert_eq!(again, RECOVERY_POINTS);
    assert_eq!(kafka_files::encode_offsets([].into_iter()), "0\n0\n");
    assert_eq!(kafka_files::parse_offsets(""), Ok(vec![]), "Kafka makes cleaner-offset-checkpoint empty");
}

#[test]
fn leader_epochs_are_kafkas() {
    let first = text("kafka-plain/leader-epoch-checkpoint");
    let epochs = kafka_files::parse_leader_epochs(&first).unwrap();
    assert_eq!(epochs, [LeaderEpoch { epoch: 0, start: Offset(0) }]);
    assert_eq!(kafka_files::encode_leader_epochs(&epochs), first);
}

#[test]
fn partition_metadata_is_kafkas() {
    for name in ["kafka-plain", "kafka-gzip"] {
        let file = text(&format!("{name}/partition.metadata"));
        let id = kafka_files::parse_partition_metadata(&file).unwrap();
        assert_ne!(id, TopicId::ZERO);
        assert_eq!(kafka_files::encode_partition_metadata(id), file);
    }
}

#[test]
fn meta_properties_are_kafkas() {
    let meta = kafka_files::parse_meta_properties(META_PROPERTIES).unwrap();
    assert_eq!((meta.node_id, meta.cluster_id.as_str()), (1, "_YHmkuUhRpmZWPPNZdxMNA"));
    assert_eq!(kafka_files::encode_meta_properties(&meta, 1_795_987_890_123), META_PROPERTIES);
    let missing = kafka_files::parse_meta_properties("version=1\nnode.id=1\n").unwrap_err();
    assert_eq!(missing.what, "cluster.id is missing");
    let changed = MetaProperties { node_id: 7, ..meta };
    assert_eq!(kafka_files::parse_meta_properties(&kafka_files::encode_meta_properties(&changed, 0)), Ok(changed));
}

#[test]
fn snapshots_are_kafkas() {
    for (name, end, producers) in [("kafka-plain", 150, 1), ("kafka-gzip", 170, 2)] {
        let file = fixture(&format!("{name}/{end:020}.snapshot"));
        let entries = snapshot::decode(&file).unwrap();
        assert_eq!(entries.len(), producers);
        assert!(entries.iter().any(|entry| entry.last_offset == end - 1), "{entries:?}");
        assert!(entries.iter().all(|entry| entry.txn_first_offset.is_none() && entry.coordinator_epoch == -1));
        assert_eq!(snapshot::encode(&entries), file);
    }
}
