//! `cargo xtask conformance`: what every store promises and which of them keep it, as one table.
//!
//! The table is made of the suites' own tests, in the order in which the contracts name their cases. It is kept as
//! a page of the documentation; that the page has every case is one of the rules of [`tidy`](mod@crate::tidy), so the
//! suites run once, as tests, where a change is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use crate::root;
use crate::tools;

/// Where the table is kept.
pub(crate) const PAGE: &str = "docs/conformance.md";
/// The files in which the cases are listed.
pub(crate) const CONTRACTS: [&str; 2] =
    ["crates/testkit/src/session_store/mod.rs", "crates/testkit/src/context_store.rs"];
/// The test program of the stores.
const PROGRAM: &str = "stores";
/// The stores, each with the module of tests that puts it through the contracts.
const STORES: [(&str, &str); 4] =
    [(REFERENCE, "memory"), ("SQLite", "sqlite"), ("PostgreSQL", "postgres"), ("Redis", "redis")];
/// The module that has all stores in it.
const ALL_STORES: &str = "all_stores";
/// Beside the contracts: random operations.
const RANDOM: [&str; 2] = [AGREES, "ten_thousand_operations_leave_one_state_everywhere"];
/// Not asked of the store that the others are compared with.
const AGREES: &str = "it_agrees_with_the_memory_store";
const REFERENCE: &str = "memory";
/// The groups of cases about what a store may offer, and the stores that do not: of these the cases only ask that they do
/// not claim to.
const OFFERS: [(&str, &[&str]); 4] = [
    ("leases", &[REFERENCE, "SQLite"]),
    ("originals", &[REFERENCE]),
    ("watch", &[REFERENCE, "SQLite"]),
    ("watch_all", &[REFERENCE]),
];
const MAKE_IT: &str = "`cargo xtask conformance` makes it anew";

/// Runs the suites on every store, prints the table, and keeps it as a page if it is all green.
pub(crate) fn run() -> Result<()> {
    let mut contracts = Vec::new();
    for path in CONTRACTS {
        let text = fs::read_to_string(root()?.join(path)).with_context(|| format!("cannot read {path}"))?;
        contracts.push(Contract::parse(&text).with_context(|| format!("{path} lists no cases"))?);
    }
    let together = Answers::of(ALL_STORES)?;
    let mut stores = Vec::new();
    for (name, test) in STORES {
        let mut answers = Answers::of(test)?;
        answers.cases.extend(together.cases.clone());
        stores.push((name, answers));
    }
    let page = page(&contracts, &stores);
    println!("{page}");
    let broken = broken(&contracts, &stores);
    ensure!(broken.is_empty(), "{PAGE} is left as it is, because this is not kept:\n{}", broken.join("\n"));
    fs::write(root()?.join(PAGE), page).with_context(|| format!("cannot write {PAGE}"))
}

/// Returns what is wrong with the page: it has the cases of the contracts, in their order, and no others.
pub(crate) fn check(contracts: &[&str], page: &str) -> Vec<String> {
    let expected: Vec<String> = contracts
        .iter()
        .filter_map(|text| Contract::parse(text))
        .flat_map(|contract| contract.cases)
        .chain(RANDOM.map(str::to_owned))
        .map(|case| sentence(&case))
        .collect();
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .filter(|promise| *promise != HEADING)
        .collect();
    if rows == expected {
        return Vec::new();
    }
    let missing = expected.iter().filter(|case| !rows.contains(&case.as_str()));
    let mut problems: Vec<_> = missing.map(|case| format!("{PAGE} has no row `{case}`: {MAKE_IT}")).collect();
    if problems.is_empty() {
        problems.push(format!("{PAGE} has other rows than the contracts have cases: {MAKE_IT}"));
    }
    problems
}

/// Cases, each with the stores that do not offer what it is about.
type Offers = BTreeMap<String, &'static [&'static str]>;

/// What stores of one kind promise.
struct Contract {
    seam: String,
    cases: Vec<String>,
    /// Those that are about what a store may offer, with the stores that do not.
    offers: Offers,
}

impl Contract {
    /// Reads the list of cases out of the code: groups of names, each with a comma, after `run by …;`.
    fn parse(text: &str) -> Option<Self> {
        let (head, list) = text.split_once(", run by ")?;
        let seam = head.lines().find_map(|line| line.trim().strip_prefix("const ")?.split_once(": "))?.1;
        let list = list.split("\n}").next()?;
        let (mut cases, mut offers, mut group) = (Vec::new(), Offers::new(), "");
        for line in list.lines().map(str::trim) {
            group = line.strip_suffix(" {").unwrap_or(group);
            let Some(case) = line.strip_suffix(',') else { continue };
            if let Some((_, without)) = OFFERS.iter().find(|(offered, _)| *offered == group) {
                offers.insert(case.to_owned(), without);
            }
            cases.push(case.to_owned());
        }
        (!cases.is_empty()).then(|| Self { seam: seam.trim_end_matches(';').to_owned(), cases, offers })
    }
}

/// What the tests of one store said.
#[derive(Default)]
struct Answers {
    cases: BTreeMap<String, Answer>,
}

#[derive(Clone)]
struct Answer {
    /// The suites that asked: a store may be put through a contract in several ways.
    suites: BTreeSet<String>,
    /// Whether it was kept in all of them.
    kept: bool,
}

impl Answers {
    /// Runs the tests of one module.
    fn of(module: &str) -> Result<Self> {
        let mut command = tools::cargo();
        command.args(["test", "-p", "azureal-store", "--features", "sqlite,postgres,redis"]);
        command.args(["--test", PROGRAM, "--", &format!("{module}::")]);
        // A test that skipped itself would count as passed.
        command.env("AZUREAL_REQUIRE_TOOLS", "1").current_dir(root()?).stderr(Stdio::inherit());
        let shown = tools::shown(&command);
        eprintln!("$ {shown}");
        let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let answers = Self::parse(module, &said);
        if answers.cases.is_empty() {
            bail!("`{shown}` ran no test ({})", output.status);
        }
        if !output.status.success() {
            eprintln!("{said}");
        }
        Ok(answers)
    }

    /// Reads lines of the form `test module::suite::case ... ok`. The filter of a test program also lets tests through
    /// that have its text elsewhere in their names.
    fn parse(module: &str, said: &str) -> Self {
        let mut answers = Self::default();
        for line in said.lines() {
            let of_module = line
                .strip_prefix("test ")
                .and_then(|line| line.strip_prefix(module)?.strip_prefix("::")?.split_once(" ... "));
            let Some((name, outcome)) = of_module else { continue };
            let (suite, case) = name.rsplit_once("::").unwrap_or(("", name));
            let answer = answers
                .cases
                .entry(case.to_owned())
                .or_insert_with(|| Answer { suites: BTreeSet::new(), kept: true });
            answer.suites.insert(suite.to_owned());
            answer.kept &= outcome == "ok";
        }
        answers
    }

    /// Names the suites that asked a store.
    fn asked_by(&self, store: &str, cases: &[String]) -> String {
        let answers = cases.iter().filter_map(|case| self.cases.get(case));
        let suites: BTreeSet<_> = answers.flat_map(|answer| &answer.suites).collect();
        let suites: Vec<_> = suites.iter().map(|suite| format!("`{suite}`")).collect();
        format!("{} ({store})", suites.join(", "))
    }

    fn verdict(&self, case: &str) -> Verdict {
        match self.cases.get(case) {
            Some(answer) if answer.kept => Verdict::Kept,
            Some(_) => Verdict::Broken,
            None => Verdict::NotAsked,
        }
    }
}

/// Whether a store keeps a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Kept,
    Broken,
    NotAsked,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "✓",
            Self::Broken => "✗",
            Self::NotAsked => "–",
        })
    }
}

/// Returns what is not kept, or not even asked where every store has to be.
fn broken(contracts: &[Contract], stores: &[(&str, Answers)]) -> Vec<String> {
    let cases = contracts.iter().flat_map(|contract| &contract.cases).map(String::as_str).chain(RANDOM);
    let mut broken = Vec::new();
    for case in cases {
        for (store, answers) in stores {
            let verdict = answers.verdict(case);
            let is_reference = case == AGREES && *store == REFERENCE;
            if verdict == Verdict::Broken || (verdict == Verdict::NotAsked && !is_reference) {
                broken.push(format!("{verdict} {store}: {}", sentence(case)));
            }
        }
    }
    broken
}

const HEADING: &str = "promise";

fn page(contracts: &[Contract], stores: &[(&str, Answers)]) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
         The guarantees of every store, tested. `cargo xtask conformance` generates this page: it runs the suites of\n\
         `crates/testkit` on all four stores, with real servers. Each row is a test of that name.\n\n\
         ✓ passed, ✗ failed, – does not apply: stores of one machine have no leases, and followers of a session poll \
         them; a store in memory has no originals.\n",
    );
    for Contract { seam, cases, offers } in contracts {
        let asked: Vec<_> = stores.iter().map(|(store, answers)| answers.asked_by(store, cases)).collect();
        let count = cases.len();
        page += &format!("\n## `{seam}`: {count} promises\n\nSuites: {}.\n\n", asked.join("; "));
        page += &table(cases.iter().map(String::as_str), offers, stores);
    }
    page += "\n## Random operations\n\nThe first test compares each store with the memory store; the second runs one sequence on \
             all four.\n\n";
    page += &table(RANDOM.into_iter(), &Offers::new(), stores);
    page
}

fn table<'a>(cases: impl Iterator<Item = &'a str>, offers: &Offers, stores: &[(&str, Answers)]) -> String {
    let row = |first: &str, cells: Vec<String>| format!("| {first} | {} |\n", cells.join(" | "));
    let mut table = row(HEADING, stores.iter().map(|(store, _)| (*store).to_owned()).collect());
    table += &format!("|---|{}\n", "---|".repeat(stores.len()));
    for case in cases {
        let verdicts = stores.iter().map(|(store, answers)| {
            let applies = offers.get(case).is_none_or(|without| !without.contains(store));
            let verdict = answers.verdict(case);
            if applies || verdict == Verdict::Broken { verdict } else { Verdict::NotAsked }.to_string()
        });
        table += &row(&sentence(case), verdicts.collect());
    }
    table
}

/// Names of tests are sentences.
fn sentence(case: &str) -> String {
    case.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
contract! {
    /// A list, and more.
    const CASES: ThingStore;
    macro thing_contract, run by run_thing;
    first {
        it_is_empty,
    }
    second {
        it_is_kept,
    }
}

fn other(a: u8,
    b: u8,
) {}
";

    #[test]
    fn the_cases_are_read_out_of_the_code() {
        let contract = Contract::parse(SOURCE).unwrap();
        assert_eq!(contract.seam, "ThingStore");
        assert_eq!(contract.cases, ["it_is_empty", "it_is_kept"]);
        assert!(Contract::parse("const A: B;\n").is_none());
    }

    #[test]
    fn a_promise_is_kept_if_it_is_in_every_suite() {
        let answers = Answers::parse(
            "memory",
            "running 5 tests\n\
             test memory::a::it_is_empty ... ok\n\
             test memory::b::it_is_empty ... FAILED\n\
             test memory::a::it_is_kept ... ok\n\
             test memory::b::it_is_kept ... ok\n\
             test other::memory::it_is_kept ... FAILED\n\
             test result: FAILED. 3 passed; 2 failed\n",
        );
        assert_eq!(
            ["it_is_empty", "it_is_kept", "it_is_large"].map(|case| answers.verdict(case)),
            [Verdict::Broken, Verdict::Kept, Verdict::NotAsked]
        );
        let contracts = [Contract::parse(SOURCE).unwrap()];
        assert_eq!(
            broken(&contracts, &[("memory", answers)]),
            ["✗ memory: it is empty", "– memory: ten thousand operations leave one state everywhere"]
        );
    }

    #[test]
    fn the_page_has_every_case() {
        let contracts = [Contract::parse(SOURCE).unwrap()];
        let all = "test m::a::it_is_empty ... ok\ntest m::a::it_is_kept ... ok\n";
        let answers = || Answers::parse("m", all);
        let page = page(&contracts, &[("memory", answers()), ("SQLite", answers())]);
        assert!(page.contains("| it is kept | ✓ | ✓ |\n"), "{page}");
        assert_eq!(check(&[SOURCE], &page), [""; 0]);
        assert_eq!(
            check(&[&SOURCE.replace("it_is_kept,", "it_is_kept,\nit_is_large,")], &page),
            [format!("{PAGE} has no row `it is large`: {MAKE_IT}")]
        );
        assert_eq!(
            check(&[&SOURCE.replace("it_is_kept,", "")], &page),
            [format!("{PAGE} has other rows than the contracts have cases: {MAKE_IT}")]
        );
    }
}
