//! The model provider in Codex's own configuration.
//!
//! The retries after a failed request are a setting of the provider. For a built-in provider they cannot be set.

use toml::de::{DeTable, DeValue};

/// A request that fails is sent again, and a stream that breaks is not taken up again.
const SETTINGS: [&str; 2] = ["request_max_retries=1", "stream_max_retries=0"];

/// Returns arguments by which the configured provider is asked twice at most.
pub(super) fn ask_twice(configuration: &str) -> Vec<String> {
    let Ok(table) = DeTable::parse(configuration) else { return Vec::new() };
    let table = table.get_ref();
    let Some(name) = provider(table).filter(|name| is_plain(name)) else { return Vec::new() };
    // What is not in there is built in.
    if at(table, &["model_providers", name]).and_then(DeValue::as_table).is_none() {
        return Vec::new();
    }
    SETTINGS
        .iter()
        .flat_map(|setting| ["-c".to_owned(), format!("model_providers.{name}.{setting}")])
        .collect()
}

/// Returns the name of the configured provider; `None` if none is.
pub(super) fn named(configuration: &str) -> Option<String> {
    let table = DeTable::parse(configuration).ok()?;
    provider(table.get_ref()).map(str::to_owned)
}

/// Returns the provider that is named: by the profile, if there is one that does, else by the whole.
fn provider<'a>(table: &'a DeTable<'_>) -> Option<&'a str> {
    let text = |path: &[&str]| at(table, path).and_then(DeValue::as_str);
    let of_profile = text(&["profile"]).and_then(|profile| text(&["profiles", profile, "model_provider"]));
    of_profile.or_else(|| text(&["model_provider"]))
}

fn at<'a, 'b>(table: &'a DeTable<'b>, path: &[&str]) -> Option<&'a DeValue<'b>> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first)?.get_ref();
    if rest.is_empty() { Some(value) } else { at(value.as_table()?, rest) }
}

/// Returns whether a name can stand in an argument, where points part one from the next.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_that_is_configured_is_asked_twice() {
        let own = "[model_providers.mine]\nname = \"x\"\n[model_providers.other]\nname = \"y\"\n";
        let limits = |name: &str| {
            format!(
                "-c model_providers.{name}.request_max_retries=1 -c model_providers.{name}.stream_max_retries=0"
            )
        };
        for (configuration, expected) in [
            (format!("model_provider = \"mine\"\n{own}"), limits("mine")),
            (
                format!(
                    "model_provider = \"mine\"\nprofile = \"work\"\n{own}[profiles.work]\nmodel_provider = \"other\"\n"
                ),
                limits("other"),
            ),
            (
                format!(
                    "model_provider = \"mine\"\nprofile = \"work\"\n{own}[profiles.work]\nmodel = \"x\"\n"
                ),
                limits("mine"),
            ),
            // Built in, or nothing that we could name.
            (own.to_owned(), String::new()),
            (format!("model_provider = \"openai\"\n{own}"), String::new()),
            ("model_provider = \"a.b\"\n[model_providers.\"a.b\"]\nname = \"x\"\n".to_owned(), String::new()),
            ("model_provider = 3\nmodel_providers = 4".to_owned(), String::new()),
            ("this is no TOML".to_owned(), String::new()),
        ] {
            assert_eq!(ask_twice(&configuration).join(" "), expected, "{configuration}");
        }
    }
}
