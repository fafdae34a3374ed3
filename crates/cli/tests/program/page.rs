//! Exported pages in a real browser: what they show, and that nothing of a session runs or loads.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use azureal_testkit::browser::{Browser, Page};
use serde_json::{Value, json};

use crate::world::{World, assistant, user};

/// Exports a session as a page.
fn page_of(world: &World, events: &[Value]) -> PathBuf {
    world.session("page", events);
    world.run(&["export", "page", "-f", "html", "-o", "page.html", "--force"]);
    world.path("p/page.html")
}

fn call(id: &str, command: &str) -> Value {
    json!({"ToolCall": {"tool_use_id": id, "tool_name": "Bash", "input": {"command": command}}})
}

fn result(id: &str, content: &str) -> Value {
    json!({"ToolResult": {"tool_use_id": id, "tool_name": "Bash", "content": content}})
}

/// Types into the search field, and returns what it says.
fn search(page: &mut Page<'_>, wanted: &str) -> String {
    let wanted = json!(wanted);
    page.evaluate(&format!(
        "(async () => {{ const q = document.getElementById('query'); q.value = {wanted}; q.dispatchEvent(new Event('input'));
         await new Promise((done) => setTimeout(done, 300)); return document.getElementById('hits').textContent; }})()"
    ))
    .as_str()
    .unwrap()
    .to_owned()
}

fn press(page: &mut Page<'_>, key: &str, shift: bool) -> String {
    page.evaluate(&format!(
        "document.getElementById('query').dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', shiftKey: {shift}}}));
         document.getElementById('hits').textContent"
    ))
    .as_str()
    .unwrap()
    .to_owned()
}

#[test]
fn a_page_renders_folds_and_searches() {
    let Some(mut browser) = Browser::start() else { return };
    let world = World::new();
    let file = page_of(
        &world,
        &[
            user("Find the needle"),
            assistant("# Plan\n\nI **look** for it."),
            call("t1", "grep needle"),
            result("t1", "hay\nneedle one\nhay"),
            assistant("Found the Needle."),
            user("Thanks"),
            json!({"Reasoning": {"text": "They said thanks."}}),
            assistant("Welcome"),
        ],
    );
    let mut page = browser.open(&file);
    let count = |page: &mut Page<'_>, selector: &str| {
        page.evaluate(&format!("document.querySelectorAll({}).length", json!(selector))).as_u64().unwrap()
    };
    // It renders.
    assert_eq!(page.evaluate("document.title"), "page");
    assert_eq!(
        (count(&mut page, ".prompt"), count(&mut page, ".answer"), count(&mut page, ".tool")),
        (2, 3, 1)
    );
    assert_eq!(page.evaluate("document.querySelector('.answer h3').textContent"), "Plan");
    assert_eq!(page.evaluate("document.querySelector('.answer strong').textContent"), "look");
    assert_eq!(page.evaluate("document.querySelectorAll('nav li').length"), 2);
    assert_eq!(page.evaluate("document.getElementById('bar').hidden"), false);
    // The style is in effect: the policy allows it.
    assert_ne!(page.evaluate("getComputedStyle(document.querySelector('.prompt')).borderLeftWidth"), "0px");
    // It folds.
    assert_eq!(count(&mut page, "main details[open]"), 0);
    assert_eq!(page.evaluate("document.querySelector('.tool pre').checkVisibility()"), false);
    page.evaluate("document.querySelector('.tool summary').click()");
    assert_eq!(page.evaluate("document.querySelector('.tool pre').checkVisibility()"), true);
    page.evaluate("document.getElementById('fold').click()");
    assert_eq!(count(&mut page, "main details:not([open])"), 0);
    page.evaluate("document.getElementById('fold').click()");
    assert_eq!(count(&mut page, "main details[open]"), 0);
    page.evaluate("document.getElementById('talk').click()");
    assert_eq!(page.evaluate("document.querySelector('.tool').checkVisibility()"), false);
    page.evaluate("document.getElementById('talk').click()");
    // It searches, also in what is folded, and opens that.
    assert_eq!(search(&mut page, "NEEDLE"), "4 hits");
    assert_eq!(press(&mut page, "Enter", false), "1 of 4");
    assert_eq!(count(&mut page, "main details[open]"), 0);
    press(&mut page, "Enter", false);
    assert_eq!(press(&mut page, "Enter", false), "3 of 4");
    assert_eq!(count(&mut page, "main details[open]"), 1);
    assert_eq!(press(&mut page, "Enter", true), "2 of 4");
    assert_eq!(page.evaluate("CSS.highlights.get('found').size"), 4);
    assert_eq!(search(&mut page, "nowhere to be found"), "no hits");
    assert_eq!(press(&mut page, "Escape", false), "");
    // A link to an event opens it.
    page.evaluate("document.getElementById('fold').click(); document.getElementById('fold').click(); location.hash = '#e7'");
    page.evaluate("new Promise((done) => setTimeout(done, 100))");
    assert_eq!(count(&mut page, "#e7[open]"), 1);
    page.evaluate("location.hash = '#e4'");
    page.evaluate("new Promise((done) => setTimeout(done, 100))");
    assert_eq!(count(&mut page, ".tool[open] > #e4.result"), 1);
    // A summary has no link in it, which would be read with it.
    assert_eq!((count(&mut page, "summary a"), count(&mut page, "#e7 > summary + a")), (0, 1));
    // Light and dark, and what is printed.
    let background = |page: &mut Page<'_>| {
        page.evaluate("getComputedStyle(document.body).backgroundColor").as_str().unwrap().to_owned()
    };
    page.emulate("", &[("prefers-color-scheme", "light")]);
    let light = background(&mut page);
    page.emulate("", &[("prefers-color-scheme", "dark")]);
    assert_ne!(background(&mut page), light);
    page.evaluate("document.getElementById('theme').click()");
    assert_eq!(background(&mut page), light);
    page.emulate("print", &[]);
    assert_eq!(page.evaluate("getComputedStyle(document.getElementById('bar')).display"), "none");
    page.evaluate("dispatchEvent(new Event('beforeprint'))");
    assert_eq!(count(&mut page, "main details:not([open])"), 0);
    // All that without any request but that of the page.
    let requests = page.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
}

#[test]
fn a_hit_is_found_across_elements_and_scrolled_to() {
    let Some(mut browser) = Browser::start() else { return };
    let world = World::new();
    let log: Vec<String> = (0..2000).map(|line| format!("line {line} {}", "long ".repeat(60))).collect();
    let mut events = vec![
        user("Go"),
        assistant(
            "The **bold** word.\n\n```rust\npub fn main() {}\n```\n\nSplit over\ntwo lines. \u{130}stanbul.",
        ),
        call("t1", "cat log"),
        result("t1", &format!("{}\nthe end", log.join("\n"))),
    ];
    for turn in 0..200 {
        events.push(user(&format!("Prompt {turn}")));
        events.push(assistant(&"A paragraph.\n\n".repeat(turn % 30)));
    }
    let file = page_of(&world, &events);
    let mut page = browser.open(&file);
    for wanted in
        ["bold word", "fn main()", "split over two", "stanbul", "line 1500", "the end", "prompt 150"]
    {
        assert_eq!(search(&mut page, wanted), "1 hit", "{wanted}");
        press(&mut page, "Enter", false);
        let is_in_view = page.evaluate(
            "(() => {
                const hit = [...CSS.highlights.get('hit')][0], rect = hit.getBoundingClientRect();
                const box = hit.startContainer.parentElement.closest('pre');
                const frame = box ? box.getBoundingClientRect() : rect;
                return rect.top > 40 && rect.bottom < innerHeight && rect.top >= frame.top && rect.bottom <= frame.bottom
                    && rect.left >= frame.left;
            })()",
        );
        assert_eq!(is_in_view, true, "{wanted}");
    }
    // The number of an event is not a part of its text.
    assert_eq!(search(&mut page, "#2"), "no hits");
    // A prompt far away is where its link leads to, and a link shows what is hidden.
    let top = "new Promise((done) => setTimeout(() => done(document.querySelector(location.hash).getBoundingClientRect().top), 300))";
    page.evaluate("document.querySelectorAll('nav a')[180].click()");
    let place = page.evaluate(top).as_f64().unwrap();
    assert!((0.0..200.0).contains(&place), "{place}");
    page.evaluate("document.getElementById('talk').click(); location.hash = '#e3'");
    let place = page.evaluate(top).as_f64().unwrap();
    assert!((0.0..200.0).contains(&place), "{place}");
    assert_eq!(page.evaluate("document.querySelector('#e3').checkVisibility()"), true);
    // Paper is light.
    page.emulate("", &[("prefers-color-scheme", "light")]);
    page.evaluate("document.getElementById('theme').click()");
    let ink = |page: &mut Page<'_>| {
        page.evaluate("getComputedStyle(document.body).color").as_str().unwrap().to_owned()
    };
    let dark = ink(&mut page);
    page.emulate("print", &[("prefers-color-scheme", "light")]);
    assert_ne!(ink(&mut page), dark);
}

#[test]
fn a_page_says_who_speaks() {
    let Some(mut browser) = Browser::start() else { return };
    let world = World::new();
    let picture = json!({"type": "image", "media_type": "image/png", "data": "AQID"});
    let blocks = [json!({"type": "text", "text": "See this"}), picture.clone()];
    let events = [
        user("First"),
        json!({"Init": {"cwd": "/", "model": "m", "agent": "claude"}}),
        assistant("One"),
        json!({"Message": {"role": "user", "content": blocks}}),
        json!({"ModelSwitch": {"model": "gpt", "agent": "codex"}}),
        assistant("Two"),
        json!({"Message": {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "Look", "input": {}}]}}),
        json!({"Message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [picture]}]}}),
        assistant("# שלום\n\n- א"),
    ];
    let mut page = browser.open(&page_of(&world, &events));
    let names =
        page.evaluate("[...document.querySelectorAll('article > h2')].map((e) => e.textContent).join()");
    assert_eq!(names, "You,claude,You,codex,codex");
    // The picture is the result of its call.
    assert_eq!(page.evaluate("document.querySelectorAll('.tool.ok > #e8.result img').length"), 1);
    assert_eq!(
        page.evaluate("[...document.querySelectorAll('nav a')].map((e) => e.textContent).join()"),
        "First,See this"
    );
    // A text from right to left stands on the right.
    let sides = "['h3', 'ul'].map((name) => {
        const e = [...document.querySelectorAll(`.answer ${name}`)].at(-1), range = new Range();
        range.selectNodeContents(name === 'ul' ? e.querySelector('li') : e);
        return range.getBoundingClientRect().left - e.getBoundingClientRect().left > 100;
    }).join()";
    assert_eq!(page.evaluate(sides), "true,true");
    // Every control has a name of letters.
    let controls = "[...document.querySelectorAll('button, input')].every((e) => /[a-z]/.test(e.ariaLabel ?? e.textContent))";
    assert_eq!(page.evaluate(controls), true);
}

#[test]
fn a_page_of_ten_thousand_events_opens_quickly() {
    let Some(mut browser) = Browser::start() else { return };
    let world = World::new();
    let mut events = Vec::new();
    for turn in 0..1000 {
        events.push(user(&format!("Prompt {turn}")));
        for number in 0..4 {
            let id = format!("t{turn}-{number}");
            events.push(call(&id, "cargo test"));
            events.push(result(&id, &format!("line {turn}\n").repeat(10)));
        }
        events.push(assistant("Some **text** with `code`.\n\n- a\n- b\n\n```rust\nfn main() {}\n```"));
    }
    events.push(user("The last needle"));
    let file = page_of(&world, &events);
    let mut page = browser.open(&file);
    let loading = page.loading();
    assert!(loading < Duration::from_secs(20), "{loading:?}");
    let started = std::time::Instant::now();
    assert_eq!(search(&mut page, "last needle"), "1 hit");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    eprintln!(
        "{} bytes loaded in {loading:?}, searched in {:?}",
        file.metadata().unwrap().len(),
        started.elapsed()
    );
}

/// Returns payloads: each would set the canary, or send a request to `address`, if anything of it ran or loaded.
fn payloads(address: &str) -> Vec<String> {
    let act = format!("window.canary=1;fetch('{address}')");
    let plain = [
        format!("<script>{act}</script>"),
        format!("<script src=\"{address}\"></script>"),
        format!("</script><script>{act}</script>"),
        format!("</style><script>{act}</script>"),
        format!("</title><script>{act}</script>"),
        format!("</textarea></pre></code></details></main><script>{act}</script>"),
        format!("--><script>{act}</script><!--"),
        format!("]]><script>{act}</script>"),
        format!("<img src=x onerror=\"{act}\">"),
        format!("<img src=\"{address}\">"),
        format!("<img/src={address}/onerror={act}>"),
        format!("<svg onload=\"{act}\"></svg>"),
        format!("<svg><script>{act}</script></svg>"),
        format!("<svg><image href=\"{address}\"/><animate onbegin=\"{act}\" attributeName=x dur=1s></svg>"),
        format!("<svg><use href=\"data:image/svg+xml,<svg id='x' onload='{act}'/>#x\"/></svg>"),
        format!("<math><mtext></form><form><mglyph><style></math><img src onerror=\"{act}\">"),
        format!("<iframe src=\"{address}\"></iframe>"),
        "<iframe srcdoc=\"<script>parent.canary=1</script>\"></iframe>".to_owned(),
        format!("<object data=\"{address}\"></object><embed src=\"{address}\">"),
        format!("<link rel=stylesheet href=\"{address}\"><link rel=prefetch href=\"{address}\">"),
        format!("<style>@import url({address});*{{background:url({address})}}</style>"),
        format!("<div style=\"background:url({address});color:red\">x</div>"),
        format!("<base href=\"{address}\"><meta http-equiv=refresh content=\"0;url={address}\">"),
        format!("<form action=\"{address}\"><button autofocus onfocus=\"{act}\">x</button></form>"),
        format!(
            "<video src=\"{address}\" autoplay onloadstart=\"{act}\"></video><audio src=\"{address}\" autoplay></audio>"
        ),
        format!("<details open ontoggle=\"{act}\"><summary>x</summary></details>"),
        format!("<body onload=\"{act}\"><marquee onstart=\"{act}\">x</marquee>"),
        format!("<a href=\"javascript:{act}\">x</a><a href=\"{address}\" ping=\"{address}\">y</a>"),
        format!("\" onmouseover=\"{act}\" x=\""),
        format!("' onfocus='{act}' autofocus='"),
        format!("\"><script>{act}</script>"),
        format!("'><svg/onload={act}>"),
        format!("[x](javascript:{act})"),
        format!("[x](JaVaScRiPt:{act})"),
        format!("[x](java\u{9}script:{act})"),
        format!("[x](&#106;avascript:{act})"),
        format!("[x](data:text/html,<script>{act}</script>)"),
        format!("[x](vbscript:{act})"),
        format!("![x]({address})"),
        format!("![x](javascript:{act})"),
        format!("[x]: javascript:{act}\n\n[x]"),
        format!("<javascript:{act}>"),
        format!("```\"><script>{act}</script>\n<script>{act}</script>\n```"),
        format!("`<script>{act}</script>`"),
        format!("| <script>{act}</script> |\n|---|\n| <img src=x onerror={act}> |"),
        format!("# <script>{act}</script>\n\n> <img src=x onerror={act}>"),
        format!("&lt;script&gt;{act}&lt;/script&gt;"),
        format!("\\u003cscript\\u003e{act}\\u003c/script\\u003e"),
        format!("<scr\u{0}ipt>{act}</scr\u{0}ipt>"),
        format!(
            "<template shadowrootmode=open><script>{act}</script></template><noscript><img src={address}></noscript>"
        ),
    ];
    // Each in the forms that slip through filters.
    let forms: [fn(&str) -> String; 40] = {
        fn upper(text: &str) -> String {
            text.replace("script", "SCRIPT").replace("img", "IMG").replace("svg", "SvG")
        }
        [
            |t| t.to_owned(),
            upper,
            |t| t.replace('<', "<\n"),
            |t| t.replace(' ', "/"),
            |t| t.replace(' ', "\t"),
            |t| t.replace(' ', "\u{c}"),
            |t| t.replace('<', "<<"),
            |t| t.replace('<', "\u{ff1c}"),
            |t| t.replace("<", "&lt;<"),
            |t| format!("x{t}y"),
            |t| format!("\n\n{t}\n\n"),
            |t| format!("- {t}"),
            |t| format!("1. {t}\n   {t}"),
            |t| format!("> {t}"),
            |t| format!("    {t}"),
            |t| format!("**{t}**"),
            |t| format!("[{t}](https://x.invalid)"),
            |t| format!("![{t}](https://x.invalid \"{t}\")"),
            |t| format!("<p>{t}</p>"),
            |t| format!("<!-- {t}"),
            |t| format!("<![CDATA[{t}"),
            |t| format!("<?xml {t}?>"),
            |t| format!("```html\n{t}"),
            |t| format!("~~~\n{t}\n~~~"),
            |t| format!("`` {t}"),
            |t| format!("--- a\n+++ b\n@@ {t}\n-{t}\n+{t}"),
            |t| format!("diff --git {t}"),
            |t| format!("\u{1b}[31m{t}\u{1b}[0m"),
            |t| format!("\u{1b}]0;{t}\u{7}{t}"),
            |t| format!("\u{202e}{t}"),
            |t| format!("\u{0}{t}\u{0}"),
            |t| format!("{t}\r\n{t}"),
            |t| t.replace("script", "scr\u{0}ipt"),
            |t| t.replace("script", "scrscriptipt"),
            |t| t.replace('"', "`"),
            |t| t.replace("javascript:", "javascript&colon;"),
            |t| t.replace("javascript:", "java\nscript:"),
            |t| t.replace("javascript:", " \u{1}javascript:"),
            |t| t.replace('=', "\u{a0}="),
            |t| t.repeat(2),
        ]
    };
    let all: Vec<String> = plain.iter().flat_map(|text| forms.iter().map(move |form| form(text))).collect();
    assert_eq!(all.len(), 2000);
    all
}

/// Puts a text into every place of a session that a page shows.
fn everywhere(text: &str, number: usize) -> Vec<Value> {
    let id = format!("t{number}");
    vec![
        json!({"SystemMessage": {"content": text}}),
        json!({"UserMessage": {"content": text}}),
        json!({"Init": {"cwd": text, "model": text, "agent": text}}),
        json!({"AssistantText": {"text": text}}),
        json!({"Reasoning": {"text": text}}),
        json!({"ToolCall": {"tool_use_id": id, "tool_name": text, "file_path": text, "input": {text: text, "command": text}}}),
        json!({"AssistantText": {"text": text, "subagent": id}}),
        json!({"ToolResult": {"tool_use_id": id, "tool_name": text, "content": text, "is_error": number.is_multiple_of(2)}}),
        json!({"ToolCall": {"tool_use_id": text, "tool_name": "Bash", "input": {"command": text}, "detail": text}}),
        json!({"ToolResult": {"tool_use_id": text, "content": "x", "detail": text}}),
        json!({"ToolResult": {"tool_use_id": "nobody", "tool_name": text, "content": text}}),
        json!({"Plan": {"name": text, "content": text}}),
        json!({"Command": {"name": text}}),
        json!({"Hook": {"name": text, "output": text}}),
        json!({"Error": {"message": text, "kind": text}}),
        json!({"ModelSwitch": {"model": text, "agent": text}}),
        json!({"Changes": {"before": text, "after": text, "files": [{"path": text, "from": text}], "detail": text}}),
        json!({"Undo": {"of": 1, "turn": 1, "before": text, "after": text, "files": [{"path": text}]}}),
        json!({"Message": {"role": "user", "content": [{"type": "text", "text": text}]}}),
        json!({"Message": {"role": "assistant", "content": [{"type": "text", "text": text}, {"type": "tool_use", "id": text, "name": text, "input": {"path": text}},
            {"type": "tool_result", "tool_use_id": text, "content": [{"type": "text", "text": text}], "is_error": true}]}}),
        json!({"Message": {"role": "system", "content": [{"type": "text", "text": text}, {"type": "text", "text": text}]}}),
        json!({text: {"x": text}}),
    ]
}

/// What a page of hostile texts must not have, as an expression that returns the first example.
const FOREIGN: &str = r##"(() => {
    const allowed = new Set("HTML HEAD META TITLE STYLE BODY HEADER H1 H2 P SPAN DIV INPUT OUTPUT BUTTON NAV DETAILS SUMMARY OL UL LI A MAIN SECTION ARTICLE H3 H4 H5 H6 PRE CODE B STRONG EM S I BLOCKQUOTE HR BR TABLE THEAD TBODY TR TH TD IMG AUDIO VIDEO SCRIPT".split(" "));
    const attributes = new Set("lang charset http-equiv content name class id hidden type placeholder aria-label autocomplete spellcheck for title aria-pressed href rel role dir start open alt src controls preload".split(" "));
    if (document.scripts.length !== 1 || document.styleSheets.length !== 1) return "scripts or styles";
    if (document.head.querySelectorAll("meta").length !== 6) return "meta";
    for (const e of document.querySelectorAll("*")) {
        if (!allowed.has(e.tagName)) return e.outerHTML.slice(0, 300);
        for (const a of e.attributes) {
            if (!attributes.has(a.name)) return e.outerHTML.slice(0, 300);
            if (a.name === "href" && !/^(https?:\/\/|mailto:|#e\d+$)/i.test(a.value)) return e.outerHTML.slice(0, 300);
            if (a.name === "href" && !a.value.startsWith("#") && !/noreferrer/.test(e.rel)) return e.outerHTML.slice(0, 300);
            if (a.name === "src" && !/^data:(image|audio|video)\//.test(a.value)) return e.outerHTML.slice(0, 300);
        }
    }
    return null;
})()"##;

#[test]
fn nothing_of_a_hostile_session_runs_or_loads_in_a_page() {
    let Some(mut browser) = Browser::start() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = format!("http://{}/canary", listener.local_addr().unwrap());
    // The canary sings where something runs.
    let world = World::new();
    let control = world.file("control.html", &format!("<script>window.canary=1;fetch('{address}')</script>"));
    let mut page = browser.open(&control);
    assert_eq!(page.evaluate("typeof window.canary"), "number");
    page.evaluate("new Promise((done) => setTimeout(done, 300))");
    assert_eq!(page.requests().len(), 2);
    assert!(listener.accept().is_ok());
    let payloads = payloads(&address);
    for (number, some) in payloads.chunks(500).enumerate() {
        let world = World::new();
        let events: Vec<Value> =
            some.iter().enumerate().flat_map(|(index, text)| everywhere(text, index)).collect();
        let mut session = crate::world::exported("x", &events);
        for field in ["name", "worktree"] {
            session["session"][field] = json!(some[number * 7 % some.len()]);
        }
        let summaries: Vec<Value> = some
            .iter()
            .step_by(25)
            .enumerate()
            .map(|(index, text)| json!({"after_seq": index + 1, "summary": text, "created": "", "writer": text}))
            .collect();
        session["compactions"] = json!(summaries);
        let file = world.file("session.json", &session.to_string());
        let ran = world.run(&["import", file.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{}", &ran.stderr[..ran.stderr.len().min(500)]);
        let ran = world.run(&["export", "S1", "-f", "html", "--raw", "-o", "page.html"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let mut page = browser.open(&world.path("p/page.html"));
        assert_eq!(page.evaluate(FOREIGN), Value::Null, "page {number}");
        // All of it is laid out and shown, as far as an attacker could wish.
        page.evaluate(
            "document.querySelectorAll('details').forEach((e) => (e.open = true));
             document.querySelectorAll('.turn').forEach((e) => (e.style.contentVisibility = 'visible'));
             new Promise((done) => setTimeout(done, 700))",
        );
        let shown = page
            .evaluate("document.querySelector('main').textContent.split('canary').length")
            .as_u64()
            .unwrap();
        assert!(shown > 5_000, "the payloads are on the page: {shown}");
        assert_eq!(page.evaluate("typeof window.canary"), "undefined", "page {number}");
        let requests = page.requests();
        assert_eq!(requests.len(), 1, "page {number}: {requests:?}");
        assert!(listener.accept().is_err(), "page {number}: somebody has connected");
    }
}
