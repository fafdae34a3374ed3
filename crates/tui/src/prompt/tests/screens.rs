//! Screens with the waiting prompts, the list of paths and the box, at three widths.

use std::fmt::Write;

use super::*;

/// Draws a screen as the interface does: the list of paths over what is above the box, the waiting prompts, the box. Styles are listed below
/// the rows.
fn screen(fixture: &Fixture, waiting: &Waiting, width: u16, theme: &Theme) -> String {
    let (popup, above, most) = (fixture.prompt.popup_height(), waiting.height(3), 6);
    let height = fixture.prompt.height(width, most);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, popup + above + height));
    let edit = if theme.is_ascii { "Alt-Up edit" } else { "Alt-↑ edit" };
    waiting.draw(Rect::new(0, popup, width, above), edit, &mut buffer, theme);
    let cursor = fixture.prompt.draw(Rect::new(0, popup + above, width, height), &mut buffer, theme).unwrap();
    fixture.prompt.draw_popup(Rect::new(0, 0, width, popup), &mut buffer, theme);
    let mut out = rows(&buffer).join("\n");
    write!(out, "\n\ncursor {}, {}", cursor.x, cursor.y).unwrap();
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < width {
            let style = buffer[(x, y)].style();
            let end = (x..width).find(|end| buffer[(*end, y)].style() != style).unwrap_or(width);
            let plain = ratatui::style::Style::reset();
            if (style.fg, style.add_modifier) != (plain.fg, plain.add_modifier) {
                let colour = style.fg.map(|colour| format!(" {colour}")).unwrap_or_default();
                write!(out, "\nrow {y}, {x}..{end}:{colour} {:?}", style.add_modifier).unwrap();
            }
            x = end;
        }
    }
    out
}

fn waiting() -> Waiting {
    let mut waiting = Waiting::default();
    waiting.stage(
        "also check logout, and the refresh of tokens in the second tab, which fails on slow machines".into(),
    );
    waiting.queue("then run the tests\nall of them".into());
    waiting
}

fn long_prompt() -> Fixture {
    let mut fixture = Fixture::typed(
        "The login test still fails when two tabs refresh at the same time. Look at the log of the last run:\n",
    );
    fixture.prompt.paste(&"2026-11-16 login: token row locked\n".repeat(312));
    fixture.type_text("\nand 日本語 too");
    fixture
}

fn each_width(name: &str, fixture: &Fixture, waiting: &Waiting) {
    for width in [120, 80, 40, 10] {
        insta::assert_snapshot!(format!("{name}-{width}"), screen(fixture, waiting, width, &THEME));
    }
}

#[test]
fn a_prompt_with_a_paste_and_waiting_prompts() {
    each_width("prompt", &long_prompt(), &waiting());
}

#[test]
fn a_list_of_paths() {
    let mut fixture = Fixture::typed("compare @s");
    let paths = [
        "src/",
        "src/auth/token.rs",
        "src/auth/a very long name of a file that no screen of 40 columns has room for.rs",
    ];
    fixture.prompt.paths("s", paths.map(str::to_owned).to_vec());
    fixture.act(Action::Down);
    each_width("paths", &fixture, &Waiting::default());
}

#[test]
fn a_search_in_the_history() {
    let mut fixture = Fixture::with_history(&[
        "fix the login",
        "The login test still fails when two tabs refresh.\nLook at it.",
    ]);
    fixture.act(Action::HistorySearch);
    fixture.type_text("login");
    each_width("search", &fixture, &Waiting::default());
}

#[test]
fn a_screen_without_colours_and_marks() {
    let theme = Theme { has_colours: false, background: None, is_ascii: true };
    let mut fixture = long_prompt();
    fixture.type_text(" @s");
    fixture.prompt.paths("s", vec!["src/".into(), "setup.rs".into()]);
    let mut waiting = waiting();
    waiting.queue("third".into());
    waiting.queue("fourth".into());
    let screen = screen(&fixture, &waiting, 80, &theme);
    assert!(screen.replace("日本語", "").is_ascii(), "{screen}");
    insta::assert_snapshot!("plain-80", screen);
}
