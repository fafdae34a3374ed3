//! The keys in use: the table with the changes of the configuration.

use std::collections::BTreeMap;

use super::{Action, Context, Entry, Key, TABLE};

/// The keys in use.
#[derive(Debug, Clone)]
pub struct Keys {
    rows: Vec<(Entry, Vec<Key>)>,
    is_ascii: bool,
}

impl Default for Keys {
    fn default() -> Self {
        let keys = |entry: &Entry| entry.keys.iter().filter_map(|key| key.parse().ok()).collect();
        Self { rows: TABLE.iter().map(|entry| (*entry, keys(entry))).collect(), is_ascii: false }
    }
}

impl Keys {
    /// Applies `[keys]` of the configuration: the keys of actions, by their names. An action without keys is switched off.
    ///
    /// # Errors
    ///
    /// Says which name is unknown, or which two actions have the same key.
    pub fn new(changes: &BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        let mut keys = Self::default();
        for (name, written) in changes {
            let known = keys.rows.iter_mut().find(|(entry, _)| entry.name == name);
            let Some((entry, row)) = known else {
                return Err(unknown(name));
            };
            *row = Vec::new();
            for text in written {
                let key: Key =
                    text.parse().map_err(|problem| format!("keys of `{}`: {problem}", entry.name))?;
                let types = matches!(entry.context, Context::Prompt | Context::Anywhere);
                if types && let Some(c) = key.character() {
                    return Err(format!("keys of `{}`: `{c}` types a character in the prompt", entry.name));
                }
                if !row.contains(&key) {
                    row.push(key);
                }
            }
        }
        keys.conflict().map_or(Ok(keys), Err)
    }

    /// Writes keys in ASCII, or not.
    #[must_use]
    pub fn with_ascii(self, is_ascii: bool) -> Self {
        Self { is_ascii, ..self }
    }

    /// Returns a key for people.
    pub fn shown(&self, key: Key) -> String {
        if self.is_ascii { key.in_ascii() } else { key.to_string() }
    }

    /// Returns the conflict of two actions that have the same key in the same place.
    fn conflict(&self) -> Option<String> {
        for (index, (entry, keys)) in self.rows.iter().enumerate() {
            for (other, others) in self.rows.iter().skip(index.saturating_add(1)) {
                if !overlap(entry.context, other.context) || entry.action == other.action {
                    continue;
                }
                if let Some(key) = keys.iter().find(|key| others.contains(key)) {
                    let (first, second) = (entry.name, other.name);
                    let place = match (entry.context, other.context) {
                        (Context::Anywhere, context) | (context, _) => context.heading().to_lowercase(),
                    };
                    return Some(format!(
                        "`{}` is the key of both `{first}` and `{second}` ({place}): give one of them another key",
                        key.name()
                    ));
                }
            }
        }
        None
    }

    /// Returns the action of a key.
    pub fn action(&self, context: Context, key: Key) -> Option<Action> {
        let in_context = |wanted: Context| {
            self.rows
                .iter()
                .find(|(entry, keys)| entry.context == wanted && keys.contains(&key))
                .map(|row| row.0.action)
        };
        in_context(context)
            .or_else(|| if context == Context::Menu { None } else { in_context(Context::Anywhere) })
    }

    /// Returns the first key of an action for people; `None` if it has none there.
    pub fn label(&self, context: Context, action: Action) -> Option<String> {
        let of = |wanted: Context| {
            let mut rows =
                self.rows.iter().filter(|(entry, _)| entry.context == wanted && entry.action == action);
            rows.find_map(|(_, keys)| keys.first()).map(|key| self.shown(*key))
        };
        of(context).or_else(|| of(Context::Anywhere)).or_else(|| {
            let menu = of(Context::Menu)?;
            Some(format!("{} {menu}", self.label(Context::Anywhere, Action::Menu)?))
        })
    }

    /// Returns a hint: the key of an action and its words.
    pub fn hint(&self, context: Context, action: Action) -> Option<String> {
        let label = self.label(context, action)?;
        let entry = self.rows.iter().find(|(entry, _)| {
            entry.action == action && (entry.context == context || entry.context == Context::Anywhere)
        });
        Some(format!("{label} {}", entry.map_or("", |row| row.0.short)))
    }

    /// Returns the rows of a context.
    pub fn rows(&self, context: Context) -> impl Iterator<Item = (&Entry, &[Key])> {
        self.rows
            .iter()
            .filter(move |row| row.0.context == context)
            .map(|(entry, keys)| (entry, keys.as_slice()))
    }
}

/// Returns whether a key could mean an action of either context.
fn overlap(one: Context, other: Context) -> bool {
    let anywhere = |a: Context, b: Context| a == Context::Anywhere && b != Context::Menu;
    one == other || anywhere(one, other) || anywhere(other, one)
}

fn unknown(name: &str) -> String {
    let quoted = azureal::error::quoted(name);
    let close = TABLE.iter().map(|entry| entry.name).find(|known| {
        let name = name.to_ascii_lowercase().replace('_', "-");
        !name.is_empty() && (known.contains(&name) || name.contains(known))
    });
    match close {
        Some(known) => format!("no action is called {quoted}: did you mean `{known}`?"),
        None => format!("no action is called {quoted}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(name: &str, keys: &[&str]) -> Result<Keys, String> {
        let keys = keys.iter().map(ToString::to_string).collect();
        Keys::new(&BTreeMap::from([(name.to_owned(), keys)]))
    }

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn every_key_of_the_table_can_be_read_and_no_two_actions_conflict() {
        for entry in TABLE {
            for key in entry.keys {
                key.parse::<Key>().unwrap();
                for kept in ["ctrl-b", "ctrl-o", "ctrl-s", "ctrl-q", "ctrl-m"] {
                    assert_ne!(*key, kept, "{}", entry.name);
                }
            }
            assert!(entry.short.split(' ').count() <= 3, "{}", entry.name);
            assert_eq!(TABLE.iter().filter(|other| other.name == entry.name).count(), 1, "{}", entry.name);
        }
        assert_eq!(Keys::default().conflict(), None);
        for entry in TABLE.iter().filter(|entry| matches!(entry.context, Context::Prompt | Context::Anywhere))
        {
            assert!(entry.keys.iter().all(|text| key(text).character().is_none()), "{}", entry.name);
        }
    }

    #[test]
    fn a_key_means_the_action_of_its_place_or_of_anywhere() {
        let keys = Keys::default();
        assert_eq!(keys.action(Context::Prompt, key("ctrl-u")), Some(Action::DeleteToStart));
        assert_eq!(keys.action(Context::Reading, key("ctrl-u")), Some(Action::HalfUp));
        assert_eq!(keys.action(Context::Reading, key("f1")), Some(Action::Help));
        assert_eq!(keys.action(Context::Prompt, key("j")), None);
        assert_eq!(keys.action(Context::Menu, key("f1")), None);
        assert_eq!(keys.action(Context::Menu, key("q")), Some(Action::Quit));
    }

    #[test]
    fn a_changed_key_is_used_and_shown_in_hints() {
        let keys = changed("queue", &["alt-t"]).unwrap();
        assert_eq!(keys.action(Context::Prompt, key("alt-t")), Some(Action::Queue));
        assert_eq!(keys.action(Context::Prompt, key("ctrl-t")), None);
        assert_eq!(keys.hint(Context::Prompt, Action::Queue).unwrap(), "Alt-T queue");
        assert_eq!(keys.label(Context::Prompt, Action::Quit).unwrap(), "Ctrl-X q");
        let off = changed("queue", &[]).unwrap();
        assert_eq!(off.hint(Context::Prompt, Action::Queue), None);
    }

    #[test]
    fn a_conflict_names_both_actions() {
        let problem = changed("queue", &["ctrl-k"]).unwrap_err();
        assert!(problem.contains("`queue`") && problem.contains("`delete-to-end`"), "{problem}");
        let problem = changed("help", &["ctrl-d"]).unwrap_err();
        assert!(problem.contains("`help`") && problem.contains("`ctrl-d`"), "{problem}");
        assert!(changed("menu-quit", &["f1"]).is_ok(), "after the menu key, only its own keys count");
    }

    #[test]
    fn an_unknown_action_and_a_key_that_types_are_refused() {
        assert_eq!(changed("qeue", &["f6"]).unwrap_err(), "no action is called `qeue`");
        assert_eq!(
            changed("fork_here", &["f6"]).unwrap_err(),
            "no action is called `fork_here`: did you mean `fork-here`?"
        );
        assert_eq!(
            changed("help", &["?"]).unwrap_err(),
            "keys of `help`: `?` types a character in the prompt"
        );
        assert!(changed("help", &["F99"]).unwrap_err().starts_with("keys of `help`: no key is called `F99`"));
    }
}
