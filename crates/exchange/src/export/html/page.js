"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const main = document.querySelector("main");
  const root = document.documentElement;
  const bar = at("bar"), query = at("query"), hits = at("hits");
  const MOST = 5000;

  // Opens everything that an element is folded into.
  const reveal = (element) => {
    for (let e = element; e && e !== main; e = e.parentElement) {
      if (e.tagName === "DETAILS") e.open = true;
    }
  };

  // Search: ranges of the text are marked, and the page itself stays as it is.
  const canMark = typeof Highlight === "function" && CSS.highlights;
  let ranges = [], current = -1, isCut = false, last = "";
  const search = () => {
    const wanted = query.value.trim().toLowerCase();
    if (wanted === last) return;
    last = wanted;
    ranges = [];
    current = -1;
    isCut = false;
    if (wanted) {
      const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && !isCut) {
        const node = walker.currentNode;
        const text = node.data.toLowerCase();
        // A few letters have another length in lower case; their places are not known.
        if (text.length !== node.data.length) continue;
        for (let i = text.indexOf(wanted); i >= 0; i = text.indexOf(wanted, i + wanted.length)) {
          if (ranges.length === MOST) {
            isCut = true;
            break;
          }
          const range = new Range();
          range.setStart(node, i);
          range.setEnd(node, i + wanted.length);
          ranges.push(range);
        }
      }
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
    hits.textContent = !last ? "" : !ranges.length ? "no hits" : current < 0 ? `${count} hits` : `${current + 1} of ${count}`;
  };
  const go = (step) => {
    search();
    if (!ranges.length) return;
    current = (current + step + ranges.length + (current < 0 && step < 0 ? 1 : 0)) % ranges.length;
    const range = ranges[current];
    const element = range.startContainer.parentElement;
    if (root.classList.contains("talk") && element.closest(".tool, .thinking, .hook, .system, .changes")) talk(false);
    reveal(element);
    if (canMark) CSS.highlights.set("hit", new Highlight(range));
    element.scrollIntoView({ block: "center", behavior: "instant" });
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

  // Folding.
  const folds = () => main.querySelectorAll("details");
  const fold = at("fold");
  fold.addEventListener("click", () => {
    const isOpen = fold.getAttribute("aria-pressed") !== "true";
    folds().forEach((e) => (e.open = isOpen));
    fold.setAttribute("aria-pressed", String(isOpen));
    fold.textContent = isOpen ? "Fold all" : "Unfold all";
  });
  const talkButton = at("talk");
  const talk = (isOn) => {
    root.classList.toggle("talk", isOn);
    talkButton.setAttribute("aria-pressed", String(isOn));
  };
  talkButton.addEventListener("click", () => talk(!root.classList.contains("talk")));

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
    const target = at(decodeURIComponent(location.hash.slice(1)));
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
