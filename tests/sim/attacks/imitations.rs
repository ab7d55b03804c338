//! Values that are groups of the commit log to a reader that does not ask for the salt: everything else in them can be
//! guessed by a client.

use corelane::ids::{LogId, Offset};
use corelane::log::log_file::{GroupStamp, LogRecord, encode_group};

use crate::support::dice::Dice;

/// Blocks of the commit log.
const BLOCK: usize = 4096;
/// Where a value begins in a group whose only record is a batch with one record of some kilobytes: headers of group, record
/// and batch, and of the record within.
const VALUE_AT: usize = 64 + 24 + 61 + 8;
/// Bytes of the header before that, which vary with the size.
const SLACK: usize = 4;

/// Puts an imitated group at every place of a value where a block of the log may begin.
pub fn put_into(value: &mut [u8], newest_log_file: u64, dice: &mut Dice) {
    // Group and batch sizes make the header of the record one or two bytes shorter or longer.
    let begins_at = VALUE_AT + dice.below(SLACK);
    let mut at = BLOCK - begins_at;
    while at + BLOCK / 8 <= value.len() {
        put_group(&mut value[at..at + 128], newest_log_file, dice);
        at += BLOCK;
    }
}

fn put_group(into: &mut [u8], newest_log_file: u64, dice: &mut Dice) {
    let stamp = GroupStamp {
        flags: 0,
        salt: dice.roll(),
        sequence: 1_000 + dice.below(1 << 20) as u64,
        file_number: newest_log_file + 1 + dice.below(3) as u64,
        committed_ms: 0,
    };
    let record = LogRecord::log_start(LogId(1 + dice.below(6) as u64), Offset(1 << 30));
    encode_group(into, stamp, &[record]);
}
