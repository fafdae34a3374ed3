//! The tools that an agent wanted to use and was refused, and how to allow them.

use azureal_core::agent::Permission;
use azureal_core::{Tool, visible_line};

/// How many tools are named.
const NAMED: usize = 8;

/// Says which tools an agent was refused, one entry for each call, and which option allows them. `None` if it was refused
/// none.
pub(crate) fn refusals(agent: &str, tools: &[String], permission: Option<Permission>) -> Option<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for tool in tools {
        match counts.iter_mut().find(|(name, _)| name == tool) {
            Some((_, count)) => *count += 1,
            None => counts.push((tool, 1)),
        }
    }
    let mut names: Vec<String> = counts
        .iter()
        .take(NAMED)
        .map(|(name, count)| match count {
            1 => visible_line(name).into_owned(),
            count => format!("{} ({count}×)", visible_line(name)),
        })
        .collect();
    if let Some(more) = counts.len().checked_sub(NAMED).filter(|more| *more > 0) {
        names.push(format!("{more} more"));
    }
    let last = names.pop()?;
    let names = if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) };
    Some(format!("{agent} was refused {names}. {}", hint(agent, &counts, permission)))
}

/// Returns the option that allows the tools.
fn hint(agent: &str, tools: &[(&str, usize)], permission: Option<Permission>) -> String {
    let edits = tools.iter().any(|(name, _)| Tool::changes_files(name));
    let others = tools.iter().any(|(name, _)| !Tool::changes_files(name));
    let runs_commands = tools.iter().any(|(name, _)| Tool::named(name) == Tool::Bash);
    let what = if runs_commands { "commands" } else { "other tools" };
    match permission {
        Some(Permission::All) => format!("Its own settings forbid them: see the settings of {agent}"),
        Some(Permission::Edit) => "Allow everything with `--permission all`".to_owned(),
        None | Some(Permission::Answer | Permission::Read) => match (edits, others) {
            (true, false) => "Allow edits with `--permission edit`".to_owned(),
            (true, true) => {
                format!("Allow edits with `--permission edit`, {what} too with `--permission all`")
            }
            (false, _) => format!("Allow {what} with `--permission all`"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_tools_are_counted_and_the_option_that_allows_them_is_named() {
        for (tools, permission, expected) in [
            (
                &["Bash", "Edit", "Write", "Bash"][..],
                None,
                "claude was refused Bash (2×), Edit and Write. Allow edits with `--permission edit`, commands too \
                 with `--permission all`",
            ),
            (&["Write"], None, "claude was refused Write. Allow edits with `--permission edit`"),
            (
                &["Bash"],
                Some(Permission::Read),
                "claude was refused Bash. Allow commands with `--permission all`",
            ),
            (
                &["WebFetch", "WebFetch"],
                None,
                "claude was refused WebFetch (2×). Allow other tools with `--permission all`",
            ),
            (
                &["Write", "Bash"],
                Some(Permission::Edit),
                "claude was refused Write and Bash. Allow everything with `--permission all`",
            ),
            (
                &["Bash"],
                Some(Permission::All),
                "claude was refused Bash. Its own settings forbid them: see the settings of claude",
            ),
        ] {
            let tools: Vec<String> = tools.iter().map(|&tool| tool.to_owned()).collect();
            assert_eq!(refusals("claude", &tools, permission).unwrap(), expected);
        }
        assert_eq!(refusals("claude", &[], None), None);
    }

    #[test]
    fn names_of_tools_cannot_act_on_the_terminal() {
        let line = refusals("claude", &["a\u{1b}[2J".to_owned()], None).unwrap();
        assert!(!line.contains('\u{1b}'), "{line}");
        let many: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
        assert!(refusals("x", &many, None).unwrap().contains("t7 and 12 more."));
    }
}
