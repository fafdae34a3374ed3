//! What holds for every text.

use std::borrow::Cow;
use std::sync::LazyLock;

use azureal_core::{Event, RedactError, Redactor};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::kinds::KINDS;
use crate::thorough;

fn plain() -> Redactor {
    static PLAIN: LazyLock<Redactor> = LazyLock::new(|| Redactor::new([], &[""; 0]).unwrap());
    PLAIN.clone()
}

/// A key of this many lines, with its markers.
fn private_key(lines: usize) -> String {
    let base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut chance = Chance::new(5);
    let body: String = (0..lines).map(|_| chance.draw(base64, 64) + "\n").collect();
    let name = "PRIVATE KEY";
    format!("-----BEGIN RSA {name}-----\n{body}{}==\n-----END RSA {name}-----", chance.draw(base64, 10))
}

#[test]
fn a_text_without_secrets_is_borrowed() {
    assert!(matches!(plain().redact("nothing to see, token = lexer.next()"), Cow::Borrowed(_)));
    assert!(matches!(plain().redact_event(&Event::user("hello")), Cow::Borrowed(_)));
}

#[test]
fn a_private_key_is_masked_however_it_is_written() {
    let key = private_key(12);
    let lines: Vec<&str> = key.lines().collect();
    let numbered: String =
        lines.iter().enumerate().map(|(n, line)| format!("{:6}→{line}\n", n + 1)).collect();
    let indented: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    let quoted: String = lines.iter().map(|line| format!("  \"{line}\\n\" +\n")).collect();
    let omitted = format!("{}\n[9 lines omitted]\n{}", lines[..3].join("\n"), lines[11..].join("\n"));
    for (how, text) in [
        ("as it is", key.clone()),
        ("without its end", lines[..8].join("\n")),
        ("without its beginning", lines[5..].join("\n")),
        ("cut off in its last line", key.trim_end_matches(" KEY-----").to_owned()),
        ("with lines omitted", omitted),
        ("with line numbers", numbered),
        ("indented", indented),
        ("in code", quoted),
        ("in colours", lines.iter().map(|line| format!("\u{1b}[32m{line}\u{1b}[0m\n")).collect()),
        ("in one line", key.replace('\n', " ")),
        ("with other line ends", key.replace('\n', "\r\n")),
        ("in JSON", json!({"private_key": key, "id": 7}).to_string()),
        ("in JSON in JSON", json!({"out": json!({"private_key": key}).to_string()}).to_string()),
        ("cut off in JSON", json!({"out": lines[..8].join("\n"), "id": 7}).to_string()),
        ("its end in JSON", json!({"out": lines[4..].join("\n"), "id": 7}).to_string()),
    ] {
        let text = format!("before\n{text}\nafter");
        let masked = plain().redact(&text);
        assert!(masked.contains("[redacted: private key]"), "{how}: {masked}");
        let leaked =
            lines.iter().filter(|line| !line.contains("---") && line.len() > 20 && masked.contains(*line));
        assert_eq!(leaked.count(), 0, "{how}: {masked}");
        assert!(masked.starts_with("before\n") && masked.ends_with("\nafter"), "{how}: {masked}");
        if let Some(json) = text.strip_prefix("before\n{") {
            let json = format!("{{{}", json.strip_suffix("\nafter").unwrap());
            assert!(serde_json::from_str::<Value>(&plain().redact(&json)).is_ok(), "{how}: {masked}");
        }
    }
}

#[test]
fn two_keys_are_two_masks_and_text_after_a_cut_key_stays() {
    let key = private_key(3);
    let masked = plain().redact(&format!("{key}\nbetween them\n{key}")).into_owned();
    assert_eq!(masked, "[redacted: private key]\nbetween them\n[redacted: private key]");
    let cut: String = key.lines().take(3).map(|line| format!("{line}\n")).collect();
    let masked = plain().redact(&format!("{cut}And then the agent said hello.")).into_owned();
    assert_eq!(masked, "[redacted: private key]\nAnd then the agent said hello.");
}

#[test]
fn the_mask_names_the_kind_and_the_rest_stays() {
    let token = format!("{}{}", "ghp_", "a1B2".repeat(9));
    for (text, expected) in [
        (format!("token {token}!"), "token [redacted: github token]!"),
        (format!("{{\"a\":\"x\\n{token}\"}}"), "{\"a\":\"x\\n[redacted: github token]\"}"),
        (format!("GITHUB_TOKEN={token}"), "GITHUB_TOKEN=[redacted: github token]"),
        ("postgres://ada:hunter2@db/x".into(), "postgres://ada:[redacted: password]@db/x"),
        ("Authorization: Basic YWRhOmh1bnRlcjI=".into(), "Authorization: Basic [redacted: authorization]"),
        ("Cookie: session=8f3a9c1d2e7b4a60; theme=dark".into(), "Cookie: [redacted: cookie]"),
        ("mysql --password hunter2x -h db".into(), "mysql --password [redacted: password] -h db"),
        ("{\"password\": \"hunter2\"}".into(), "{\"password\": \"[redacted: password]\"}"),
        (
            "{\\\"password\\\": \\\"hunter2\\\", \\\"a\\\": 1}".into(),
            "{\\\"password\\\": \\\"[redacted: password]\\\", \\\"a\\\": 1}",
        ),
        (
            "{\"name\": \"DB_PASSWORD\",\n  \"value\": \"hunter2\"}".into(),
            "{\"name\": \"DB_PASSWORD\",\n  \"value\": \"[redacted: password]\"}",
        ),
        (
            "{\\\"name\\\":\\\"DB_PASSWORD\\\",\\n \\\"value\\\":\\\"hunter2\\\"}".into(),
            "{\\\"name\\\":\\\"DB_PASSWORD\\\",\\n \\\"value\\\":\\\"[redacted: password]\\\"}",
        ),
        (
            "- name: DB_PASSWORD\n  value: hunter2x!".into(),
            "- name: DB_PASSWORD\n  value: [redacted: password]",
        ),
        ("password: &str = \"hunter2\";".into(), "password: &str = \"[redacted: password]\";"),
        ("config['db_password'] = 'hunter2'".into(), "config['db_password'] = '[redacted: password]'"),
        ("Server=db;Password=hunter2;User=ada".into(), "Server=db;Password=[redacted: password];User=ada"),
        (
            "curl -u ada:hunter2 a && curl --user bob:tiger4 b".into(),
            "curl -u ada:[redacted: password] a && curl --user bob:[redacted: password] b",
        ),
        ("a\\ncurl -s -u 'ada:hunter2' a".into(), "a\\ncurl -s -u 'ada:[redacted: password]' a"),
        ("sort -u ada:hunter2, curly -u ada:hunter2".into(), "sort -u ada:hunter2, curly -u ada:hunter2"),
        (
            format!("fix_{token}, ?next=%3D{token}"),
            "fix_[redacted: github token], ?next=%3D[redacted: github token]",
        ),
        (
            format!("\u{1b}[31m{token}\u{1b}[0m \u{1b}[1mAPI_PASSWORD\u{1b}[0m=\u{1b}[32mhunter2\u{1b}[0m"),
            "\u{1b}[31m[redacted: github token]\u{1b}[0m \u{1b}[1mAPI_PASSWORD\u{1b}[0m=\u{1b}[32m[redacted: password]\u{1b}[0m",
        ),
        // The key itself in two colours, and the escape written as in JSON.
        (format!("\u{1b}[1m{}\u{1b}[m{}.", &token[..4], &token[4..]), "\u{1b}[1m[redacted: github token]."),
        (format!("{{\"a\":\"\\u001b[31m{token}\"}}"), "{\"a\":\"\\u001b[31m[redacted: github token]\"}"),
        // In the address of a link that a terminal does not show.
        (
            format!("\u{1b}]8;;https://h/?t={token}\u{7}x"),
            "\u{1b}]8;;https://h/?t=[redacted: github token]\u{7}x",
        ),
        ("<password>hunter2</password>".into(), "<password>[redacted: password]</password>"),
        (
            "CREATE USER ada IDENTIFIED BY 'hunter2'".into(),
            "CREATE USER ada IDENTIFIED BY '[redacted: password]'",
        ),
    ] {
        assert_eq!(plain().redact(&text), expected);
    }
}

#[test]
fn a_value_of_the_environment_is_masked_in_every_form() {
    let environment = [
        ("MY_TOKEN", "line1\nline2\"x"),
        ("POSTGRES_PASSWORD", "postgres"),
        ("DATABASE_URL", "postgres://u:s3cr3tpw!@h/d"),
        ("SSH_AUTH_SOCK", "/run/user/1000/ssh"),
        ("EDITOR", "a-long-editor-name"),
        ("API_KEY", ""),
    ];
    let redactor = Redactor::new(environment, &[""; 0]).unwrap();
    for (text, expected) in [
        ("a line1\nline2\"x b", "a [redacted: value of MY_TOKEN] b"),
        (r#"{"a":"line1\nline2\"x"}"#, r#"{"a":"[redacted: value of MY_TOKEN]"}"#),
        ("the password is s3cr3tpw!", "the password is [redacted: value of DATABASE_URL]"),
        ("postgres runs", "postgres runs"),
        ("/run/user/1000/ssh a-long-editor-name", "/run/user/1000/ssh a-long-editor-name"),
    ] {
        assert_eq!(redactor.redact(text), expected);
    }
    assert!(!format!("{redactor:?}").contains("s3cr3tpw"));
}

#[test]
fn a_pattern_of_the_user_is_masked_and_a_bad_one_is_named() {
    let redactor = Redactor::new([], &[r"ACME-\d+", "code (?:is|was) ([a-z]+)"]).unwrap();
    assert_eq!(
        redactor.redact("ACME-17, the code is banana!"),
        "[redacted: own pattern], the code is [redacted: own pattern]!"
    );
    for (pattern, reason) in [
        ("(", "unclosed group"),
        ("x*", "it matches an empty text"),
        (r"(?:\w{500}){500}", "it is larger than 1048576 bytes when compiled"),
    ] {
        let error = Redactor::new([], &["fine", pattern]).unwrap_err();
        assert_eq!(error, RedactError::Pattern { pattern: pattern.into(), reason: reason.into() });
        assert!(error.to_string().contains(pattern), "{error}");
    }
    assert_eq!(Redactor::new([], &["x"; 65]).unwrap_err(), RedactError::TooMany(65));
}

#[test]
fn every_string_of_an_event_is_masked_and_the_rest_is_untouched() {
    let redactor = Redactor::new([], &["ACME"]).unwrap();
    let text = r#"{"ToolCall":{"tool_use_id":"t","tool_name":"Bash","input":{"password":"hunter2","n":12345678901234567890.10,"list":[{"ACME":"x"}],"\u0041CME":"a\"ACME\""}}}"#;
    let masked = redactor.redact_event_json(text);
    assert_eq!(
        masked,
        r#"{"ToolCall":{"tool_use_id":"t","tool_name":"Bash","input":{"password":"[redacted: password]","n":12345678901234567890.10,"list":[{"[redacted: own pattern]":"x"}],"[redacted: own pattern]":"a\"[redacted: own pattern]\""}}}"#
    );
    let event = redactor.redact_event(&Event::from_json(text).unwrap()).into_owned();
    assert!(!event.to_json().contains("hunter2") && matches!(event, Event::ToolCall(_)));
    let unknown = Event::from_json(r#"{"Future": {"token": "a1B2c3D4e5F6g7H8"}, "x": "ACME"}"#).unwrap();
    assert_eq!(
        redactor.redact_event(&unknown).to_json(),
        r#"{"Future": {"token": "[redacted: token]"}, "x": "[redacted: own pattern]"}"#
    );
    let pairs = r#"{"ToolCall":{"tool_name":"Add","input":{"env":[{"name":"DB_PASSWORD","value":"hunter2"},{"name":"LEVEL","value":"hunter2"}]}}}"#;
    assert_eq!(redactor.redact_event_json(pairs), pairs.replacen("hunter2", "[redacted: password]", 1));
    // A lone half of a pair is kept as it is written.
    assert_eq!(
        redactor.redact_event_json(r#"{"A":"\ud800 ACME"}"#),
        r#"{"A":"\ud800 [redacted: own pattern]"}"#
    );
}

#[test]
fn an_event_that_masks_make_unreadable_does_not_show_its_secret() {
    let redactor = Redactor::new([], &["user|hidden"]).unwrap();
    let event =
        Event::from_json(r#"{"Message":{"role":"user","content":[{"type":"text","text":"hidden"}]}}"#)
            .unwrap();
    let masked = redactor.redact_event(&event).into_owned();
    assert!(matches!(masked, Event::Error(_)) && !masked.to_json().contains("hidden"), "{masked:?}");
}

/// Texts of pieces that the rules look for, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let mut chance = Chance::new(9);
    let mut pieces: Vec<String> = KINDS.iter().map(|kind| kind.draw(&mut chance)).collect();
    pieces.extend(
        [
            "password",
            "PASSWORD",
            "api_key",
            "token",
            "=",
            ": ",
            "\"",
            "'",
            "\\",
            "\n",
            " ",
            ",",
            "\\n",
            "\\u0041",
            "://u:",
            "@h",
            "é",
            "🙂",
            "Bearer ",
            "Authorization: ",
            "[redacted: ",
            "]",
            "[redacted: password]",
            "value of",
            "hunter2",
            "{",
            "}",
            "Cookie: a=",
            "|\n  ",
            "ACME",
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
            "a",
            "--password ",
            "\u{1b}[31m",
            "\u{1b}[0m",
            "\\u001b[1m",
            "_",
            "%3D",
        ]
        .map(str::to_owned),
    );
    pieces.push(private_key(2));
    proptest::collection::vec(proptest::sample::select(pieces), 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: thorough(300, 1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn masking_twice_is_masking_once(text in pieces()) {
        static REDACTOR: LazyLock<Redactor> =
            LazyLock::new(|| Redactor::new([("A_TOKEN", "s3cr3t value of")], &["ACME"]).unwrap());
        let once = REDACTOR.redact(&text).into_owned();
        prop_assert_eq!(&REDACTOR.redact(&once), &once);
    }

    #[test]
    fn json_stays_json(text in pieces(), other in pieces()) {
        let redactor = plain();
        for json in [json!(text).to_string(), json!({"a": text, "password": other}).to_string(), json!([json!({"k": text}).to_string(), other]).to_string()] {
            let masked = redactor.redact(&json);
            prop_assert!(serde_json::from_str::<Value>(&masked).is_ok(), "{}\n{}", json, masked);
            let masked = redactor.redact_event_json(&json);
            prop_assert!(serde_json::from_str::<Value>(&masked).is_ok(), "{}\n{}", json, masked);
        }
    }
}
