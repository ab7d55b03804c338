//! Where a value came from, and the values themselves by layer: default, file, environment, command line, and on top
//! of these what was changed while the broker runs.

use super::alter::Scope;
use super::table::{Setting, family, setting};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where a value was set. Later variants win over earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the file given by `--config`.
    File {
        /// The file.
        path: PathBuf,
        /// Its line, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The command line: `--set` or the flag that names the setting.
    CommandLine {
        /// The flag.
        flag: &'static str,
    },
    /// IncrementalAlterConfigs on all brokers (resource name empty).
    DynamicDefault,
    /// IncrementalAlterConfigs on this broker.
    DynamicBroker,
}

impl Origin {
    /// Which of two origins wins: files, variables and flags do not differ among themselves.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Environment { .. } => 2,
            Self::CommandLine { .. } => 3,
            Self::DynamicDefault => 4,
            Self::DynamicBroker => 5,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Environment { variable } => write!(f, "environment {variable}"),
            Self::CommandLine { flag } => write!(f, "command line {flag}"),
            Self::DynamicDefault => f.write_str("changed for all brokers"),
            Self::DynamicBroker => f.write_str("changed for this broker"),
        }
    }
}

/// A value in canonical spelling and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub text: String,
    /// Where it was set.
    pub origin: Origin,
}

/// What IncrementalAlterConfigs set on the broker, by name; kept in the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// For all brokers (resource name empty).
    pub all: BTreeMap<String, String>,
    /// For this broker; wins.
    pub broker: BTreeMap<String, String>,
}

impl Dynamic {
    /// What is set for `scope` itself.
    pub fn layer_mut(&mut self, scope: Scope) -> &mut BTreeMap<String, String> {
        match scope {
            Scope::AllBrokers => &mut self.all,
            Scope::ThisBroker => &mut self.broker,
        }
    }
}

/// Every value that somebody set, by setting; what is missing has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// From file, environment and command line: the one that wins.
    pub(super) fixed: BTreeMap<&'static str, Value>,
    /// Changed while the broker runs.
    pub(super) dynamic: Dynamic,
}

impl Values {
    /// The value that counts; none where it is unset and has no default.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let changed = self.dynamic.broker.get(name).or_else(|| self.dynamic.all.get(name));
        changed.map(String::as_str).or_else(|| self.fixed_text(name))
    }

    /// The value that counts where nothing was changed while the broker runs.
    pub(super) fn fixed_text(&self, name: &str) -> Option<&str> {
        let set = self.fixed.get(name).map(|value| value.text.as_str());
        set.or_else(|| setting(name).and_then(|setting| setting.default))
    }

    /// Where the value that counts was set.
    pub(super) fn origin(&self, name: &str) -> Origin {
        if self.dynamic.broker.contains_key(name) {
            Origin::DynamicBroker
        } else if self.dynamic.all.contains_key(name) {
            Origin::DynamicDefault
        } else {
            self.fixed.get(name).map_or(Origin::Default, |value| value.origin.clone())
        }
    }

    /// A number; none where the setting is unset. Of a setting in several units: the first one set, in the finest unit.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        let own = [(name, 1)];
        let members = family(name).map_or(&own[..], |family| family.0);
        members.iter().find_map(|(member, factor)| {
            let number: i64 = self.text(member)?.parse().ok()?;
            Some(number.saturating_mul(*factor))
        })
    }

    /// A number of a setting that always has one.
    pub(super) fn long(&self, name: &str) -> i64 {
        self.number(name).unwrap_or_else(|| panic!("{name} has no number: its row needs a default and a number type"))
    }

    /// A number that its row allows only from 0 on.
    pub(super) fn size(&self, name: &str) -> usize {
        usize::try_from(self.long(name)).unwrap_or_else(|_| panic!("{name} is negative: its row needs a lower bound"))
    }

    /// A number of a setting of type INT.
    pub(super) fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).unwrap_or_else(|_| panic!("{name} is above 32 bits: its row needs type INT"))
    }

    /// Whether a boolean is true.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }
}

/// A value checked against its row.
///
/// # Errors
/// A sentence with name, value, origin and allowed values.
pub(super) fn checked(setting: &Setting, value: &str, origin: Origin) -> Result<Value, String> {
    match setting.domain.canonical(value) {
        Ok(text) => Ok(Value { text, origin }),
        Err(why) => {
            Err(format!("{} = {value} ({origin}) is refused: {why}. Allowed: {}.", setting.name, setting.domain))
        }
    }
}
