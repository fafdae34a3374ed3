"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const main = document.querySelector("main");
  const root = document.documentElement;
  const bar = at("bar"), query = at("query"), hits = at("hits");
  const MOST = 5000;

  const talkButton = at("talk");
  const talk = (isOn) => {
    root.classList.toggle("talk", isOn);
    talkButton.setAttribute("aria-pressed", String(isOn));
  };
  talkButton.addEventListener("click", () => talk(!root.classList.contains("talk")));

  // Opens everything that an element is folded into, and shows tools again if it is one.
  const reveal = (element) => {
    if (element.closest(".tool, .thinking, .hook, .system, .changes, .note")) talk(false);
    for (let e = element; e && e !== main; e = e.parentElement) {
      if (e.tagName === "DETAILS") e.open = true;
    }
  };

  // Search: ranges of the text are marked, and the page itself stays as it is.
  const canMark = typeof Highlight === "function" && CSS.highlights;
  let ranges = [], current = -1, isCut = false, last = "";
  const INLINE = new Set(["A", "B", "CODE", "EM", "I", "S", "SPAN", "STRONG"]);
  const blockOf = (node) => {
    let e = node.parentElement;
    while (INLINE.has(e.tagName)) e = e.parentElement;
    return e;
  };
  // Lower case, and spaces for line breaks. The length stays the same, so that a place in the result is a place in the text.
  const folded = (text) => {
    let lower = text.toLowerCase();
    if (lower.length !== text.length) {
      lower = Array.from(text, (c) => (c.toLowerCase().length === c.length ? c.toLowerCase() : c)).join("");
    }
    return lower.replace(/\s/g, " ");
  };
  // Adds the hits in the text of a block, which may be in several elements, such as code with colours.
  const searchBlock = (nodes, wanted) => {
    const text = nodes.map((node) => folded(node.data)).join("");
    let n = 0, start = 0;
    const seek = (place) => {
      while (place > start + nodes[n].length) start += nodes[n++].length;
      return [nodes[n], place - start];
    };
    for (let i = text.indexOf(wanted); i >= 0; i = text.indexOf(wanted, i + wanted.length)) {
      if (ranges.length === MOST) {
        isCut = true;
        return;
      }
      // The place after the first character is in the same element as that.
      const [first, next] = seek(i + 1);
      const range = new Range();
      range.setStart(first, next - 1);
      range.setEnd(...seek(i + wanted.length));
      ranges.push(range);
    }
  };
  const search = () => {
    const wanted = folded(query.value.trim());
    if (wanted === last) return;
    last = wanted;
    ranges = [];
    current = -1;
    isCut = false;
    if (wanted) {
      const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
      let block = null, nodes = [];
      while (walker.nextNode() && !isCut) {
        const node = walker.currentNode;
        if (node.parentElement.className === "seq") continue;
        const next = blockOf(node);
        if (next !== block) {
          searchBlock(nodes, wanted);
          block = next;
          nodes = [];
        }
        nodes.push(node);
      }
      if (!isCut) searchBlock(nodes, wanted);
    }
    if (canMark) {
      CSS.highlights.delete("hit");
      if (ranges.length) CSS.highlights.set("found", new Highlight(...ranges));
      else CSS.highlights.delete("found");
    }
    tell();
  };
  const tell = () => {
    const count = isCut ? `${MOST}+` : `${ranges.length}`;
    const all = ranges.length === 1 ? "1 hit" : `${ranges.length ? count : "no"} hits`;
    hits.textContent = !last ? "" : current < 0 ? all : `${current + 1} of ${count}`;
  };
  // Scrolls to a hit: first to its element, and then within that, which may be longer than the window.
  const scrollTo = (range) => {
    const element = range.startContainer.parentElement;
    element.scrollIntoView({ block: "center", inline: "nearest" });
    const box = element.closest("pre, .wide");
    if (box) {
      const hit = range.getBoundingClientRect(), frame = box.getBoundingClientRect();
      box.scrollTop += hit.top - frame.top - box.clientHeight / 2;
      if (hit.left < frame.left || hit.right > frame.right) box.scrollLeft += hit.left - frame.left - box.clientWidth / 2;
    }
    scrollBy(0, range.getBoundingClientRect().top - innerHeight / 2);
  };
  const go = (step) => {
    search();
    if (!ranges.length) return;
    current = (current + step + ranges.length + (current < 0 && step < 0 ? 1 : 0)) % ranges.length;
    const range = ranges[current];
    reveal(range.startContainer.parentElement);
    if (canMark) CSS.highlights.set("hit", new Highlight(range));
    scrollTo(range);
    tell();
  };
  let timer = 0;
  query.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, 120);
  });
  query.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      go(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      query.value = "";
      search();
      query.blur();
    }
  });
  at("next").addEventListener("click", () => go(1));
  at("previous").addEventListener("click", () => go(-1));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && event.target !== query) {
      event.preventDefault();
      query.focus();
      query.select();
    }
  });

  const folds = () => main.querySelectorAll("details");
  const fold = at("fold");
  let isUnfolded = false;
  fold.addEventListener("click", () => {
    isUnfolded = !isUnfolded;
    folds().forEach((e) => (e.open = isUnfolded));
    fold.textContent = isUnfolded ? "Fold all" : "Unfold all";
  });

  // What is folded is printed too.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...folds()].filter((e) => !e.open);
    closed.forEach((e) => (e.open = true));
  });
  addEventListener("afterprint", () => closed.forEach((e) => (e.open = false)));

  at("theme").addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });

  const follow = () => {
    const target = at(location.hash.slice(1));
    if (target) {
      reveal(target);
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", follow);
  bar.hidden = false;
  const contents = at("contents");
  if (contents && matchMedia("(min-width: 84rem)").matches) contents.open = true;
  if (location.hash) follow();
})();
