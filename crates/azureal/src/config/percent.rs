//! The operator `%` of a text: `{{ "%s.log" % NAME }}`. The template engine has it for numbers alone.
//!
//! `"%s" % NAME` becomes `"%s"|percent(NAME)`, which is the same: a filter binds at least as tightly. Only a text that is written in the
//! template is recognised, because nothing else shows before rendering that it is a text.

use std::borrow::Cow;

/// Returns a template without the operator.
pub(super) fn without_operator(template: &str) -> Cow<'_, str> {
    let mut insertions: Vec<(usize, &str)> = Vec::new();
    let mut operators: Vec<usize> = Vec::new();
    for (start, end) in expressions(template) {
        let mut is_after_text = false;
        let mut at = start;
        while at < end {
            let rest = template.get(at..end).unwrap_or_default();
            let token = token(rest);
            let written = rest.get(..token).unwrap_or_default();
            if written == "%" && is_after_text {
                operators.push(at);
                insertions.push((at + 1 + operand(rest.get(1..).unwrap_or_default()), ")"));
            }
            if !written.trim().is_empty() {
                is_after_text = written.starts_with(['"', '\'']);
            }
            at += token;
        }
    }
    if operators.is_empty() {
        return template.into();
    }
    insertions.extend(operators.iter().map(|at| (*at, "|percent(")));
    insertions.sort_by_key(|(at, _)| *at);
    let mut out = String::with_capacity(template.len() + 16 * operators.len());
    let mut done = 0;
    for (at, text) in insertions {
        out.push_str(template.get(done..at).unwrap_or_default());
        out.push_str(text);
        // The operator itself goes.
        done = if text == ")" { at } else { at + 1 };
    }
    out.push_str(template.get(done..).unwrap_or_default());
    out.into()
}

/// Returns the places of what is between the marks of a template, without comments and raw texts.
fn expressions(template: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = template.get(at..).and_then(|rest| rest.find('{')).map(|begin| at + begin) {
        let rest = template.get(begin..).unwrap_or_default();
        at = match rest.as_bytes() {
            [b'{', b'#', ..] => rest.find("#}").map_or(template.len(), |end| begin + end + 2),
            [b'{', mark @ (b'{' | b'%'), ..] => {
                let close = if *mark == b'{' { "}}" } else { "%}" };
                let end = begin + 2 + until(rest.get(2..).unwrap_or_default(), close);
                let inner = template.get(begin + 2..end).unwrap_or_default();
                found.push((begin + 2, end));
                let is_raw = *mark == b'%' && inner.trim_matches(['-', '+']).trim() == "raw";
                let rest = template.get(end..).unwrap_or_default();
                if is_raw { end + rest.find("endraw").unwrap_or(rest.len()) } else { end }
            }
            _ => begin + 1,
        };
    }
    found
}

/// Returns the length of a text up to a mark outside of quotes and brackets: `{{ {'a': {}} }}` has one at its end alone.
fn until(text: &str, mark: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if depth == 0 && rest.starts_with(mark) {
            return at;
        }
        match rest.as_bytes() {
            [b'(' | b'[' | b'{', ..] => depth += 1,
            [b')' | b']' | b'}', ..] => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += token(rest);
    }
    text.len()
}

/// Returns the length of the next token: a text in quotes, a word or number, white space, or one character.
fn token(rest: &str) -> usize {
    let Some(first) = rest.chars().next() else { return 0 };
    if matches!(first, '"' | '\'') {
        let mut is_escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                c if c == first => return at + 1,
                _ => {}
            }
        }
        return rest.len();
    }
    let class = |c: char| (c.is_whitespace(), c.is_alphanumeric() || c == '_');
    if class(first) == (false, false) {
        return first.len_utf8();
    }
    rest.find(|c| class(c) != class(first)).unwrap_or(rest.len())
}

/// Returns the length of an operand: a sign, a value, and all that belongs to it, such as `.upper()`, `[0]` and filters.
fn operand(rest: &str) -> usize {
    // Where a value may begin, and how deep in brackets.
    let (mut at, mut end, mut depth, mut wants_value) = (0, 0, 0_usize, true);
    while let Some(rest) = rest.get(at..).filter(|rest| !rest.is_empty()) {
        let length = token(rest);
        let written = rest.get(..length).unwrap_or_default();
        at += length;
        match written {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => break,
            ")" | "]" | "}" => depth -= 1,
            _ if depth > 0 => continue,
            _ if written.trim().is_empty() => continue,
            "." | "|" => {
                wants_value = true;
                continue;
            }
            "-" | "+" if wants_value => continue,
            // Two texts that stand together are one.
            _ if !wants_value && !written.starts_with(['"', '\'']) => break,
            _ if !written.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '"' | '\'')) => {
                break;
            }
            _ => {}
        }
        if depth == 0 {
            end = at;
        }
        wants_value = false;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_becomes_a_filter() {
        for (template, expected) in [
            ("{{ \"%s\" % A }}", "{{ \"%s\" |percent( A) }}"),
            (
                "{{ '%s' % A.b[0].c('}}', x) | upper ~ 'x' }}",
                "{{ '%s' |percent( A.b[0].c('}}', x) | upper) ~ 'x' }}",
            ),
            ("{{ '%s %s'%(A, N % 2)}}", "{{ '%s %s'|percent((A, N % 2))}}"),
            ("{% if '%s' % -1 == '-1' %}x{% endif %}", "{% if '%s' |percent( -1) == '-1' %}x{% endif %}"),
            ("{{ ('%s' % ('%d' % 1)) }}", "{{ ('%s' |percent( ('%d' |percent( 1)))) }}"),
            ("{{ '%s' % 1.5 + 1 }}", "{{ '%s' |percent( 1.5) + 1 }}"),
            ("{{ '%s' % 'a' 'b' }}", "{{ '%s' |percent( 'a' 'b') }}"),
            ("{{ '%(a)s' % {'a': {'b': 1}} }} '%s' % x", "{{ '%(a)s' |percent( {'a': {'b': 1}}) }} '%s' % x"),
            ("{%- set x = '%s' % A -%}", "{%- set x = '%s' |percent( A) -%}"),
        ] {
            assert_eq!(without_operator(template), expected);
        }
        for template in [
            "date +'%s' % x",
            "{{ N % 5 }}",
            "{# '%s' % A #}",
            "{% raw %}{{ '%s' % A }}{% endraw %}",
            "{{ \"it's\" }} % {{ '%' }}",
            "{% set x = 'a' %}",
            "{{ 'a\\' % b' }}",
            "{{ 'open % ",
            "{{",
            "{",
        ] {
            assert!(matches!(without_operator(template), Cow::Borrowed(_)), "{template}");
        }
        // Whatever is written, there is an answer.
        for template in [
            "{{ '%s' % }}",
            "{{ '%s' % ( }}",
            "{{ '%s' % ) }}",
            "{{ '%s' % é.ü|x }}",
            "{{ '%s' %",
            "{{ '%s' % % }}",
        ] {
            without_operator(template);
        }
    }
}
