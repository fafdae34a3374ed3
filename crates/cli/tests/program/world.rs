//! A project in a folder of its own, and the program run in it.

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use azureal_testkit::project::ProjectFolder;
use serde_json::Value;

pub(crate) use azureal_testkit::project::{assistant, exported_session as exported, user};

/// A project, and how its program is run.
pub(crate) struct World {
    folder: ProjectFolder,
}

impl Deref for World {
    type Target = ProjectFolder;

    fn deref(&self) -> &ProjectFolder {
        &self.folder
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: ProjectFolder::new() }
    }

    /// The program with what was put on the path.
    pub(crate) fn with_programs(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("PATH", self.programs());
        command
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("p/.azureal/sessions.azs")
    }

    /// The program, ready to be run in the project and with nothing of our environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.folder.command(env!("CARGO_BIN_EXE_azureal"), arguments);
        command.env("TZ", "UTC");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.ran(self.command(arguments).output().unwrap())
    }

    pub(crate) fn ran(&self, output: Output) -> Ran {
        let given = self.path("");
        let given = given.to_str().unwrap().trim_end_matches('/');
        let folder = fs::canonicalize(given).unwrap();
        let clean = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            let text = text.replace(folder.to_str().unwrap(), "[folder]");
            without_times(&text.replace(given, "[folder]"))
        };
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: clean(output.stdout),
            stderr: clean(output.stderr),
        }
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Puts a session with exactly these events into the store.
    #[track_caller]
    pub(crate) fn session(&self, name: &str, events: &[Value]) -> Ran {
        let path = self.session_file(name, events);
        let ran = self.run(&["import", path.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{ran}");
        ran
    }

    /// All files below the folder with their content, to see whether anything changed.
    pub(crate) fn snapshot(&self, path: &str) -> Vec<(PathBuf, Vec<u8>)> {
        fn walk(path: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(path).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else {
                    found.push((path.clone(), fs::read(&path).unwrap()));
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.path(path), &mut found);
        found.sort();
        found
    }
}

/// How a run of the program ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Reads standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Reads standard output as one JSON value per line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    /// Returns standard output of a run that must have gone well and in silence.
    #[track_caller]
    pub(crate) fn quiet(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self}");
        self.stdout
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "exit code {}", self.code)?;
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                writeln!(f, "--- {name}\n{}", without_uuids(text.trim_end_matches('\n')))?;
            }
        }
        Ok(())
    }
}

/// Replaces every `2026-01-31T09:30:00Z` and every `2026-01-31 09:30` by `[time]`, and the time that a turn runs for.
fn without_times(text: &str) -> String {
    [
        ("0000-00-00T00:00:00Z", "[time]"),
        ("0000-00-00 00:00", "[time]"),
        ("for 0 s, run by", "for [time], run by"),
        ("for 00 s, run by", "for [time], run by"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (shape, replacement)| without(&text, shape, replacement))
}

/// Replaces every random UUID by `[uuid]`.
fn without_uuids(text: &str) -> String {
    without(text, "ffffffff-ffff-4fff-ffff-ffffffffffff", "[uuid]")
}

/// Replaces every text of a shape, in which `0` is any digit and `f` any hexadecimal one.
fn without(text: &str, shape: &str, replacement: &str) -> String {
    let has_shape = |text: &str| {
        text.len() >= shape.len()
            && text.bytes().zip(shape.bytes()).all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                b'f' => byte.is_ascii_hexdigit(),
                other => byte == other,
            })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if has_shape(rest) {
            out.push_str(replacement);
            rest = &rest[shape.len()..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}
