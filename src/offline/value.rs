//! What commands print: one tree of named values, as text for people or as JSON for programs.

use std::fmt::{self, Write};

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// Yes or no.
    Is(bool),
    /// A number.
    Number(i128),
    /// Text.
    Text(String),
    /// Several.
    List(Vec<Value>),
    /// Named ones, in the order in which they are printed.
    Named(Vec<(&'static str, Value)>),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Is(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

macro_rules! numbers {
    ($($kind:ty)*) => {
        $(impl From<$kind> for Value {
            fn from(value: $kind) -> Self {
                Self::Number(i128::from(value))
            }
        })*
    };
}

numbers!(i8 u8 i16 u16 i32 u32 i64 u64);

impl From<crate::ids::Offset> for Value {
    fn from(value: crate::ids::Offset) -> Self {
        value.0.into()
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

impl Value {
    /// On one line, as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let mut line = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_json(&mut line);
        line
    }

    /// On one line, for people: `name: value`, one after another.
    #[must_use]
    pub fn text(&self) -> String {
        let mut line = String::new();
        let _ = self.write_text(&mut line, false);
        line
    }

    fn write_json(&self, out: &mut String) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Is(value) => write!(out, "{value}"),
            Self::Number(value) => write!(out, "{value}"),
            Self::Text(text) => write_quoted(out, text),
            Self::List(values) => write_between(out, ('[', ']'), values, |out, value| value.write_json(out)),
            Self::Named(pairs) => write_between(out, ('{', '}'), pairs, |out, (name, value)| {
                write_quoted(out, name)?;
                out.write_char(':')?;
                value.write_json(out)
            }),
        }
    }

    fn write_text(&self, out: &mut String, inside: bool) -> fmt::Result {
        match self {
            Self::Null => out.write_str("none"),
            Self::Is(value) => out.write_str(if *value { "yes" } else { "no" }),
            Self::Number(value) => write!(out, "{value}"),
            Self::Text(text) => out.write_str(text),
            Self::List(values) => write_between(out, ('[', ']'), values, |out, value| value.write_text(out, true)),
            Self::Named(pairs) if inside => write_between(out, ('{', '}'), pairs, write_pair),
            Self::Named(pairs) => {
                for (at, pair) in pairs.iter().enumerate() {
                    out.write_str(if at == 0 { "" } else { " " })?;
                    write_pair(out, pair)?;
                }
                Ok(())
            }
        }
    }
}

fn write_pair(out: &mut String, (name, value): &(&'static str, Value)) -> fmt::Result {
    write!(out, "{name}: ")?;
    value.write_text(out, true)
}

fn write_between<T>(
    out: &mut String,
    (open, close): (char, char),
    parts: &[T],
    mut write_part: impl FnMut(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    out.write_char(open)?;
    for (at, part) in parts.iter().enumerate() {
        out.write_str(if at == 0 { "" } else { "," })?;
        write_part(out, part)?;
    }
    out.write_char(close)
}

fn write_quoted(out: &mut String, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for letter in text.chars() {
        match letter {
            '"' | '\\' => write!(out, "\\{letter}")?,
            control if control < ' ' => write!(out, "\\u{:04x}", u32::from(control))?,
            other => out.write_char(other)?,
        }
    }
    out.write_char('"')
}

/// Bytes as text: UTF-8 as it is, everything else as `\xNN`.
#[must_use]
pub fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                control if control.is_control() => text.extend(control.escape_default()),
                other => text.push(other),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Bytes as base64, with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tree_is_text_and_json() {
        let tree = Value::Named(vec![
            ("a", "x\"\n".into()),
            ("b", Value::List(vec![Value::Number(-3), Value::Null, Value::Named(vec![("c", true.into())])])),
        ]);
        assert_eq!(tree.json(), r#"{"a":"x\"\u000a","b":[-3,null,{"c":true}]}"#);
        assert_eq!(tree.text(), "a: x\"\n b: [-3,none,{c: yes}]");
    }

    #[test]
    fn bytes_can_be_read() {
        assert_eq!(readable("tüb\\\n\u{0}".as_bytes()), "tüb\\\\\\n\\u{0}");
        assert_eq!(readable(&[b'a', 0xff, 0xc3]), "a\\xff\\xc3");
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }
}
