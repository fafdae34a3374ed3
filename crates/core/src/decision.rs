//! Sentences in which an agent decided something.
//!
//! The rules are about how people state a choice in English: a word for choosing, a comparison of two ways, the first person with a
//! verb of design, a purpose, a rule. They do not know any subject. Questions and announcements of the next step are no
//! decisions.

/// Words that state a choice by themselves.
const CHOICES: [&str; 22] = [
    "decided",
    "decide",
    "decision",
    "chose",
    "choose",
    "chosen",
    "choosing",
    "opt",
    "opted",
    "opting",
    "settled",
    "agreed",
    "prefer",
    "preferred",
    "switched",
    "switching",
    "deliberately",
    "intentionally",
    "purposely",
    "instead",
    "rather",
    "picked",
];
/// Phrases that state a choice.
const PHRASES: [&str; 17] = [
    "go with",
    "going with",
    "went with",
    "gone with",
    "stick with",
    "sticking with",
    "stuck with",
    "stay with",
    "staying with",
    "ended up",
    "end up",
    "on purpose",
    "by design",
    "makes more sense",
    "make more sense",
    "for now",
    "from now on",
];
/// Nouns that name a choice if `is` or `was` follows.
const NOUNS: [&str; 9] =
    ["plan", "approach", "choice", "option", "design", "strategy", "solution", "rule", "trade-off"];
/// The first person, with and without an auxiliary verb.
const FIRST_PERSON: [&str; 12] =
    ["i", "i'll", "i've", "i'm", "i'd", "we", "we'll", "we've", "we're", "we'd", "let's", "lets"];
/// Words between the first person and its verb.
const BETWEEN: [&str; 26] = [
    "will",
    "would",
    "should",
    "shall",
    "can",
    "have",
    "had",
    "am",
    "are",
    "was",
    "were",
    "do",
    "did",
    "going",
    "to",
    "now",
    "then",
    "also",
    "just",
    "simply",
    "only",
    "first",
    "always",
    "therefore",
    "already",
    "both",
];
const NEGATIONS: [&str; 9] =
    ["not", "never", "won't", "don't", "didn't", "wouldn't", "shouldn't", "can't", "cannot"];
/// Verbs of design, by their stems: what is done to code or data on purpose.
const DESIGN: [&str; 63] = [
    "use",
    "using",
    "keep",
    "kept",
    "leave",
    "left",
    "leaving",
    "make",
    "made",
    "making",
    "replac",
    "chang",
    "renam",
    "mov",
    "split",
    "stor",
    "treat",
    "return",
    "put",
    "pass",
    "batch",
    "lock",
    "skip",
    "drop",
    "pick",
    "switch",
    "limit",
    "set",
    "merg",
    "extract",
    "wrap",
    "avoid",
    "ignor",
    "default",
    "cap",
    "cach",
    "rais",
    "reus",
    "convert",
    "separat",
    "stay",
    "hard-cod",
    "introduc",
    "deriv",
    "reject",
    "requir",
    "allow",
    "retry",
    "retri",
    "model",
    "represent",
    "encod",
    "isolat",
    "inlin",
    "defer",
    "postpon",
    "disabl",
    "enabl",
    "restrict",
    "stick",
    "base",
    "standardi",
    "favo",
];
/// Verbs of looking and trying, whose denial is no decision, by their stems.
const LOOKING: [&str; 14] = [
    "find",
    "found",
    "see",
    "seen",
    "saw",
    "know",
    "have",
    "run",
    "read",
    "look",
    "check",
    "understand",
    "need",
    "get",
];
/// What follows `now` in a report of a state.
const STATES: [&str; 17] = [
    "pass", "fail", "work", "green", "quiet", "clean", "fixed", "done", "ready", "complet", "look", "run",
    "read", "check", "let", "i", "we",
];
/// Verbs of a purpose that a sentence begins with.
const PURPOSES: [&str; 6] = ["keep", "avoid", "prevent", "preserve", "stay", "minimise"];

/// Returns the sentences of a text in which a decision is stated. Code blocks have none.
pub(crate) fn decisions(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.split('\n')
        .filter(move |line| {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            !in_code && !is_fence
        })
        .flat_map(crate::digest::sentences)
        .map(without_list_mark)
        .filter(|sentence| is_decision(sentence))
}

/// Returns a sentence without the mark of a list in front of it.
fn without_list_mark(sentence: &str) -> &str {
    let unmarked = sentence.trim_start_matches(['-', '*', '•', '#', '>', ' ']);
    let digits = unmarked.trim_start_matches(|c: char| c.is_ascii_digit());
    match digits.strip_prefix(". ").or_else(|| digits.strip_prefix(") ")) {
        Some(rest) if digits.len() < unmarked.len() => rest.trim_start(),
        _ => unmarked,
    }
}

fn is_decision(sentence: &str) -> bool {
    if sentence.trim_end().ends_with('?') {
        return false;
    }
    let words: Vec<String> = words(sentence);
    let is = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let text = words.join(" ");
    is(&CHOICES)
        || PHRASES.iter().any(|phrase| format!(" {text} ").contains(&format!(" {phrase} ")))
        || names_choice(&words)
        || first_person(&words)
        || begins_with_purpose(&words)
        || states_rule(&words)
        || changes_state(&words)
}

/// Takes a sentence apart into words in lower case. Code in backquotes is one word.
fn words(sentence: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in sentence.split('`').enumerate() {
        if index % 2 == 1 {
            words.push("`".to_owned());
            continue;
        }
        let is_letter = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '’' | '-');
        let found = part.split(|c: char| !is_letter(c)).filter(|word| !word.is_empty());
        words.extend(found.map(|word| word.replace('’', "'").to_lowercase()));
    }
    words
}

fn has_stem(word: &str, stems: &[&str]) -> bool {
    stems.iter().any(|stem| match word.strip_prefix(stem) {
        // `use` is not `user`, and `set` not `settings`.
        Some(ending) => matches!(
            ending,
            "" | "e"
                | "s"
                | "es"
                | "ed"
                | "d"
                | "ing"
                | "ting"
                | "ped"
                | "ping"
                | "y"
                | "ies"
                | "se"
                | "sed"
                | "r"
        ),
        None => false,
    }) && word != "user"
}

/// Matches `the plan is`, `my choice was`.
fn names_choice(words: &[String]) -> bool {
    words.windows(2).any(|pair| match pair {
        [noun, verb] => NOUNS.contains(&noun.as_str()) && matches!(verb.as_str(), "is" | "was"),
        _ => false,
    })
}

/// Matches the first person with a verb of design, or with the denial of any verb but those of looking.
fn first_person(words: &[String]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        if !FIRST_PERSON.contains(&word.as_str()) {
            return false;
        }
        let mut denied = false;
        for word in words.iter().skip(at + 1) {
            if NEGATIONS.contains(&word.as_str()) {
                denied = true;
            } else if !BETWEEN.contains(&word.as_str()) {
                return has_stem(word, &DESIGN) || (denied && !has_stem(word, &LOOKING));
            }
        }
        false
    })
}

/// Matches `To keep the interface stable, …`.
fn begins_with_purpose(words: &[String]) -> bool {
    matches!(words, [to, verb, ..] if to == "to" && PURPOSES.contains(&verb.as_str()))
}

/// Matches a rule for the program, such as `a hook must not block`. What the user must do is advice.
fn states_rule(words: &[String]) -> bool {
    words.iter().any(|word| word == "must")
        && !words.iter().any(|word| matches!(word.as_str(), "you" | "your"))
}

/// Matches `the tests now share one server`, a state that was chosen, and not `the tests now pass`.
fn changes_state(words: &[String]) -> bool {
    let inner = words.len().saturating_sub(1);
    words.iter().enumerate().skip(1).take(inner.saturating_sub(1)).any(|(at, word)| {
        let next = words.get(at + 1);
        word == "now"
            && next.is_some_and(|next| !has_stem(next, &STATES))
            && !words
                .get(..at)
                .is_some_and(|before| before.iter().any(|word| FIRST_PERSON.contains(&word.as_str())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_found_and_reports_are_not() {
        for sentence in [
            "I decided against it.",
            "We will use one queue per worker.",
            "I'll keep the old name.",
            "The approach is to copy first.",
            "I won't add a lock.",
            "To avoid a race, the file is opened first.",
            "The reader must not block.",
            "Requests now share a connection.",
            "I store rows, not columns.",
            "A map is used instead of a list.",
        ] {
            assert!(is_decision(sentence), "{sentence}");
        }
        for sentence in [
            "",
            "I'll run the tests now.",
            "I did not find it.",
            "The tests now pass.",
            "You must restart the server.",
            "Should we use a queue?",
            "The user opens the page.",
            "It failed because the port is taken.",
            "Now let me look at the file.",
            "The settings are in `config/decided.toml`.",
        ] {
            assert!(!is_decision(sentence), "{sentence}");
        }
    }

    #[test]
    fn marks_of_lists_are_removed_and_code_is_skipped() {
        let text = "Done:\n- I chose A. It runs.\n2. We keep B!\n```\nI chose C.\n```\n* **Decision**: D";
        assert_eq!(decisions(text).collect::<Vec<_>>(), ["I chose A.", "We keep B!", "Decision**: D"]);
    }
}
