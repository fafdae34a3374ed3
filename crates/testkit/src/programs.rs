//! Programs that tests write and run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program.
///
/// Another process writes the file. A test binary that writes a program itself can fail to run it (`ETXTBSY`): a child that
/// another test forks at that moment inherits the open file until it executes its own program.
pub fn copy(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).args([from, to]).status().unwrap();
    assert!(status.success(), "{} is not copied", from.display());
}

/// Writes a shell script that can be run, in the same way.
pub fn script(path: &Path, script: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    assert!(install.wait().unwrap().success(), "{} is not written", path.display());
}
