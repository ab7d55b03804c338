//! Settings: what is accepted stays accepted in the spelling it is kept in, and whatever was accepted can be used.

use corelane::config::{
    Change, Config, Dynamic, Operation, Overrides, Scope, alter_broker, alter_topic, describe_all_brokers,
    describe_broker, describe_topic, new_topic, parse_properties, resolve, settle, validate,
};
use proptest::prelude::*;

/// Values that settings of some kind may take, and some that none may.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        (-3_i64..100_000).prop_map(|number| number.to_string()),
        (0_i64..100).prop_map(|number| format!(" +{number} ")),
        prop::sample::select(vec![
            "true",
            "FALSE",
            "compact",
            "delete,compact",
            "compact , delete",
            ",",
            "",
            "0.5",
            "1",
            "NaN",
            "1e0",
            "disk",
            "page-cache",
            "producer",
            "gzip",
            "CreateTime",
            "LogAppendTime",
            "-1",
            "-2",
            "2147483647",
            "2147483648",
            "9223372036854775807",
            "PLAINTEXT://h:1",
            "/a",
            "/a,/b",
            "0:1",
        ])
        .prop_map(str::to_owned),
        ".{0,12}",
    ]
}

fn name_of(entries: &[corelane::config::ConfigEntry]) -> impl Strategy<Value = &'static str> + use<> {
    let names: Vec<&'static str> = entries.iter().map(|entry| entry.name).collect();
    prop_oneof![9 => prop::sample::select(names), 1 => prop::sample::select(vec!["nosuch", "num.io.threads"])]
}

fn topic_name() -> impl Strategy<Value = &'static str> {
    name_of(&describe_topic(&Config::defaults(), &Overrides::new()))
}

fn broker_name() -> impl Strategy<Value = &'static str> {
    name_of(&describe_broker(&Config::defaults()))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop::sample::select(vec![
        Operation::Set,
        Operation::Set,
        Operation::Delete,
        Operation::Append,
        Operation::Subtract,
    ])
}

type Step = (bool, Scope, &'static str, &'static str, Operation, Option<String>);

fn step() -> impl Strategy<Value = Step> {
    let scope = prop::sample::select(vec![Scope::AllBrokers, Scope::ThisBroker]);
    (any::<bool>(), scope, topic_name(), broker_name(), operation(), prop::option::weighted(0.95, value()))
}

/// `key=value` so that any text comes back: every special character behind a backslash.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\\' | '=' | ':' | '#' | '!' | ' ' | '\t' | '\u{c}' => format!("\\{c}"),
        c if !c.is_ascii() => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text is read or refused, and never with more entries than lines.
    #[test]
    fn any_file_is_read_or_refused(text in "([a=: \\\\#!u0\n\r\t]|.){0,80}") {
        if let Ok(entries) = parse_properties(&text) {
            prop_assert!(entries.len() <= text.split(['\n', '\r']).count());
            prop_assert!(entries.is_sorted_by_key(|entry| entry.line));
        }
    }

    /// What is written with every special character escaped is read back, also when lines are continued.
    #[test]
    fn escaped_entries_come_back(pairs in prop::collection::vec(("(?s).{1,10}", "(?s).{0,10}"), 0..5), continued: bool) {
        let separator = if continued { "\\\n  =\\\r\n\t" } else { "=" };
        let text: String = pairs.iter().map(|(key, value)| format!("{}{separator}{}\n", escaped(key), escaped(value))).collect();
        let read = parse_properties(&text).unwrap();
        let read: Vec<(String, String)> = read.into_iter().map(|entry| (entry.key, entry.value)).collect();
        prop_assert_eq!(read, pairs);
    }

    /// The spelling in which a topic's value is kept is accepted as it is, and the topic can be used or is refused.
    #[test]
    fn kept_values_are_accepted_again(name in topic_name(), value in value()) {
        if let Ok(kept) = validate(name, &value) {
            prop_assert_eq!(validate(name, &kept), Ok(kept.clone()));
            let config = Config::defaults();
            if let Ok(overrides) = new_topic(&config, [(name, Some(value.as_str()))]) {
                prop_assert_eq!(&overrides[name], &kept);
                prop_assert_eq!(resolve(&config, &overrides).unwrap(), settle(&config, &overrides));
            }
        }
    }

    /// Any value of any setting starts a broker or is refused in a sentence.
    #[test]
    fn any_setting_is_used_or_refused(name in broker_name(), text in value()) {
        match Config::with(&[(name, &text)]) {
            Ok(config) => {
                let kept = describe_broker(&config).into_iter().find(|entry| entry.name == name).unwrap().value.unwrap();
                prop_assert!(Config::with(&[(name, &kept)]).is_ok());
            }
            Err(sentence) => prop_assert!(sentence.contains(name) || sentence.contains("log.retention.ms"), "{}", sentence),
        }
    }

    /// Through any changes to a topic and to the broker, everything accepted can be used, shown, and started with again.
    #[test]
    fn accepted_changes_can_be_lived_with(steps in prop::collection::vec(step(), 1..20)) {
        let mut config = Config::defaults();
        let mut overrides = Overrides::new();
        for (on_topic, scope, topic_name, broker_name, operation, value) in &steps {
            let name = if *on_topic { topic_name } else { broker_name };
            let change = [Change { name, operation: *operation, value: value.as_deref() }];
            if *on_topic {
                overrides = alter_topic(&config, &overrides, &change).unwrap_or(overrides);
            } else if let Ok(dynamic) = alter_broker(&config, config.dynamic(), *scope, &change) {
                config = config.with_dynamic(dynamic).unwrap();
            }
            let settled = settle(&config, &overrides);
            prop_assert!(settled.min_compaction_lag_ms <= settled.max_compaction_lag_ms);
            shown_is_what_counts(&config, &overrides)?;
        }
        let dynamic: Dynamic = config.dynamic().clone();
        prop_assert_eq!(Config::defaults().with_dynamic(dynamic).unwrap().topic_defaults, config.topic_defaults);
    }
}

/// Of each config shown, the first synonym is the value, and what a topic sets itself is shown as it is kept.
fn shown_is_what_counts(config: &Config, overrides: &Overrides) -> Result<(), TestCaseError> {
    for entry in describe_topic(config, overrides) {
        prop_assert_eq!(overrides.get(entry.name).cloned(), entry.value.filter(|_| entry.source.code() == 1));
    }
    for entry in describe_broker(config) {
        if let Some(first) = entry.synonyms.first() {
            prop_assert_eq!(Some(&first.value), entry.value.as_ref());
            prop_assert_eq!(first.source, entry.source);
        }
    }
    prop_assert_eq!(describe_all_brokers(config).len(), config.dynamic().all.len());
    Ok(())
}
