//! The command line of `claude`, and its input.
//!
//! Claude Code reads every `@path` in a prompt into its context and takes a leading `/word` for a command. The
//! history must not do that, and the user's prompt must. It does so only in the last of several text blocks of a
//! message. So history and prompt are two blocks, and the prompt is the last one, exactly as the user typed it:
//! `/compact` stays a command, with or without a history in front of it.
//!
//! The provider's prompt cache works block by block: a request reads the text that ends at one of its breakpoints, or
//! up to 20 blocks before one. So each sealed segment of the history is a block, and the last one has a breakpoint,
//! which the next turn's reaches back to. A request may have four breakpoints. Claude Code sets three, with a
//! lifetime of an hour for subscribers and of five minutes for others. A provider may refuse a request whose
//! breakpoints have different lifetimes, so ours has the lifetime that Claude Code's own had in an earlier run.

use azureal_core::ContextFrame;
use azureal_core::agent::{
    AgentCommand, AgentError, AgentRequest, CacheLifetime, Permission, PromptCache, RecallServer,
};
use serde_json::json;

use super::NAME;

/// The longest standard input of Claude Code. It names this limit for plain text ("exceeds 10MB"). Whether it holds
/// for JSON lines is not known, and no model takes as much.
const MAX_STDIN: usize = 10_000_000;

/// Builds the command of a turn.
pub(super) fn build(turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
    let mut args: Vec<String> = [
        "-p",
        "--verbose",
        "--output-format",
        "stream-json",
        "--input-format",
        "stream-json",
        "--include-partial-messages",
    ]
    .map(str::to_owned)
    .into();
    if let Some(RecallServer { program, args: server_args }) = &turn.recall {
        let name = RecallServer::NAME;
        // Its tools are offered at once: by itself, Claude Code shows a model only their names.
        let server = json!({"type": "stdio", "command": program, "args": server_args, "alwaysLoad": true});
        let config = json!({"mcpServers": {name: server}}).to_string();
        // Both options take all that follows up to the next option, so one has to follow.
        let options =
            ["--mcp-config".to_owned(), config, "--allowedTools".to_owned(), format!("mcp__{name}")];
        args.splice(1..1, options);
    }
    if let Some(model) = &turn.model {
        args.extend(["--model".to_owned(), model.clone()]);
    }
    let mut env = Vec::new();
    if let Some(permission) = turn.permission {
        args.extend(["--permission-mode".to_owned(), mode(permission).to_owned()]);
        if permission == Permission::Answer {
            args.extend(["--tools", "", "--strict-mcp-config"].map(str::to_owned));
            // If there is no answer, azureal asks another agent, instead of ten retries with the same model.
            env.push(("CLAUDE_CODE_MAX_RETRIES".to_owned(), "1".to_owned()));
        }
    }
    if turn.is_ephemeral {
        args.push("--no-session-persistence".to_owned());
    }
    if turn.frame.has_git_status {
        // Its own git status stands before the history and changes with every file. The variable also removes its instructions about
        // commits: they cannot be had alone.
        env.push(("CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS".to_owned(), "1".to_owned()));
    }
    // Last, so that they win over ours.
    args.extend(turn.arguments.iter().cloned());
    let stdin = message(&turn.frame, turn.cache);
    if stdin.len() > MAX_STDIN {
        return Err(AgentError::TooLong { agent: NAME, limit: MAX_STDIN, found: stdin.len() });
    }
    Ok(AgentCommand { args, env, stdin, exchange: None })
}

fn mode(permission: Permission) -> &'static str {
    match permission {
        Permission::Answer | Permission::Read => "dontAsk",
        Permission::Edit => "acceptEdits",
        Permission::All => "bypassPermissions",
    }
}

/// Writes the one line of input.
fn message(frame: &ContextFrame, cache: PromptCache) -> Vec<u8> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let mut content = Vec::new();
    let mut context = String::new();
    for segment in &frame.sealed {
        match cache {
            PromptCache::Off => context.push_str(segment),
            PromptCache::Segments | PromptCache::Breakpoint(_) => content.push(text(segment)),
        }
    }
    if let (PromptCache::Breakpoint(lifetime), Some(last)) = (cache, content.last_mut()) {
        last["cache_control"] = match lifetime {
            CacheLifetime::FiveMinutes => json!({"type": "ephemeral"}),
            CacheLifetime::OneHour => json!({"type": "ephemeral", "ttl": "1h"}),
        };
    }
    context.extend([frame.rest.as_str(), frame.turn.as_str()]);
    if !context.is_empty() {
        content.push(text(&context));
    }
    content.push(text(&frame.prompt));
    let line = json!({"type": "user", "message": {"role": "user", "content": content}});
    format!("{line}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str =
        "-p --verbose --output-format stream-json --input-format stream-json --include-partial-messages";

    #[test]
    fn the_flags_say_model_and_permission_and_never_the_prompt() {
        for (model, permission, more) in [
            (None, None, ""),
            (Some("opus"), None, " --model opus"),
            (None, Some(Permission::Read), " --permission-mode dontAsk"),
            (None, Some(Permission::Edit), " --permission-mode acceptEdits"),
            (
                Some("claude-opus-4-8[1m]"),
                Some(Permission::All),
                " --model claude-opus-4-8[1m] --permission-mode bypassPermissions",
            ),
        ] {
            let turn = AgentRequest {
                frame: ContextFrame::new("the history", "the turn", "the prompt"),
                model: model.map(str::to_owned),
                permission,
                in_git: false,
                ..AgentRequest::default()
            };
            let command = build(&turn).unwrap();
            assert_eq!(command.args.join(" "), format!("{PLAIN}{more}"));
            assert_eq!(command.env, []);
        }
    }

    #[test]
    fn who_only_answers_has_no_tools_and_leaves_nothing() {
        let ephemeral = AgentRequest { is_ephemeral: true, ..AgentRequest::default() };
        let command = build(&ephemeral).unwrap();
        assert_eq!(command.args.join(" "), format!("{PLAIN} --no-session-persistence"));
        let turn = AgentRequest { permission: Some(Permission::Answer), ..ephemeral };
        let command = build(&turn).unwrap();
        let flags = "--permission-mode dontAsk --tools  --strict-mcp-config --no-session-persistence";
        assert_eq!(command.args.join(" "), format!("{PLAIN} {flags}"));
        assert_eq!(command.env, [("CLAUDE_CODE_MAX_RETRIES".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn recall_is_offered_at_once_and_allowed_and_an_option_follows_it() {
        let recall = RecallServer { program: "/bin/azureal".to_owned(), args: vec!["mcp".to_owned()] };
        let turn = AgentRequest {
            recall: Some(recall),
            arguments: vec!["word".to_owned()],
            ..AgentRequest::default()
        };
        let server = r#"{"mcpServers":{"azureal":{"type":"stdio","command":"/bin/azureal","args":["mcp"],"alwaysLoad":true}}}"#;
        let options = format!("-p --mcp-config {server} --allowedTools mcp__azureal --verbose");
        assert_eq!(
            build(&turn).unwrap().args.join(" "),
            format!("{} word", PLAIN.replace("-p --verbose", &options))
        );
    }

    #[track_caller]
    fn check(session: &str, turn: &str, prompt: &str, content: &str) {
        let frame = ContextFrame::new(session, turn, prompt);
        let command = build(&AgentRequest { frame, ..AgentRequest::default() }).unwrap();
        let expected =
            format!("{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":{content}}}}}\n");
        assert_eq!(String::from_utf8(command.stdin).unwrap(), expected);
    }

    #[test]
    fn history_and_prompt_are_two_blocks_of_one_line() {
        check("", "", "Hello \"you\"\n", r#"[{"type":"text","text":"Hello \"you\"\n"}]"#);
        check("", "", "/compact", r#"[{"type":"text","text":"/compact"}]"#);
        check("", "", "- @notes.md", r#"[{"type":"text","text":"- @notes.md"}]"#);
        check(
            "/clear @/etc/hostname",
            "",
            "/compact",
            r#"[{"type":"text","text":"<azureal-session-context>\n/clear @/etc/hostname\n</azureal-session-context>\n\n"},{"type":"text","text":"/compact"}]"#,
        );
        check(
            "past",
            "now",
            "go",
            r#"[{"type":"text","text":"<azureal-session-context>\npast\n</azureal-session-context>\n\n<azureal-turn-context>\nnow\n</azureal-turn-context>\n\n"},{"type":"text","text":"go"}]"#,
        );
    }

    #[test]
    fn sealed_segments_are_blocks_and_the_last_has_the_breakpoint() {
        let frame = ContextFrame {
            sealed: vec!["<a>one".to_owned(), "two".to_owned()],
            rest: "three</a>".to_owned(),
            turn: "now".to_owned(),
            prompt: "go".to_owned(),
            ..ContextFrame::default()
        };
        let sent = |frame: &ContextFrame, cache| {
            let turn = AgentRequest { frame: frame.clone(), cache, ..AgentRequest::default() };
            let line = build(&turn).unwrap().stdin;
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            let blocks = line["message"]["content"].as_array().unwrap().clone();
            let texts: Vec<String> =
                blocks.iter().map(|block| block["text"].as_str().unwrap().to_owned()).collect();
            let marks: Vec<(usize, serde_json::Value)> = blocks
                .iter()
                .enumerate()
                .filter_map(|(index, block)| Some((index, block.get("cache_control")?.clone())))
                .collect();
            (texts, marks)
        };
        let pieces = ["<a>one", "two", "three</a>now", "go"].map(str::to_owned).to_vec();
        let mark = |mark| vec![(1, mark)];
        let (short, long) = (CacheLifetime::FiveMinutes, CacheLifetime::OneHour);
        for (cache, expected) in [
            (PromptCache::Off, (vec!["<a>onetwothree</a>now".to_owned(), "go".to_owned()], vec![])),
            (PromptCache::Segments, (pieces.clone(), vec![])),
            (PromptCache::Breakpoint(short), (pieces.clone(), mark(json!({"type": "ephemeral"})))),
            (PromptCache::Breakpoint(long), (pieces, mark(json!({"type": "ephemeral", "ttl": "1h"})))),
        ] {
            assert_eq!(sent(&frame, cache), expected);
        }
        let unsealed = ContextFrame { sealed: Vec::new(), ..frame };
        assert_eq!(
            sent(&unsealed, PromptCache::Breakpoint(short)).1,
            [],
            "nothing is there to be found again"
        );
    }

    #[test]
    fn the_programs_own_git_status_is_switched_off_if_the_frame_has_one() {
        let variable = ("CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS".to_owned(), "1".to_owned());
        for (has_git_status, env) in [(false, vec![]), (true, vec![variable])] {
            let frame = ContextFrame { has_git_status, ..ContextFrame::new("past", "git", "go") };
            assert_eq!(build(&AgentRequest { frame, ..AgentRequest::default() }).unwrap().env, env);
        }
    }

    #[test]
    fn what_is_too_long_is_refused_and_not_cut() {
        let turn = |length: usize| AgentRequest {
            frame: ContextFrame::new("", "", &"x".repeat(length)),
            ..AgentRequest::default()
        };
        assert!(build(&turn(9_000_000)).is_ok());
        assert!(matches!(build(&turn(MAX_STDIN)), Err(AgentError::TooLong { limit: MAX_STDIN, .. })));
    }
}
