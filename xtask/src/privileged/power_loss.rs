//! Power loss on real file systems: a loop device whose backing file is copied when `azureal run` has returned.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::root;

/// The file systems, with the options that create one.
const FILE_SYSTEMS: [(&str, &[&str]); 3] = [("ext4", &["-q"]), ("xfs", &["-q"]), ("btrfs", &["-q"])];
/// How often each is tried.
const TIMES: usize = 3;
const SIZE: u64 = 512 << 20;

/// An agent that changes, creates and deletes files.
const AGENT: &str = r#"#!/bin/sh
[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
echo "by the turn" >> a; echo "by the turn" >> untracked; echo "by the turn" > new; rm -f deleted
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"done"}'
"#;

/// The files before and after the turn. `None` if there is none.
const FILES: [(&str, Option<&str>, Option<&str>); 4] = [
    ("a", Some("a\n"), Some("a\nby the turn\n")),
    ("untracked", Some("untracked\n"), Some("untracked\nby the turn\n")),
    ("new", None, Some("by the turn\n")),
    ("deleted", Some("deleted\n"), None),
];

/// A folder for the disks, with the folder at which one is mounted.
struct Machine {
    folder: PathBuf,
    program: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Nothing is mounted, if there is an error.
        command("umount", &[&self.mounted()]).output().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Tries each file system.
pub(super) fn run() -> Result<()> {
    build()?;
    let folder = std::env::temp_dir().join(format!("azureal-power-loss-{}", std::process::id()));
    let machine = Machine { folder, program: root()?.join("target/debug/azureal") };
    for name in ["m", "bin", "home"] {
        fs::create_dir_all(machine.folder.join(name))?;
    }
    let agent = machine.folder.join("bin/claude");
    fs::write(&agent, AGENT)?;
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755))?;
    for (file_system, options) in FILE_SYSTEMS {
        for _ in 0..TIMES {
            machine.lose_power(file_system, options).with_context(|| format!("on {file_system}"))?;
        }
        println!("  {file_system}: {TIMES} of {TIMES} turns can be undone");
    }
    Ok(())
}

fn build() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status =
        Command::new(cargo).args(["build", "-q", "-p", "azureal-cli"]).current_dir(root()?).status()?;
    ensure!(status.success(), "azureal is not built");
    Ok(())
}

impl Machine {
    fn mounted(&self) -> PathBuf {
        self.folder.join("m")
    }

    fn project(&self) -> PathBuf {
        self.mounted().join("p")
    }

    fn lose_power(&self, file_system: &str, options: &[&str]) -> Result<()> {
        let (disk, copy) = (self.folder.join("disk"), self.folder.join("copy"));
        fs::File::create(&disk)?.set_len(SIZE)?;
        run_command(Command::new(format!("mkfs.{file_system}")).args(options).arg(&disk))
            .with_context(|| format!("mkfs.{file_system} is in e2fsprogs, xfsprogs or btrfs-progs"))?;
        self.mount(&disk)?;
        self.create_project()?;
        let ran = self.azureal(&["run", "-a", "claude", "go"])?;
        ensure!(text(&ran.stderr).contains("4 files changed"), "{ran:?}");
        // What the file system has given to its device by now.
        fs::copy(&disk, &copy)?;
        run_command(&mut command("umount", &[&self.mounted()]))?;
        self.mount(&copy)?;
        let checked = self.check();
        run_command(&mut command("umount", &[&self.mounted()]))?;
        checked
    }

    fn mount(&self, disk: &Path) -> Result<()> {
        run_command(Command::new("mount").args(["-o", "loop"]).arg(disk).arg(self.mounted()))
    }

    fn create_project(&self) -> Result<()> {
        fs::create_dir(self.project())?;
        let write = |files: &[&str]| -> Result<()> {
            for (name, before, _) in FILES.iter().filter(|(name, ..)| files.contains(name)) {
                fs::write(self.project().join(name), before.unwrap_or_default())?;
            }
            Ok(())
        };
        write(&["a", "deleted"])?;
        for arguments in [
            &["init", "-q"][..],
            &["add", "-A"],
            &["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"],
        ] {
            run_command(Command::new("git").args(arguments).current_dir(self.project()))?;
        }
        write(&["untracked"])?;
        // The project is old; the turn is new.
        run_command(Command::new("sync").arg("-f").arg(self.mounted()))
    }

    /// Checks the turn after the loss of power.
    fn check(&self) -> Result<()> {
        let diff = self.azureal(&["diff", "S1"])?;
        ensure!(text(&diff.stdout).matches("+by the turn").count() == 3, "{diff:?}");
        // The files of the agent are its own affair.
        for (name, _, after) in FILES {
            let path = self.project().join(name);
            match after {
                Some(after) => fs::write(path, after)?,
                None => drop(fs::remove_file(path)),
            }
        }
        self.azureal(&["undo", "S1"])?;
        for (name, before, _) in FILES {
            let found = fs::read_to_string(self.project().join(name)).ok();
            ensure!(found.as_deref() == before, "`{name}` is {found:?} after the undo");
        }
        let next = self.azureal(&["run", "-c", "-a", "claude", "go"])?;
        let next = text(&next.stderr);
        ensure!(next.contains("4 files changed") && !next.contains("not recorded"), "{next}");
        let doctor = self.azureal(&["doctor", "--json"])?;
        ensure!(!text(&doctor.stdout).contains("\"snapshots\""), "{doctor:?}");
        Ok(())
    }

    fn azureal(&self, arguments: &[&str]) -> Result<Output> {
        let output = Command::new(&self.program)
            .args(arguments)
            .current_dir(self.project())
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.folder.join("bin").display()))
            .env("HOME", self.folder.join("home"))
            .stdin(Stdio::null())
            .output()?;
        ensure!(output.status.success(), "azureal {}: {output:?}", arguments.join(" "));
        Ok(output)
    }
}

fn command(program: &str, arguments: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

fn run_command(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
