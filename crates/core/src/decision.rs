//! Sentences in which an agent decided something.
//!
//! The rules are about how people state a choice in English: a word for choosing, a comparison of two ways, the first person with a
//! verb that is not one of looking or reporting, a purpose, a rule. They do not know any subject. Questions and announcements of the next step are no
//! decisions.

/// Words that state a choice by themselves.
const CHOICES: &str = "\
    decided decide decision chose choose chosen choosing opt opted opting settled agreed prefer \
    preferred switched switching deliberately intentionally purposely instead rather picked";
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
const NOUNS: &str = "plan approach choice option design strategy solution rule trade-off";
/// The first person, with and without an auxiliary verb.
const FIRST_PERSON: &str = "i i'll i've i'm i'd we we'll we've we're we'd let's lets";
/// Words between the first person and its verb.
const BETWEEN: &str = "\
    will would should shall have had do did now then also just only first always therefore already both \
    still don't didn't shouldn't";
/// Verbs of looking and trying, by their stems.
const LOOKING: &str = "\
    find found see saw look check read run ran rerun test try tri verif confirm notic search list open start continu \
    begin began think thought believ suspect guess hope expect wonder need want have get got know knew understand \
    understood learn reproduc investigat trac debug inspect review compar analy ask wait be been like love";
/// Verbs of reporting and of plain work, by their stems.
const WORK: &str = "\
    finish complet fix add updat wrote writ creat implement commit push pull install build built compil document explain \
    show print report mention describ summari suggest recommend propos work repeat hit reach";
/// What follows `now` in a report of a state.
const STATES: &str = "pass fail work green quiet clean fixed done ready complet look run read check let i we";
/// Verbs of a purpose that a sentence begins with.
const PURPOSES: &str = "keep avoid prevent preserve stay minimise";

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
    let text = words.join(" ");
    words.iter().any(|word| has(CHOICES, word))
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

/// Returns whether a word is in a list.
fn has(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

/// Returns whether a word is a form of one of these stems: `add` has `adds` and `adding`, and not `address`.
fn has_stem(word: &str, stems: &str) -> bool {
    stems.split(' ').any(|stem| {
        word.strip_prefix(stem).is_some_and(|ending| {
            ending.len() <= 2 || (ending.len() <= 4 && (ending.ends_with("ing") || ending.ends_with("ed")))
        })
    })
}

/// Matches `the plan is`, `my choice was`.
fn names_choice(words: &[String]) -> bool {
    words.windows(2).any(|pair| match pair {
        [noun, verb] => has(NOUNS, noun) && matches!(verb.as_str(), "is" | "was"),
        _ => false,
    })
}

/// Matches the first person with a verb that is not one of looking or reporting.
fn first_person(words: &[String]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        if !has(FIRST_PERSON, word) {
            return false;
        }
        let mut goes_on = word.ends_with("'m") || word.ends_with("'re");
        // `I will not add it` is a choice, and `I did not add it` may be a report.
        let (mut is_future, mut is_denied) = (goes_on || word.ends_with("'ll"), false);
        for word in words.iter().skip(at + 1) {
            match word.as_str() {
                // `I was surprised`: a state.
                "was" | "were" | "can" | "could" | "may" | "might" => return false,
                "am" | "are" => (goes_on, is_future) = (true, true),
                "going" | "to" => goes_on = false,
                "will" | "would" => is_future = true,
                "not" | "never" => is_denied = true,
                "won't" | "wouldn't" => (is_future, is_denied) = (true, true),
                between if has(BETWEEN, between) || between.ends_with("ly") => {}
                // `I am sure`: a state too.
                verb if goes_on && !verb.ends_with("ing") => return false,
                verb => {
                    let is_choice = (is_future && is_denied) || !has_stem(verb, WORK);
                    return is_choice && !has_stem(verb, LOOKING);
                }
            }
        }
        false
    })
}

/// Matches `To keep the interface stable, …`.
fn begins_with_purpose(words: &[String]) -> bool {
    matches!(words, [to, verb, ..] if to == "to" && has(PURPOSES, verb))
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
            && next.is_some_and(|next| !has_stem(next, STATES))
            && !words.get(..at).is_some_and(|before| before.iter().any(|word| has(FIRST_PERSON, word)))
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
