//! The clipboard of the system, by the program that the desktop has for it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::agents::on_path;
use crate::environment::Environment;

/// The time for a program to take a text.
const LIMIT: Duration = Duration::from_secs(2);
/// The pause between two looks at the program.
const PACE: Duration = Duration::from_millis(5);

/// Copies a text, and returns the name of the program that took it; `None` if the terminal has to: over SSH the clipboard is on another
/// machine, and without a desktop there is none.
pub(super) fn copy(text: &str, environment: &Environment) -> Option<String> {
    let (name, program, arguments) = program(environment)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment.variables());
    // It stays in the background, and must not hold our output open.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut input = child.stdin.take()?;
    let text = text.to_owned();
    thread::spawn(move || drop(input.write_all(text.as_bytes())));
    let deadline = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success().then(|| name.to_owned()),
            Ok(None) if Instant::now() < deadline => thread::sleep(PACE),
            Ok(None) | Err(_) => {
                drop(child.kill());
                drop(child.wait());
                return None;
            }
        }
    }
}

type Arguments = &'static [&'static str];

/// Finds the program of this desktop.
fn program(environment: &Environment) -> Option<(&'static str, PathBuf, Arguments)> {
    if ["SSH_CONNECTION", "SSH_TTY"].iter().any(|name| environment.value(name).is_some()) {
        return None;
    }
    let wayland: &[(&str, Arguments)] = &[("wl-copy", &[])];
    let x11: &[(&str, Arguments)] =
        &[("xclip", &["-selection", "clipboard"]), ("xsel", &["--clipboard", "--input"])];
    let macos: &[(&str, Arguments)] = &[("pbcopy", &[])];
    let known = [
        (environment.value("WAYLAND_DISPLAY").is_some(), wayland),
        (environment.value("DISPLAY").is_some(), x11),
        (cfg!(target_os = "macos"), macos),
    ];
    let programs = known.into_iter().filter(|(is_there, _)| *is_there).flat_map(|(_, programs)| programs);
    programs
        .into_iter()
        .find_map(|(name, arguments)| Some((*name, on_path(name, environment.value("PATH"))?, *arguments)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_the_desktop_takes_the_text_and_none_does_over_ssh() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, script: &str| {
            azureal_testkit::programs::script(&folder.path().join(format!("bin/{name}")), script);
        };
        script("wl-copy", "exit 1");
        script("xclip", "cat > \"$OUT\"; echo \"$@\" >> \"$OUT\"");
        let path = format!("{}:/usr/bin:/bin", folder.path().join("bin").display());
        let out = folder.path().join("out");
        let environment = |more: &[(&str, &str)]| {
            let own = [("PATH", path.as_str()), ("OUT", out.to_str().unwrap())];
            Environment::new(own.iter().chain(more).map(|(name, value)| (name.into(), value.into())))
        };
        assert_eq!(copy("text", &environment(&[])), None, "there is no desktop");
        let x11 = ("DISPLAY", ":0");
        let large = "text ".repeat(100_000);
        assert_eq!(copy(&large, &environment(&[x11])).as_deref(), Some("xclip"));
        let taken = std::fs::read_to_string(&out).unwrap();
        assert_eq!(taken, format!("{large}-selection clipboard\n"));
        assert_eq!(copy("text", &environment(&[x11, ("SSH_CONNECTION", "a")])), None);
        assert_eq!(copy("text", &environment(&[("WAYLAND_DISPLAY", "w")])), None, "it fails");
    }
}
