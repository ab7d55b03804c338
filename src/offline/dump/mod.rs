//! `corelane dump`: what the files of a data folder hold, one line for each thing, as text or as JSON.

mod own;
mod records;
mod small;

use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;

use super::value::Value;
use super::{FAILED, Failed};
use crate::config::offline_args::{DumpArgs, ValueForm};
use crate::log::checkpoint_chain;
use crate::log::kafka_files;
use crate::log::losses;
use crate::log::names::{self, Kind};

/// What a file is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Segment(Kind),
    /// `log-<n>` and `catalog-<n>`.
    Log,
    Checkpoint,
    Store,
    Losses,
    LeaderEpochs,
    Text,
}

/// Endings that a file of a segment may have besides its own.
const ON_ITS_WAY: [&str; 3] = [".deleted", ".swap", ".cleaned"];

fn what_is(name: &str) -> Option<What> {
    let own = ON_ITS_WAY.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    if let Some((_, kind)) = names::parse(own) {
        return Some(What::Segment(kind));
    }
    if name.contains(".unexpected-") || name.contains(".unequal-") {
        return Some(What::Segment(Kind::Log));
    }
    let is_numbered = |of: &str| name.strip_prefix(of).is_some_and(|rest| rest.parse::<u64>().is_ok());
    Some(match name {
        "store" => What::Store,
        losses::FILE_NAME => What::Losses,
        kafka_files::LEADER_EPOCHS => What::LeaderEpochs,
        kafka_files::PARTITION_METADATA | kafka_files::META_PROPERTIES | kafka_files::CLEAN_SHUTDOWN => What::Text,
        _ if name.ends_with("-offset-checkpoint") => What::Text,
        _ if is_numbered("log-") || name.starts_with("catalog-") => What::Log,
        _ if checkpoint_chain::is_own_name(name) => What::Checkpoint,
        _ => return None,
    })
}

/// Prints what was asked for.
struct Printer {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
    values: Option<ValueForm>,
    file: String,
}

impl Printer {
    /// One line.
    fn item(&mut self, pairs: Vec<(&'static str, Value)>) -> io::Result<()> {
        if self.json {
            let mut named = vec![("file", Value::from(self.file.as_str()))];
            named.extend(pairs);
            writeln!(self.out, "{}", Value::Named(named).json())
        } else {
            writeln!(self.out, "{}", Value::Named(pairs).text())
        }
    }

    /// A key or a value in the form that was asked for.
    fn content(&self, bytes: Option<&[u8]>) -> Value {
        let Some(bytes) = bytes else { return Value::Null };
        match self.values {
            Some(ValueForm::Base64) => super::value::base64(bytes).into(),
            _ => super::value::readable(bytes).into(),
        }
    }
}

/// Why a file could not be printed to its end.
enum Stop {
    /// Nobody reads what is printed.
    Output,
    /// A sentence about the file.
    File(String),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Output
    }
}

/// Prints files.
///
/// # Errors
/// A sentence: the first file that could not be read to its end. The others are printed all the same.
pub(super) fn run(args: &DumpArgs) -> Result<(), Failed> {
    let out = BufWriter::new(io::stdout().lock());
    let mut printer = Printer { out, json: args.json, values: args.values, file: String::new() };
    let mut failed = None;
    for path in &args.files {
        match print_file(&mut printer, path) {
            Ok(()) => {}
            Err(Stop::Output) => return Ok(()),
            Err(Stop::File(sentence)) => _ = failed.get_or_insert(format!("{}: {sentence}", path.display())),
        }
    }
    match (printer.out.flush(), failed) {
        (Ok(()), Some(sentence)) => Err(Failed::with(FAILED, sentence)),
        _ => Ok(()),
    }
}

fn print_file(printer: &mut Printer, path: &Path) -> Result<(), Stop> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let what = what_is(&name).ok_or_else(|| {
        Stop::File("no file of a data folder has this name; give it the name that it had there".to_string())
    })?;
    printer.file = path.display().to_string();
    if !printer.json {
        writeln!(printer.out, "{}", path.display())?;
    }
    match what {
        What::Segment(Kind::Log) => records::print(printer, path),
        What::Segment(kind) => small::print(printer, path, kind),
        What::Log => own::print_log(printer, path),
        What::Checkpoint => own::print_checkpoint(printer, path),
        What::Store => own::print_store(printer, path),
        What::Losses => own::print_losses(printer, path),
        What::LeaderEpochs => small::print_epochs(printer, path),
        What::Text => small::print_text(printer, path),
    }
}

/// The content of a file that is small, or has to be read as a whole.
fn content_of(path: &Path) -> Result<bytes::Bytes, Stop> {
    std::fs::read(path).map(Into::into).map_err(|error| Stop::File(format!("it cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        assert_eq!(what_is("00000000000000000042.log"), Some(What::Segment(Kind::Log)));
        assert_eq!(what_is("00000000000000000042.timeindex.deleted"), Some(What::Segment(Kind::TimeIndex)));
        assert_eq!(what_is("00000000000000000042.unequal-61-17"), Some(What::Segment(Kind::Log)));
        assert_eq!((what_is("log-3"), what_is("catalog-1")), (Some(What::Log), Some(What::Log)));
        assert_eq!(what_is("checkpoint-12.delta"), Some(What::Checkpoint));
        assert_eq!((what_is("notes"), what_is("log-x")), (None, None));
    }
}
