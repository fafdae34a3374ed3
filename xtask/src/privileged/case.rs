//! Tests of snapshots on a file system that ignores case: ext4 with `casefold` on a loop device, or a file system of our own where the kernel has none.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::root;

const SIZE: u64 = 1 << 30;
/// The tests: the crate, its test program, and the names.
const TESTS: [(&str, &str, &[&str]); 2] = [
    ("azureal-snapshots", "integration", &["case::", "undo::", "there::"]),
    ("azureal-cli", "program", &["random_undo", "changes::"]),
];

/// A mounted file system, until it is dropped.
struct Mounted {
    folder: PathBuf,
    server: Option<Child>,
}

impl Mounted {
    fn point(&self) -> PathBuf {
        self.folder.join("mounted")
    }

    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("azureal-case-{}", std::process::id()));
        fs::create_dir_all(folder.join("mounted"))?;
        let mut mounted = Self { folder, server: None };
        if let Err(error) = mounted.mount_ext4() {
            println!("ext4 cannot ignore case here ({error:#}); our own file system does it");
            mounted.serve()?;
        }
        Ok(mounted)
    }

    fn mount_ext4(&self) -> Result<()> {
        let image = self.folder.join("image");
        fs::File::create(&image)?.set_len(SIZE)?;
        run_command(
            Command::new("mkfs.ext4").args(["-q", "-O", "casefold", "-E", "encoding=utf8"]).arg(&image),
        )?;
        run_command(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(self.point()))?;
        fs::remove_dir(self.point().join("lost+found"))?;
        run_command(Command::new("chattr").arg("+F").arg(self.point()))
    }

    fn serve(&mut self) -> Result<()> {
        let behind = self.folder.join("behind");
        fs::create_dir_all(&behind)?;
        let script = root()?.join("xtask/src/privileged/case_fs.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(behind).arg(self.point()).stdout(Stdio::piped());
        let mut server = command.spawn().context("python3 does not start")?;
        let mut line = String::new();
        BufReader::new(server.stdout.take().context("no output")?).read_line(&mut line)?;
        self.server = Some(server);
        ensure!(line == "ready\n", "the file system is not mounted");
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may not be mounted.
        let _ = Command::new("umount").args(["-q", "-l"]).arg(self.point()).status();
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs the tests with their temporary folders on the file system.
fn run_tests(point: &Path) -> Result<()> {
    for (package, program, names) in TESTS {
        let mut command = Command::new("cargo");
        command.args(["test", "-p", package, "--test", program, "--"]).args(names);
        run_command(command.current_dir(root()?).env("TMPDIR", point).env("AZUREAL_REQUIRE_CASE", "1"))?;
    }
    Ok(())
}

pub(super) fn run() -> Result<()> {
    let mounted = Mounted::new()?;
    run_tests(&mounted.point())
}

fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} does not start"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
