//! Every kind of secret in every place that transcripts have secrets in.

use azureal_core::{Event, Redactor, without_control_sequences};
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::kinds::{KINDS, Kind};
use crate::thorough;

/// Returns how many secrets of each kind are drawn for each place.
fn drawn() -> usize {
    thorough(5, 20)
}

/// The share that must be found in every place, in percent.
const LEAST: f64 = 98.0;

type Place = fn(&Kind, &str) -> String;

const PLACES: [(&str, Place); 12] = [
    ("environment dump", environment_dump),
    (".env file", dotenv_file),
    ("URL", url),
    ("header", header),
    ("JSON", json_text),
    ("multi-line text", multi_line),
    ("added in a diff", |kind, secret| diff(kind, secret, '+')),
    ("removed in a diff", |kind, secret| diff(kind, secret, '-')),
    ("coloured output", coloured),
    ("coloured diff", |kind, secret| colour("1;32", &diff(kind, &colour("32", secret), '+'))),
    ("JSON with colours", |kind, secret| json_text(kind, &colour("32", secret))),
    ("part of a secret found by grep", found_by_grep),
];

fn environment_dump(kind: &Kind, secret: &str) -> String {
    format!("HOME=/root\n{}={secret}\nLANG=C.UTF-8\n", kind.variable)
}

/// As a tool for reading files prints it.
fn dotenv_file(kind: &Kind, secret: &str) -> String {
    format!("     1→# production\n     2→{}=\"{secret}\"\n     3→DEBUG=false\n", kind.variable)
}

fn url(kind: &Kind, secret: &str) -> String {
    if kind.is_url() {
        return format!("connecting to {secret} …");
    }
    let name = kind.variable.to_ascii_lowercase();
    // A URL has no such characters as they are.
    let secret = secret.replace('%', "%25").replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("GET https://api.internal/v1/items?{name}={secret}&page=2 200")
}

fn header(kind: &Kind, secret: &str) -> String {
    if kind.is_url() {
        return format!("> X-Upstream: {secret}\n> Accept: */*");
    }
    format!("> POST /v1 HTTP/1.1\n> Authorization: Bearer {secret}\n> Accept: */*")
}

/// In a string of a JSON text: the output of a tool that printed JSON.
fn json_text(kind: &Kind, secret: &str) -> String {
    let inner = json!({"name": "ci", kind.variable.to_ascii_lowercase(): secret, "replicas": 3}).to_string();
    json!({"stdout": inner, "code": 0}).to_string()
}

fn multi_line(kind: &Kind, secret: &str) -> String {
    format!(
        "credentials:\n  user: ci\n  {}: |\n    {secret}\n  region: eu\n",
        kind.variable.to_ascii_lowercase()
    )
}

/// As the detail of an edit has it: each line with a sign.
fn diff(kind: &Kind, secret: &str, sign: char) -> String {
    let lines = format!("{}={secret}", kind.variable);
    let changed: String = lines.lines().map(|line| format!("{sign}{line}\n")).collect();
    format!("--- a/.env\n+++ b/.env\n@@ -1,3 +1,3 @@\n HOME=/root\n{changed} LANG=C.UTF-8")
}

fn colour(code: &str, text: &str) -> String {
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// As tools print settings: the name, the sign and the value in colours.
fn coloured(kind: &Kind, secret: &str) -> String {
    format!(
        "{}{}{}\u{1b}(B\u{1b}[m\n",
        colour("1;34", kind.variable),
        colour("39", "="),
        colour("32", secret)
    )
}

/// As `grep --color` marks what it looked for: the beginning of the secret.
fn found_by_grep(kind: &Kind, secret: &str) -> String {
    let (found, rest) = secret.split_at(4);
    format!("{}=\u{1b}[01;31m\u{1b}[K{found}\u{1b}[m\u{1b}[K{rest}\n", kind.variable)
}

/// Returns what must not be readable any more: of a URL, its password.
fn hidden(kind: &Kind, secret: &str) -> String {
    match secret.rsplit_once('@') {
        Some((front, _)) if kind.is_url() => front.rsplit_once(':').unwrap().1.to_owned(),
        _ if kind.is_url() => secret.rsplit_once('/').unwrap().1.to_owned(),
        _ => secret.to_owned(),
    }
}

/// Counts how many secrets of each place are found, and which are not.
fn measure(redact: impl Fn(&str) -> String) -> Vec<(&'static str, usize, usize, Vec<String>)> {
    PLACES
        .iter()
        .map(|(place, write)| {
            let mut chance = Chance::new(14);
            let (mut all, mut found, mut missed) = (0, 0, Vec::new());
            for kind in KINDS {
                for _ in 0..drawn() {
                    let secret = kind.draw(&mut chance);
                    let masked = redact(&write(kind, &secret));
                    let masked = without_control_sequences(&masked);
                    // Also a part of it is a leak.
                    let hidden = hidden(kind, &secret);
                    let part = &hidden[hidden.len() / 2..];
                    all += 1;
                    if masked.contains(part) {
                        missed.push(format!("{}: {masked}", kind.name));
                    } else {
                        found += 1;
                    }
                }
            }
            (*place, found, all, missed)
        })
        .collect()
}

#[track_caller]
fn check(title: &str, measured: &[(&str, usize, usize, Vec<String>)]) {
    println!("{title}: {} kinds, {} of each", KINDS.len(), drawn());
    for (place, found, all, missed) in measured {
        let share = 100.0 * *found as f64 / *all as f64;
        println!("  {place}: {found} of {all} ({share:.1} %)");
        for text in missed.iter().take(5) {
            println!("    missed {text}");
        }
    }
    for (place, found, all, _) in measured {
        assert!(100.0 * *found as f64 >= LEAST * *all as f64, "{place}: {found} of {all}");
    }
}

#[test]
fn secrets_are_found_in_every_place() {
    assert!(KINDS.len() >= 60, "{}", KINDS.len());
    let redactor = Redactor::new([], &[""; 0]).unwrap();
    check("text", &measure(|text| redactor.redact(text).into_owned()));
}

#[test]
fn secrets_are_found_in_the_input_and_the_output_of_tools() {
    let redactor = Redactor::new([], &[""; 0]).unwrap();
    check(
        "events",
        &measure(|text| {
            let call =
                json!({"ToolCall": {"tool_use_id": "t", "tool_name": "Bash", "input": {"command": text}}});
            let result = json!({"ToolResult": {"tool_use_id": "t", "tool_name": "Bash", "content": text}});
            let detail = json!({"ToolResult": {"tool_use_id": "t", "tool_name": "Edit", "content": "", "detail": text}});
            let masked = [call, result, detail]
                .map(|event| redactor.redact_event(&Event::from_json(&event.to_string()).unwrap()).to_json());
            masked.join("\n")
        }),
    );
}

#[test]
fn secrets_are_found_in_json_that_stays_json() {
    let redactor = Redactor::new([], &[""; 0]).unwrap();
    // The whole text as one string of JSON, masked without decoding it.
    check(
        "escaped text",
        &measure(|text| {
            let escaped = Value::from(text).to_string();
            let masked = redactor.redact(&escaped);
            serde_json::from_str::<String>(&masked).unwrap_or_else(|error| panic!("{error}: {masked}"))
        }),
    );
}

#[test]
fn values_of_the_environment_are_found_wherever_they_are() {
    let mut chance = Chance::new(3);
    let mut all = 0;
    for kind in KINDS.iter().filter(|kind| !kind.is_url() && kind.name != "short password") {
        let secret = kind.draw(&mut chance);
        let redactor = Redactor::new([(kind.variable, secret.as_str())], &[""; 0]).unwrap();
        for text in
            [format!("it is {secret}."), format!("x{secret}x"), format!("a/{secret}/b"), secret.clone()]
        {
            all += 1;
            let masked = redactor.redact(&text);
            assert!(!masked.contains(&secret), "{}: {masked}", kind.name);
        }
    }
    println!("environment: {all} of {all}");
}
