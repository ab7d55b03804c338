//! Merges defaults, file, environment and command line into one [`Config`].

use super::args::{BrokerArgs, Given};
use super::names::{self, Name};
use super::origin::{Origin, Values, checked};
use super::{Config, properties};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// The settings, and what people should know about them.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// One sentence for each Kafka setting in the file that is not served.
    pub warnings: Vec<String>,
}

/// Why the settings cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong, where, and how to mend it.
    pub sentence: String,
    /// Whether the command line itself is wrong.
    pub wrong_arguments: bool,
}

impl ConfigError {
    fn start_up(sentence: String) -> Self {
        Self { sentence, wrong_arguments: false }
    }

    fn arguments(sentence: String) -> Self {
        Self { sentence, wrong_arguments: true }
    }

    /// Exit status that goes with it: 2 for wrong arguments, else 1.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        if self.wrong_arguments { 2 } else { 1 }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for ConfigError {}

/// Reads the file and the environment of this process and puts the command line on top.
///
/// # Errors
/// The first thing that is wrong, with its origin.
pub fn load(args: &BrokerArgs) -> Result<Loaded, ConfigError> {
    let file = match &args.config {
        Some(path) => Some((path.as_path(), read(path).map_err(ConfigError::start_up)?)),
        None => None,
    };
    let file = file.as_ref().map(|(path, text)| (*path, text.as_str()));
    merge(file, std::env::vars_os(), args)
}

/// The merge itself: what was read comes in.
fn merge(
    file: Option<(&Path, &str)>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    args: &BrokerArgs,
) -> Result<Loaded, ConfigError> {
    let mut values = Values::default();
    let mut warnings = Vec::new();
    if let Some((path, text)) = file {
        warnings = add_file(&mut values, path, text).map_err(ConfigError::start_up)?;
    }
    for (variable, value) in environment {
        add_variable(&mut values, &variable, &value).map_err(ConfigError::start_up)?;
    }
    add_command_line(&mut values, args).map_err(ConfigError::arguments)?;
    let config = Config::decide(values).map_err(ConfigError::start_up)?;
    Ok(Loaded { config, warnings })
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path)
        .map_err(|why| format!("The settings file {} cannot be read: {why}. Correct --config.", path.display()))?;
    String::from_utf8(bytes).map_err(|why| format!("The settings file {} is not UTF-8 text: {why}.", path.display()))
}

/// Adds the settings of a file; what only Kafka serves is a warning.
fn add_file(values: &mut Values, path: &Path, text: &str) -> Result<Vec<String>, String> {
    let entries = properties::parse(text).map_err(|(line, why)| format!("{} line {line}: {why}.", path.display()))?;
    let mut warnings = Vec::new();
    for entry in entries {
        let origin = Origin::File { path: path.to_owned(), line: entry.line };
        match names::look_up(&entry.key) {
            Name::Served(setting) => {
                let value = checked(setting, &entry.value, origin)?;
                values.fixed.insert(setting.name, value);
            }
            Name::KafkaOnly => {
                warnings.push(format!(
                    "{} ({origin}) is a setting of Apache Kafka that corelane does not serve; it is ignored.",
                    entry.key
                ));
            }
            Name::Unknown => return Err(unknown(&entry.key, &origin)),
        }
    }
    Ok(warnings)
}

/// Adds one variable of the environment if it begins with `CORELANE_`.
fn add_variable(values: &mut Values, variable: &OsString, value: &OsString) -> Result<(), String> {
    let Some(variable) = variable.to_str().filter(|variable| variable.starts_with("CORELANE_")) else { return Ok(()) };
    let origin = Origin::Environment { variable: variable.to_owned() };
    let value = value
        .to_str()
        .ok_or_else(|| format!("The environment variable {variable} is not UTF-8 text; correct or unset it."))?;
    let name = names::of_variable(variable).ok_or_else(|| {
        format!(
            "The environment variable {variable} names no setting; {}. Correct or unset it.",
            names::variable_hint(variable)
        )
    })?;
    add(values, name, value, origin)
}

fn add_command_line(values: &mut Values, args: &BrokerArgs) -> Result<(), String> {
    let given = args.given()?;
    for Given { flag, name, value } in &given {
        let other = given.iter().find(|other| other.name == *name && other.flag != *flag);
        if let Some(other) = other {
            return Err(format!("{name} is given twice, by {flag} and by {}; give it once.", other.flag));
        }
        add(values, name, value, Origin::CommandLine { flag })?;
    }
    Ok(())
}

/// Adds a setting that must be served.
fn add(values: &mut Values, name: &str, value: &str, origin: Origin) -> Result<(), String> {
    match names::look_up(name) {
        Name::Served(setting) => {
            let value = checked(setting, value, origin)?;
            values.fixed.insert(setting.name, value);
            Ok(())
        }
        Name::KafkaOnly => {
            Err(format!("{name} ({origin}) is a setting of Apache Kafka that corelane does not serve; leave it out."))
        }
        Name::Unknown => Err(unknown(name, &origin)),
    }
}

fn unknown(name: &str, origin: &Origin) -> String {
    format!("{name:?} ({origin}) is not a setting; {}.", names::hint(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(file: &str, environment: &[(&str, &str)], set: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        merge(Some((Path::new("s.properties"), file)), environment, &BrokerArgs { set, ..BrokerArgs::default() })
    }

    fn refused(file: &str, environment: &[(&str, &str)], set: &[(&str, &str)]) -> ConfigError {
        merged(file, environment, set).unwrap_err()
    }

    #[test]
    fn the_command_line_wins_over_environment_over_file() {
        let partitions = |file, environment, set| merged(file, environment, set).unwrap().config.num_partitions;
        let (file, environment, set) =
            ("num.partitions=2\nnum.partitions=3", [("CORELANE_NUM_PARTITIONS", "4")], [("num.partitions", "5")]);
        assert_eq!(partitions(file, &[], &[]), 3);
        assert_eq!(partitions(file, &environment, &[]), 4);
        assert_eq!(partitions(file, &environment, &set), 5);
        assert_eq!(partitions("", &[("HOME", "x"), ("CORELANE", "x")], &[]), 1);
    }

    #[test]
    fn of_two_names_the_one_nearer_to_the_command_line_counts() {
        let node_id = |file, set| merged(file, &[], &[set]).unwrap().config.node_id;
        assert_eq!(node_id("broker.id=1", ("node.id", "2")), 2);
        assert_eq!(node_id("node.id=1", ("broker.id", "2")), 2);
        let data_dir = |file, set| merged(file, &[], &[set]).unwrap().config.data_dir;
        assert_eq!(data_dir("log.dirs=/a", ("log.dir", "/b")), Path::new("/b"));
        assert_eq!(data_dir("log.dir=/a", ("log.dirs", "/b")), Path::new("/b"));
    }

    #[test]
    fn a_server_properties_of_kafka_starts_corelane() {
        let file = "process.roles=broker,controller\nnode.id=3\ncontroller.quorum.bootstrap.servers=localhost:9093\n\
            listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n\
            advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\ncontroller.listener.names=CONTROLLER\n\
            listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\nnum.network.threads=3\n\
            log.dirs=/tmp/data\nnum.partitions=1\nlog.retention.hours=168\nlog.segment.bytes=1073741824\n";
        let loaded = merged(file, &[], &[]).unwrap();
        assert_eq!((loaded.config.node_id, loaded.config.advertised.to_string().as_str()), (3, "localhost:9092"));
        let ignored: Vec<&str> = loaded.warnings.iter().filter_map(|warning| warning.split(' ').next()).collect();
        assert_eq!(
            ignored,
            [
                "process.roles",
                "controller.quorum.bootstrap.servers",
                "inter.broker.listener.name",
                "num.network.threads"
            ]
        );
    }

    #[test]
    fn what_is_not_served_is_refused_outside_the_file() {
        assert!(refused("", &[], &[("num.io.threads", "1")]).sentence.contains("does not serve"));
        assert!(refused("", &[("CORELANE_NUM_IO_THREADS", "1")], &[]).sentence.contains("does not serve"));
    }

    #[test]
    fn unknown_names_are_refused_everywhere_with_the_nearest() {
        assert!(
            refused("\nlog.segment.byte=1", &[], &[])
                .sentence
                .contains("(s.properties line 2) is not a setting; the nearest name is log.segment.bytes")
        );
        assert!(refused("", &[("CORELANE_NODE_IT", "1")], &[]).sentence.contains("CORELANE_NODE_ID"));
        let error = refused("", &[], &[("corelane.core", "1")]);
        assert!(error.sentence.contains("corelane.cores"));
        assert_eq!(error.exit_status(), 2);
    }

    #[test]
    fn a_bad_value_is_refused_with_key_origin_and_what_is_allowed() {
        let error = refused("num.partitions=0", &[], &[]);
        assert_eq!(error.exit_status(), 1);
        assert_eq!(
            error.sentence,
            "num.partitions = 0 (s.properties line 1) is refused: Value must be at least 1. Allowed: a whole number from 1."
        );
    }

    #[test]
    fn a_flag_and_a_set_of_the_same_setting_contradict() {
        let set = vec![("corelane.cores".to_owned(), "2".to_owned())];
        let args = BrokerArgs { cores: Some(1), set, ..BrokerArgs::default() };
        assert!(merge(None, [], &args).unwrap_err().sentence.contains("given twice"));
    }
}
