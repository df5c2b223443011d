"use strict";
(() => {
  const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const one = (q, in_ = document) => in_.querySelector(q);
  for (const e of all(".tools, .copy")) e.hidden = false;

  // A link to a result unfolds it.
  const reveal = () => {
    const e = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (e && e.tagName === "DETAILS") { e.open = true; e.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Commands are copied at a click.
  document.addEventListener("click", async (ev) => {
    const b = ev.target.closest(".copy");
    if (!b) return;
    const code = b.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    b.textContent = "Copied";
    setTimeout(() => { b.textContent = "Copy"; }, 1200);
  });

  // The filter: words that must all occur, and verdicts of which one must.
  const find = one("#find"), picks = all("[data-pick]"), items = all("[data-v]");
  const texts = new Map();
  const textOf = (e) => {
    if (!texts.has(e)) texts.set(e, (e.dataset.t ?? e.textContent).toLowerCase());
    return texts.get(e);
  };
  const sift = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const want = picks.filter((p) => p.getAttribute("aria-pressed") === "true").map((p) => p.dataset.pick);
    let left = 0;
    for (const e of items) {
      const text = textOf(e), has = e.dataset.v.split(" ");
      e.hidden = !words.every((w) => text.includes(w)) || (want.length > 0 && !want.some((v) => has.includes(v)));
      left += e.hidden ? 0 : 1;
    }
    one(".none-left").hidden = left > 0;
  };
  if (find) {
    find.addEventListener("input", sift);
    for (const p of picks) p.addEventListener("click", () => {
      p.setAttribute("aria-pressed", String(p.getAttribute("aria-pressed") !== "true"));
      sift();
    });
    const fold = (open) => { for (const d of all(".result")) if (!d.hidden) d.open = open; };
    one("#open").addEventListener("click", () => fold(true));
    one("#shut").addEventListener("click", () => fold(false));
  }
})();
