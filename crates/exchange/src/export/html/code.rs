//! Colours of code: comments, texts, numbers and words of the language. Enough to read by, for most languages at once.

use super::text::escaped;

/// The rules of a group of languages.
struct Language {
    /// The beginning of a comment to the end of the line.
    comment: &'static str,
    /// The beginning and the end of a comment over several lines.
    block: Option<(&'static str, &'static str)>,
    /// The characters that a text stands between.
    quotes: &'static [char],
    words: &'static str,
}

const C_LIKE: Language = Language {
    comment: "//",
    block: Some(("/*", "*/")),
    quotes: &['"', '\'', '`'],
    words: "abstract as async await break case catch class const continue crate def default defer delete do dyn else enum export extends extern \
            false final finally fn for from func function go if impl implements import in instanceof interface internal is let loop match mod \
            module move mut namespace new nil null object of operator override package private protected pub public ref return select self \
            static struct super switch this throw throws trait true try type typeof union unsafe use using val var virtual void where while with yield",
};
const RUST: Language = Language { quotes: &['"'], ..C_LIKE };
const HASH: Language = Language {
    comment: "#",
    block: None,
    quotes: &['"', '\''],
    words: "and as assert async await begin break case class continue def del do done elif else end esac except export false fi finally for from \
            function global if import in is lambda let local module nil none not null or pass raise require rescue return self set then true try \
            unless until when while with yield False None True",
};
const DASHES: Language = Language {
    comment: "--",
    block: Some(("/*", "*/")),
    quotes: &['"', '\''],
    words: "alter and as begin by case create delete desc distinct drop else end exists from function group having if in index inner insert into \
            is join left let limit local not null on or order outer primary references return select set table then union unique update values \
            view where with ALTER AND AS BEGIN BY CASE CREATE DELETE DESC DISTINCT DROP ELSE END EXISTS FROM GROUP HAVING IF IN INDEX INNER \
            INSERT INTO IS JOIN LEFT LIMIT NOT NULL ON OR ORDER OUTER PRIMARY REFERENCES SELECT SET TABLE THEN UNION UNIQUE UPDATE VALUES VIEW WHERE WITH",
};

/// Finds the rules of a language by the name that a code block has.
fn language(name: &str) -> Option<&'static Language> {
    Some(match name.to_ascii_lowercase().as_str() {
        "rust" | "rs" => &RUST,
        "c" | "cc" | "cpp" | "c++" | "cs" | "csharp" | "dart" | "go" | "golang" | "groovy" | "java"
        | "javascript" | "js" | "jsx" | "json" | "json5" | "jsonc" | "kotlin" | "kt" | "php" | "scala"
        | "swift" | "ts" | "tsx" | "typescript" | "zig" => &C_LIKE,
        "bash" | "console" | "dockerfile" | "elixir" | "ini" | "julia" | "make" | "makefile" | "nix"
        | "perl" | "py" | "python" | "r" | "rb" | "ruby" | "sh" | "shell" | "toml" | "yaml" | "yml"
        | "zsh" => &HASH,
        "haskell" | "hs" | "lua" | "sql" | "elm" => &DASHES,
        _ => return None,
    })
}

/// Returns code as HTML with its colours; `None` for a language without rules.
pub(super) fn coloured(name: &str, code: &str) -> Option<String> {
    let language = language(name)?;
    let mut out = String::with_capacity(code.len() * 2);
    let mut unclosed = Unclosed::default();
    let mut rest = code;
    while !rest.is_empty() {
        let (class, length) = token(language, rest, &mut unclosed);
        // A token has at least one character.
        let length = length.max(rest.chars().next().map_or(1, char::len_utf8));
        let (text, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        match class {
            "" => out.push_str(&escaped(text)),
            class => out.push_str(&format!("<i class=\"{class}\">{}</i>", escaped(text))),
        }
        rest = after;
    }
    Some(out)
}

/// Returns the class and the length of the next token.
fn token(language: &Language, rest: &str, unclosed: &mut Unclosed) -> (&'static str, usize) {
    if rest.starts_with(language.comment) {
        return ("c", rest.find('\n').unwrap_or(rest.len()));
    }
    if let Some((begin, end)) = language.block
        && let Some(inner) = rest.strip_prefix(begin)
    {
        return ("c", inner.find(end).map_or(rest.len(), |at| begin.len() + at + end.len()));
    }
    let Some(first) = rest.chars().next() else { return ("", 0) };
    if language.quotes.contains(&first) {
        return ("s", unclosed.quoted(rest, first));
    }
    let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    if first.is_ascii_digit() {
        return ("n", word);
    }
    if word > 0 {
        let is_known =
            rest.get(..word).is_some_and(|word| language.words.split_whitespace().any(|known| known == word));
        return (if is_known { "k" } else { "" }, word);
    }
    // Everything up to what may be a token.
    let plain = rest
        .char_indices()
        .skip(1)
        .find(|(at, c)| {
            c.is_alphanumeric()
                || *c == '_'
                || language.quotes.contains(c)
                || rest.get(*at..).is_some_and(|rest| {
                    rest.starts_with(language.comment)
                        || language.block.is_some_and(|(begin, _)| rest.starts_with(begin))
                })
        })
        .map_or(rest.len(), |(at, _)| at);
    ("", plain)
}

/// The quotes that are known to have no end. The others of their kind in the same text have none either, and are not looked at again.
#[derive(Default)]
struct Unclosed(Vec<(char, usize)>);

impl Unclosed {
    /// Returns the length of a text in quotes. One that does not end in its line is only its quote.
    fn quoted(&mut self, rest: &str, quote: char) -> usize {
        // The end of what was read for each quote, as the bytes behind it.
        if self.0.iter().any(|(known, end)| *known == quote && rest.len() > *end) {
            return quote.len_utf8();
        }
        let mut is_escaped = false;
        let mut end = 0;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '\n' if quote != '`' => {
                    end = rest.len() - at;
                    break;
                }
                c if c == quote => return at + c.len_utf8(),
                _ => {}
            }
        }
        self.0.retain(|(known, _)| *known != quote);
        self.0.push((quote, end));
        quote.len_utf8()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn quotes_without_an_end_are_read_once() {
        for quote in ["`", "'"] {
            let code = format!("{quote}{}", format!("\\{quote}").repeat(100_000));
            let begun = Instant::now();
            let html = coloured("js", &code).unwrap();
            // Each quote read to the end takes minutes.
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            assert_eq!(html.matches("<i class=\"s\">").count(), 100_001);
        }
        assert_eq!(coloured("js", "'a\n'b'").unwrap().matches("&#39;b&#39;</i>").count(), 1);
    }

    #[test]
    fn code_has_colours_and_keeps_its_text() {
        assert_eq!(
            coloured("rust", "let a: &'a str = \"<b>\"; // 1\nx2 = 0x1f").unwrap(),
            "<i class=\"k\">let</i> a: &amp;&#39;a str = <i class=\"s\">&quot;&lt;b&gt;&quot;</i>; <i class=\"c\">// 1</i>\nx2 = <i class=\"n\">0x1f</i>"
        );
        assert_eq!(
            coloured("py", "if a == 'it\\'s': # x").unwrap(),
            "<i class=\"k\">if</i> a == <i class=\"s\">&#39;it\\&#39;s&#39;</i>: <i class=\"c\"># x</i>"
        );
        assert!(coloured("brainfuck", "+").is_none());
        for odd in ["\"", "'", "/*", "// é", "\"\\", "é", "a'b'c", "`\n`", "😀'😀", "--", "\u{0}"] {
            for name in ["rust", "js", "sh", "sql"] {
                let html = coloured(name, odd).unwrap();
                let text = ["c", "k", "n", "s"].iter().fold(html.replace("</i>", ""), |text, class| {
                    text.replace(&format!("<i class=\"{class}\">"), "")
                });
                assert_eq!(text, escaped(odd), "{name}: {html}");
            }
        }
    }
}
