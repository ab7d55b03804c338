//! Reader of Kafka's properties format, so that a `server.properties` can be given as it is.
//!
//! One `key=value`, `key: value` or `key value` per line; `#` and `!` begin comment lines; a backslash at the end of a
//! line continues it; a backslash elsewhere takes away the meaning of what follows, or makes `\t \n \r \f \uXXXX`.
//!
//! Source: Java `java.util.Properties.load`. Unlike there, the file is UTF-8.

use std::iter::Peekable;
use std::str::Chars;

/// One setting of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// Name.
    pub key: String,
    /// Value, blanks at its end included.
    pub value: String,
}

/// Reads every entry, in order; a key may appear more than once.
///
/// # Errors
/// The line and half a sentence: a `\u` that is not followed by four hexadecimal digits of a character.
pub fn parse(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    let mut entries = Vec::new();
    let mut lines = natural_lines(text).enumerate();
    while let Some((index, first)) = lines.next() {
        let first = skip_blanks(first);
        if first.is_empty() || is_comment(first) {
            continue;
        }
        let mut logical = first.to_owned();
        while is_continued(&logical) {
            logical.pop();
            let Some((_, next)) = lines.next() else { break };
            let next = skip_blanks(next);
            // As long as nothing has been read, a comment is still a comment.
            if logical.is_empty() && is_comment(next) {
                break;
            }
            logical.push_str(next);
        }
        if logical.is_empty() {
            continue;
        }
        let line = index + 1;
        let (key, value) = split(&logical).map_err(|why| (line, why))?;
        entries.push(Entry { line, key, value });
    }
    Ok(entries)
}

/// Lines as they stand in the file, ended by `\n`, `\r` or `\r\n`.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

fn is_comment(line: &str) -> bool {
    line.starts_with(['#', '!'])
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

fn skip_blanks(line: &str) -> &str {
    line.trim_start_matches(is_blank)
}

/// An odd number of backslashes at the end: the last one is not itself escaped.
fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Cuts a logical line at the first separator that is not escaped.
fn split(line: &str) -> Result<(String, String), String> {
    let key_length = key_length(line);
    let (key, rest) = line.split_at(key_length);
    let rest = skip_blanks(rest);
    let value = skip_blanks(rest.strip_prefix(['=', ':']).unwrap_or(rest));
    Ok((unescape(key)?, unescape(value)?))
}

/// Bytes up to the first blank, `=` or `:` that is not escaped.
fn key_length(line: &str) -> usize {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if !escaped && (is_blank(c) || matches!(c, '=' | ':')) {
            return at;
        }
        escaped = !escaped && c == '\\';
    }
    line.len()
}

/// Resolves backslashes. Characters beyond 16 bits are two `\u` in a row, so UTF-16 is built first.
fn unescape(text: &str) -> Result<String, String> {
    let mut units = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let unit = if c == '\\' { escape(&mut chars)? } else { Some(Unit::Char(c)) };
        match unit {
            Some(Unit::Char(c)) => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
            Some(Unit::Code(code)) => units.push(code),
            None => {}
        }
    }
    String::from_utf16(&units).map_err(|_| "a \\u names half a character".to_owned())
}

enum Unit {
    Char(char),
    Code(u16),
}

/// What stands behind a backslash; none at the end of the text.
fn escape(chars: &mut Peekable<Chars<'_>>) -> Result<Option<Unit>, String> {
    let unit = match chars.next() {
        None => return Ok(None),
        Some('t') => Unit::Char('\t'),
        Some('n') => Unit::Char('\n'),
        Some('r') => Unit::Char('\r'),
        Some('f') => Unit::Char('\u{c}'),
        Some('u') => Unit::Code(hexadecimal(chars)?),
        Some(other) => Unit::Char(other),
    };
    Ok(Some(unit))
}

fn hexadecimal(chars: &mut Peekable<Chars<'_>>) -> Result<u16, String> {
    let digits: String = std::iter::from_fn(|| chars.next_if(char::is_ascii_hexdigit)).take(4).collect();
    let code = u16::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4);
    code.ok_or_else(|| format!("\\u{digits} is not \\u and four hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap().into_iter().map(|entry| (entry.key, entry.value)).collect()
    }

    fn pair(key: &str, value: &str) -> Vec<(String, String)> {
        vec![(key.to_owned(), value.to_owned())]
    }

    #[test]
    fn separators_blanks_and_comments() {
        for line in ["a=b", "a = b", "a:b", "a b", "  a\t:  b", "# c\n! d\n\n \t\na=b", "a=b\r\n", "#\\\na=b", "x\ra=b"]
        {
            assert_eq!(pairs(line).pop(), pair("a", "b").pop(), "{line:?}");
        }
        assert_eq!(pairs("a = = b "), pair("a", "= b "));
        assert_eq!(pairs("a"), pair("a", ""));
        assert_eq!(pairs("a\\ b\\=c = d"), pair("a b=c", "d"));
    }

    #[test]
    fn continued_lines_are_one() {
        assert_eq!(pairs("a=b,\\\n   c,\\\r\n\td"), pair("a", "b,c,d"));
        assert_eq!(pairs("a=b\\\\\nc=d").len(), 2);
        assert_eq!(pairs("a=b\\\n#c"), pair("a", "b#c"));
        assert_eq!(pairs("a=b\\"), pair("a", "b"));
        assert_eq!(pairs("\\\n# c\n\\\n\na=b"), pair("a", "b"));
        let lines: Vec<usize> = parse("# x\na=1\\\n2\nb=3").unwrap().iter().map(|entry| entry.line).collect();
        assert_eq!(lines, [2, 4]);
    }

    #[test]
    fn escapes() {
        assert_eq!(pairs("a=\\t\\q\\u0041\\ud83d\\ude00\u{e9}"), pair("a", "\tqA\u{1f600}\u{e9}"));
        assert_eq!(parse("\na=\\u00g1").unwrap_err().0, 2);
        assert!(parse("a=\\ud83d").is_err());
    }
}
