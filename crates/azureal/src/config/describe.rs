//! The content of a configuration file, for a user who is to trust it.
//!
//! All of it, unchanged: on lines that cannot be mistaken for ours, and without characters that a terminal would act
//! on.

use azureal_core::{ContextCommand, OnFailure, visible, visible_line};

use super::{ConfigFile, permission_name};
use crate::error::shown;

/// Returns the whole content of a file, safe to show.
pub fn describe(file: &ConfigFile) -> String {
    let mut text = format!("{}\n", shown(file.path()));
    if let Some(real) = file.leads_to() {
        text.push_str(&format!("  leads to {}\n", shown(real)));
    }
    let settings = &file.settings;
    if let Some(agent) = &settings.agent {
        text.push_str(&format!("  agent: {}\n", visible_line(&agent.value)));
    }
    if let Some(model) = &settings.model {
        text.push_str(&format!("  model: {}\n", visible_line(&model.value)));
    }
    if let Some(permission) = &settings.permission {
        text.push_str(&format!("  permission: {}\n", permission_name(permission.value)));
    }
    if let Some(timeout) = &settings.timeout {
        text.push_str(&format!("  timeout: {} s\n", timeout.value.as_secs_f64()));
    }
    if let Some(threshold) = &settings.threshold {
        text.push_str(&format!("  compaction threshold: {}\n", threshold.value));
    }
    if let Some(limit) = &settings.output_limit {
        text.push_str(&format!("  output limit of a turn: {} MiB\n", limit.value.mib()));
    }
    if let Some(caching) = &settings.claude_cache {
        text.push_str(&format!("  claude cache: {}\n", caching.value.name()));
    }
    if let Some(records) = &settings.record_changes {
        text.push_str(&format!("  record the changes of turns: {}\n", records.value));
    }
    if let Some(size) = &settings.changes_size {
        text.push_str(&format!("  size of all snapshots: {} MB\n", size.value / 1_000_000));
    }
    if let Some(recall) = &settings.recall {
        text.push_str(&format!("  recall for agents: {}\n", recall.value));
    }
    if let Some(patterns) = &settings.redact_patterns {
        for pattern in &patterns.value {
            text.push_str(&format!("  redact pattern: {}\n", visible_line(pattern)));
        }
    }
    if let Some(message) = &settings.default_system_message {
        text.push_str("  default system message\n");
        text.push_str(&set_in(&message.value));
    }
    for (name, variable) in &settings.variables {
        text.push_str(&format!("  variable {name}: {}\n", visible_line(&variable.value.to_string())));
    }
    for command in settings.context_commands.iter().flatten() {
        let ContextCommand { name, command: script, .. } = &command.value;
        let terms = terms(&command.value);
        text.push_str(&format!("  context command \"{}\": {terms}\n", visible_line(name)));
        text.push_str(&set_in(script));
    }
    text
}

/// Describes when a context command runs, and the action if it fails.
pub fn terms(command: &ContextCommand) -> String {
    let when = if command.dynamic { "every turn" } else { "once per session" };
    let on_failure = match command.on_failure {
        OnFailure::Warn => "warn",
        OnFailure::Ignore => "ignore",
        OnFailure::Fail => "fail",
    };
    format!("{when}, up to {} s, on failure {on_failure}", command.timeout.as_secs_f64())
}

/// Puts a bar in front of every line, so that none of them passes for a line of ours.
fn set_in(text: &str) -> String {
    text.trim_end_matches('\n').split('\n').map(|line| format!("    | {}\n", visible(line))).collect()
}
