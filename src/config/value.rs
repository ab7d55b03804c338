//! What a setting may hold: its type, its allowed values, and the one spelling in which a value is kept and shown.
//!
//! The sentences of a refusal are Apache Kafka's, because clients show them and tools look for them.

use std::fmt;

/// Type of a setting, as DescribeConfigs names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// Text.
    Text,
    /// Whole number of 16 bits.
    Short,
    /// Whole number of 32 bits.
    Int,
    /// Whole number of 64 bits.
    Long,
    /// Decimal number.
    Double,
    /// Texts separated by commas.
    List,
}

impl Kind {
    /// The type's number in DescribeConfigs.
    ///
    /// Source: apache/kafka `DescribeConfigsResponse.ConfigType`.
    #[must_use]
    pub const fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::Text => 2,
            Self::Int => 3,
            Self::Short => 4,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
        }
    }

    /// The type's name in a refusal.
    const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::Text => "STRING",
            Self::Short => "SHORT",
            Self::Int => "INT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
        }
    }
}

/// Which values of its type a setting may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    /// Every value of the type.
    Any,
    /// Numbers from here on.
    AtLeast(i64),
    /// Numbers from the first to the second, both included.
    Between(i64, i64),
    /// One of these words, or for a list: words out of these.
    OneOf(&'static [&'static str]),
}

/// A value that Kafka has and corelane does not serve is refused; this is the one value that is served, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Only {
    /// The served value, in canonical spelling.
    pub value: &'static str,
    /// A half sentence: what corelane lacks or does instead.
    pub because: &'static str,
}

/// Type and allowed values of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Domain {
    /// Type.
    pub kind: Kind,
    /// Allowed values.
    pub allowed: Allowed,
    /// The only served value, where Kafka allows more.
    pub only: Option<Only>,
}

impl Domain {
    /// Checks a value as typed and returns it in canonical spelling: trimmed, `TRUE` → `true`, `+5` → `5`, ` a , b` → `a,b`.
    ///
    /// # Errors
    /// Half a sentence that says why, to stand behind "Invalid value … for configuration …: ".
    pub fn canonical(&self, value: &str) -> Result<String, String> {
        let value = value.trim();
        let canonical = match self.kind {
            Kind::Boolean => boolean(value)?.to_string(),
            Kind::Short => self.number(value, value.parse::<i16>().ok().map(i64::from))?,
            Kind::Int => self.number(value, value.parse::<i32>().ok().map(i64::from))?,
            Kind::Long => self.number(value, value.parse::<i64>().ok())?,
            Kind::Double => self.decimal(value)?,
            Kind::Text => self.word(value)?.to_owned(),
            Kind::List => list(value).map(|word| self.word(word)).collect::<Result<Vec<_>, _>>()?.join(","),
        };
        self.served(canonical)
    }

    fn number(&self, value: &str, parsed: Option<i64>) -> Result<String, String> {
        let number = parsed.ok_or_else(|| self.not_a_number())?;
        let (least, most) = self.bounds();
        if number < least {
            return Err(format!("Value must be at least {least}"));
        }
        if number > most {
            return Err(format!("Value must be no more than {most}"));
        }
        debug_assert!(!value.is_empty(), "an empty text is no number");
        Ok(number.to_string())
    }

    fn decimal(&self, value: &str) -> Result<String, String> {
        let number = value.parse::<f64>().ok().filter(|n| !n.is_nan()).ok_or_else(|| self.not_a_number())?;
        if let Allowed::Between(least, most) = self.allowed {
            // Bounds of decimals are small whole numbers, which f64 holds exactly.
            #[expect(clippy::cast_precision_loss, reason = "bounds of decimals are 0 and 1")]
            let (low, high) = (least as f64, most as f64);
            if number < low {
                return Err(format!("Value must be at least {least}"));
            }
            if number > high {
                return Err(format!("Value must be no more than {most}"));
            }
        }
        // As Java writes it.
        Ok(format!("{number:?}").replace('e', "E"))
    }

    fn word<'v>(&self, value: &'v str) -> Result<&'v str, String> {
        match self.allowed {
            Allowed::OneOf(words) if !words.contains(&value) => {
                Err(format!("String must be one of: {}", words.join(", ")))
            }
            _ => Ok(value),
        }
    }

    fn served(&self, canonical: String) -> Result<String, String> {
        match self.only {
            Some(only) if canonical != only.value => {
                Err(format!("only {} is served, because {}", quoted(only.value), only.because))
            }
            _ => Ok(canonical),
        }
    }

    fn not_a_number(&self) -> String {
        format!("Not a number of type {}", self.kind.name())
    }

    /// Smallest and largest number allowed, the type's own limits included.
    fn bounds(&self) -> (i64, i64) {
        let most = match self.kind {
            Kind::Short => i64::from(i16::MAX),
            Kind::Int => i64::from(i32::MAX),
            _ => i64::MAX,
        };
        match self.allowed {
            Allowed::AtLeast(least) => (least, most),
            Allowed::Between(least, most) => (least, most),
            // One below the negative of the largest, in two's complement.
            Allowed::Any | Allowed::OneOf(_) => (-most - 1, most),
        }
    }
}

/// What people may write, in words: `a whole number from 1`, `one of disk, page-cache`.
impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(only) = self.only {
            return write!(f, "{}", quoted(only.value));
        }
        match (self.kind, self.allowed) {
            (Kind::Boolean, _) => f.write_str("true or false"),
            (Kind::List, Allowed::OneOf(words)) => write!(f, "any of {}, separated by commas", words.join(", ")),
            (Kind::List, _) => f.write_str("a list separated by commas"),
            (_, Allowed::OneOf(words)) => write!(f, "one of {}", words.join(", ")),
            (Kind::Text, _) => f.write_str("text"),
            (Kind::Double, Allowed::Between(least, most)) => write!(f, "a number from {least} to {most}"),
            (Kind::Double, _) => f.write_str("a number"),
            (_, Allowed::Between(least, most)) => write!(f, "a whole number from {least} to {most}"),
            (_, Allowed::AtLeast(least)) => write!(f, "a whole number from {least}"),
            (_, Allowed::Any) => f.write_str("a whole number"),
        }
    }
}

/// The words of a list: split at commas, trimmed; the empty text is the empty list.
pub fn list(value: &str) -> impl Iterator<Item = &str> {
    let value = value.trim();
    let words = (!value.is_empty()).then(|| value.split(',').map(str::trim));
    words.into_iter().flatten()
}

/// Reads `true` or `false` in any case.
fn boolean(value: &str) -> Result<bool, String> {
    if value.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if value.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err("Expected value to be either true or false".to_owned())
    }
}

fn quoted(value: &str) -> String {
    if value.is_empty() { "the empty value".to_owned() } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(kind: Kind, allowed: Allowed) -> Domain {
        Domain { kind, allowed, only: None }
    }

    #[test]
    fn values_get_one_spelling() {
        assert_eq!(domain(Kind::Int, Allowed::Any).canonical(" +7 ").unwrap(), "7");
        assert_eq!(domain(Kind::Boolean, Allowed::Any).canonical("TRUE").unwrap(), "true");
        assert_eq!(domain(Kind::List, Allowed::Any).canonical(" a , b ").unwrap(), "a,b");
        assert_eq!(domain(Kind::Double, Allowed::Between(0, 1)).canonical("1").unwrap(), "1.0");
    }

    #[test]
    fn refusals_say_why() {
        let refused = |kind, allowed, value: &str| domain(kind, allowed).canonical(value).unwrap_err();
        assert_eq!(refused(Kind::Int, Allowed::AtLeast(4), "3"), "Value must be at least 4");
        assert_eq!(refused(Kind::Int, Allowed::Any, "9999999999"), "Not a number of type INT");
        assert_eq!(refused(Kind::Int, Allowed::Between(1, 9), "10"), "Value must be no more than 9");
        assert_eq!(refused(Kind::Long, Allowed::Any, ""), "Not a number of type LONG");
        assert_eq!(refused(Kind::Double, Allowed::Between(0, 1), "NaN"), "Not a number of type DOUBLE");
        assert_eq!(refused(Kind::Text, Allowed::OneOf(&["a", "b"]), "A"), "String must be one of: a, b");
        assert_eq!(refused(Kind::Boolean, Allowed::Any, "1"), "Expected value to be either true or false");
    }

    #[test]
    fn what_is_not_served_is_refused_with_the_reason() {
        let only = Some(Only { value: "producer", because: "batches are stored as received" });
        let domain = Domain { kind: Kind::Text, allowed: Allowed::Any, only };
        assert_eq!(domain.canonical("producer").unwrap(), "producer");
        let why = domain.canonical("gzip").unwrap_err();
        assert_eq!(why, "only producer is served, because batches are stored as received");
    }
}
