//! Dangerous things, and the only files that may do them.
//!
//! Each entry holds an invariant of ARCHITECTURE.md: who starts programs, who starts git, who deletes folders, who sends
//! signals, who resolves "the last session". A new place is either a call of one of these files, or a reviewed line here.

use super::{Repository, code_lines, is_test_file};

/// A thing that only some files may do.
struct OnePlace {
    /// What a line of code holds that does it.
    signs: &'static [&'static str],
    /// The files that may.
    files: &'static [&'static str],
    /// What another file does instead.
    instead: &'static str,
}

const PLACES: [OnePlace; 5] = [
    OnePlace {
        signs: &["Command::new(", "Spawn::new("],
        files: &[
            // The runner of children, the `cat` that feeds a long input, and `ps` where there is no `/proc`.
            "crates/process/src/input.rs",
            "crates/process/src/spawn.rs",
            "crates/process/src/table/ps.rs",
            // The one runner of git.
            "crates/snapshots/src/git.rs",
            // Agents, bridges and context commands.
            "crates/engine/src/launch.rs",
            "crates/engine/src/bridge/run.rs",
            "crates/engine/src/context_commands.rs",
            // Versions of agents, commands that an agent's program has for its own sessions, templates.
            "crates/azureal/src/agents/version.rs",
            "crates/azureal/src/opened/written.rs",
            "crates/azureal/src/config/bounded.rs",
            // What the user asked for on a terminal: completion, editor, clipboard, pager, `open`, `mcp --install`.
            "crates/azureal/src/desk/paths.rs",
            "crates/azureal/src/desk/terminal.rs",
            "crates/azureal/src/desk/clipboard.rs",
            "crates/cli/src/pager.rs",
            "crates/cli/src/commands/open.rs",
            "crates/cli/src/commands/mcp.rs",
        ],
        instead: "programs are started by the files listed in xtask/src/tidy/one_place.rs",
    },
    OnePlace {
        signs: &["GitProgram {", "\"git\"", "git --", "git -c"],
        files: &[
            "crates/snapshots/src/git.rs",
            "crates/azureal/src/changes.rs",
            "crates/azureal/src/doctor/snapshots.rs",
            // Not yet through the runner of the snapshots.
            "crates/azureal/src/desk/paths.rs",
            "crates/engine/src/git_status.rs",
            // Recognises a command of an agent; starts nothing.
            "crates/core/src/ledger/command.rs",
        ],
        instead: "git is started by crates/snapshots/src/git.rs, which heeds no configuration of a repository",
    },
    OnePlace {
        signs: &["remove_dir_all("],
        files: &[
            "crates/snapshots/src/scratch.rs",
            "crates/exchange/src/temporary.rs",
            "crates/azureal/src/backup.rs",
            "crates/azureal/src/purge.rs",
            "crates/azureal/src/opened/written.rs",
        ],
        instead: "a folder is deleted only where it is known to be ours: by its record or marker, never by its name",
    },
    OnePlace {
        signs: &["kill_process(", "kill_process_group(", "pidfd_send_signal("],
        files: &[
            "crates/process/src/child.rs",
            "crates/process/src/identity.rs",
            "crates/process/src/stop.rs",
            // A git of our own that outlived its turn, and our own process group on Ctrl-Z.
            "crates/snapshots/src/take.rs",
            "crates/cli/src/foreground.rs",
        ],
        instead: "signals are sent by crates/process, which checks that the number still means the same process",
    },
    OnePlace {
        signs: &["store.last_used("],
        files: &["crates/azureal/src/sessions.rs", "crates/azureal/src/turns/mod.rs"],
        instead: "what \"the last session\" means is decided in crates/azureal/src/sessions.rs",
    },
];

/// Names each line of product code that does such a thing elsewhere.
pub(super) fn check(repository: &Repository, problems: &mut Vec<String>) {
    for file in &repository.files {
        let is_product = file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.path.ends_with(".rs")
            && !file.path.starts_with("crates/testkit/")
            && !is_test_file(&file.path);
        if !is_product {
            continue;
        }
        for place in &PLACES {
            if place.files.contains(&file.path.as_str()) {
                continue;
            }
            let code = code_lines(&file.text);
            for (number, _) in code.filter(|(_, line)| place.signs.iter().any(|sign| has(line, sign))) {
                problems.push(format!("{}:{number}: {}", file.path, place.instead));
            }
        }
    }
}

/// Says whether a line has a sign that is not the end of a longer name, as `ContextCommand::new(` has `Command::new(`.
fn has(line: &str, sign: &str) -> bool {
    if !sign.starts_with(super::is_word) {
        return line.contains(sign);
    }
    line.match_indices(sign).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(super::is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_files;
    use super::*;

    #[test]
    fn only_the_listed_files_do_dangerous_things() {
        let (git, spawn) = ("let git = GitProgram { program };\n", "Command::new(program);\n");
        check_files(
            &[
                ("crates/snapshots/src/git.rs", &format!("{git}{spawn}")),
                ("crates/engine/src/a.rs", &format!("{git}// {spawn}ContextCommand::new(a);\n")),
                ("crates/engine/src/b.rs", &format!("fn b() {{}}\n{spawn}")),
                ("crates/engine/tests/c.rs", spawn),
                ("crates/engine/src/d/tests.rs", spawn),
            ],
            &[
                &format!("crates/engine/src/a.rs:1: {}", PLACES[1].instead),
                &format!("crates/engine/src/b.rs:2: {}", PLACES[0].instead),
            ],
        );
    }

    #[test]
    fn every_listed_file_exists_and_does_it() {
        let repository = Repository::load(crate::root().unwrap()).unwrap();
        for place in &PLACES {
            for path in place.files {
                let file = repository.files.iter().find(|file| file.path == *path);
                let file = file.unwrap_or_else(|| panic!("{path} is gone: remove it from the table"));
                let does =
                    code_lines(&file.text).any(|(_, line)| place.signs.iter().any(|sign| has(line, sign)));
                assert!(does, "{path} has none of {:?}: remove it from the table", place.signs);
            }
        }
    }
}
