//! Which names are known: the served settings, and those of Apache Kafka that are not served.

use super::table::{SETTINGS, Setting, setting};
use super::topic::topic_config;

/// Names of every broker setting of Apache Kafka 4.4, one a line, sorted.
const KAFKA: &str = include_str!("kafka-4.4-broker-settings.txt");

/// Beginnings of names that Kafka hands on to listeners, providers and plug-ins.
const KAFKA_PREFIXES: &[&str] = &["listener.name.", "config.providers.", "rsm.config.", "rlmm.config."];

/// A name that somebody gave.
pub enum Name {
    /// It is served.
    Served(&'static Setting),
    /// Kafka has it and corelane does not serve it.
    KafkaOnly,
    /// Neither knows it.
    Unknown,
}

/// Looks a name up.
#[must_use]
pub fn look_up(name: &str) -> Name {
    if let Some(setting) = setting(name) {
        Name::Served(setting)
    } else if KAFKA.lines().any(|known| known == name) || KAFKA_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        Name::KafkaOnly
    } else {
        Name::Unknown
    }
}

/// The environment variable of a setting: `log.segment.bytes` → `CORELANE_LOG_SEGMENT_BYTES`, `corelane.cores` → `CORELANE_CORES`.
#[must_use]
pub fn variable(name: &str) -> String {
    let name = name.strip_prefix("corelane.").unwrap_or(name);
    format!("CORELANE_{}", name.to_ascii_uppercase().replace(['.', '-'], "_"))
}

/// The name that an environment variable stands for, served or Kafka's.
#[must_use]
pub fn of_variable(given: &str) -> Option<&'static str> {
    all().find(|name| variable(name) == given)
}

/// Says about a name that neither knows which name was probably meant.
#[must_use]
pub fn hint(name: &str) -> String {
    if let Some(broker) = topic_config(name).and_then(|config| config.broker) {
        return format!("{name} is a setting of topics; what topics have by default is {broker}");
    }
    format!("the nearest name is {}", nearest(name, |known| known.to_owned()))
}

/// The same for an environment variable.
#[must_use]
pub fn variable_hint(given: &str) -> String {
    format!("the nearest name is {}", nearest(given, variable))
}

/// Served names first, so that they win a tie.
fn all() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.name).chain(KAFKA.lines())
}

fn nearest(given: &str, spelled: impl Fn(&str) -> String) -> String {
    all().map(spelled).min_by_key(|known| distance(given, known)).unwrap_or_default()
}

/// How many characters must be put in, taken out or changed to make one text the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, from) in one.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in other.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn distances() {
        for (one, other, expected) in [("", "abc", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ab", "ba", 2)] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert!(hint("log.segment.byte").ends_with(" log.segment.bytes"));
        assert!(hint("corelane.durabilty").ends_with(" corelane.durability"));
        assert!(hint("retention.ms").ends_with(" log.retention.ms"));
        assert!(variable_hint("CORELANE_CORE").ends_with(" CORELANE_CORES"));
    }

    #[test]
    fn every_variable_stands_for_one_name() {
        let mut seen = BTreeMap::new();
        for name in all() {
            let before = seen.insert(variable(name), name).unwrap_or(name);
            assert_eq!(before, name, "{} stands for both", variable(name));
        }
        assert_eq!(of_variable("CORELANE_LOG_SEGMENT_BYTES"), Some("log.segment.bytes"));
        assert_eq!(of_variable("CORELANE_CORES"), Some("corelane.cores"));
    }

    #[test]
    fn what_has_no_corelane_in_front_is_kafkas() {
        for setting in SETTINGS.iter().filter(|setting| !setting.name.starts_with("corelane.")) {
            assert!(KAFKA.lines().any(|known| known == setting.name), "{}", setting.name);
        }
    }
}
