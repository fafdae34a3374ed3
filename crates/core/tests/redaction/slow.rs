//! Texts that are written to be slow.

use azureal_core::Redactor;
use rustix::time::{ClockId, clock_gettime};

use crate::thorough;

/// The largest ratio of the times for a text and for one that is four times as long. Linear is 4, quadratic is 16.
const MOST: f64 = 8.0;
/// A busy machine spoils a measurement, so the shortest time of so many counts.
const MOST_ROUNDS: usize = 40;

/// Pieces that the rules look for, repeated.
const REPEATED: &[&str] = &[
    "key=",
    "sk-",
    "password=\"",
    "token: ",
    "eyJ",
    "://a:",
    "-----BEGIN PRIVATE KEY-----",
    "\\",
    "re_",
    "MII \"",
    "secret_",
    "Authorization: ",
    "a.",
    "[redacted: ",
    "[redacted: x]",
    "-----END PRIVATE KEY-----\n",
    "PRIVATE KEY ",
    "A",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n",
    "password='a ",
    "MIIEvQIBADANBgkqhkiG9w0BAQ -----END PRIVATE KEY----- ",
    // Values that have the next name in them.
    "pw=",
    "PW=",
    "pw:",
    "?pw=",
    "a_secret=(",
    "cookie: ",
    "Cookie: a=b ",
    "pw='pw=`",
    "pw=\"\\n",
    "key\\\\=\\",
    // A shape that is never complete, with complete ones in it.
    "curl AKIAABCDEFGHIJKLMNOP ",
    "curl -u ",
    "wget -u a:b ",
    "eyJaaaaaaaaaa-AKIAABCDEFGHIJKLMNOP-",
    "sk.eyJaaaaaaaaaaaaaaaaaaaaa-AKIAABCDEFGHIJKLMNOP-",
    "machine AKIAABCDEFGHIJKLMNOP ",
    "dp.pt.AKIAABCDEFGHIJKLMNOP-",
    "--a-AKIAABCDEFGHIJKLMNOP-",
    "identified by 'AKIAABCDEFGHIJKLMNOP.",
    "<a:secret>AKIAABCDEFGHIJKLMNOP.",
    "://a:AKIAABCDEFGHIJKLMNOP.",
    // Shapes in the value of a shape.
    "authorization:",
    "bearer+",
    "Authorization: a ",
    // Keys of PuTTY, and ends of keys that do not come.
    "Private-Lines:",
    "Private-Lines: ",
    "Private-Lines: MIIEvQIBADANBgkqhkiG9w0BAQ ",
    "Private-Lines: MIIEvQIBADANBgkqhkiG9w0BAQ --END ",
    "Private-Lines: 1:",
    "Private-Lines: \\n\\n",
    "BEGIN PRIVATE KEY--",
    "BEGIN PRIVATE KEY-- MIIEvQIBADANBgkqhkiG9w0BAQ --END a",
    "-- BEGIN PRIVATE KEY \\n",
    "END PRIVATE KEY--",
    "a END PRIVATE KEY--",
    // Control sequences.
    "\u{1b}[31m",
    "\u{1b}]",
    "\u{1b}[31mpw=\u{1b}[0m",
    "\\e[0",
    "\\\\u001b[1mkey",
    "_%3D",
    // A pair of a name and a value.
    "token, ",
    "token\n",
    "token \\\\n",
    "token,value",
];

type Family = (&'static str, fn(usize) -> String);

/// Texts that no piece makes, for about so many bytes. Few names in much text show only in a longer one.
const GROWN: &[Family] = &[
    ("names before ever more backslashes", |length| {
        grown(20 * length, |n| format!("pw={}\" ", "\\".repeat(n)))
    }),
    ("the same with two quotation marks", |length| {
        grown(20 * length, |n| format!("pw={0}' pw={0}` ", "\\".repeat(n)))
    }),
    ("names before runs of up to 40 backslashes", |length| {
        grown(length, |n| format!("pw={}\" ", "\\".repeat(n % 40)))
    }),
    ("forty names and then marks that close none", |length| {
        let names: String = (0..40).map(|n| format!("pw={}\" ", "\\".repeat(n))).collect();
        let marks = format!("{}\"", "\\".repeat(41));
        names + &marks.repeat(length / marks.len())
    }),
    ("words of names", |length| grown(length, |_| "authorization:".repeat(36) + " ")),
    ("words of tokens", |length| grown(length, |_| "bearer+".repeat(70) + " ")),
    ("spaces", |length| "pw=|".to_owned() + &" ".repeat(length)),
    ("a key without end", |length| "-----BEGIN PRIVATE KEY-----\n".to_owned() + &"MIIE".repeat(length / 4)),
    ("digits of a line number", |length| "Private-Lines: ".to_owned() + &"7".repeat(length)),
];

/// JSON texts of events.
const JSON: &[Family] = &[
    ("a long key of a list", |length| {
        format!("{{\"{}\":[{}\"\"]}}", "a_".repeat(length / 4), "\"\",".repeat(length / 6))
    }),
    ("a long secret key of a list", |length| {
        format!("{{\"{}secret\":[{}\"\"]}}", "A".repeat(length / 2), "\"\",".repeat(length / 6))
    }),
    ("empty keys", |length| format!("{{{}\"\":0}}", "\"\":\"\",".repeat(length / 6))),
    ("escapes", |length| format!("[\"{}\"]", "\\\\".repeat(length / 2))),
    ("escaped marks", |length| format!("[\"{}\"]", "pw=\\\\\\\"".repeat(length / 7))),
    ("halves of pairs", |length| format!("[{}\"\"]", "\"\\ud800\",".repeat(length / 9))),
    ("spaces", |length| format!("[\"\"{}]", " ".repeat(length))),
    ("no JSON", |length| "{\"pw=".repeat(length / 5)),
];

/// Joins pieces, each for its number, up to a length.
fn grown(length: usize, piece: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= length {
            break;
        }
        text.push_str(&piece(number));
    }
    text
}

/// Returns the processor time of this thread, which does not count other programs of a busy machine.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Compares the times for a text and for one that is four times as long.
#[track_caller]
fn check_linear(name: &str, text: impl Fn(usize) -> String, redact: impl Fn(&str)) {
    // Without optimisation some of these texts take 100 times as long.
    let length = thorough(4_000, if cfg!(debug_assertions) { 100_000 } else { 1_000_000 });
    let (short, long) = (text(length), text(4 * length));
    let time = |text: &str| {
        let begun = processor_seconds();
        redact(text);
        processor_seconds() - begun
    };
    let (mut of_short, mut of_long) = (f64::MAX, f64::MAX);
    for _ in 0..MOST_ROUNDS {
        of_short = of_short.min(time(&short));
        of_long = of_long.min(time(&long));
        if of_long < MOST * of_short {
            break;
        }
    }
    let ratio = of_long / of_short;
    println!("{ratio:4.1} {:6.1} MB/s {name:?}", long.len() as f64 / 1e6 / of_long);
    assert!(ratio < MOST, "{name:?}: {of_short:.4} s, {of_long:.4} s");
}

#[test]
fn time_is_linear_in_the_length_of_a_text() {
    let redactor = Redactor::new([], &[""; 0]).unwrap();
    for unit in REPEATED {
        check_linear(unit, |length| unit.repeat(length / unit.len()), |text| drop(redactor.redact(text)));
    }
    for (name, text) in GROWN {
        check_linear(name, text, |text| drop(redactor.redact(text)));
    }
}

#[test]
fn time_is_linear_in_the_length_of_an_event() {
    let redactor = Redactor::new([], &[""; 0]).unwrap();
    for (name, text) in JSON {
        check_linear(name, text, |text| drop(redactor.redact_event_json(text)));
    }
}

#[test]
fn time_is_linear_with_patterns_of_the_user() {
    for pattern in [r"\\", ".", r"\W+", "a(.)"] {
        let redactor = Redactor::new([("A_TOKEN", "\\\\\\\\\\\\\\\\")], &[pattern]).unwrap();
        for unit in ["\\", "a\\\\", "pw=a\\"] {
            check_linear(
                &format!("{pattern} {unit}"),
                // A mask for every byte: the result is 23 times as long.
                |length| unit.repeat(length / 8 / unit.len()),
                |text| drop(redactor.redact(text)),
            );
        }
    }
}
