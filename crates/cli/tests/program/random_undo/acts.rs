//! Random acts of a user or an agent in a worktree, as lines of a shell script.

/// A stream of random numbers that a seed determines.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below a bound. The algorithm is SplitMix64.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    pub(super) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// The paths that acts use. No name has a single quote.
pub(super) const PATHS: [&[u8]; 44] = [
    b"a",
    b"A",
    b"b.txt",
    b"B.txt",
    b"x",
    b"x/y",
    b"x/y/z",
    b"x.log",
    b"keep.log",
    b".env",
    b"secret.key",
    b"dir/x",
    b"Dir/x",
    b"dir/X",
    b"dir/y.log",
    b"dir/keep.log",
    b"dir/sub/z",
    b"dir/sub/secret.key",
    b"dir/.env",
    b"build/out",
    b"build/sub/out.log",
    b"build/keep",
    b"deep/a/b",
    b"deep/a/b/c",
    b"deep/a/b/c/d.log",
    b"n\xe9.txt",
    b"\xff.log",
    b"new\nline",
    b" sp ace ",
    b"tab\t\"q\"",
    b"#hash",
    b"!bang",
    b"[x]",
    b"back\\slash",
    b"trail ",
    b"-option",
    b":(glob)x",
    b"nested/f",
    b"nested/secret.key",
    b"sub/lib",
    b"wt/a",
    b".gitmodules",
    b"crlf.txt",
    b"attr.evil",
];

/// The places of files of rules.
pub(super) const RULE_FILES: [&[u8]; 7] = [
    b".gitignore",
    b"dir/.gitignore",
    b"build/.gitignore",
    b"deep/a/.gitignore",
    b"x/.gitignore",
    b"nested/.gitignore",
    b"dir/sub/.gitignore",
];

/// Rules with everything of `git help gitignore`.
const RULES: [&str; 38] = [
    "*.log",
    "!keep.log",
    "*",
    "!*.txt",
    "!.gitignore",
    "!*/",
    "!src",
    "/a",
    "/x",
    "x/",
    "x/y",
    "dir",
    "dir/",
    "/dir/*",
    "!/dir/keep.log",
    "build/",
    "build/*",
    "!build/keep",
    "**/sub",
    "deep/**",
    "deep/**/d.log",
    "a/**/b",
    "**/secret.key",
    ".env",
    "*.key",
    "?",
    "[ab]*",
    "[!a-m]*",
    "\\#hash",
    "#hash",
    "\\!bang",
    "!bang",
    "trail\\ ",
    "trail ",
    "nested",
    "SECRET.KEY",
    "DIR/",
    ".gitignore",
];

/// Lines before the acts. `g` runs git, and `p` creates the folder of a file; both fail if a pipe would be waited for.
pub(super) const PREAMBLE: &str = "\
export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e GIT_TEMPLATE_DIR= GIT_EDITOR=true
g() { [ -z \"$(find . -name '.git*' -type p)\" ] && timeout 5 git -c protocol.file.allow=always \"$@\"; }
p() { case \"$1\" in */*) mkdir -p -- \"${1%/*}\" ;; esac; [ ! -p \"$1\" ]; }
exec 2> /dev/null
";

fn quoted(path: &[u8]) -> Vec<u8> {
    [b"'./", path, b"'"].concat()
}

fn line(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Returns a content that no other file has, so that it is known wherever it appears.
fn token(random: &mut Random) -> String {
    format!("token{:08x}{:08x}", random.below(1 << 32), random.below(1 << 32))
}

/// Returns one act.
pub(super) fn act(random: &mut Random) -> Vec<u8> {
    match random.below(100) {
        0..=54 => file_act(random),
        55..=72 => rule_act(random),
        73..=94 => git_act(random),
        _ => unusual_act(random),
    }
}

fn file_act(random: &mut Random) -> Vec<u8> {
    let (one, other) = (quoted(random.one_of(&PATHS)), quoted(random.one_of(&PATHS)));
    let token = token(random);
    let token = token.as_bytes();
    match random.below(15) {
        0..=4 => line(&[b"p ", &one, b" && echo ", token, b" > ", &one]),
        5 | 6 => line(&[b"[ -f ", &one, b" ] && echo ", token, b" >> ", &one]),
        7 => line(&[b"p ", &one, b" && printf '", token, b"\\r\\n1\\r\\n' > ", &one]),
        8 => line(&[b"p ", &one, b" && printf '", token, b"\\000\\377' > ", &one]),
        9 | 10 => line(&[b"rm -rf -- ", &one]),
        11 | 12 => line(&[b"p ", &other, b"; mv -f -- ", &one, b" ", &other]),
        13 => line(&[b"chmod ", random.one_of(&[&b"+x"[..], b"-x", b"600", b"444"]), b" ", &one]),
        _ => line(&[b"rm -rf -- ", &one, b"; mkdir -p -- ", &one, b"; echo ", token, b" > ", &one, b"/y"]),
    }
}

fn rules(random: &mut Random) -> String {
    let count = 1 + random.below(4);
    (0..count).map(|_| format!("{}\n", random.one_of(&RULES))).collect()
}

fn rule_act(random: &mut Random) -> Vec<u8> {
    let file = quoted(random.one_of(&RULE_FILES));
    let rules = rules(random);
    let rules = rules.as_bytes();
    match random.below(20) {
        0..=7 => line(&[b"p ", &file, b" && cat > ", &file, b" <<'E'\n", rules, b"E"]),
        8..=10 => line(&[b"p ", &file, b" && cat >> ", &file, b" <<'E'\n", rules, b"E"]),
        11..=13 => line(&[b"rm -rf -- ", &file]),
        14 => line(&[b"mv -f -- ", &file, b" ", &quoted(random.one_of(&PATHS))]),
        15..=17 => line(&[b"cat > .git/info/exclude <<'E'\n", rules, b"E"]),
        18 => line(&[b"mkdir -p $HOME/.config/git; cat > $HOME/.config/git/ignore <<'E'\n", rules, b"E"]),
        _ => b"printf '*.txt text eol=crlf\\n*.evil filter=evil\\n* ident\\n' > .gitattributes".to_vec(),
    }
}

fn git_act(random: &mut Random) -> Vec<u8> {
    let path = quoted(random.one_of(&PATHS));
    match random.below(26) {
        0..=4 => b"g add -A".to_vec(),
        5 | 6 => line(&[b"g add -f -- ", &path]),
        7 | 8 => line(&[b"g rm -rq --cached -- ", &path]),
        9..=12 => b"g add -A; g commit -qm x".to_vec(),
        13 => b"g stash -q".to_vec(),
        14 => b"g stash pop -q".to_vec(),
        15 => b"g reset -q --hard".to_vec(),
        16 => b"g reset -q".to_vec(),
        17 => b"git checkout -q -b side || git checkout -q side; p ./a && echo side > a; g commit -qam side; g checkout -q main".to_vec(),
        18 => b"p ./a && echo ours > a; g commit -qam ours; g merge -q side".to_vec(),
        19 => b"p ./a && echo ours > a; g commit -qam ours; g rebase -q side".to_vec(),
        20 => b"g merge --abort; g rebase --abort".to_vec(),
        21 => b"mkdir -p nested; g -C nested init -q; g -C nested commit -q --allow-empty -m x".to_vec(),
        22 => b"rm -rf nested/.git sub/.git wt/.git".to_vec(),
        23 => b"g submodule --quiet add ../lib sub".to_vec(),
        24 => b"g worktree add -q -f --detach wt".to_vec(),
        _ => b"g clean -fdq".to_vec(),
    }
}

fn unusual_act(random: &mut Random) -> Vec<u8> {
    let (one, other) = (quoted(random.one_of(&PATHS)), random.one_of(&PATHS).to_vec());
    let file = quoted(random.one_of(&RULE_FILES));
    match random.below(12) {
        0..=2 => line(&[b"p ", &one, b"; ln -sfn -- '", &other, b"' ", &one]),
        3 => line(&[b"p ", &one, b"; ln -f -- ", &quoted(&other), b" ", &one]),
        4 => line(&[b"rm -rf -- ", &one, b"; p ", &one, b"; mkfifo -- ", &one]),
        5 => line(&[b"rm -rf -- ", &file, b"; p ", &file, b"; ln -s x.log ", &file]),
        6 => line(&[b"rm -rf -- ", &file, b"; p ", &file, b"; mkfifo ", &file]),
        7 => line(&[b"rm -rf -- ", &file, b"; mkdir -p ", &file, b"; echo 1 > ", &file, b"/x"]),
        8 => line(&[b"p ", &one, b"; truncate -s 10500000 -- ", &one]),
        9 => b"git config core.autocrlf true".to_vec(),
        10 => line(&[b"git config core.ignoreCase ", random.one_of(&[&b"true"[..], b"false"])]),
        _ => b"find . -name .gitignore -type p -delete".to_vec(),
    }
}
