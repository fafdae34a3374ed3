//! A project in a folder of its own, and sessions to import into it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::programs;

/// Makes a folder a git repository, with all of its files in one commit.
#[track_caller]
pub fn git_repository(folder: &Path) {
    for arguments in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"],
    ] {
        let status = Command::new("git").args(arguments).current_dir(folder).status().unwrap();
        assert!(status.success(), "git {arguments:?}: {status}");
    }
}

/// A folder with a git repository `p`, and `bin` for programs. It is removed when it is dropped.
#[derive(Debug)]
pub struct ProjectFolder {
    folder: TempDir,
}

impl Default for ProjectFolder {
    fn default() -> Self {
        Self::new()
    }
}

impl ProjectFolder {
    /// Creates the folder and the repository.
    pub fn new() -> Self {
        let project = Self { folder: TempDir::new().unwrap() };
        project.file("p/.git/HEAD", "ref: refs/heads/main\n");
        project
    }

    /// Returns a path in the folder.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file, and returns its path.
    pub fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes a shell script into `bin`.
    pub fn program(&self, name: &str, script: &str) {
        programs::script(&self.path(&format!("bin/{name}")), script);
    }

    /// Returns a `PATH` with the programs of `bin` first.
    pub fn programs(&self) -> String {
        format!("{}:/usr/bin:/bin", self.path("bin").display())
    }

    /// Returns a command in the repository, without input and without any variable of our environment.
    pub fn command(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program.as_ref());
        command.args(arguments).current_dir(self.path("p")).env_clear().stdin(Stdio::null());
        command
    }

    /// Writes a session for `azureal import` to a file, and returns its path.
    pub fn session_file(&self, name: &str, events: &[Value]) -> PathBuf {
        self.file(&format!("in/{name}.json"), &exported_session(name, events).to_string())
    }
}

/// Returns a session as `azureal export --format json` writes it. An event is `{"kind": data}`, or its kind alone.
pub fn exported_session(name: &str, events: &[Value]) -> Value {
    let events: Vec<Value> = events
        .iter()
        .enumerate()
        .map(|(index, event)| match event {
            Value::String(kind) => json!({"seq": index + 1, "kind": kind, "data": null}),
            event => {
                let (kind, data) = event.as_object().unwrap().iter().next().unwrap();
                json!({"seq": index + 1, "kind": kind, "data": data})
            }
        })
        .collect();
    json!({
        "format": "azureal-session",
        "version": 1,
        "session": {"id": "S1", "name": name, "worktree": ".", "created": format!("made for {name}")},
        "events": events,
        "compactions": [],
    })
}

/// Returns a prompt, for [`exported_session`].
pub fn user(text: &str) -> Value {
    json!({"UserMessage": {"content": text}})
}

/// Returns an answer, for [`exported_session`].
pub fn assistant(text: &str) -> Value {
    json!({"AssistantText": {"text": text}})
}
