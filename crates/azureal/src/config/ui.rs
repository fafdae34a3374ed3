//! The settings of the terminal interface. They are the user's taste, so a project's file has none.

use super::file::Owner;
use super::node::{ConfigPosition, Entry, Node, Problem, Value};
use super::settings::{Located, at_most, located, one_of, unknown};
use super::{Config, ConfiguredValue};
use crate::error::quoted;

/// The largest number of actions with keys of their own.
const MOST_ACTIONS: usize = 256;
/// The largest number of keys of one action.
const MOST_KEYS: usize = 16;
/// The longest description of a key, and the longest name of an action, in characters.
const LONGEST_KEY: usize = 40;

/// The colours of the terminal interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThemeChoice {
    /// Those of the terminal, and backgrounds for changed lines if the terminal tells its own.
    #[default]
    Auto,
    /// Those of the terminal alone.
    Ansi,
    /// For a light background.
    Light,
    /// For a dark background.
    Dark,
    /// None.
    None,
}

impl ThemeChoice {
    const ALL: [Self; 5] = [Self::Auto, Self::Ansi, Self::Light, Self::Dark, Self::None];

    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ansi => "ansi",
            Self::Light => "light",
            Self::Dark => "dark",
            Self::None => "none",
        }
    }
}

/// The settings of the terminal interface that are in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ui {
    /// The colours.
    pub theme: ThemeChoice,
    /// Whether something moves while a turn runs. Not over SSH, unless it is set.
    pub motion: bool,
    /// Whether marks are ASCII. In a locale without UTF-8, unless it is set.
    pub ascii: bool,
    /// Whether the interface takes the wheel and clicks.
    pub mouse: bool,
    /// Whether the interface shows the last running turn when the shown one ends, if the prompt box is empty and the user does not read.
    pub auto_switch: bool,
}

/// The keys of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredKeys {
    /// The action.
    pub action: String,
    /// Its keys; empty for none.
    pub keys: Vec<String>,
    /// The file and line.
    pub place: String,
}

/// The settings of one file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct UiSettings {
    pub(super) theme: Option<Located<ThemeChoice>>,
    pub(super) motion: Option<Located<bool>>,
    pub(super) ascii: Option<Located<bool>>,
    pub(super) mouse: Option<Located<bool>>,
    pub(super) auto_switch: Option<Located<bool>>,
    pub(super) keys: Vec<(String, Located<Vec<String>>)>,
}

impl UiSettings {
    /// Takes `[ui]`.
    pub(super) fn take(&mut self, place: ConfigPosition, node: &Node, owner: Owner) -> Result<(), Problem> {
        const KEYS: [&str; 5] = ["theme", "motion", "ascii", "mouse", "auto_switch"];
        check_owner("ui", place, owner)?;
        for Entry { key, place, node } in node.table("ui")? {
            let switch = || Ok(Some(located(*place, node.switch(key)?)));
            match key.as_str() {
                "theme" => self.theme = Some(located(*place, theme(node)?)),
                "motion" => self.motion = switch()?,
                "ascii" => self.ascii = switch()?,
                "mouse" => self.mouse = switch()?,
                "auto_switch" => self.auto_switch = switch()?,
                _ => return Err(Problem::new(*place, unknown(key, &KEYS))),
            }
        }
        Ok(())
    }

    /// Takes `[keys]`. The interface knows its actions and their keys.
    pub(super) fn take_keys(
        &mut self,
        place: ConfigPosition,
        node: &Node,
        owner: Owner,
    ) -> Result<(), Problem> {
        check_owner("keys", place, owner)?;
        let entries = node.table("keys")?;
        at_most(MOST_ACTIONS, entries.len(), "keys", place)?;
        for Entry { key: action, place, node } in entries {
            if action.is_empty() || action.chars().count() > LONGEST_KEY {
                return Err(Problem::new(*place, format!("{} is not the name of an action", quoted(action))));
            }
            let keys = match &node.value {
                Value::List(nodes) => nodes.iter().map(|node| key(node, action)).collect::<Result<_, _>>()?,
                _ => vec![key(node, action)?],
            };
            at_most(MOST_KEYS, keys.len(), action, *place)?;
            self.keys.push((action.clone(), located(*place, keys)));
        }
        Ok(())
    }
}

fn check_owner(table: &str, place: ConfigPosition, owner: Owner) -> Result<(), Problem> {
    match owner {
        Owner::User => Ok(()),
        Owner::Project => Err(Problem::new(
            place,
            format!("a project's file cannot have `[{table}]`; set it in your own azufig.toml"),
        )),
    }
}

fn theme(node: &Node) -> Result<ThemeChoice, Problem> {
    let found = ThemeChoice::ALL.into_iter().find(|theme| node.value == Value::Text(theme.name().to_owned()));
    found.ok_or_else(|| node.is_not("theme", &one_of(&ThemeChoice::ALL.map(ThemeChoice::name))))
}

fn key(node: &Node, action: &str) -> Result<String, Problem> {
    match &node.value {
        Value::Text(key) if !key.is_empty() && key.chars().count() <= LONGEST_KEY => Ok(key.clone()),
        _ => Err(node.is_not(action, "a key such as \"ctrl-g\", or a list of keys")),
    }
}

impl Config {
    /// Returns the settings of the terminal interface.
    pub fn ui(&self) -> Ui {
        let environment = &self.environment;
        let is_remote = ["SSH_CONNECTION", "SSH_TTY"].iter().any(|name| environment.value(name).is_some());
        let switch =
            |found: Option<ConfiguredValue<'_, bool>>, default| found.map_or(default, |found| *found.value);
        Ui {
            theme: self.find_theme().map_or_else(ThemeChoice::default, |found| *found.value),
            motion: switch(self.find_motion(), !is_remote),
            ascii: switch(self.find_ascii(), environment.has_ascii_locale()),
            mouse: switch(self.find_mouse(), true),
            auto_switch: switch(self.find_auto_switch(), true),
        }
    }

    /// Finds the colours of the terminal interface.
    pub fn find_theme(&self) -> Option<ConfiguredValue<'_, ThemeChoice>> {
        self.first(|settings| settings.ui.theme.as_ref())
    }

    /// Finds whether something moves while a turn runs.
    pub fn find_motion(&self) -> Option<ConfiguredValue<'_, bool>> {
        self.first(|settings| settings.ui.motion.as_ref())
    }

    /// Finds whether marks are ASCII.
    pub fn find_ascii(&self) -> Option<ConfiguredValue<'_, bool>> {
        self.first(|settings| settings.ui.ascii.as_ref())
    }

    /// Finds whether the interface takes the mouse.
    pub fn find_mouse(&self) -> Option<ConfiguredValue<'_, bool>> {
        self.first(|settings| settings.ui.mouse.as_ref())
    }

    /// Finds whether another running turn is shown when one ends.
    pub fn find_auto_switch(&self) -> Option<ConfiguredValue<'_, bool>> {
        self.first(|settings| settings.ui.auto_switch.as_ref())
    }

    /// Returns the keys that the user has set, in the order of the file. The interface checks them.
    pub fn keys(&self) -> Vec<ConfiguredKeys> {
        let mut found = Vec::new();
        for file in self.in_effect() {
            for (action, keys) in &file.settings.ui.keys {
                let place = ConfiguredValue { value: &keys.value, file, line: keys.line }.to_string();
                found.push(ConfiguredKeys { action: action.clone(), keys: keys.value.clone(), place });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::{ConfigFile, Format};
    use crate::environment::Environment;

    fn config(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("azufig.toml");
        std::fs::write(&path, text).unwrap();
        let file = ConfigFile::of_user(path, Format::Azufig).map_err(|error| error.message().to_owned())?;
        let environment = Environment::from(variables);
        Ok(Config { files: file.into_iter().collect(), environment, ..Config::empty() })
    }

    #[test]
    fn the_interface_has_defaults_and_moves_less_over_ssh() {
        let usual =
            Ui { theme: ThemeChoice::Auto, motion: true, ascii: false, mouse: true, auto_switch: true };
        assert_eq!(config("", &[]).unwrap().ui(), usual);
        let posix = [("LANG", "C")];
        assert_eq!(config("", &posix).unwrap().ui(), Ui { ascii: true, ..usual });
        assert_eq!(config("[ui]\nascii = false\n", &posix).unwrap().ui(), usual);
        let remote = [("SSH_CONNECTION", "a")];
        assert_eq!(config("", &remote).unwrap().ui(), Ui { motion: false, ..usual });
        let all =
            "[ui]\ntheme = \"light\"\nmotion = true\nascii = true\nmouse = false\nauto_switch = false\n";
        let expected =
            Ui { theme: ThemeChoice::Light, motion: true, ascii: true, mouse: false, auto_switch: false };
        assert_eq!(config(all, &remote).unwrap().ui(), expected);
    }

    #[test]
    fn keys_are_read_with_their_place() {
        let config =
            config("[keys]\nsend = \"enter\"\nquit = [\"ctrl-q\", \"f10\"]\nhelp = []\n", &[]).unwrap();
        let keys: Vec<(String, Vec<String>)> =
            config.keys().into_iter().map(|found| (found.action, found.keys)).collect();
        let expected = [("send", vec!["enter"]), ("quit", vec!["ctrl-q", "f10"]), ("help", vec![])];
        assert_eq!(
            keys,
            expected.map(|(action, keys)| (action.to_owned(), keys.into_iter().map(str::to_owned).collect()))
        );
        assert!(config.keys()[1].place.ends_with("azufig.toml:3"), "{:?}", config.keys());
    }

    #[test]
    fn a_wrong_setting_of_the_interface_is_named() {
        for (text, expected) in [
            ("[ui]\ntheme = \"blue\"", "one of auto, ansi, light, dark, none"),
            ("[ui]\nmotion = 1", "motion"),
            ("[ui]\nmottion = true", "did you mean `motion`?"),
            ("[keys]\nsend = 1", "a key such as"),
            ("[keys]\nsend = \"\"", "a key such as"),
        ] {
            let message = config(text, &[]).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
