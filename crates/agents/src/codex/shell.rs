//! Takes the shell off a command.
//!
//! Codex runs every command through a login shell and prints it so: `/bin/bash -lc 'cargo test'`. What was run
//! is `cargo test`, and that is what another agent's Bash call would say.

/// Returns the command without the shell around it; as it is where there is none.
pub(super) fn unwrap(command: &str) -> String {
    let Some(words) = split(command) else {
        return command.to_owned();
    };
    inner(&words).unwrap_or(command).to_owned()
}

/// Returns the command that a list of arguments runs.
pub(super) fn join(words: &[String]) -> String {
    inner(words).map_or_else(|| words.join(" "), str::to_owned)
}

fn inner(words: &[String]) -> Option<&str> {
    let [shell, flag, inner] = words else {
        return None;
    };
    let name = shell.rsplit('/').next().unwrap_or(shell);
    let is_shell = matches!(name, "bash" | "sh" | "zsh" | "dash" | "fish" | "ksh");
    (is_shell && matches!(flag.as_str(), "-lc" | "-c" | "-ic")).then_some(inner)
}

/// Splits a line into words, as a shell does; `None` if a quote is left open.
fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        inside => word.push(inside),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => match chars.next()? {
                            escaped @ ('$' | '`' | '"' | '\\') => word.push(escaped),
                            '\n' => {}
                            other => word.extend(['\\', other]),
                        },
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next()?),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_comes_off() {
        for (printed, run) in [
            ("/bin/bash -lc 'cat hello.txt'", "cat hello.txt"),
            ("/bin/bash -lc pwd", "pwd"),
            ("bash -lc 'ls -1; exit 2'", "ls -1; exit 2"),
            ("/usr/bin/zsh -lc 'a'", "a"),
            (r#"/bin/bash -lc "tr '\\0' 'x'""#, r"tr '\0' 'x'"),
            (r#"/bin/bash -lc "echo \"\$HOME\" \n""#, r#"echo "$HOME" \n"#),
            (r"/bin/bash -lc 'it'\''s'", "it's"),
            (r#"/bin/bash -lc 'a "b"'"'c'""#, r#"a "b"'c'"#),
            ("/bin/bash -lc 'two\nlines'", "two\nlines"),
            ("/bin/bash -lc ''", ""),
            // Not a shell of ours, or not whole: as it was printed.
            ("git status", "git status"),
            ("/bin/bash script.sh", "/bin/bash script.sh"),
            ("/bin/bash -lc 'a' b", "/bin/bash -lc 'a' b"),
            ("/bin/bash -lc 'open", "/bin/bash -lc 'open"),
            ("/bin/bash -lc a\\", "/bin/bash -lc a\\"),
            ("", ""),
        ] {
            assert_eq!(unwrap(printed), run, "{printed}");
        }
    }
}
