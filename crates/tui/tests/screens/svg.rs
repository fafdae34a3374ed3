//! A screen as a picture.

use std::fmt::Write;

use ratatui::buffer::{Buffer, CellWidth};
use ratatui::style::{Color, Modifier};

/// The size of a cell.
const CELL: (u32, u32) = (8, 17);
/// The space around the screen.
const MARGIN: u32 = 12;

/// Returns a picture of a screen, readable on light and dark pages.
pub(crate) fn picture(buffer: &Buffer, title: &str) -> String {
    let (columns, rows) = (u32::from(buffer.area.width), u32::from(buffer.area.height));
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    let mut out = String::new();
    writeln!(out, r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">"#).unwrap();
    writeln!(out, "<title>{}</title>", escape(title)).unwrap();
    out.push_str(STYLE);
    writeln!(out, r#"<rect class="page" width="{width}" height="{height}" rx="8"/>"#).unwrap();
    for y in 0..buffer.area.height {
        for run in runs(buffer, y) {
            draw_run(&mut out, &run, u32::from(y));
        }
    }
    out.push_str("</svg>\n");
    out
}

const STYLE: &str = "<style>
text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; white-space: pre; fill: #1f2328 }
.page { fill: #ffffff; stroke: #d0d7de }
.reversed { fill: #1f2328 } text.reversed { fill: #ffffff }
.bold { font-weight: bold } .italic { font-style: italic } .underlined { text-decoration: underline }
.green { fill: #116329 } .red { fill: #a40e26 } .yellow { fill: #7d4e00 } .cyan { fill: #1b5f7a } .magenta { fill: #6e3a9a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .page { fill: #0d1117; stroke: #30363d }
.reversed { fill: #e6edf3 } text.reversed { fill: #0d1117 }
.green { fill: #7ee787 } .red { fill: #ff7b72 } .yellow { fill: #e3b341 } .cyan { fill: #76d7ea } .magenta { fill: #d2a8ff }
}
</style>
";

/// Cells with the same style.
struct Run {
    start: u32,
    columns: u32,
    text: String,
    class: String,
}

fn runs(buffer: &Buffer, y: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut hidden = 0;
    for x in 0..buffer.area.width {
        if hidden > 0 {
            hidden -= 1;
            continue;
        }
        let cell = &buffer[(x, y)];
        let columns = cell.symbol().cell_width().max(1);
        hidden = columns - 1;
        let class = class(cell.fg, cell.modifier);
        match runs.last_mut() {
            Some(run) if run.class == class => {
                run.text.push_str(cell.symbol());
                run.columns += u32::from(columns);
            }
            _ => {
                let text = cell.symbol().to_owned();
                runs.push(Run { start: u32::from(x), columns: u32::from(columns), text, class });
            }
        }
    }
    runs
}

fn class(colour: Color, modifier: Modifier) -> String {
    let mut names = Vec::new();
    if colour != Color::Reset {
        names.push(format!("{colour:?}").to_lowercase());
    }
    for (wanted, name) in [
        (Modifier::BOLD, "bold"),
        (Modifier::ITALIC, "italic"),
        (Modifier::UNDERLINED, "underlined"),
        (Modifier::REVERSED, "reversed"),
    ] {
        if modifier.contains(wanted) {
            names.push(name.to_owned());
        }
    }
    names.join(" ")
}

fn draw_run(out: &mut String, run: &Run, y: u32) {
    let is_reversed = run.class.contains("reversed");
    let top = MARGIN + y * CELL.1;
    if is_reversed {
        let (x, width) = (MARGIN + run.start * CELL.0, run.columns * CELL.0);
        writeln!(out, r#"<rect class="reversed" x="{x}" y="{top}" width="{width}" height="{}"/>"#, CELL.1)
            .unwrap();
    }
    let text = run.text.trim_end();
    let indent = text.len() - text.trim_start().len();
    let text = text.trim_start();
    if text.is_empty() {
        return;
    }
    let x = MARGIN + (run.start + u32::try_from(indent).unwrap()) * CELL.0;
    // With its length, the text fits its cells in every font.
    let length = u32::from(text.cell_width()) * CELL.0;
    let class = if run.class.is_empty() { String::new() } else { format!(r#" class="{}""#, run.class) };
    let baseline = top + 13;
    writeln!(out, r#"<text{class} x="{x}" y="{baseline}" textLength="{length}" lengthAdjust="spacingAndGlyphs">{}</text>"#, escape(text)).unwrap();
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
