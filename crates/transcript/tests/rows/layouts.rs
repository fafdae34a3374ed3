//! Rows of Markdown and of calls.

use super::*;
use azureal_core::Seq;
use azureal_transcript::{Author, Content, Text};

const ANSWER: &str = r"# The race

Two refreshes **race** on the *same* token row: `find` reads it, ~~then~~ both write. See [the docs](https://example.com/docs) and <https://example.com>.
A second line.

1. Lock the row with `SELECT … FOR UPDATE`, so that the second refresh waits for the first one
2. Read it again
   - nested one
   - nested two

     with a paragraph
3. Write

- [x] found
- [ ] mended

> A quote that is long enough to be wrapped at forty columns, surely
> > nested

```rust
fn main() {
	println!(\x22hello\x22); // a comment that is long enough to be cut at forty columns
}
```

| file | lines | why |
|:-----|------:|-----|
| src/auth/token.rs | 212 | It has the lock that both of the refreshes need |
| a.rs | 1 | x |

---

日本語のテキストは単語の間に空白がありません。それでも行は折り返されます。 Footnote[^1] and <b>html</b> &amp; entity.

[^1]: The note.
";

fn answer(source: &str) -> Block {
    let text = Text {
        has_heading: true,
        agent: Some("codex".into()),
        model: Some("gpt-5.5".into()),
        ..Text::new(Author::Agent, source)
    };
    Block::new(Seq(1), 0, Content::Text(text))
}

#[test]
fn markdown_is_laid_out_to_the_width() {
    let source = ANSWER.replace("\\x22", "\"");
    let block = answer(&source);
    for width in [120, 80, 40, 20] {
        let layout = layout(width, Fold::Open);
        check(&block, &layout);
        insta::assert_snapshot!(format!("markdown_{width}"), text(&rows(&block, &layout)));
    }
    insta::assert_snapshot!("markdown_styles", styled(&rows(&block, &layout(60, Fold::Open))));
}
