//! The part of a failed output that matters.
//!
//! Its first and last lines, and the lines that look like errors of the common tool chains with those around them. A
//! line with the number of omitted lines stands for each part that is left out.

use std::borrow::Cow;

use super::{MOST_CHARS, omitted_lines, short_line};

/// The lines at the beginning and at the end that are always kept.
const ENDS: (usize, usize) = (2, 4);
/// The lines around an error: a test's name stands before it, the code that it is about after it.
const AROUND: (usize, usize) = (1, 5);
/// The further lines at the end that are kept if there is room.
const LONG_TAIL: usize = 12;
/// A part of so few lines is not omitted: its mark is as long.
const SHORTEST_GAP: usize = 2;
/// The lines at each end of a long output that are looked at. Reading megabytes of lines takes seconds.
const LOOKED_AT: usize = 20_000;
/// The bytes of a line that are looked at.
const COMPARED: usize = 400;
/// The characters of the mark of an omitted part, with its line break.
const MARK_CHARS: usize = 26;

/// Returns the part of a failed output that matters, in at most [`MOST_CHARS`] characters; `None` if it says no more than
/// the short form.
pub(crate) fn of_failure(output: &str, short: &str) -> Option<String> {
    let (lines, between) = looked_at(output);
    let mut chosen = Chosen::new(&lines, between);
    let count = lines.len();
    chosen.add(0..ENDS.0);
    chosen.add(count.saturating_sub(ENDS.1)..count);
    for wanted in [Rank::Error, Rank::Hint] {
        for (index, line) in lines.iter().enumerate() {
            if rank(line) == Some(wanted) {
                let around = if wanted == Rank::Error { AROUND } else { (0, 1) };
                chosen.add(index..index + 1);
                chosen.add(index.saturating_sub(around.0)..index + 1 + around.1);
            }
            if chosen.is_full() {
                break;
            }
        }
    }
    chosen.add(count.saturating_sub(LONG_TAIL)..count);
    chosen.fill_gaps();
    let detail = chosen.text();
    (!detail.trim().is_empty() && detail.trim_end() != short.trim_end()).then_some(detail)
}

/// Returns the lines that are looked at, without colours, and the number of those between the two ends with their place.
fn looked_at(output: &str) -> (Vec<Cow<'_, str>>, (usize, usize)) {
    let output = output.trim_end();
    let count = output.lines().count();
    let clean = |line| match without_colours(line) {
        Cow::Borrowed(line) => short_line(line),
        Cow::Owned(line) => Cow::Owned(short_line(&line).into_owned()),
    };
    if count <= 2 * LOOKED_AT {
        return (output.lines().map(clean).collect(), (count, 0));
    }
    let (head, tail) = (output.lines().take(LOOKED_AT), output.lines().skip(count - LOOKED_AT));
    (head.chain(tail).map(clean).collect(), (LOOKED_AT, count - 2 * LOOKED_AT))
}

/// Returns a line without the sequences that colour it, and of a line that overwrites itself its last form.
fn without_colours(line: &str) -> Cow<'_, str> {
    let line = line.trim_end_matches('\r');
    let line = line.rsplit_once('\r').map_or(line, |(_, last)| last);
    if !line.contains('\u{1b}') {
        return Cow::Borrowed(line);
    }
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                // Up to the letter that ends the sequence.
                for c in chars.by_ref() {
                    if ('@'..='~').contains(&c) {
                        break;
                    }
                }
            }
            c => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// The lines that are chosen, within the bound.
struct Chosen<'a> {
    lines: &'a [Cow<'a, str>],
    is_chosen: Vec<bool>,
    /// The characters that are left.
    room: usize,
    /// The place of lines that were not looked at, and their number.
    between: (usize, usize),
    is_full: bool,
}

impl<'a> Chosen<'a> {
    fn new(lines: &'a [Cow<'a, str>], between: (usize, usize)) -> Self {
        // One mark more than there are parts.
        let room = MOST_CHARS - MARK_CHARS;
        Self { lines, is_chosen: vec![false; lines.len()], room, between, is_full: false }
    }

    /// Chooses lines, in their order, as far as there is room.
    fn add(&mut self, range: std::ops::Range<usize>) {
        for index in range.start..range.end.min(self.lines.len()) {
            if self.has(index) {
                continue;
            }
            let is_part =
                !self.has(index + 1) && !index.checked_sub(1).is_some_and(|before| self.has(before));
            let length = self.lines.get(index).map_or(0, |line| line.chars().count()) + 1;
            let cost = length + if is_part { MARK_CHARS } else { 0 };
            match self.room.checked_sub(cost) {
                Some(room) => self.room = room,
                None => {
                    self.is_full = true;
                    return;
                }
            }
            if let Some(chosen) = self.is_chosen.get_mut(index) {
                *chosen = true;
            }
        }
    }

    fn has(&self, index: usize) -> bool {
        self.is_chosen.get(index).copied().unwrap_or(false)
    }

    fn is_full(&self) -> bool {
        self.is_full
    }

    /// Chooses the lines between two parts where they are few.
    fn fill_gaps(&mut self) {
        let mut start = 0;
        while start < self.lines.len() {
            let end = (start..self.lines.len()).find(|index| self.has(*index)).unwrap_or(self.lines.len());
            if end - start <= SHORTEST_GAP {
                self.add(start..end);
            }
            start = (end..self.lines.len()).find(|index| !self.has(*index)).unwrap_or(self.lines.len());
        }
    }

    fn text(&self) -> String {
        let mut parts: Vec<Cow<'_, str>> = Vec::new();
        let mut omitted = 0;
        for (index, line) in self.lines.iter().enumerate() {
            if index == self.between.0 {
                omitted += self.between.1;
            }
            if !self.has(index) {
                omitted += 1;
                continue;
            }
            if omitted > 0 {
                parts.push(omitted_lines(omitted).into());
                omitted = 0;
            }
            parts.push(Cow::Borrowed(line.as_ref()));
        }
        if omitted > 0 {
            parts.push(omitted_lines(omitted).into());
        }
        parts.join("\n")
    }
}

/// What a line looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// The message of an error, or what a test expected.
    Error,
    /// A line that may belong to one: a place, a name, a count.
    Hint,
}

/// The beginnings of lines of errors, in lower case, without the white space in front of them.
const ERROR_STARTS: [&str; 44] = [
    "- expected",
    "+ received",
    "+ actual",
    "diff < left",
    "error:",
    "error[",
    "error ",
    "error -",
    "fatal:",
    "fatal error",
    "panic:",
    "panicked at",
    "traceback (",
    "failed:",
    "--- fail",
    "fail ",
    "fail:",
    "fail\t",
    "● ",
    "✕ ",
    "✗ ",
    "✘ ",
    "× ",
    "not ok ",
    "assert",
    "expected",
    "actual",
    "received",
    "left:",
    "right:",
    "caused by:",
    "failure:",
    "failures:",
    "* what went wrong",
    "build failed",
    "undefined reference",
    "e   ",
    "> assert",
    "exception in",
    "unhandled",
    "uncaught",
    "want:",
    "got:",
    "[error]",
];
/// Words anywhere in lines of errors, in lower case.
const ERROR_WORDS: [&str; 24] = [
    "error:",
    "error[",
    ": error ",
    " - error ",
    " error  ",
    "error ts",
    "exception:",
    "' panicked at",
    "assertion",
    "assertionerror",
    " failed ",
    " ... failed",
    "fatal error",
    "undefined reference",
    "command not found",
    "no such file or directory",
    "permission denied",
    "cannot find",
    "could not compile",
    "*** [",
    "segmentation fault",
    "does not compile",
    "timed out",
    "out of memory",
];
/// Words anywhere in lines that may belong to an error, in lower case.
const HINT_WORDS: [&str; 9] = [
    "failed",
    "error",
    "stdout ----",
    "-->",
    "exit code",
    "exit status",
    "expected",
    "warning: unused",
    "make: ",
];
/// Counts of no errors, in lower case.
const NO_ERRORS: [&str; 6] = ["0 error", "0 failed", "no error", "0 failures", "errors: 0", "failures: 0"];

/// Returns what a line looks like; `None` if it says nothing of an error.
fn rank(line: &str) -> Option<Rank> {
    let line = line.get(..line.floor_char_boundary(COMPARED)).unwrap_or(line);
    let text = line.trim_start().to_ascii_lowercase();
    if text.is_empty() {
        return None;
    }
    let contains = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let is_count = contains(&NO_ERRORS);
    // pytest marks the lines of a failure with an E, which stands in the first column.
    let is_marked = line.starts_with("E  ") || line.starts_with("> ");
    if is_marked
        || (!is_count && (ERROR_STARTS.iter().any(|start| text.starts_with(start)) || contains(&ERROR_WORDS)))
    {
        return Some(Rank::Error);
    }
    if has_place(&text) || (!is_count && contains(&HINT_WORDS)) {
        return Some(Rank::Hint);
    }
    None
}

/// Returns whether a line begins with a place in a file: `src/a.rs:12:`, `a.ts(3,5):`, `File "a.py", line 3`.
fn has_place(text: &str) -> bool {
    if text.starts_with("file \"") || text.starts_with("at ") {
        return true;
    }
    let word = text.split([' ', '\t']).next().unwrap_or_default();
    let Some((path, rest)) = word.split_once([':', '(']) else { return false };
    path.contains('.') && rest.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(output: &str) -> String {
        of_failure(output, "").unwrap()
    }

    #[track_caller]
    fn keeps(output: &str, kept: &[&str], omitted: &[&str]) -> String {
        let detail = detail(output);
        assert!(detail.chars().count() <= MOST_CHARS, "{}", detail.chars().count());
        for line in kept {
            assert!(detail.lines().any(|found| found.contains(line)), "{line} is missing in:\n{detail}");
        }
        for line in omitted {
            assert!(!detail.contains(line), "{line} is in:\n{detail}");
        }
        detail
    }

    fn noise(start: &str, count: usize) -> String {
        (0..count).map(|n| format!("{start} {n}\n")).collect()
    }

    #[test]
    fn cargo_test_keeps_the_assertion_that_failed() {
        let output = format!(
            "Exit code 101\n   Compiling demo v0.1.0 (/p)\n    Finished `test` profile\n     Running unittests src/lib.rs\n\nrunning 301 tests\n{}\
             test math::tests::adds ... FAILED\n\nfailures:\n\n---- math::tests::adds stdout ----\n\n\
             thread 'math::tests::adds' (7) panicked at src/math.rs:12:9:\nassertion `left == right` failed: sum\n  left: 5\n right: 4\n\
             note: run with `RUST_BACKTRACE=1`\n\n\nfailures:\n    math::tests::adds\n\n\
             test result: FAILED. 300 passed; 1 failed; 0 ignored\n\nerror: test failed, to rerun pass `--lib`\n",
            (0..300).map(|n| format!("test other::case_{n} ... ok\n")).collect::<String>()
        );
        let detail = keeps(
            &output,
            &[
                "Exit code 101",
                "adds ... FAILED",
                "src/math.rs:12:9",
                "`left == right` failed: sum",
                "  left: 5",
                " right: 4",
                "1 failed",
            ],
            &["case_150 ", "case_7 "],
        );
        assert!(detail.contains("lines omitted]") && detail.chars().count() < 1_000, "{detail}");
    }

    #[test]
    fn every_common_tool_chain_keeps_its_error() {
        let cases: [(&str, &str, &[&str]); 11] = [
            (
                "rustc",
                "error[E0308]: mismatched types\n --> src/main.rs:2:18\n  |\n2 |     let x: i32 = \"a\";\n  |            ---   ^^^ expected `i32`, found `&str`\n",
                &["error[E0308]", "src/main.rs:2:18", "let x: i32", "expected `i32`"],
            ),
            (
                "pytest",
                "    def test_adds():\n>       assert add(2, 2) == 5\nE       assert 4 == 5\nE        +  where 4 = add(2, 2)\n\ntests/test_math.py:4: AssertionError\n",
                &["> ", "E       assert 4 == 5", "tests/test_math.py:4: AssertionError"],
            ),
            (
                "traceback",
                "Traceback (most recent call last):\n  File \"/p/a.py\", line 3, in <module>\n    main()\nKeyError: 'id'\n",
                &["Traceback", "line 3, in <module>", "KeyError: 'id'"],
            ),
            (
                "jest",
                "  ● sum › adds\n\n    expect(received).toBe(expected) // Object.is equality\n\n    Expected: 5\n    Received: 4\n\n      at Object.<anonymous> (sum.test.js:4:21)\n",
                &["● sum › adds", "Expected: 5", "Received: 4", "sum.test.js:4:21"],
            ),
            (
                "vitest",
                " FAIL  src/sum.test.ts > adds\nAssertionError: expected 4 to be 5 // Object.is equality\n\n- Expected\n+ Received\n\n- 5\n+ 4\n\n ❯ src/sum.test.ts:5:22\n",
                &["FAIL  src/sum.test.ts", "expected 4 to be 5", "- 5", "+ 4"],
            ),
            (
                "go",
                "--- FAIL: TestAdd (0.00s)\n    math_test.go:9: got 4, want 5\nFAIL\nFAIL\texample.com/demo\t0.002s\n",
                &["--- FAIL: TestAdd", "math_test.go:9: got 4, want 5"],
            ),
            (
                "tsc",
                "src/a.ts(3,5): error TS2322: Type 'string' is not assignable to type 'number'.\n",
                &["src/a.ts(3,5): error TS2322"],
            ),
            (
                "gcc",
                "main.c: In function 'main':\nmain.c:3:5: error: 'x' undeclared (first use in this function)\n    3 |     x = 1;\n      |     ^\n",
                &["main.c:3:5: error: 'x' undeclared", "x = 1;"],
            ),
            (
                "gradle",
                "FAILURE: Build failed with an exception.\n\n* What went wrong:\nExecution failed for task ':app:compileJava'.\n",
                &["FAILURE: Build failed", "What went wrong", ":app:compileJava"],
            ),
            ("make", "make: *** [Makefile:4: build] Error 2\n", &["make: *** [Makefile:4: build] Error 2"]),
            (
                "eslint",
                "/p/src/a.js\n  3:5  error  'x' is not defined  no-undef\n\n✖ 1 problem (1 error, 0 warnings)\n",
                &["/p/src/a.js", "3:5  error  'x' is not defined"],
            ),
        ];
        for (tool, error, kept) in cases {
            let output =
                format!("Exit code 1\n{}{error}{}", noise("compiling module", 200), noise("after", 200));
            let detail = keeps(&output, kept, &["compiling module 77\n", "after 77\n"]);
            assert!(detail.starts_with("Exit code 1\n"), "{tool}: {detail}");
            assert!(detail.ends_with("after 199"), "{tool}: {detail}");
        }
    }

    #[test]
    fn an_output_full_of_errors_keeps_the_first_of_them_and_its_end() {
        let errors: String = (0..5_000).map(|n| format!("src/a{n}.rs:1:1: error: number {n}\n")).collect();
        let output = format!("Exit code 2\n{errors}make: *** [all] Error 1\n");
        let detail = keeps(&output, &["number 0", "number 1", "make: *** [all] Error 1"], &["number 3000"]);
        assert!(detail.chars().count() > MOST_CHARS / 2);
        assert_eq!(detail.matches(" lines omitted]").count(), 1, "{detail}");
    }

    #[test]
    fn a_long_line_and_colours_take_no_room() {
        let output = format!(
            "Exit code 1\n{}\n\u{1b}[31merror\u{1b}[0m: it broke\r\n{}\nb\nc\nd\ne\n",
            "x".repeat(100_000),
            "10%\r20%\r100% done"
        );
        let detail = keeps(&output, &["error: it broke", "100% done"], &["\u{1b}", "20%"]);
        assert!(detail.contains(" characters omitted]") && detail.chars().count() < 600, "{detail}");
    }

    #[test]
    fn a_short_output_is_whole() {
        assert_eq!(detail("a\nb\nc\nd\ne\nf\ng"), "a\nb\nc\nd\ne\nf\ng");
        assert_eq!(of_failure("a\nb\n", "a\nb"), None);
        assert_eq!(of_failure("", ""), None);
    }

    #[test]
    fn counts_of_no_errors_are_no_errors() {
        for line in
            ["Found 0 errors", "12 passed, 0 failed", "test a ... ok", "No errors", "    Finished", ""]
        {
            assert_eq!(rank(line), None, "{line}");
        }
        assert_eq!(rank("src/a.rs:3: note: here"), Some(Rank::Hint));
    }

    #[test]
    fn the_bound_holds_for_any_lines() {
        for width in [1, 7, 60, 399, 401, 5_000] {
            for every in [1, 2, 3, 9, 50] {
                let lines: String = (0..600)
                    .map(|n| {
                        format!("{}{}\n", if n % every == 0 { "error: " } else { "" }, "ü".repeat(width))
                    })
                    .collect();
                let length = detail(&lines).chars().count();
                assert!(length <= MOST_CHARS, "{width} {every}: {length}");
            }
        }
    }

    #[test]
    fn an_output_of_very_many_lines_is_read_at_its_ends() {
        let output = format!("Exit code 1\n{}error: late\n{}", noise("a", 100_000), noise("b", 10));
        let detail = keeps(&output, &["error: late"], &[]);
        let counts: usize = detail
            .lines()
            .filter_map(|line| line.strip_prefix('[')?.strip_suffix(" lines omitted]")?.parse::<usize>().ok())
            .sum();
        assert_eq!(counts + detail.lines().filter(|line| !line.starts_with('[')).count(), 100_012);
    }
}
