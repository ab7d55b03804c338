//! The topics in what a consumer says to its assignor (the consumer protocol). The bytes are the client's: whatever
//! does not fit is "unknown".

use std::collections::BTreeSet;

/// Topics of one member; none if the bytes are not the consumer protocol.
///
/// Shapes: version (2 bytes), count (4 bytes), for each topic a length (2 bytes) and that many bytes, then a length
/// (4 bytes, -1 for none) and that many bytes of the assignor's own. What newer versions add stands behind.
///
/// Source: apache/kafka `ConsumerProtocolSubscription.json`, of which every version begins with version 0.
pub(super) fn topics(metadata: &[u8]) -> Option<BTreeSet<String>> {
    let mut rest = metadata;
    if i16::from_be_bytes(take(&mut rest)?) < 0 {
        return None;
    }
    let count = usize::try_from(i32::from_be_bytes(take(&mut rest)?)).ok()?;
    let mut topics = BTreeSet::new();
    for _ in 0..count {
        let length = usize::try_from(i16::from_be_bytes(take(&mut rest)?)).ok()?;
        topics.insert(String::from_utf8_lossy(slice(&mut rest, length)?).into_owned());
    }
    let own = i32::from_be_bytes(take(&mut rest)?);
    if own >= 0 {
        slice(&mut rest, usize::try_from(own).ok()?)?;
    }
    Some(topics)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    slice(rest, N)?.try_into().ok()
}

fn slice<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_TOPICS: &[u8] = b"\x00\x03\x00\x00\x00\x02\x00\x01a\x00\x02bc\x00\x00\x00\x01x and more";

    #[test]
    fn topics_are_found_and_every_cut_is_unknown() {
        let expected = BTreeSet::from(["a".to_owned(), "bc".to_owned()]);
        assert_eq!(topics(TWO_TOPICS), Some(expected.clone()));
        let whole = TWO_TOPICS.len() - " and more".len();
        assert_eq!(topics(&TWO_TOPICS[..whole]), Some(expected));
        for cut in 0..whole {
            assert_eq!(topics(&TWO_TOPICS[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn lengths_that_lie_are_unknown() {
        assert_eq!(topics(b"\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"), None, "a negative version");
        assert_eq!(topics(b"\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00"), None, "a negative count");
        assert_eq!(topics(b"\x00\x00\x7f\xff\xff\xff\x00\x00"), None, "more than there is");
        assert_eq!(topics(b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"), Some(BTreeSet::new()), "no bytes of its own");
    }
}
