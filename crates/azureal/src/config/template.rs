//! Commands with `{{ VARIABLES }}` in them.
//!
//! A template is only a text: it cannot load files or other templates, and its steps are bounded. The process that
//! renders it bounds its memory and time: [`super::bounded`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, ErrorKind, UndefinedBehavior, Value};

use super::settings::{Variable, nearest};
use super::{jinja, percent};
use crate::environment::Environment;
use crate::error::{Error, quoted};

/// The steps that rendering one command may take.
const STEPS: u64 = 100_000;
/// The tags of a template.
const TAGS: [&str; 3] = ["{{", "{%", "{#"];
/// The longest template, and the stack for it: twice the need of the worst one without optimisation.
const LONGEST_TEMPLATE: usize = 16 * 1024;
const STACK: usize = 32 * 1024 * 1024;
/// The longest argument of a program on Linux, without the terminator.
const LONGEST_COMMAND: usize = 128 * 1024 - 1;

/// The sources of variables.
pub(super) struct Variables<'a> {
    /// From the command line.
    pub(super) given: &'a [(String, String)],
    pub(super) environment: &'a Environment,
    /// From configuration files, with environment variables in their values filled in.
    pub(super) declared: Vec<(&'a str, Variable)>,
}

impl Variables<'_> {
    /// Looks a variable up: the command line counts before the environment, and that before the files.
    fn find(&self, name: &str) -> Option<Value> {
        // The last one counts, as everywhere on a command line.
        if let Some((_, text)) = self.given.iter().rev().find(|(given, _)| given == name) {
            return Some(typed(text));
        }
        if let Some(text) = self.environment.variable(name) {
            return Some(typed(text));
        }
        match self.declaration(name)? {
            Variable::Required => None,
            Variable::Switch(is_on) => Some((*is_on).into()),
            Variable::Integer(number) => Some((*number).into()),
            Variable::Fraction(number) => Some((*number).into()),
            Variable::Text(text) => Some(text.as_str().into()),
        }
    }

    fn declaration(&self, name: &str) -> Option<&Variable> {
        self.declared.iter().find(|(declared, _)| *declared == name).map(|(_, variable)| variable)
    }

    /// Returns the names that were given or declared. Those of the environment are too many to help.
    fn names(&self) -> BTreeSet<&str> {
        let given = self.given.iter().map(|(name, _)| name.as_str());
        given.chain(self.declared.iter().map(|(name, _)| *name)).collect()
    }

    /// Creates the error of a variable without a value, with a hint.
    fn missing(&self, name: &str) -> Error {
        if self.declaration(name).is_some() {
            return Error::new("variable", format!("the variable {} must be given a value", quoted(name)))
                .with_hint(format!(
                    "`--var {name}=VALUE` gives it one, or the environment: `export {name}=VALUE`"
                ));
        }
        let names = self.names();
        let known = if names.is_empty() {
            "there are none".to_owned()
        } else {
            format!("there are {}", names.iter().copied().collect::<Vec<_>>().join(", "))
        };
        let meant = nearest(name, names.into_iter());
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {}?", quoted(meant)));
        Error::new("variable", format!("there is no variable {}; {known}{meant}", quoted(name))).with_hint(
            format!("`--var {name}=VALUE` sets it for once, `variables` in a configuration file declares it"),
        )
    }
}

/// Returns whether a command has anything to fill in.
pub(super) fn is_template(command: &str) -> bool {
    TAGS.iter().any(|tag| command.contains(tag))
}

/// Fills in the variables of a command.
pub(super) fn fill_in(command: &str, variables: &Variables<'_>) -> Result<String, Error> {
    let filled = if is_template(command) {
        Cow::Owned(with_room(command, variables)?)
    } else {
        Cow::Borrowed(command)
    };
    let filled = filled.trim();
    if filled.is_empty() {
        return Err(Error::new(
            "template",
            "nothing is left of the command when its variables are filled in",
        ));
    }
    if filled.contains('\0') {
        return Err(Error::new("template", "the command has a null character, which no shell takes"));
    }
    if filled.len() > LONGEST_COMMAND {
        let message = format!("the command has {} bytes; a shell takes {LONGEST_COMMAND}", filled.len());
        return Err(
            Error::new("template", message).with_hint("put what is long into a file, and name the file")
        );
    }
    Ok(filled.to_owned())
}

/// Fills in a template where there is room for it. For every `.a` of a chain the engine goes one call deeper, and it does
/// not count them: on a usual stack, a template of a few kilobytes would end the program.
fn with_room(template: &str, variables: &Variables<'_>) -> Result<String, Error> {
    if template.len() > LONGEST_TEMPLATE {
        let message = format!("the template has {} bytes; allowed are {LONGEST_TEMPLATE}", template.len());
        return Err(Error::new("template", message).with_hint("put what is long into a script, and run that"));
    }
    let rendered = thread::scope(|scope| {
        let renderer = thread::Builder::new().stack_size(STACK);
        let rendering = renderer.spawn_scoped(scope, || render(template, variables)).ok()?;
        rendering.join().ok()
    });
    rendered
        .unwrap_or_else(|| Err(Error::new("template", "the template cannot be filled in on this machine")))
}

fn render(template: &str, variables: &Variables<'_>) -> Result<String, Error> {
    let environment = engine();
    let asked = names_in(template);
    let template = percent::without_operator(template);
    let template = environment.template_from_str(&template).map_err(|error| unusable(&error))?;
    let values: BTreeMap<&str, Value> =
        asked.iter().filter_map(|name| Some((*name, variables.find(name)?))).collect();
    template.render(Value::from(values)).map_err(|error| {
        // An error names the variable that it is about, and there is no other way to learn it.
        let names = |name: &&&str| error.to_string().contains(&format!("`{name}` is undefined"));
        asked.iter().find(names).map_or_else(|| unusable(&error), |name| variables.missing(name))
    })
}

/// Returns every word of a template that could be a variable. The engine's own list lacks those in a slice, `{{ A[:3] }}`.
fn names_in(template: &str) -> BTreeSet<&str> {
    let words = template.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_')).collect()
}

fn engine() -> minijinja::Environment<'static> {
    let mut environment = minijinja::Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // As cllm does, so that a condition on its own lines leaves no empty lines.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_fuel(Some(STEPS));
    environment.set_debug(true);
    environment.add_filter("shellquote", |value: String| shell_quoted(&value));
    jinja::add_to(&mut environment);
    environment
}

fn unusable(error: &minijinja::Error) -> Error {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let message = match error.kind() {
        ErrorKind::OutOfFuel => format!("the template does not come to an end in {STEPS} steps"),
        ErrorKind::InvalidOperation if detail.contains("% operator") => {
            "`%` has no text on its left; write TEXT | format(NAME)".to_owned()
        }
        _ => format!("the template cannot be filled in: {detail}"),
    };
    Error::new("template", message).with_hint(
        "variables are written {{ NAME }}, conditions {% if NAME %}…{% endif %}, and {{ NAME | shellquote }} \
         makes any value one word for the shell",
    )
}

/// Reads a value that came as text: what is written exactly like a number, true or false is that, so that
/// conditions and comparisons work. `007` and `1.10` stay as they are.
fn typed(text: &str) -> Value {
    if text.eq_ignore_ascii_case("true") {
        return true.into();
    }
    if text.eq_ignore_ascii_case("false") {
        return false.into();
    }
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => return number.into(),
        _ => {}
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && Value::from(number).to_string() == text => number.into(),
        _ => text.into(),
    }
}

/// Quotes any text as one word for a POSIX shell.
pub(crate) fn shell_quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn variables<'a>(
        given: &'a [(String, String)],
        environment: &'a Environment,
        declared: &[(&'a str, Variable)],
    ) -> Variables<'a> {
        Variables { given, environment, declared: declared.to_vec() }
    }

    fn text(text: &str) -> Variable {
        Variable::Text(text.to_owned())
    }

    fn given(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_command_line_counts_before_the_environment_and_that_before_the_files() {
        let environment = Environment::from([("B", "environment"), ("C", "environment")]);
        let given = given(&[("C", "first"), ("C", "line")]);
        let declared = [("A", text("file")), ("B", text("file")), ("C", text("file"))];
        let variables = variables(&given, &environment, &declared);
        let filled = fill_in("{{ A }} {{ B }} {{ C }}", &variables).unwrap();
        assert_eq!(filled, "file environment line");
    }

    #[test]
    fn templates_are_jinja() {
        let environment = Environment::from([("N", "3"), ("OLD", "007"), ("VERSION", "1.10")]);
        let given = given(&[("QUIET", "False"), ("VERBOSE", "true"), ("F", "a b")]);
        let declared = [
            ("BIG", Variable::Integer(50)),
            ("HALF", Variable::Fraction(0.5)),
            ("ON", Variable::Switch(true)),
        ];
        let variables = variables(&given, &environment, &declared);
        for (template, expected) in [
            ("git status", "git status"),
            ("  x {{ N }}\n", "x 3"),
            ("head -n {{ BIG }} {{ HALF }}", "head -n 50 0.5"),
            (
                "a{% if QUIET %} q{% endif %}{% if VERBOSE %} v{% else %} n{% endif %}{% if ON %} o{% endif %}",
                "a v o",
            ),
            ("{% if N > 2 %}more{% endif %}", "more"),
            ("echo {{ OLD }} {{ VERSION }}", "echo 007 1.10"),
            ("log -n {{ MAX | default(10) }}", "log -n 10"),
            ("{{ F | upper }} {{ F | shellquote }} {{ N | shellquote }}", "A B 'a b' 3"),
            ("{% for i in range(3) %}{{ i }}{% endfor %}", "012"),
            ("echo '{{ \"{{\" }}'", "echo '{{'"),
            ("a\n  {% if ON %}\nb\n  {% endif %}\nc", "a\nb\nc"),
            ("echo ${HOME} $(date) #x", "echo ${HOME} $(date) #x"),
            ("echo <a & b>", "echo <a & b>"),
            (
                "{{ '%s-%03d' % (F, N) }} {{ '%s' % F }} {{ '%(a)s' % {'a': F} }} {{ '%s%%' % [1] }}",
                "a b-003 a b a b [1]%",
            ),
        ] {
            assert_eq!(fill_in(template, &variables).unwrap(), expected, "{template}");
        }
    }

    #[test]
    fn what_has_no_value_is_named_with_what_there_is() {
        let environment = Environment::from([("SECRET", "x")]);
        let given = given(&[("BRANCH", "main")]);
        let declared = [("FILE", text("a")), ("TEST", Variable::Required)];
        let variables = variables(&given, &environment, &declared);
        let told = |template: &str| fill_in(template, &variables).unwrap_err().message().to_owned();
        assert_eq!(
            told("cat {{ FIEL }}"),
            "there is no variable `FIEL`; there are BRANCH, FILE, TEST; did you mean `FILE`?"
        );
        assert_eq!(
            told("cat {{ SOMETHING | shellquote }}"),
            "there is no variable `SOMETHING`; there are BRANCH, FILE, TEST"
        );
        assert_eq!(
            told("{{ X | default(1) }} {{ ELSEWHERE }}"),
            "there is no variable `ELSEWHERE`; there are BRANCH, FILE, TEST"
        );
        assert_eq!(told("pytest -k {{ TEST }}"), "the variable `TEST` must be given a value");
        assert_eq!(
            told("{% if NOT_THERE %}x{% endif %}"),
            "there is no variable `NOT_THERE`; there are BRANCH, FILE, TEST"
        );
    }

    #[test]
    fn a_template_loads_nothing_and_comes_to_an_end() {
        let environment = Environment::default();
        let variables = variables(&[], &environment, &[]);
        for template in [
            "{% include '/etc/passwd' %}",
            "{% import 'x' as y %}",
            "{% extends 'x' %}",
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
            "{{ 'x' * 1000000000 }}",
            "{{ 'x' * 200000 }}",
            "{{ ''.__class__.__bases__ }}",
            "cat {{ FILE",
            "{{ 1 | nofilter }}",
            "{% if true %}",
            "{{ '' }}",
            "{{ '\\u0000' }}",
        ] {
            let failure = fill_in(template, &variables).unwrap_err();
            assert_eq!(failure.kind(), "template", "{template}: {}", failure.message());
        }
    }

    #[test]
    fn the_deepest_template_that_is_allowed_has_room() {
        let environment = Environment::default();
        let variables = variables(&[], &environment, &[]);
        for (begin, repeated, end) in [
            ("{{ ", "(", "1 }}"),
            ("{{ ", "-", "1 }}"),
            ("{{ ", "not ", "1 }}"),
            ("{{ 1", ".a", " }}"),
            ("{{ 1", "[1]", " }}"),
            ("{{ 1", "()", " }}"),
            ("{{ 1", "|f", " }}"),
            ("{{ 1", "+1", " }}"),
            ("{{ 1", "~1", " }}"),
            ("{{ 1", " and 1", " }}"),
            ("{{ 1", " if 1 else 1", " }}"),
            ("{% if 1 %}", "{%elif 1%}", "x{% endif %}"),
            ("", "{% if 1 %}", "x"),
            ("", "{%for a in b%}", "x"),
        ] {
            let times = (LONGEST_TEMPLATE - begin.len() - end.len()) / repeated.len();
            let longest = format!("{begin}{}{end}", repeated.repeat(times));
            // Whatever the answer is, there is one.
            if let Err(failure) = fill_in(&longest, &variables) {
                assert_eq!(failure.kind(), "template", "{repeated}");
            }
            let longer = format!("{begin}{}{end}", repeated.repeat(times + 1));
            let message = fill_in(&longer, &variables).unwrap_err().message().to_owned();
            assert!(message.ends_with("bytes; allowed are 16384"), "{message}");
        }
    }

    #[test]
    fn what_has_no_variables_may_be_as_long_as_a_shell_takes() {
        let environment = Environment::default();
        let variables = variables(&[], &environment, &[]);
        let longest = format!("echo {}", "x".repeat(LONGEST_COMMAND - 5));
        assert_eq!(fill_in(&longest, &variables).unwrap(), longest);
        assert!(Command::new("sh").args(["-c", &longest]).output().unwrap().status.success());
        assert!(fill_in(&format!("{longest}x"), &variables).is_err());
    }

    #[test]
    fn a_quoted_value_is_one_word_for_the_shell() {
        let environment = Environment::default();
        for hostile in [
            "",
            "plain",
            "a b",
            "'; echo owned; '",
            "$(echo owned) `echo owned` ${HOME} $HOME",
            "\\",
            "\\'",
            "'\\''",
            "a\nb\n",
            "*",
            "-n",
            "~",
            "a\tb\"c\"!&|;<>(){}[]#",
            "é 👩 \u{202e}",
            "=x",
            "\r\u{1b}[2J\u{7f}",
        ] {
            let given = given(&[("X", hostile)]);
            let variables = variables(&given, &environment, &[]);
            let command = fill_in("printf '[%s]' {{ X | shellquote }}; echo end", &variables).unwrap();
            let output = Command::new("sh").args(["-c", &command]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("[{hostile}]end\n"), "{command}");
        }
    }
}
