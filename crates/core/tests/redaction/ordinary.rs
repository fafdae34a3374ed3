//! Ordinary text, of which nothing is secret.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use azureal_core::Redactor;

use crate::chance::Chance;

/// The largest number of masks in 1,000 lines.
const MOST: f64 = 1.0;
/// The lines that look most like secrets and are none.
const HARD: &str = include_str!("ordinary.txt");

/// The repository, of which this crate is a part.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All text files below a folder, without those about secrets.
fn read(folder: &Path, texts: &mut Vec<String>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir()
            && !name.starts_with('.')
            && !["target", "redact", "redaction"].contains(&name.as_str())
        {
            read(&path, texts);
        } else if path.is_file() && !name.starts_with('.') && name != "redaction.md" && name != "redact.rs" {
            texts.extend(fs::read_to_string(&path).ok());
        }
    }
}

/// Output of programs, with numbers that are drawn: hashes, ids, checksums, images.
fn logs(chance: &mut Chance) -> String {
    const HEX: &str = "0123456789abcdef";
    const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for line in 0..400 {
        let mut hex = |length| chance.draw(HEX, length);
        let uuid = format!("{}-{}-4{}-a{}-{}", hex(8), hex(4), hex(3), hex(3), hex(12));
        let (commit, sum, short) = (hex(40), hex(64), hex(7));
        let image = chance.draw(BASE64, 200);
        text.push_str(&format!(
            "commit {commit}\n\
             {short} Fix the token count of line {line}\n\
             {sum}  target/release/app-{line}.tar.gz\n\
             2026-03-{:02}T10:00:{:02}Z INFO request{{id={uuid} path=\"/v1/tokens/{line}\"}}: done in {line} ms\n\
             {{\"id\":\"{uuid}\",\"input_tokens\":{line},\"cache_key\":\"{sum}\",\"tool_use_id\":\"toolu_{}\"}}\n\
             checksum = \"{sum}\"\n\
             \"integrity\": \"sha512-{image}==\",\n\
             <img src=\"data:image/png;base64,{image}\">\n\
             sha256:{sum} node@20.{line}.0 key={line} token={line}\n\
             index {short}..{short} 100644\n",
            line % 28 + 1,
            line % 60,
            &image[..24].replace(['+', '/'], "A"),
        ));
    }
    text
}

#[test]
fn ordinary_text_is_left_alone() {
    let redactor = Redactor::new([], &[""; 0]).unwrap();
    let mut texts = Vec::new();
    read(&root(), &mut texts);
    texts.push(logs(&mut Chance::new(7)));
    let (mut lines, mut bytes, mut wrong) = (0, 0, Vec::new());
    let begun = Instant::now();
    for text in &texts {
        lines += text.lines().count();
        bytes += text.len();
        let masked = redactor.redact(text);
        let masks = |text: &str| text.matches("[redacted: ").count();
        if masks(&masked) > masks(text) {
            wrong.extend(masked.lines().filter(|line| line.contains("[redacted: ")).map(str::to_owned));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let share = 1000.0 * wrong.len() as f64 / lines as f64;
    println!(
        "{lines} lines, {} masked: {share:.3} of 1,000; {:.0} MB/s",
        wrong.len(),
        bytes as f64 / 1e6 / seconds
    );
    for line in wrong.iter().take(30) {
        println!("  {line}");
    }
    assert!(lines >= 10_000, "{lines}");
    assert!(share <= MOST, "{share}");
}

#[test]
fn code_that_speaks_of_secrets_is_left_alone() {
    let redactor = Redactor::new([], &[""; 0]).unwrap();
    let wrong: Vec<String> = HARD
        .lines()
        .map(|line| redactor.redact(line))
        .filter(|line| line.contains("[redacted: "))
        .map(Into::into)
        .collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), HARD.lines().count());
    assert_eq!(redactor.redact(HARD), HARD, "as a whole");
}
