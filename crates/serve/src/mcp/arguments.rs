//! The arguments of a tool call. Models write numbers as texts and leave things empty, and are understood.

use azureal::Error;
use serde_json::Value;

/// The longest text of an argument, in bytes.
const LONGEST: usize = 4096;

/// The arguments of one call.
pub(super) struct Arguments<'a>(pub(super) &'a Value);

impl Arguments<'_> {
    /// Returns a text; `None` if it is missing or empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Error> {
        let text = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.trim().to_owned(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => return Err(Error::usage(format!("`{name}` must be a text"))),
        };
        if text.len() > LONGEST {
            return Err(Error::usage(format!("`{name}` is longer than {LONGEST} bytes")));
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Returns a whole number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        let wrong = || Error::usage(format!("`{name}` must be a whole number from 0 on"));
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            // Some models write every number as 5.0.
            Some(Value::Number(number)) => {
                let whole = number.as_u64().or_else(|| number.to_string().strip_suffix(".0")?.parse().ok());
                whole.map(Some).ok_or_else(wrong)
            }
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => text.trim().parse().map(Some).map_err(|_| wrong()),
            Some(_) => Err(wrong()),
        }
    }

    /// Returns whether something is switched on.
    pub(super) fn switch(&self, name: &str) -> Result<bool, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(is_on)) => Ok(*is_on),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(Value::String(text)) if text.is_empty() || text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(Error::usage(format!("`{name}` must be true or false"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_models_write_is_understood() {
        let given = json!({
            "text": " a ", "empty": " ", "null": null, "number": 5, "written": "7", "float": 5.0,
            "on": true, "yes": "TRUE", "no": "false", "list": [], "half": 0.5, "negative": -1,
            "long": "x".repeat(5000),
        });
        let arguments = Arguments(&given);
        assert_eq!(arguments.text("text").unwrap().as_deref(), Some("a"));
        assert_eq!(arguments.text("number").unwrap().as_deref(), Some("5"));
        for missing in ["empty", "null", "absent"] {
            assert_eq!(arguments.text(missing).unwrap(), None);
            assert_eq!(arguments.number(missing).unwrap(), None);
        }
        for (name, number) in [("number", 5), ("written", 7), ("float", 5)] {
            assert_eq!(arguments.number(name).unwrap(), Some(number), "{name}");
        }
        for wrong in ["list", "half", "negative", "text"] {
            assert_eq!(arguments.number(wrong).unwrap_err().kind(), "usage", "{wrong}");
        }
        assert!(arguments.switch("on").unwrap() && arguments.switch("yes").unwrap());
        assert!(!arguments.switch("no").unwrap() && !arguments.switch("absent").unwrap());
        assert!(
            arguments.switch("list").is_err()
                && arguments.text("list").is_err()
                && arguments.text("long").is_err()
        );
    }
}
