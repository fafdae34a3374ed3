//! What it saves to tell the context once: tokens and bytes, against a block in front of every prompt.

use serde_json::{Value, json};

use crate::context_commands::Project;

/// A block of some 80 tokens, of the kind that users have.
const STATUS: &str = "\
On branch main
Your branch is ahead of 'origin/main' by 2 commits.

Changes not staged for commit:
	modified:   src/session/store.rs
	modified:   src/session/context.rs

Untracked files:
	docs/context-commands.md
	tests/fixtures/conversation-2025-10-31.json

no changes added to commit";

/// Takes turns in a session whose context is that block, and returns the conversation as it is kept and what the
/// agent was sent in all.
fn conversation(turns: usize) -> (Value, String) {
    let status = format!("cat <<'END'\n{STATUS}\nEND");
    let project =
        Project::new(&format!("[[context_commands]]\nname = \"Git Status\"\ncommand = '''{status}'''\n"));
    for turn in 0..turns {
        project.ask(&["-s", "topic", &format!("This is prompt number {turn}.")]);
    }
    let json = project.run(&["export", "topic", "-f", "cllm"]).json();
    let sent = project.sent().into_iter().map(|(context, prompt)| context + &prompt).collect();
    (json, sent)
}

/// The same conversation as it was kept before: the block in front of every prompt.
fn the_old_way(conversation: &Value) -> Value {
    let mut old = conversation.clone();
    let messages = old["messages"].as_array_mut().unwrap();
    let block = messages.remove(0)["content"].as_str().unwrap().to_owned();
    for message in messages.iter_mut().filter(|message| is_prompt(message)) {
        message["content"] = json!(format!("{block}\n\n{}", message["content"].as_str().unwrap()));
    }
    old["metadata"] = json!({});
    old
}

/// Says whether a message is what the user typed, and not what a tool gave back.
fn is_prompt(message: &Value) -> bool {
    message["role"] == "user" && message["content"].as_str().unwrap().starts_with("This is prompt")
}

/// All that the model reads of a conversation.
fn text(conversation: &Value) -> String {
    let messages = conversation["messages"].as_array().unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap().to_owned() + "\n").collect()
}

/// Estimates tokens as the program does. What is compared is text of one kind, so that the ratio holds for every model.
fn tokens(text: &str) -> f64 {
    text.chars().count() as f64 / 4.0
}

#[test]
fn confirm_token_savings_vs_current_approach() {
    for turns in [5, 20] {
        let (new, sent) = conversation(turns);
        let old = the_old_way(&new);
        let block = new["messages"][0]["content"].as_str().unwrap();
        let size = tokens(block);
        assert!((75.0..=90.0).contains(&size), "the block has {size} tokens");
        assert_eq!(sent.matches(block).count(), turns, "every turn was told it, once");

        let plain = |conversation: &Value| tokens(&text(conversation).replace(block, ""));
        let context = |conversation: &Value| tokens(&text(conversation)) - plain(conversation);
        let (before, after) = (context(&old), context(&new));
        let saved = before - after;
        let percent = saved * 100.0 / before;
        println!(
            "{turns} turns: {before:.0} tokens of context before, {after:.0} now: {saved:.0} saved, {percent:.1} %"
        );
        assert!(percent >= 80.0, "{percent}");
        if turns == 20 {
            assert!(saved > 1500.0, "{saved}");
        }
    }
}

#[test]
fn measure_conversation_file_size_impact() {
    let turns = 20;
    let (new, _) = conversation(turns);
    let old = the_old_way(&new);
    let block = new["messages"][0]["content"].as_str().unwrap();
    // The record of the commands is the price, once.
    let size = |conversation: &Value| serde_json::to_string(conversation).unwrap().len();
    println!("{turns} turns: a file of {} bytes before, {} now", size(&old), size(&new));
    assert!(size(&old) - size(&new) > (turns - 2) * block.len());
}
