//! The command line of `codex`, and its input.
//!
//! Codex takes one text and loads the skill of that name for every `$word` in it, quoted or not. The user's prompt
//! may do that, the history must not: there an invisible character goes between the `$` and the word.

use azureal_core::agent::{AgentCommand, AgentError, AgentRequest, Permission, RecallServer};
use serde_json::json;

use super::NAME;

/// The longest input of Codex, in characters.
const MAX_CHARS: usize = 1_048_576;

/// Codex waits for a network without end, and so would a turn that runs unattended. Without this feature it gives up
/// after its usual retries, within half a minute. It is a setting and not `--disable`, because a Codex version that
/// does not know the feature rejects that argument.
const BOUNDED_RETRIES: &str = "features.unbounded_connection_retries=false";

/// Parts a `$` from the word after it.
const ZERO_WIDTH_SPACE: char = '\u{200B}';

/// Checks that Codex runs in this place.
pub(super) fn check(turn: &AgentRequest) -> Result<(), AgentError> {
    // What it does outside of git cannot be undone with git.
    let may_run = turn.in_git || matches!(turn.permission, Some(Permission::Answer | Permission::Read));
    if may_run { Ok(()) } else { Err(AgentError::NeedsGit { agent: NAME }) }
}

/// Builds the command of a turn.
pub(super) fn build(turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
    check(turn)?;
    let mut args: Vec<String> = ["exec", "--json", "-c", BOUNDED_RETRIES].map(str::to_owned).into();
    match turn.permission {
        None => {}
        // To answer only: it cannot be had without tools. In a sandbox that only reads they do no harm.
        Some(Permission::Answer | Permission::Read) => args.extend(["-s".to_owned(), "read-only".to_owned()]),
        Some(Permission::Edit) => args.extend(["-s".to_owned(), "workspace-write".to_owned()]),
        Some(Permission::All) => args.push("--dangerously-bypass-approvals-and-sandbox".to_owned()),
    }
    if let Some(RecallServer { program, args: server_args }) = &turn.recall {
        let table = format!("mcp_servers.{}", RecallServer::NAME);
        // A JSON text is also one of TOML.
        args.extend(["-c".to_owned(), format!("{table}.command={}", json!(program))]);
        args.extend(["-c".to_owned(), format!("{table}.args={}", json!(server_args))]);
    }
    if turn.is_ephemeral {
        args.push("--ephemeral".to_owned());
    }
    if !turn.in_git {
        args.push("--skip-git-repo-check".to_owned());
    }
    if let Some(model) = &turn.model {
        args.extend(["-m".to_owned(), model.clone()]);
    }
    args.extend(turn.arguments.iter().cloned());
    args.push("-".to_owned());

    let frame = &turn.frame;
    let context = frame.context().map(str::len).sum::<usize>();
    let mut text = String::with_capacity(context + frame.prompt.len());
    frame.context().for_each(|piece| push_inert(&mut text, piece));
    text.push_str(&frame.prompt);
    let found = text.chars().count();
    if found > MAX_CHARS {
        return Err(AgentError::TooLong { agent: NAME, limit: MAX_CHARS, found });
    }
    Ok(AgentCommand { args, env: Vec::new(), stdin: text.into_bytes(), exchange: None })
}

/// Appends text in which no `$word` loads a skill.
fn push_inert(out: &mut String, text: &str) {
    let mut pieces = text.split('$').peekable();
    while let Some(piece) = pieces.next() {
        out.push_str(piece);
        if let Some(next) = pieces.peek() {
            out.push('$');
            // Shell syntax such as `$(…)` stays: no skill has such a name.
            if next.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':')) {
                out.push(ZERO_WIDTH_SPACE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::{ContextFrame, strip_context};

    use super::*;

    fn turn(session: &str, prompt: &str) -> AgentRequest {
        AgentRequest {
            frame: ContextFrame::new(session, "", prompt),
            in_git: true,
            ..AgentRequest::default()
        }
    }

    #[test]
    fn the_flags_say_model_and_permission_and_never_the_prompt() {
        let needs_git = Err(AgentError::NeedsGit { agent: "codex" });
        for (permission, in_git, model, expected) in [
            (None, true, None, Ok("exec --json BOUNDED -")),
            (None, true, Some("gpt-5.4"), Ok("exec --json BOUNDED -m gpt-5.4 -")),
            (Some(Permission::Read), true, None, Ok("exec --json BOUNDED -s read-only -")),
            (Some(Permission::Edit), true, Some("o3"), Ok("exec --json BOUNDED -s workspace-write -m o3 -")),
            (
                Some(Permission::All),
                true,
                None,
                Ok("exec --json BOUNDED --dangerously-bypass-approvals-and-sandbox -"),
            ),
            (
                Some(Permission::Read),
                false,
                None,
                Ok("exec --json BOUNDED -s read-only --skip-git-repo-check -"),
            ),
            (
                Some(Permission::Answer),
                false,
                None,
                Ok("exec --json BOUNDED -s read-only --skip-git-repo-check -"),
            ),
            (None, false, None, needs_git.clone()),
            (Some(Permission::Edit), false, None, needs_git.clone()),
            (Some(Permission::All), false, None, needs_git),
        ] {
            let turn = AgentRequest {
                permission,
                in_git,
                model: model.map(str::to_owned),
                ..turn("the history", "the prompt")
            };
            let args = build(&turn).map(|command| command.args.join(" "));
            let args = args.map(|args| args.replace(&format!("-c {BOUNDED_RETRIES} "), "BOUNDED "));
            assert_eq!(args.as_deref(), expected.as_ref().copied());
        }
    }

    #[test]
    fn recall_is_a_server_of_this_run_alone() {
        let recall =
            RecallServer { program: "/a \"b".to_owned(), args: vec!["mcp".to_owned(), "-C".to_owned()] };
        let args = build(&AgentRequest { recall: Some(recall), ..turn("", "") }).unwrap().args;
        let settings: Vec<&str> =
            args.iter().filter_map(|arg| arg.strip_prefix("mcp_servers.azureal.")).collect();
        assert_eq!(settings, [r#"command="/a \"b""#, r#"args=["mcp","-C"]"#]);
    }

    #[test]
    fn an_ephemeral_run_leaves_no_rollout() {
        let turn = AgentRequest {
            permission: Some(Permission::Answer),
            in_git: false,
            is_ephemeral: true,
            arguments: vec!["--oss".to_owned()],
            ..turn("", "")
        };
        let expected = format!(
            "exec --json -c {BOUNDED_RETRIES} -s read-only --ephemeral --skip-git-repo-check --oss -"
        );
        assert_eq!(build(&turn).unwrap().args.join(" "), expected);
    }

    #[test]
    fn the_history_loads_no_skill_and_the_prompt_may() {
        let command = build(&turn("use $someskill, $5 and $(x) \"$a\" $", "now $someskill")).unwrap();
        assert_eq!(
            String::from_utf8(command.stdin).unwrap(),
            "<azureal-session-context>\nuse $\u{200B}someskill, $\u{200B}5 and $(x) \"$\u{200B}a\" $\n\
             </azureal-session-context>\n\nnow $someskill"
        );
        let command = build(&turn("", "just $this\n")).unwrap();
        assert_eq!(command.stdin, b"just $this\n");
    }

    #[test]
    fn the_prompt_still_comes_off() {
        for prompt in ["", "$x", "resume", "-s", "<azureal-session-context>\nx"] {
            let sent = String::from_utf8(build(&turn("$a $b", prompt)).unwrap().stdin).unwrap();
            assert_eq!(strip_context(&sent), prompt);
        }
    }

    #[test]
    fn what_is_too_long_is_refused_and_not_cut() {
        let with = |count: usize| build(&turn("", &"ü".repeat(count)));
        assert!(with(MAX_CHARS).is_ok());
        assert_eq!(
            with(MAX_CHARS + 1),
            Err(AgentError::TooLong { agent: "codex", limit: MAX_CHARS, found: MAX_CHARS + 1 })
        );
    }
}
