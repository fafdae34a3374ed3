//! The filters and methods of Jinja that the template engine does not have.
//!
//! Templates of cllm are rendered by Jinja in Python. A template that works there has the same result here.

use minijinja::value::{ArgType, Kwargs, Rest, Tuple, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::{filters, globals, pycompat};

/// Adds them to an engine.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(method);
    environment
        .add_filter("center", |text: String, width: Option<i64>| centered(&text, width.unwrap_or(80), ' '));
    for name in ["default", "d"] {
        environment.add_filter(name, default);
    }
    environment.add_filter("filesizeformat", file_size);
    environment.add_filter("float", float);
    environment.add_filter("indent", indent);
    environment.add_filter("int", int);
    environment.add_filter("percent", percent);
    // A number is a text here too: `{{ 1.5|replace(".", "_") }}`.
    environment.add_filter(
        "replace",
        |text: String, from: String, to: String, by_place: Rest<Value>, by_name: Kwargs| {
            replaced(&text, &from, &to, by_place, by_name)
        },
    );
    environment.add_filter("striptags", filters::striptags);
    environment.add_filter("truncate", truncate);
    environment.add_filter("wordcount", |text: String| word_count(&text));
    environment.add_filter("wordwrap", word_wrap);
    environment.add_filter("xmlattr", xml_attributes);
    environment.add_function("cycler", |items: Rest<Value>| globals::cycler(items.0));
    environment.add_function("joiner", globals::joiner);
}

/// Calls a method of a Python value.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let found = match (value.as_str(), value.kind()) {
        (Some(text), _) => text_method(text, name, args)?,
        (None, ValueKind::Seq) if name == "index" => {
            let (wanted,): (Value,) = from_args(args)?;
            let place = value.try_iter()?.position(|item| item == wanted);
            Some(place.map(Value::from).ok_or_else(|| invalid("the list does not have this value"))?)
        }
        _ => None,
    };
    match found {
        Some(found) => Ok(found),
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// Calls a method of a text; `None` if there is no such method here.
fn text_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let padding = || -> Result<(i64, char), Error> {
        let (width, fill): (i64, Option<&str>) = from_args(args)?;
        let fill = fill.unwrap_or(" ");
        let mut chars = fill.chars();
        match (chars.next(), chars.next()) {
            (Some(fill), None) => Ok((width, fill)),
            _ => Err(invalid("the fill character must be exactly one character")),
        }
    };
    let missing = |width: i64| width.saturating_sub(text.chars().count() as i64);
    Ok(Some(match name {
        "casefold" => {
            let () = from_args(args)?;
            text.to_lowercase().into()
        }
        "swapcase" => {
            let () = from_args(args)?;
            swapped(text).into()
        }
        "title" => {
            let () = from_args(args)?;
            titled(text).into()
        }
        "center" => {
            let (width, fill) = padding()?;
            centered(text, width, fill)?.into()
        }
        "ljust" => {
            let (width, fill) = padding()?;
            format!("{text}{}", repeated(fill, missing(width))?).into()
        }
        "rjust" => {
            let (width, fill) = padding()?;
            format!("{}{text}", repeated(fill, missing(width))?).into()
        }
        "zfill" => {
            let (width,): (i64,) = from_args(args)?;
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let sign = text.strip_suffix(digits).unwrap_or_default();
            format!("{sign}{}{digits}", repeated('0', missing(width))?).into()
        }
        "count" | "endswith" | "find" | "index" | "rfind" | "rindex" | "startswith" => {
            let (wanted, start, end): (Value, Option<i64>, Option<i64>) = from_args(args)?;
            found_in(text, name, &wanted, start, end)?
        }
        "isdecimal" => {
            let () = from_args(args)?;
            (!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())).into()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            if separator.is_empty() {
                return Err(invalid("the separator is empty"));
            }
            let (before, after) = match name {
                "partition" => text.split_once(separator).unwrap_or((text, "")),
                _ => text.rsplit_once(separator).unwrap_or(("", text)),
            };
            let middle = if text.contains(separator) { separator } else { "" };
            Value::from(Tuple::from([before, middle, after].map(Value::from)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "split" | "rsplit" => {
            let (separator, most, by_name): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.map_or_else(|| by_name.get("sep"), |separator| Ok(Some(separator)))?;
            let most = most.map_or_else(|| by_name.get("maxsplit"), |most| Ok(Some(most)))?;
            by_name.assert_all_used()?;
            split(text, separator, most, name == "rsplit")?.into()
        }
        _ => return Ok(None),
    }))
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn swapped(text: &str) -> String {
    text.chars()
        .flat_map(|c| -> Box<dyn Iterator<Item = char>> {
            if c.is_uppercase() { Box::new(c.to_lowercase()) } else { Box::new(c.to_uppercase()) }
        })
        .collect()
}

/// Begins each run of letters with a capital, as in Python: `it's` becomes `It'S`.
fn titled(text: &str) -> String {
    let mut follows_letter = false;
    text.chars()
        .flat_map(|c| -> Box<dyn Iterator<Item = char>> {
            let is_inside = std::mem::replace(&mut follows_letter, c.is_alphabetic());
            if is_inside { Box::new(c.to_lowercase()) } else { Box::new(c.to_uppercase()) }
        })
        .collect()
}

/// The longest padding. Without a limit, one call could take all memory.
const LONGEST_PADDING: i64 = 1 << 20;

fn repeated(fill: char, times: i64) -> Result<String, Error> {
    if times > LONGEST_PADDING {
        return Err(invalid("the width is too large"));
    }
    Ok(std::iter::repeat_n(fill, usize::try_from(times).unwrap_or(0)).collect())
}

fn centered(text: &str, width: i64, fill: char) -> Result<String, Error> {
    let missing = width.saturating_sub(text.chars().count() as i64).max(0);
    // Python puts the odd one on the left of a text of even length.
    let left = missing / 2 + (missing & width & 1);
    Ok(format!("{}{text}{}", repeated(fill, left)?, repeated(fill, missing - left)?))
}

/// Searches a part of a text, as the method `name` does. Places are those of characters, negative ones from the end.
fn found_in(
    text: &str,
    name: &str,
    wanted: &Value,
    start: Option<i64>,
    end: Option<i64>,
) -> Result<Value, Error> {
    let length = text.chars().count();
    let place = |place: Option<i64>, otherwise: usize| match place {
        None => otherwise,
        Some(place) if place < 0 => {
            length.saturating_sub(usize::try_from(place.unsigned_abs()).unwrap_or(length))
        }
        Some(place) => usize::try_from(place).unwrap_or(length).min(length),
    };
    // Not even an empty text is behind the end.
    let is_behind = start.is_some_and(|start| usize::try_from(start).is_ok_and(|start| start > length));
    let (start, end) = (place(start, 0), place(end, length));
    let is_nowhere = is_behind || start > end;
    let part: String = text.chars().skip(start).take(end.saturating_sub(start)).collect();
    if matches!(name, "startswith" | "endswith") {
        // One text or several.
        let several =
            if wanted.as_str().is_none() { wanted.try_iter()?.collect() } else { vec![wanted.clone()] };
        let is_there = |wanted: &str| match name {
            "startswith" => part.starts_with(wanted),
            _ => part.ends_with(wanted),
        };
        let several: Vec<&str> = several
            .iter()
            .map(|one| one.as_str().ok_or_else(|| invalid("only a text can be looked for")))
            .collect::<Result<_, _>>()?;
        return Ok((!is_nowhere && several.into_iter().any(is_there)).into());
    }
    let wanted = wanted.as_str().ok_or_else(|| invalid("only a text can be looked for"))?;
    let found = match name {
        "count" if is_nowhere => return Ok(0.into()),
        "count" => return Ok(part.matches(wanted).count().into()),
        _ if is_nowhere => None,
        "find" | "index" => part.find(wanted),
        _ => part.rfind(wanted),
    };
    match found.and_then(|place| part.get(..place)) {
        Some(before) => Ok((start + before.chars().count()).into()),
        None if matches!(name, "find" | "rfind") => Ok((-1).into()),
        None => Err(invalid("the text does not have this part")),
    }
}

/// Splits a text `most` times at most, from its end if `is_from_end`.
fn split(
    text: &str,
    separator: Option<&str>,
    most: Option<i64>,
    is_from_end: bool,
) -> Result<Vec<String>, Error> {
    let most = usize::try_from(most.unwrap_or(-1)).unwrap_or(usize::MAX);
    let parts = most.saturating_add(1);
    let mut found: Vec<String> = match separator {
        Some("") => return Err(invalid("the separator is empty")),
        Some(separator) if is_from_end => text.rsplitn(parts, separator).map(str::to_owned).collect(),
        Some(separator) => text.splitn(parts, separator).map(str::to_owned).collect(),
        None => {
            // The rest behind the last split keeps its outer space.
            let cut = |rest: &'_ str| -> usize {
                match is_from_end {
                    true => rest.trim_end().len(),
                    false => rest.len() - rest.trim_start().len(),
                }
            };
            let mut found = Vec::new();
            let mut rest = text;
            loop {
                let (before, after) = rest.split_at(cut(rest));
                rest = if is_from_end { before } else { after };
                if rest.is_empty() {
                    break;
                }
                let split = match is_from_end {
                    true => rest.rsplit_once(char::is_whitespace).map(|(rest, word)| (word, rest)),
                    false => rest.split_once(char::is_whitespace),
                };
                let (word, after) = split.filter(|_| found.len() < most).unwrap_or((rest, ""));
                found.push(word.to_owned());
                rest = after;
            }
            found
        }
    };
    if is_from_end {
        found.reverse();
    }
    Ok(found)
}

/// The arguments of a filter, by their place or by their name.
struct Arguments {
    by_place: Rest<Value>,
    by_name: Kwargs,
}

impl Arguments {
    /// Returns an argument; `None` if it is not given.
    fn get<T: for<'v> ArgType<'v, Output = T>>(&self, place: usize, name: &str) -> Result<Option<T>, Error> {
        match self.by_place.get(place) {
            Some(value) => T::from_value(Some(value)).map(Some),
            None if self.by_name.has(name) => self.by_name.get(name).map(Some),
            None => Ok(None),
        }
    }

    /// Returns an error if there are more than these.
    fn end(&self, count: usize) -> Result<(), Error> {
        if self.by_place.len() > count {
            return Err(ErrorKind::TooManyArguments.into());
        }
        self.by_name.assert_all_used()
    }
}

/// Returns a value, or another one if it is undefined; with `boolean` also if it is false or empty.
fn default(value: &Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<Value, Error> {
    let args = Arguments { by_place, by_name };
    let other: Option<Value> = args.get(0, "default_value")?;
    let is_lax = args.get::<Value>(1, "boolean")?.is_some_and(|is_lax| is_lax.is_true());
    args.end(2)?;
    if value.is_undefined() || (is_lax && !value.is_true()) {
        return Ok(other.unwrap_or_else(|| "".into()));
    }
    Ok(value.clone())
}

/// Returns a value as a whole number; another one if it is none.
fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    by_name: Kwargs,
) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => by_name.get::<Option<Value>>("default")?.unwrap_or_else(|| 0.into()),
    };
    // Python takes space around a number and underscores between its digits.
    let number = value.as_str().map(|text| {
        let text = text.trim();
        let is_grouped = !text.starts_with('_') && !text.ends_with('_') && !text.contains("__");
        Value::from(if is_grouped { text.replace('_', "") } else { text.to_owned() })
    });
    minijinja::filters::int(state, number.as_ref().unwrap_or(value), Some(default), base, by_name)
}

/// Returns a value as a number with a fraction; another one if it is none.
fn float(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    by_name: Kwargs,
) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => by_name.get::<Option<Value>>("default")?.unwrap_or_else(|| 0.0.into()),
    };
    minijinja::filters::float(state, value, Some(default), by_name)
}

/// Fills a value, or the values of a tuple or a map, into a text: `text % value` in Python.
fn percent(state: &mut State<'_, '_>, text: &Value, value: &Value) -> Result<Value, Error> {
    let mut args = vec![text.clone()];
    if value.downcast_object_ref::<Tuple>().is_some() {
        args.extend(value.try_iter()?);
    } else if value.kind() == ValueKind::Map {
        let names: Vec<Value> = value.try_iter()?.collect();
        let named = names.iter().map(|name| Ok((name.to_string(), value.get_item(name)?)));
        args.push(named.collect::<Result<Kwargs, Error>>()?.into());
    } else {
        args.push(value.clone());
    }
    state.apply_filter("format", &args)
}

/// Indents the lines of a text by a number of spaces or by a text: not the first one, and not blank ones, unless they are asked for.
fn indent(text: &str, by_place: Rest<Value>, by_name: Kwargs) -> Result<String, Error> {
    let args = Arguments { by_place, by_name };
    let width: Option<Value> = args.get(0, "width")?;
    let first = args.get::<Value>(1, "first")?.is_some_and(|first| first.is_true());
    let blank = args.get::<Value>(2, "blank")?.is_some_and(|blank| blank.is_true());
    args.end(3)?;
    let space = match width.as_ref().and_then(Value::as_str) {
        Some(space) => space.to_owned(),
        None => repeated(' ', width.map_or(Ok(4), i64::try_from)?)?,
    };
    let mut indented = String::new();
    for (place, line) in text.split('\n').enumerate() {
        if place > 0 {
            indented.push('\n');
        }
        if if place == 0 { first } else { blank || !line.is_empty() } {
            indented.push_str(&space);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// Replaces parts of a text, `count` of them at most.
fn replaced(
    text: &str,
    from: &str,
    to: &str,
    by_place: Rest<Value>,
    by_name: Kwargs,
) -> Result<String, Error> {
    let args = Arguments { by_place, by_name };
    let count: Option<i64> = args.get::<Option<i64>>(0, "count")?.flatten();
    args.end(1)?;
    Ok(match count.and_then(|count| usize::try_from(count).ok()) {
        Some(count) => text.replacen(from, to, count),
        None => text.replace(from, to),
    })
}

/// Returns a number of bytes for people.
fn file_size(size: &Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<String, Error> {
    let args = Arguments { by_place, by_name };
    let is_binary = args.get(0, "binary")?;
    args.end(1)?;
    let number = size.as_str().and_then(|text| text.trim().parse().ok());
    let size = number.map_or_else(|| f64::try_from(size.clone()), Ok)?;
    Ok(filters::filesizeformat(size, is_binary))
}

/// Cuts a text.
fn truncate(text: String, by_place: Rest<Value>, by_name: Kwargs) -> Result<String, Error> {
    let args = Arguments { by_place, by_name };
    let length: usize = args.get(0, "length")?.unwrap_or(255);
    let kills_words = args.get(1, "killwords")?.unwrap_or(false);
    let end = args.get(2, "end")?.unwrap_or_else(|| "...".to_owned());
    let leeway = args.get(3, "leeway")?.unwrap_or(5);
    args.end(4)?;
    let ending = end.chars().count();
    if length < ending {
        return Err(invalid("the length is smaller than the end of the text"));
    }
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let start: String = text.chars().take(length - ending).collect();
    let start =
        if kills_words { start.as_str() } else { start.rsplit_once(' ').map_or(&*start, |(start, _)| start) };
    Ok(format!("{start}{end}"))
}

/// Counts the words: runs of letters, digits and underscores.
fn word_count(text: &str) -> usize {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count()
}

/// Breaks lines.
fn word_wrap(text: &str, by_place: Rest<Value>, by_name: Kwargs) -> Result<String, Error> {
    let args = Arguments { by_place, by_name };
    let width: usize = args.get(0, "width")?.unwrap_or(79);
    let breaks_words = args.get(1, "break_long_words")?.unwrap_or(true);
    let line_break = args.get(2, "wrapstring")?.unwrap_or_else(|| "\n".to_owned());
    let breaks_hyphens = args.get(3, "break_on_hyphens")?.unwrap_or(true);
    args.end(4)?;
    if width == 0 {
        return Err(invalid("the width must be larger than zero"));
    }
    let lines: Vec<String> =
        text.lines().flat_map(|line| wrapped(line, width, breaks_words, breaks_hyphens)).collect();
    Ok(lines.join(&line_break))
}

/// Breaks one line; an empty one stays.
fn wrapped(line: &str, width: usize, breaks_words: bool, breaks_hyphens: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut current, mut size) = (String::new(), 0);
    for chunk in chunks(line, breaks_hyphens) {
        let mut chunk = chunk;
        while !chunk.is_empty() {
            let count = chunk.chars().count();
            let is_space = chunk.chars().all(char::is_whitespace);
            if size == 0 && is_space && !lines.is_empty() {
                break;
            }
            if size + count <= width {
                current.push_str(chunk);
                size += count;
                break;
            }
            // A word that fits into no line is broken here, or has a line of its own.
            let room = width - size;
            if count > width && breaks_words && room > 0 && !is_space {
                let at = chunk.char_indices().nth(room).map_or(chunk.len(), |(at, _)| at);
                let (start, rest) = chunk.split_at(at);
                current.push_str(start);
                chunk = rest;
            } else if size == 0 {
                current.push_str(chunk);
                chunk = "";
            }
            lines.push(current.trim_end().to_owned());
            current.clear();
            size = 0;
        }
    }
    let rest = current.trim_end();
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}

/// Splits a line into words and the space between them.
fn chunks(line: &str, breaks_hyphens: bool) -> Vec<&str> {
    let mut ends = Vec::new();
    let chars: Vec<(usize, char)> = line.char_indices().collect();
    for pair in chars.windows(2) {
        if let [(_, before), (at, after)] = pair {
            let is_between = before.is_whitespace() != after.is_whitespace();
            let is_hyphen = breaks_hyphens && *before == '-' && after.is_alphabetic();
            if is_between || is_hyphen {
                ends.push(*at);
            }
        }
    }
    ends.push(line.len());
    let mut start = 0;
    ends.into_iter().filter_map(|end| line.get(std::mem::replace(&mut start, end)..end)).collect()
}

/// Writes a map as attributes of XML. Values that are undefined or `none` are left out.
fn xml_attributes(map: &Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<String, Error> {
    let args = Arguments { by_place, by_name };
    let has_space: Option<bool> = args.get(0, "autospace")?;
    args.end(1)?;
    let mut written = Vec::new();
    for key in map.try_iter()? {
        let value = map.get_item(&key)?;
        if value.is_undefined() || value.is_none() {
            continue;
        }
        let key = key.to_string();
        if key.is_empty() || key.contains(|c: char| c.is_whitespace() || matches!(c, '/' | '>' | '=')) {
            return Err(invalid("this is no name of an attribute"));
        }
        written.push(format!("{}=\"{}\"", escaped(&key), escaped(&value.to_string())));
    }
    let written = written.join(" ");
    let space = if has_space.unwrap_or(true) && !written.is_empty() { " " } else { "" };
    Ok(format!("{space}{written}"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
        .replace('"', "&#34;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The results are those of Jinja in Python.
    #[test]
    fn templates_have_the_results_of_jinja() {
        let mut environment = Environment::new();
        add_to(&mut environment);
        let values = BTreeMap::from([
            ("A", Value::from("hello world of text")),
            ("N", Value::from(12)),
            ("P", Value::from("src/main.rs")),
            ("L", Value::from(vec!["b", "a"])),
            ("M", Value::from(BTreeMap::from([("k", Value::from(1))]))),
            ("S", Value::from("a<b>c</b>")),
            ("SIZE", Value::from(1_234_567)),
        ]);
        for (template, expected) in [
            ("{{ A[:3] }}", "hel"),
            ("{{ A[1:] }}", "ello world of text"),
            ("{{ A[-4:] }}", "text"),
            ("{{ A.upper() }}", "HELLO WORLD OF TEXT"),
            ("{{ A.split() }}", "['hello', 'world', 'of', 'text']"),
            ("{{ A.split(' ')[0] }}", "hello"),
            ("{{ A.replace('l','L') }}", "heLLo worLd of text"),
            ("{{ P.endswith('.rs') }}", "True"),
            ("{{ P.startswith('src') }}", "True"),
            ("{{ P.split('/')|last }}", "main.rs"),
            ("{{ P.rsplit('.',1)[0] }}", "src/main"),
            ("{{ A.title() }}", "Hello World Of Text"),
            ("{{ A.strip() }}", "hello world of text"),
            ("{{ A.lstrip('h') }}", "ello world of text"),
            ("{{ A.rstrip('t') }}", "hello world of tex"),
            ("{{ A.count('l') }}", "3"),
            ("{{ A.find('w') }}", "6"),
            ("{{ A.zfill(25) }}", "000000hello world of text"),
            ("{{ A.join(['a','b']) }}", "ahello world of textb"),
            ("{{ ','.join(['a','b']) }}", "a,b"),
            ("{{ A.isdigit() }}", "False"),
            ("{{ A.capitalize() }}", "Hello world of text"),
            ("{{ A.swapcase() }}", "HELLO WORLD OF TEXT"),
            ("{{ A.center(30) }}", "     hello world of text      "),
            ("{{ A.ljust(30) }}|", "hello world of text           |"),
            ("{{ A.rjust(30) }}|", "           hello world of text|"),
            ("{{ A.splitlines() }}", "['hello world of text']"),
            ("{{ A.casefold() }}", "hello world of text"),
            ("{{ A.index('w') }}", "6"),
            ("{{ A.removeprefix('he') }}", "llo world of text"),
            ("{{ A.removesuffix('xt') }}", "hello world of te"),
            ("{{ 'x{}y'.format(3) }}", "x3y"),
            ("{{ L.count('a') }}", "1"),
            ("{{ L.index('a') }}", "1"),
            ("{{ N % 5 }}", "2"),
            ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(A) }}", "<hello world of text>"),
            (
                "{% macro g(x, y=2) %}{{ x }}-{{ y }}-{{ caller() }}{% endmacro %}{% call g(1) %}body{% endcall %}",
                "1-2-body",
            ),
            ("{{ A|truncate(9) }}", "hello..."),
            ("{{ A|truncate(9, true) }}", "hello ..."),
            ("{{ A|truncate(9, true, '!') }}", "hello wo!"),
            ("{{ A|truncate(18) }}", "hello world of text"),
            ("{{ A|tojson }}", r#""hello world of text""#),
            ("{{ S|tojson }}", r#""a\u003cb\u003ec\u003c/b\u003e""#),
            ("{{ A|wordwrap(8) }}", "hello\nworld of\ntext"),
            ("{{ 'a b&c/d'|urlencode }}", "a%20b%26c/d"),
            ("{{ 'ab'|center(6) }}|", "  ab  |"),
            ("{{ A|wordcount }}", "4"),
            ("{{ SIZE|filesizeformat }}", "1.2 MB"),
            ("{{ SIZE|filesizeformat(true) }}", "1.2 MiB"),
            ("{{ 0|filesizeformat }}", "0 Bytes"),
            ("{{ 1|filesizeformat }}", "1 Byte"),
            ("{{ S|striptags }}", "ac"),
            (r#"{{ {'class':'a"b','id':none}|xmlattr }}"#, r#" class="a&#34;b""#),
            ("{{ L|sort|join(',') }}", "a,b"),
            ("{{ A|format }}", "hello world of text"),
            (r#"{{ "%s!"|format(A) }}"#, "hello world of text!"),
            ("{{ none }}", "None"),
            ("{{ L }}", "['b', 'a']"),
            ("{{ A ~ N }}", "hello world of text12"),
            ("{{ 7 // 2 }} {{ 7 / 2 }} {{ 2**3 }}", "3 3.5 8"),
            ("{% set x = 3 %}{{ x }}", "3"),
            ("{% for i in L %}{{ loop.index }}{{ i }}{% endfor %}", "1b2a"),
            ("{{ L|map('upper')|list }}", "['B', 'A']"),
            ("{{ A is string }}", "True"),
            ("{{ A in ['x'] }}", "False"),
            ("{% filter upper %}abc{% endfilter %}", "ABC"),
            ("{{ 3.7|round }}", "4.0"),
            ("{{ A|e }}", "hello world of text"),
            ("{{ ('a','b') }}", "('a', 'b')"),
            ("{{ L[0] }} {{ L[-1] }}", "b a"),
            ("{{ A[::-1] }}", "txet fo dlrow olleh"),
            ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
            ("{% with z=1 %}{{ z }}{% endwith %}", "1"),
            ("{{ A|list|length }}", "19"),
            ("{{ [1,2,3]|sum }}", "6"),
            ("{{ A.upper().lower() }}", "hello world of text"),
            ("{{ M.keys()|list }}", "['k']"),
            ("{{ M.items()|list }}", "[('k', 1)]"),
            ("{{ M.get('k') }}{{ M.get('z', 5) }}", "15"),
            ("{{ M|tojson }}", r#"{"k": 1}"#),
            ("{{ M|xmlattr }}", r#" k="1""#),
            ("{{ A.partition(' ')[2] }}{{ A.rpartition(' ')[0] }}", "world of texthello world of"),
            ("{{ A|wordwrap(width=5, wrapstring='|') }}", "hello|world|of|text"),
            ("{{ 'abcdefgh'|wordwrap(3) }}", "abc\ndef\ngh"),
            ("{{ A|truncate(length=9, killwords=true) }}", "hello ..."),
            ("{{ '-5'.zfill(4) }}", "-005"),
            ("{{ A.split(maxsplit=1) }}", "['hello', 'world of text']"),
            ("{{ P.rsplit('/', maxsplit=1) }}", "['src', 'main.rs']"),
            ("{{ 'a,b,,c'.split(sep=',') }} {{ 'a,b,c'.split(',', 1) }}", "['a', 'b', '', 'c'] ['a', 'b,c']"),
            (
                "{{ A.find('o', 5) }} {{ A.find('z') }} {{ A.rfind('o') }} {{ A.rindex('o', 0, -8) }}",
                "7 -1 12 7",
            ),
            (
                "{{ A.count('o', 5) }} {{ A.startswith('llo', 2) }} {{ A.endswith(('x', 'ell'), 0, 4) }}",
                "2 True True",
            ),
            ("{{ A.partition(' ') }}", "('hello', ' ', 'world of text')"),
            (
                "{{ A|replace('o', '0', 1) }} {{ A|replace('o', '0') }}",
                "hell0 world of text hell0 w0rld 0f text",
            ),
            ("{{ 1.5|replace('.', '_') }} {{ N|replace(1, 2) }}", "1_5 22"),
            (
                "{{ X|default('a') }} {{ ''|default('b', true) }} {{ ''|d('c', boolean=true) }} {{ ''|d }}|",
                "a b c |",
            ),
            (
                "{{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.7'|int }} {{ '0x1f'|int(base=16) }} {{ 'x'|int(default=2) }}",
                "0 7 3 31 2",
            ),
            ("{{ 'x'|float }} {{ 'x'|float(1.5) }} {{ '2.5'|float }}", "0.0 1.5 2.5"),
            ("{{ SIZE|filesizeformat(binary=true) }} {{ '300'|filesizeformat }}", "1.2 MiB 300 Bytes"),
            ("{{ M|xmlattr(autospace=false) }}", r#"k="1""#),
            ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "aba"),
            (
                "{% for i in L %}{{ loop.previtem|default('-') }}{{ loop.nextitem|default('-') }}{% endfor %}",
                "-ab-",
            ),
            ("{{ '12'.isdecimal() }} {{ ''.isdecimal() }}", "True False"),
            ("{{ \"it's bar-baz 7b\".title() }}", "It'S Bar-Baz 7B"),
            ("{{ ' 7 '|int }} {{ '1_000'|int }} {{ '1__0'|int }} {{ '_1'|int(5) }}", "7 1000 0 5"),
            ("{{ 'x\n'|indent(2) }}|{{ ''|indent(4, true) }}|", "x\n|    |"),
            ("{{ 'a\n\nb'|indent }}", "a\n\n    b"),
            ("{{ 'a\n\nb'|indent('> ', first=true, blank=true) }}", "> a\n> \n> b"),
            ("{{ ' a b  c '.split(none, 1) }}", "['a', 'b  c ']"),
            ("{{ ' a b  c '.rsplit(none, 1) }} {{ ' a  b '.split() }}", "[' a b', 'c'] ['a', 'b']"),
            ("{{ 'abc'.find('', 5) }} {{ 'abc'.find('', 3) }} {{ 'abc'.count('', 5) }}", "-1 3 0"),
            ("{{ 'abc'.startswith('', 5) }} {{ 'abc'.find('', 2, 1) }}", "False -1"),
        ] {
            let rendered = environment.render_str(template, &values);
            assert_eq!(rendered.unwrap_or_else(|error| error.to_string()), expected, "{template}");
        }
        for template in [
            "{{ A.rsplit('') }}",
            "{{ A.index('z') }}",
            "{{ A.center(9999999999) }}",
            "{{ A.center(30, 'xy') }}",
            "{{ A.nomethod() }}",
            "{{ A|truncate(2) }}",
            "{{ A|truncate(1, true, '', 0, 5) }}",
            "{{ A|wordwrap(0) }}",
            "{{ {'a b': 1}|xmlattr }}",
            "{{ L.index('z') }}",
        ] {
            assert!(environment.render_str(template, &values).is_err(), "{template}");
        }
    }
}
