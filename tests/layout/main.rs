//! The code's own rules: who may use whom, which names stay where, what must not be left lying about.
//! Code only: comments and unit tests are left out.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::{Path, PathBuf};

/// Lowest layer first; a module uses only what stands before it.
const LAYERS: [&str; 12] =
    ["ids", "config", "wire", "state", "runtime", "log", "broker", "requests", "net", "bench", "offline", "server"];

/// A name, and the only places that may hold it.
const CONFINED: [(&str, &[&str]); 8] = [
    ("glommio", &["runtime/"]),
    ("crossbeam", &["runtime/"]),
    ("futures_io", &["runtime/"]),
    ("socket2", &["runtime/"]),
    ("kafka_protocol", &["wire/", "requests/"]),
    ("Instant::now", &["runtime/host.rs", "bench/"]),
    ("SystemTime::now", &["runtime/host.rs", "bench/"]),
    ("thread::sleep", &["net/acceptor.rs", "bench/"]),
];

/// What no finished code holds.
const LEFTOVERS: [&str; 6] = ["todo!", "unimplemented!", "dbg!", "FIXME", "XXX", "println!(\"debug"];

/// What decisions must not touch, in `wire` and `state`.
const NOT_IN_DECISIONS: [&str; 6] =
    ["std::fs", "std::net", "std::time::Instant", "SystemTime", "std::thread", "async fn"];

struct Source {
    /// Path below `src`.
    path: String,
    /// Lines with their numbers, without comments and unit tests.
    lines: Vec<(usize, String)>,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.iter().map(|file| read(&root, file)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

fn read(root: &Path, file: &Path) -> Source {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = (1..).zip(code.lines()).map(|(number, line)| (number, without_comment(line)));
    Source { path: file.strip_prefix(root).unwrap().to_string_lossy().into_owned(), lines: lines.collect() }
}

fn without_comment(line: &str) -> String {
    // A `//` within a string follows a colon in practice: an address.
    match line.find("//") {
        Some(at) if !line[..at].ends_with(':') => line[..at].to_string(),
        _ => line.to_string(),
    }
}

fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == module)
}

/// The module a file belongs to: its folder or name below `src`.
fn module(path: &str) -> &str {
    path.split('/').next().unwrap().trim_end_matches(".rs")
}

/// Module names behind each `crate::` of a line, also within braces.
fn used(line: &str) -> Vec<String> {
    let names = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut used = Vec::new();
    for rest in line.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(group) => used.extend(group.split(',').map(|part| names(part.trim()))),
            None => used.push(names(rest)),
        }
    }
    used
}

/// Every line of the sources that `wrong` has something to say about.
fn complaints(wrong: impl Fn(&Source, &str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources() {
        for (number, line) in &source.lines {
            complaints.extend(wrong(&source, line).map(|what| format!("src/{}:{number}: {what}", source.path)));
        }
    }
    complaints
}

fn expect_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn a_module_uses_only_lower_layers() {
    expect_none(&complaints(|source, line| {
        let own = rank(module(&source.path))?;
        let above = used(line).into_iter().find(|name| rank(name).is_some_and(|other| other > own))?;
        Some(format!("{} must not use {above}", LAYERS[own]))
    }));
}

#[test]
fn every_module_has_a_layer() {
    let strange: Vec<String> = sources()
        .into_iter()
        .map(|source| module(&source.path).to_string())
        .filter(|module| !matches!(module.as_str(), "lib" | "main") && rank(module).is_none())
        .collect();
    assert!(strange.is_empty(), "no layer for {strange:?}");
}

#[test]
fn confined_names_stay_where_they_belong() {
    expect_none(&complaints(|source, line| {
        let allowed = |places: &[&str]| places.iter().any(|place| source.path.starts_with(place));
        let (name, places) = CONFINED.iter().find(|(name, places)| line.contains(name) && !allowed(places))?;
        Some(format!("{name} belongs in {}", places.join(", ")))
    }));
}

#[test]
fn decisions_know_no_file_socket_clock_or_thread() {
    expect_none(&complaints(|source, line| {
        let found = NOT_IN_DECISIONS.iter().find(|name| line.contains(*name))?;
        matches!(module(&source.path), "wire" | "state").then(|| format!("{found} in a decision"))
    }));
}

#[test]
fn nothing_unfinished_is_left() {
    expect_none(&complaints(|_, line| {
        LEFTOVERS.iter().find(|leftover| line.contains(*leftover)).map(|leftover| format!("{leftover} is left over"))
    }));
}

#[test]
fn files_stay_readable() {
    let long: Vec<String> = sources()
        .into_iter()
        .filter(|source| source.lines.len() > 700)
        .map(|source| format!("src/{} has {} lines without its tests", source.path, source.lines.len()))
        .collect();
    expect_none(&long);
}

/// Every `file::test` of `text` in backquotes.
fn named_tests(text: &str) -> Vec<(&str, &str)> {
    text.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.split_once("::")).collect()
}

/// The table of field cases cannot rot: its tests exist, and no case is without a test or a reason.
#[test]
fn field_cases_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("docs/field-cases.md")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && line.contains('-') && !line.contains("---"));
    let mut cases = Vec::new();
    let mut complaints = Vec::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [case, what, shown_by] = cells[..] else { panic!("not three cells: {row}") };
        if what.is_empty() || shown_by.is_empty() || cases.contains(&case) {
            complaints.push(format!("{case}: said twice, or without a test and without a reason"));
        }
        cases.push(case);
        for (file, test) in named_tests(shown_by) {
            let source = fs::read_to_string(root.join("tests").join(file)).unwrap_or_default();
            if !source.contains(&format!("#[test]\nfn {test}()")) {
                complaints.push(format!("{case}: there is no test {test} in tests/{file}"));
            }
        }
    }
    assert!(cases.len() >= 40, "only {} cases", cases.len());
    expect_none(&complaints);
}

/// The rules themselves are tried on lines that break them.
#[test]
fn the_rules_see_what_they_are_for() {
    assert_eq!(used("use crate::{ids, net::Service};"), ["ids", "net"]);
    assert_eq!(used("let x = crate::broker::Shard::new(crate::log::Log);"), ["broker", "log"]);
    assert_eq!(without_comment("let a = 1; // glommio"), "let a = 1; ");
    assert_eq!(without_comment("let a = \"tcp://x\";"), "let a = \"tcp://x\";");
    assert!(rank("net") > rank("runtime"));
    assert_eq!(named_tests("`a/b.rs::one`, `c.rs::two` and `no test`"), [("a/b.rs", "one"), ("c.rs", "two")]);
}
