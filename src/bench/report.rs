//! Results for people and for programs, from one list of fields.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::Output;

/// One value of a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Whole(u64),
    /// Printed with three digits behind the point in JSON, one for people.
    Part(f64),
}

/// Names and values in the order in which they are printed; a name ends in its unit.
pub(super) type Fields = Vec<(&'static str, Value)>;

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// The usual figures of a histogram of nanoseconds, in microseconds; nothing for an empty one.
pub(super) fn latency_fields(which: &'static str, histogram: &Histogram<u64>) -> Fields {
    if histogram.is_empty() {
        return Fields::new();
    }
    let names = match which {
        "" => ["p50_us", "p90_us", "p99_us", "p99.9_us", "max_us", "mean_us"],
        "commit_" => {
            ["commit_p50_us", "commit_p90_us", "commit_p99_us", "commit_p99.9_us", "commit_max_us", "commit_mean_us"]
        }
        _ => [
            "from_send_p50_us",
            "from_send_p90_us",
            "from_send_p99_us",
            "from_send_p99.9_us",
            "from_send_max_us",
            "from_send_mean_us",
        ],
    };
    let quantiles = QUANTILES.map(|quantile| microseconds(histogram.value_at_quantile(quantile)));
    let values = quantiles.into_iter().chain([microseconds(histogram.max()), histogram.mean() / 1000.0]);
    names.into_iter().zip(values.map(Value::Part)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53 for anything shorter than 104 days")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

/// Prints a result on standard output.
#[expect(clippy::print_stdout, reason = "the result is what was asked for")]
pub(super) fn print(output: Output, fields: &Fields) {
    match output {
        Output::Json => println!("{}", json(fields)),
        Output::Text => print!("{}", text(fields)),
    }
}

fn json(fields: &Fields) -> String {
    let mut line = String::from("{");
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = match value {
            Value::Text(text) => write!(line, "{comma}\"{name}\":\"{}\"", escaped(text)),
            Value::Whole(number) => write!(line, "{comma}\"{name}\":{number}"),
            Value::Part(number) => write!(line, "{comma}\"{name}\":{number:.3}"),
        };
    }
    line + "}"
}

fn escaped(text: &str) -> String {
    let one = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        control if control < ' ' => format!("\\u{:04x}", u32::from(control)),
        other => other.to_string(),
    };
    text.chars().map(one).collect()
}

fn text(fields: &Fields) -> String {
    let wide = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut lines = String::new();
    for (name, value) in fields {
        let _ = match value {
            Value::Text(text) => writeln!(lines, "{name:wide$}  {text}"),
            Value::Whole(number) => writeln!(lines, "{name:wide$}  {number}"),
            Value::Part(number) => writeln!(lines, "{name:wide$}  {number:.1}"),
        };
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_escaped_and_ordered() {
        let fields = vec![("a", Value::Text("x\"\n".to_owned())), ("b_us", Value::Part(1.5)), ("c", Value::Whole(3))];
        assert_eq!(json(&fields), r#"{"a":"x\"\u000a","b_us":1.500,"c":3}"#);
    }

    #[test]
    fn nanoseconds_are_printed_as_microseconds() {
        let mut histogram = super::super::drive::histogram();
        histogram.saturating_record(70_000);
        let fields = latency_fields("", &histogram);
        let Value::Part(p50) = fields[0].1 else { panic!("{fields:?}") };
        assert!((p50 - 70.0).abs() < 0.1, "{p50}");
        assert_eq!(fields.len(), 6);
    }
}
