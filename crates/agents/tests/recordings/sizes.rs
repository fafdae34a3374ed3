//! How much larger contexts become through details, over all recordings. `docs/cost.md` has the table; `UPDATE_DOCS=1`
//! writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use azureal_core::agent::AgentOutput;
use azureal_core::{Event, build_context, compact_event, rendered_chars};

use crate::cases::{self, Case};
use crate::records;

/// The most that the context of the median recording may grow, in percent.
const MOST_GROWTH: f64 = 25.0;

/// The results of one tool: their number, those with a detail, and their size without and with details.
#[derive(Default)]
struct Results {
    all: usize,
    detailed: usize,
    plain: u64,
    rendered: u64,
}

#[test]
fn details_make_the_median_context_a_quarter_larger_at_most() {
    let (mut growths, mut with_detail): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut tools: BTreeMap<String, Results> = BTreeMap::new();
    for case in cases::all() {
        for events in turns(&case) {
            let plain: Vec<Event> = events.iter().cloned().map(without_detail).collect();
            let (before, after) = (size(&plain), size(&events));
            if before > 0 {
                let growth = 100.0 * (after as f64 - before as f64) / before as f64;
                growths.push(growth);
                with_detail.extend(events.iter().any(|event| event.detail().is_some()).then_some(growth));
            }
            for (event, plain) in events.iter().zip(&plain) {
                let Event::ToolResult(result) = event else { continue };
                let tool = match result.tool_name.as_str() {
                    "" => "unknown",
                    mcp if mcp.starts_with("mcp__") => "MCP tools",
                    tool => tool,
                };
                let failed = if result.is_error { " (failed)" } else { "" };
                let results = tools.entry(format!("{tool}{failed}")).or_default();
                results.all += 1;
                results.detailed += usize::from(result.detail.is_some());
                results.plain += rendered_chars(plain);
                results.rendered += rendered_chars(event);
            }
        }
    }
    let (median_of_all, median_of_detailed) = (median(growths.clone()), median(with_detail.clone()));
    let largest = growths.iter().copied().fold(f64::MIN, f64::max);
    let mut table = format!(
        "Of {} recorded turns, {} have details. The context of the median turn grows by {median_of_all:.0} %, that of the\n\
         median turn with details by {median_of_detailed:.0} %, and the largest growth is {largest:.0} %.\n\n\
         | tool | results | with detail | characters without | with |\n|---|--:|--:|--:|--:|\n",
        growths.len(),
        with_detail.len(),
    );
    for (tool, Results { all, detailed, plain, rendered }) in &tools {
        table.push_str(&format!("| {tool} | {all} | {detailed} | {plain} | {rendered} |\n"));
    }
    assert!(median_of_all <= MOST_GROWTH && median_of_detailed <= MOST_GROWTH, "{table}");
    assert!(with_detail.len() >= 10, "{table}");
    check_page(&table);
}

/// Returns the events of a recording as they are stored: of the output, and of the record.
fn turns(case: &Case) -> Vec<Vec<Event>> {
    let stored = |outputs: Vec<AgentOutput>| {
        let events = outputs.into_iter().filter_map(|output| match output {
            AgentOutput::Event(event) => Some(compact_event(event)),
            _ => None,
        });
        events.collect()
    };
    let record = fs::read(case.folder.join("record.jsonl")).ok();
    let record = record.map(|record| records::play(case, &record));
    std::iter::once(case.play()).chain(record).map(stored).collect()
}

fn without_detail(mut event: Event) -> Event {
    if let Some(detail) = event.detail_mut() {
        *detail = None;
    }
    event
}

fn size(events: &[Event]) -> usize {
    build_context(None, None, events).chars().count()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Checks that the page has the table, or writes it.
#[expect(clippy::disallowed_methods, reason = "a test that writes a page is asked for it by a variable")]
fn check_page(table: &str) {
    const MARKS: [&str; 2] = ["<!-- sizes of details -->\n", "<!-- end of sizes -->"];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cost.md");
    let text = fs::read_to_string(&page).unwrap();
    let (front, rest) = text.split_once(MARKS[0]).unwrap();
    let (there, back) = rest.split_once(MARKS[1]).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(page, format!("{front}{}{table}{}{back}", MARKS[0], MARKS[1])).unwrap();
        return;
    }
    assert!(there == table, "docs/cost.md is out of date, `UPDATE_DOCS=1` writes it:\n{table}");
}
