//! The settings for people: `corelane config show`, and the page of the documentation.

use super::Config;
use super::table::{SETTINGS, Setting};
use super::topic::{TOPIC_CONFIGS, TopicConfig};
use std::fmt::Write;

/// Every setting with its value and where it was set, in columns, sorted by name; an unset value is `-`.
#[must_use]
pub fn show(config: &Config) -> String {
    let values = config.values();
    let rows: Vec<[String; 3]> = SETTINGS
        .iter()
        .map(|row| [row.name.to_owned(), printable(values.text(row.name)), values.origin(row.name).to_string()])
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, texts) = (width(0), width(1));
    let line = |[name, text, origin]: &[String; 3]| format!("{name:names$}  {text:texts$}  {origin}\n");
    rows.iter().map(line).collect()
}

fn printable(value: Option<&str>) -> String {
    match value {
        None => "-".to_owned(),
        Some("") => "\"\"".to_owned(),
        Some(value) => value.to_owned(),
    }
}

/// The page `docs/configuration.md`.
#[must_use]
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    let (ours, kafkas): (Vec<_>, Vec<_>) = SETTINGS.iter().partition(|row| row.name.starts_with("corelane."));
    page.push_str("\n## Settings of corelane's own\n\n");
    broker_table(&mut page, &ours);
    page.push_str("\n## Settings that Apache Kafka has too\n\n");
    broker_table(&mut page, &kafkas);
    page.push_str(TOPICS);
    topic_table(&mut page);
    page
}

const HEAD: &str = "\
# Settings

Made from the tables in `src/config` by `corelane config docs`; a test compares.

A setting comes from the first of these that gives it:

1. the command line: `--set NAME=VALUE`, or one of `--listen`, `--advertise`, `--data-dir`, `--cores`
2. the environment: `CORELANE_` and the name in capitals, with `_` for `.`, without a leading `corelane.`
3. the file given by `--config`, in Kafka's properties format; a `server.properties` will do
4. the default

Names without `corelane.` in front are Apache Kafka's, with its meaning and default. A setting of Kafka that is not in
these tables is ignored in a file, with a warning, and refused elsewhere. `corelane config show` prints what counts.

Settings marked *dynamic* can be changed while the broker runs (`kafka-configs --alter --entity-type brokers`).
Of a setting that can be given in several units (`log.retention.ms`, `.minutes`, `.hours`), the finest that is set counts.
";

const TOPICS: &str = "
## Topics

Given when a topic is created, or changed later (`kafka-configs --alter --entity-type topics`). A topic that does not set
one has the value of the broker setting named with it.

";

fn broker_table(page: &mut String, rows: &[&Setting]) {
    page.push_str("| name | default | allowed | what it is for |\n|---|---|---|---|\n");
    for row in rows {
        let dynamic = if row.dynamic { " *Dynamic.*" } else { "" };
        let default = row.default.map_or("unset".to_owned(), quoted);
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {default} | {} | {}{dynamic} |", row.name, row.domain, row.doc);
    }
}

fn topic_table(page: &mut String) {
    page.push_str("| name | comes from | allowed | what it is for |\n|---|---|---|---|\n");
    for row in TOPIC_CONFIGS.iter().filter(|row| !row.internal) {
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", row.name, comes_from(row), row.domain, row.doc);
    }
}

fn comes_from(row: &TopicConfig) -> String {
    row.broker.map_or_else(|| format!("default {}", quoted(row.default)), |broker| format!("`{broker}`"))
}

fn quoted(text: &str) -> String {
    if text.is_empty() { "empty".to_owned() } else { format!("`{text}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_tables_say() {
        let page = include_str!("../../docs/configuration.md");
        assert!(page == markdown(), "make it anew: cargo run -- config docs > docs/configuration.md");
    }

    #[test]
    fn every_setting_is_shown_with_its_origin() {
        let text = show(&Config::with(&[("num.partitions", "3")]).unwrap());
        assert_eq!(text.lines().count(), SETTINGS.len());
        let line = |name: &str| {
            text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(line("num.partitions "), ["num.partitions", "3", "command", "line", "--set"]);
        assert_eq!(line("log.retention.ms "), ["log.retention.ms", "-", "default"]);
    }
}
