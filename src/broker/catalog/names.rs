//! Which topic names are allowed, and which topics are the broker's own.
//!
//! Source: apache/kafka `Topic.java` (rules, sentences); the answers were compared with Apache Kafka 4.4.0.

/// Longest name: a folder is called `name-partition`, and file systems stop at 255 bytes.
const NAME_BYTES_MAX: usize = 249;

/// Topics that only a broker writes; shown as internal.
const INTERNAL: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// The topic of Kafka's own metadata log: nobody may make it.
pub const CLUSTER_METADATA: &str = "__cluster_metadata";

/// True for the topics that only a broker writes.
#[must_use]
pub fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

/// Checks a topic name.
///
/// # Errors
/// Kafka's sentence for INVALID_TOPIC_EXCEPTION.
pub fn check(name: &str) -> Result<(), String> {
    let why = match name {
        "" => "the empty string is not allowed".to_owned(),
        "." => "'.' is not allowed".to_owned(),
        ".." => "'..' is not allowed".to_owned(),
        _ if name.len() > NAME_BYTES_MAX => {
            format!("the length of '{name}' is longer than the max allowed length {NAME_BYTES_MAX}")
        }
        _ if !name.bytes().all(is_allowed) => {
            format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
        }
        _ => return Ok(()),
    };
    Err(format!("Topic name is invalid: {why}"))
}

/// True when [`check`] finds nothing, without building a sentence.
#[must_use]
pub fn is_valid(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed)
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// The name with '_' for each '.', for names that hold one of the two; others cannot collide.
#[must_use]
pub fn flattened(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_with_kafkas_sentences() {
        let refused = |name: &str| check(name).unwrap_err();
        assert_eq!(refused(""), "Topic name is invalid: the empty string is not allowed");
        assert_eq!(refused(".."), "Topic name is invalid: '..' is not allowed");
        assert_eq!(
            refused("a/b"),
            "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        );
        let long = "x".repeat(250);
        assert!(refused(&long).ends_with("is longer than the max allowed length 249"));
        assert_eq!(check(&long[1..]), Ok(()));
    }

    #[test]
    fn the_short_check_agrees_with_the_long_one() {
        for name in ["", ".", "..", "...", "a.b", "a b", "é", "a/b", "A-1_", &"x".repeat(249), &"x".repeat(250)] {
            assert_eq!(is_valid(name), check(name).is_ok(), "{name}");
        }
    }
}
