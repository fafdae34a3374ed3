//! The tones of code.

use std::ops::Range;
use std::sync::OnceLock;

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use crate::row::Tone;

/// The largest code that is coloured, in bytes and in lines.
const LARGEST: usize = 512 << 10;
const MOST_LINES: usize = 10_000;
/// The longest line, in bytes.
const LONGEST_LINE: usize = 4 << 10;

/// The beginnings of scopes and their tones, the more special ones first. `None` ends the search: what is around it does not count.
const TONES: [(&str, Option<Tone>); 18] = [
    ("comment", Some(Tone::Comment)),
    ("meta.interpolation", None),
    ("source.shell.embedded", None),
    ("string", Some(Tone::Literal)),
    ("constant", Some(Tone::Literal)),
    ("markup.raw", Some(Tone::Literal)),
    ("keyword.operator", None),
    ("keyword", Some(Tone::Keyword)),
    ("storage.type.function", Some(Tone::Keyword)),
    ("storage", Some(Tone::Keyword)),
    ("entity.name.tag", Some(Tone::Keyword)),
    ("entity.other.attribute-name", Some(Tone::Definition)),
    ("entity.name", Some(Tone::Definition)),
    ("entity.other.inherited-class", Some(Tone::Definition)),
    ("support.type", Some(Tone::Definition)),
    ("support.class", Some(Tone::Definition)),
    ("support.function", Some(Tone::Definition)),
    ("variable.function", Some(Tone::Definition)),
];

/// Names of languages that the grammars do not have.
const ALIASES: [(&str, &str); 12] = [
    ("shell", "sh"),
    ("console", "sh"),
    ("shell-session", "sh"),
    ("zsh", "sh"),
    ("golang", "go"),
    ("jsonc", "json"),
    ("json5", "json"),
    ("python3", "py"),
    ("docker", "dockerfile"),
    ("csharp", "cs"),
    ("objective-c", "m"),
    ("patch", "diff"),
];

/// Finds the tones of code.
///
/// It loads its grammars with the first code, which takes about 25 ms. One serves all threads.
#[derive(Debug, Default)]
pub struct Highlighter {
    grammars: OnceLock<Grammars>,
}

#[derive(Debug)]
struct Grammars {
    syntaxes: SyntaxSet,
    tones: Vec<(Scope, Option<Tone>)>,
}

impl Highlighter {
    /// Creates one. Nothing is loaded yet.
    pub const fn new() -> Self {
        Self { grammars: OnceLock::new() }
    }

    /// Returns the tones of code by places in it, in order; those of words without a meaning are plain. Without any, the language is unknown or the code is too large: more than 512 KiB, more than 10,000
    /// lines, or a line of more than 4 KiB.
    ///
    /// `language` is what the author of a code block wrote, or the name of a file.
    pub fn tones(&self, language: &str, code: &str) -> Vec<(Range<usize>, Tone)> {
        let is_long = |line: &str| line.len() > LONGEST_LINE;
        if language.is_empty()
            || code.len() > LARGEST
            || code.lines().count() > MOST_LINES
            || code.lines().any(is_long)
        {
            return Vec::new();
        }
        let grammars = self.grammars.get_or_init(Grammars::load);
        match grammars.find(language) {
            Some(syntax) => grammars.tones(syntax, code),
            None => Vec::new(),
        }
    }
}

impl Grammars {
    fn load() -> Self {
        let scope = |(name, tone): &(&str, Option<Tone>)| Scope::new(name).ok().map(|scope| (scope, *tone));
        Self { syntaxes: two_face::syntax::extra_newlines(), tones: TONES.iter().filter_map(scope).collect() }
    }

    /// Finds a grammar by the name of a language or of a file.
    fn find(&self, language: &str) -> Option<&SyntaxReference> {
        let name = language.to_ascii_lowercase();
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, name)| *name);
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        let names = [alias, Some(language), Some(&name), extension];
        let find = |name: &str| self.syntaxes.find_syntax_by_token(name);
        let found = names.into_iter().flatten().find_map(find)?;
        let plain = self.syntaxes.find_syntax_plain_text();
        (found.scope != plain.scope).then_some(found)
    }

    fn tones(&self, syntax: &SyntaxReference, code: &str) -> Vec<(Range<usize>, Tone)> {
        let mut state = ParseState::new(syntax);
        let mut stack = ScopeStack::new();
        let mut tones: Vec<(Range<usize>, Tone)> = Vec::new();
        let mut start = 0;
        for line in code.split_inclusive('\n') {
            // A grammar that fails leaves the rest without tones.
            let Ok(changes) = state.parse_line(line, &self.syntaxes) else { break };
            let (mut at, end) = (0, line.trim_end().len());
            for (next, change) in changes {
                self.add(&mut tones, &stack, start + at..start + next.min(end));
                at = next.min(end);
                if stack.apply(&change).is_err() {
                    return tones;
                }
            }
            self.add(&mut tones, &stack, start + at..start + end);
            start += line.len();
        }
        tones
    }

    /// Adds a range with the tone of its scopes.
    fn add(&self, tones: &mut Vec<(Range<usize>, Tone)>, stack: &ScopeStack, range: Range<usize>) {
        if range.start >= range.end {
            return;
        }
        let tone = self.tone(stack).unwrap_or(Tone::Plain);
        match tones.last_mut() {
            Some((last, last_tone)) if *last_tone == tone && last.end == range.start => last.end = range.end,
            _ => tones.push((range, tone)),
        }
    }

    /// Returns the tone of the innermost scope that has one.
    fn tone(&self, stack: &ScopeStack) -> Option<Tone> {
        let known = |scope: &Scope| self.tones.iter().find(|(prefix, _)| prefix.is_prefix_of(*scope));
        stack.scopes.iter().rev().find_map(known).and_then(|(_, tone)| *tone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toned(language: &str, code: &str) -> Vec<(String, Tone)> {
        static HIGHLIGHTER: Highlighter = Highlighter::new();
        let tones = HIGHLIGHTER.tones(language, code);
        for pair in tones.windows(2) {
            assert!(pair[0].0.end <= pair[1].0.start, "{pair:?}");
        }
        tones.into_iter().map(|(range, tone)| (code[range].to_owned(), tone)).collect()
    }

    #[test]
    fn code_has_tones_by_its_language_or_file() {
        let code = "// why\nfn main() {\n    let x = \"é\";\n}\n";
        for language in ["rust", "Rust", "rs", "token.rs"] {
            let tones = toned(language, code);
            for (text, tone) in [
                ("fn", Tone::Keyword),
                ("main", Tone::Definition),
                ("\"é\"", Tone::Literal),
                ("// why", Tone::Comment),
            ] {
                assert!(tones.contains(&(text.to_owned(), tone)), "{language}: {text} in {tones:?}");
            }
        }
        for (language, code) in [
            ("python", "def f(): return 1"),
            ("ts", "const x: number = 1"),
            ("tsx", "const x = <a/>"),
            ("bash", "echo \"$x\""),
            ("console", "ls 'x'"),
            ("toml", "a = 'b'"),
            ("yaml", "a: \"b\""),
            ("json", "{\"a\": 1}"),
            ("Dockerfile", "FROM x"),
            ("Makefile", "a:\n\t@echo 'x'"),
            ("go", "func main() {}"),
            ("sql", "SELECT 1"),
            ("html", "<a href='x'>"),
            ("css", "a { color: red }"),
            ("cpp", "int main() {}"),
            ("diff", "+a"),
        ] {
            let tones = toned(language, code);
            assert!(tones.iter().any(|(_, tone)| *tone != Tone::Plain) || language == "diff", "{language}");
        }
    }

    #[test]
    fn code_that_is_too_large_or_unknown_has_no_tones() {
        assert!(toned("klingon", "fn main() {}").is_empty());
        assert!(toned("text", "fn main() {}").is_empty());
        assert!(toned("", "fn main() {}").is_empty());
        assert!(toned("rust", &"let x = 1; // a long line\n".repeat(10_001)).is_empty());
        assert!(toned("rust", &format!("fn main() {{}}\n// {}", "x".repeat(5_000))).is_empty());
    }
}
