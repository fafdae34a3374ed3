//! The tools of agents in the vocabulary that all agents share ([`azureal_core::Tool`]).

use azureal_core::Json;

/// A tool of an agent: its name, our name, and fields of the input that have another name with us.
pub(crate) type ToolNames = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Translates a call. Tools that are not in the table keep their names.
pub(crate) fn translate(table: &[ToolNames], name: &str, input: Json) -> (String, Json) {
    let Some((_, ours, fields)) = table.iter().find(|(theirs, ..)| *theirs == name) else {
        return (name.to_owned(), input);
    };
    (
        (*ours).to_owned(),
        match input.is_object() && !fields.is_empty() {
            true => renamed(&input, fields),
            false => input,
        },
    )
}

/// Returns an agent's name of a tool of ours. If it has several, the first one of the table counts. Tools that are not in the table
/// keep their names.
pub(crate) fn theirs<'t>(table: impl IntoIterator<Item = &'t ToolNames>, ours: &'t str) -> &'t str {
    table.into_iter().find(|(_, name, _)| *name == ours).map_or(ours, |(theirs, ..)| theirs)
}

/// Translates a call of ours, the other way round.
pub(crate) fn translate_back(table: &[ToolNames], name: &str, input: &Json) -> (String, Json) {
    let Some((theirs, _, fields)) = table.iter().find(|(_, ours, _)| *ours == name) else {
        return (name.to_owned(), input.clone());
    };
    let back: Vec<(&str, &str)> = fields.iter().map(|(theirs, ours)| (*ours, *theirs)).collect();
    let is_renamed = input.is_object() && !back.is_empty();
    ((*theirs).to_owned(), if is_renamed { renamed(input, &back) } else { input.clone() })
}

/// Renames fields of an input, unless it has a field of the new name.
fn renamed(input: &Json, names: &[(&str, &str)]) -> Json {
    let found = input.fields();
    let ours = |name: &str| {
        let known = names.iter().find(|(theirs, ours)| *theirs == name && !found.contains_key(*ours));
        known.map(|(_, ours)| (*ours).to_owned())
    };
    let fields: Vec<(String, _)> =
        found.iter().map(|(name, value)| (ours(name).unwrap_or_else(|| name.clone()), *value)).collect();
    Json::from_fields(fields.iter().map(|(name, value)| (name.as_str(), *value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: &[ToolNames] =
        &[("read_file", "Read", &[("absolute_path", "file_path")]), ("shell", "Bash", &[])];

    #[test]
    fn a_call_has_our_names() {
        let check = |name: &str, input: serde_json::Value, ours: &str, expected: serde_json::Value| {
            let (tool, input) = translate(TABLE, name, input.into());
            assert_eq!((tool.as_str(), input), (ours, expected.into()));
        };
        check(
            "read_file",
            json!({"absolute_path": "/a", "limit": 3}),
            "Read",
            json!({"file_path": "/a", "limit": 3}),
        );
        check(
            "read_file",
            json!({"absolute_path": "/a", "file_path": "/b"}),
            "Read",
            json!({"absolute_path": "/a", "file_path": "/b"}),
        );
        check("read_file", json!(["x"]), "Read", json!(["x"]));
        check("shell", json!({"command": "ls"}), "Bash", json!({"command": "ls"}));
        check("novel", json!({"x": 1}), "novel", json!({"x": 1}));
    }

    #[test]
    fn a_call_of_ours_has_their_names() {
        let input = Json::from(json!({"file_path": "/a", "limit": 3}));
        assert_eq!(
            translate_back(TABLE, "Read", &input),
            ("read_file".to_owned(), json!({"absolute_path": "/a", "limit": 3}).into())
        );
        assert_eq!(translate_back(TABLE, "novel", &input), ("novel".to_owned(), input));
        assert_eq!((theirs(TABLE, "Bash"), theirs(TABLE, "novel")), ("shell", "novel"));
    }
}
