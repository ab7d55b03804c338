use super::*;

#[test]
fn defaults_are_what_the_table_says() {
    let config = Config::defaults();
    assert_eq!(config.listen.to_string(), "127.0.0.1:9092");
    assert_eq!(config.data_dir, PathBuf::from("./corelane-data"));
    assert_eq!((config.node_id, config.cores, config.commit), (1, None, CommitMode::Auto));
    assert_eq!((config.fetch_max_bytes, config.request_max_bytes), (57_671_680, 104_857_600));
}

#[test]
fn broker_id_is_another_name_of_node_id() {
    assert_eq!(Config::with(&[("broker.id", "7")]).unwrap().node_id, 7);
    assert_eq!(Config::with(&[("broker.id", "7"), ("node.id", "7")]).unwrap().node_id, 7);
    assert!(Config::with(&[("broker.id", "7"), ("node.id", "8")]).unwrap_err().contains("differ"));
}

#[test]
fn several_data_folders_are_refused() {
    assert!(Config::with(&[("log.dirs", "/a,/b")]).unwrap_err().contains("several folders"));
    assert_eq!(Config::with(&[("log.dir", "/a")]).unwrap().data_dir, PathBuf::from("/a"));
    assert_eq!(Config::with(&[("log.dir", "/a"), ("log.dirs", "/b")]).unwrap().data_dir, PathBuf::from("/b"));
}

#[test]
fn coarser_units_count_where_the_finer_is_unset() {
    let retention = |pairs: &[(&str, &str)]| Config::with(pairs).unwrap().topic_defaults.retention_ms;
    assert_eq!(retention(&[("log.retention.hours", "2")]), Some(7_200_000));
    assert_eq!(retention(&[("log.retention.hours", "2"), ("log.retention.minutes", "1")]), Some(60_000));
    assert_eq!(retention(&[("log.retention.minutes", "1"), ("log.retention.ms", "5")]), Some(5));
    assert_eq!(retention(&[("log.retention.hours", "-1")]), None);
}

#[test]
fn what_was_stored_is_checked_again() {
    let dynamic =
        |name: &str, text: &str| Dynamic { all: [(name.to_owned(), text.to_owned())].into(), ..Dynamic::default() };
    let refused = |name, text| Config::defaults().with_dynamic(dynamic(name, text)).unwrap_err();
    assert!(refused("message.max.bytes", "x").contains("Not a number"));
    assert!(refused("num.partitions", "2").contains("cannot be changed"));
    assert!(refused("log.retention.ms", "0").contains("equal or greater than 1"));
}

#[test]
fn a_topic_lives_on_when_the_broker_changes_under_it() {
    let stored =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let defaults = Config::defaults();
    let stale = stored(&[("compression.type", "gzip"), ("retention.ms", "x"), ("nosuch", "1")]);
    assert_eq!(settle(&defaults, &stale), defaults.topic_defaults);
    let config = Config::with(&[("log.cleaner.min.compaction.lag.ms", "10")]).unwrap();
    let contradicting = stored(&[("max.compaction.lag.ms", "5")]);
    assert!(resolve(&config, &contradicting).is_err());
    assert_eq!(settle(&config, &contradicting).min_compaction_lag_ms, 5);
}
