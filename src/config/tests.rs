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
}

#[test]
fn coarser_units_count_where_the_finer_is_unset() {
    let retention = |pairs: &[(&str, &str)]| Config::with(pairs).unwrap().topic_defaults.retention_ms;
    assert_eq!(retention(&[("log.retention.hours", "2")]), Some(7_200_000));
    assert_eq!(retention(&[("log.retention.hours", "2"), ("log.retention.minutes", "1")]), Some(60_000));
    assert_eq!(retention(&[("log.retention.minutes", "1"), ("log.retention.ms", "5")]), Some(5));
    assert_eq!(retention(&[("log.retention.hours", "-1")]), None);
}
