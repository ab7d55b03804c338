//! The answers of DescribeConfigs: every config with its value, where that comes from, and what it would be otherwise.
//!
//! Source: apache/kafka `ConfigHelper.scala`, compared with a running Apache Kafka 4.4.0.

use super::Config;
use super::origin::Values;
use super::table::{SETTINGS, Setting, family, setting};
use super::topic::{Overrides, TOPIC_CONFIGS, TopicConfig};
use super::value::Kind;

/// Where a value comes from, as DescribeConfigs says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The topic sets it.
    Topic,
    /// Changed for this broker while it runs.
    DynamicBroker,
    /// Changed for all brokers while they run.
    DynamicDefault,
    /// File, environment or command line.
    Static,
    /// Nobody set it.
    Default,
}

impl Source {
    /// Its number on the wire.
    #[must_use]
    pub const fn code(self) -> i8 {
        match self {
            Self::Topic => 1,
            Self::DynamicBroker => 2,
            Self::DynamicDefault => 3,
            Self::Static => 4,
            Self::Default => 5,
        }
    }
}

/// A value that would count if those before it were not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The setting: of the topic, or the broker's that it comes from.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// One config of an answer. None of ours is sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Name.
    pub name: &'static str,
    /// Value; none where it is unset and has no default.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: Source,
    /// Whether IncrementalAlterConfigs refuses to change it.
    pub read_only: bool,
    /// Its type; [`Kind::code`] on the wire.
    pub kind: Kind,
    /// The value that counts first, then what would count without it.
    pub synonyms: Vec<Synonym>,
    /// What it is for.
    pub documentation: &'static str,
}

/// Every config of a topic, sorted by name.
#[must_use]
pub fn describe_topic(config: &Config, overrides: &Overrides) -> Vec<ConfigEntry> {
    let shown = TOPIC_CONFIGS.iter().filter(|row| !row.internal);
    shown.map(|row| topic_entry(config.values(), overrides, row)).collect()
}

/// Every served setting of this broker, sorted by name.
#[must_use]
pub fn describe_broker(config: &Config) -> Vec<ConfigEntry> {
    let shown = SETTINGS.iter().filter(|row| !row.internal);
    shown.map(|row| broker_entry(config.values(), row)).collect()
}

/// What was changed for all brokers (resource name empty), sorted by name.
#[must_use]
pub fn describe_all_brokers(config: &Config) -> Vec<ConfigEntry> {
    let changed = config.dynamic().all.iter();
    changed.filter_map(|(name, value)| setting(name).map(|row| cluster_entry(row, value))).collect()
}

fn topic_entry(values: &Values, overrides: &Overrides, row: &TopicConfig) -> ConfigEntry {
    let set = overrides.get(row.name).cloned();
    let own = set.clone().map(|value| Synonym { name: row.name, value, source: Source::Topic });
    let inherited = row.broker.map(|broker| synonyms(values, broker)).unwrap_or_default();
    let synonyms: Vec<Synonym> = own.into_iter().chain(inherited).collect();
    ConfigEntry {
        name: row.name,
        value: Some(set.unwrap_or_else(|| row.inherited(values))),
        source: head(&synonyms),
        read_only: false,
        kind: row.domain.kind,
        synonyms,
        documentation: row.doc,
    }
}

fn broker_entry(values: &Values, row: &Setting) -> ConfigEntry {
    let synonyms = synonyms(values, row.name);
    ConfigEntry {
        name: row.name,
        value: values.text(row.name).map(str::to_owned),
        source: head(&synonyms),
        read_only: !row.dynamic,
        kind: row.domain.kind,
        synonyms,
        documentation: row.doc,
    }
}

fn cluster_entry(row: &'static Setting, value: &str) -> ConfigEntry {
    let source = Source::DynamicDefault;
    ConfigEntry {
        name: row.name,
        value: Some(value.to_owned()),
        source,
        read_only: !row.dynamic,
        kind: row.domain.kind,
        synonyms: vec![Synonym { name: row.name, value: value.to_owned(), source }],
        documentation: row.doc,
    }
}

fn head(synonyms: &[Synonym]) -> Source {
    synonyms.first().map_or(Source::Default, |first| first.source)
}

/// What a setting and the coarser units of it are set to, layer by layer.
///
/// Kafka leaves out what comes before the first entry of the setting's own name, so a coarser unit alone does not show.
fn synonyms(values: &Values, name: &'static str) -> Vec<Synonym> {
    let own = [(name, 1)];
    let members = family(name).map_or(&own[..], |family| family.0);
    let layers = [Source::DynamicBroker, Source::DynamicDefault, Source::Static, Source::Default];
    let all = layers.iter().flat_map(|source| members.iter().map(move |(member, _)| (*source, *member)));
    let set =
        all.filter_map(|(source, name)| in_layer(values, source, name).map(|value| Synonym { name, value, source }));
    set.skip_while(|synonym| synonym.name != name).collect()
}

fn in_layer(values: &Values, source: Source, name: &str) -> Option<String> {
    match source {
        Source::Topic => None,
        Source::DynamicBroker => values.dynamic.broker.get(name).cloned(),
        Source::DynamicDefault => values.dynamic.all.get(name).cloned(),
        Source::Static => values.fixed.get(name).map(|value| value.text.clone()),
        Source::Default => setting(name).and_then(|row| row.default).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::super::origin::Dynamic;
    use super::*;

    fn entry(entries: Vec<ConfigEntry>, name: &str) -> ConfigEntry {
        entries.into_iter().find(|entry| entry.name == name).unwrap()
    }

    fn shown(entry: &ConfigEntry) -> Vec<(&str, &str, i8)> {
        entry.synonyms.iter().map(|s| (s.name, s.value.as_str(), s.source.code())).collect()
    }

    fn changed(name: &str, all: &str, broker: &str) -> Config {
        let map = |value: &str| [(name.to_owned(), value.to_owned())].into();
        Config::defaults().with_dynamic(Dynamic { all: map(all), broker: map(broker) }).unwrap()
    }

    #[test]
    fn a_topics_config_shows_what_it_hides() {
        let overrides = [("retention.ms".to_owned(), "77".to_owned())].into();
        let before = entry(describe_topic(&Config::defaults(), &overrides), "retention.ms");
        assert_eq!((before.value.as_deref(), before.source), (Some("77"), Source::Topic));
        assert_eq!(shown(&before), [("retention.ms", "77", 1)]);

        let after = entry(describe_topic(&changed("log.retention.ms", "-5", "-6"), &overrides), "retention.ms");
        let expected = [
            ("retention.ms", "77", 1),
            ("log.retention.ms", "-6", 2),
            ("log.retention.ms", "-5", 3),
            ("log.retention.hours", "168", 5),
        ];
        assert_eq!(shown(&after), expected);
    }

    #[test]
    fn a_coarser_unit_counts_and_is_not_shown() {
        let config = Config::with(&[("log.retention.hours", "1")]).unwrap();
        let topic = entry(describe_topic(&config, &Overrides::new()), "retention.ms");
        assert_eq!((topic.value.as_deref(), topic.source, topic.synonyms.len()), (Some("3600000"), Source::Default, 0));
        let unlimited = Config::with(&[("log.retention.hours", "-1")]).unwrap();
        let topic = entry(describe_topic(&unlimited, &Overrides::new()), "retention.ms");
        assert_eq!(topic.value.as_deref(), Some("-1"));
        let broker = entry(describe_broker(&config), "log.retention.hours");
        assert_eq!(shown(&broker), [("log.retention.hours", "1", 4), ("log.retention.hours", "168", 5)]);
    }

    #[test]
    fn the_brokers_configs_show_their_layers() {
        let config = changed("message.max.bytes", "5", "6");
        let broker = entry(describe_broker(&config), "message.max.bytes");
        assert_eq!(
            (broker.value.as_deref(), broker.source, broker.read_only),
            (Some("6"), Source::DynamicBroker, false)
        );
        let expected =
            [("message.max.bytes", "6", 2), ("message.max.bytes", "5", 3), ("message.max.bytes", "1048588", 5)];
        assert_eq!(shown(&broker), expected);
        let all = describe_all_brokers(&config);
        assert_eq!((all.len(), shown(&all[0])), (1, vec![("message.max.bytes", "5", 3)]));
        let unset = entry(describe_broker(&config), "log.retention.ms");
        assert_eq!((unset.value, unset.source), (None, Source::Default));
        assert!(entry(describe_broker(&config), "num.partitions").read_only);
    }

    #[test]
    fn node_id_is_shown_under_both_names() {
        let config = Config::with(&[("node.id", "4")]).unwrap();
        let shown_as = |name| entry(describe_broker(&config), name).value;
        assert_eq!((shown_as("node.id"), shown_as("broker.id")), (Some("4".to_owned()), Some("4".to_owned())));
    }
}
