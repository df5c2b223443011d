"use strict";
(() => {
  const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const one = (q, in_ = document) => in_.querySelector(q);
  for (const e of all(".tools, .copy")) e.hidden = false;

  // A link unfolds its target and what the target is folded in.
  const reveal = () => {
    const e = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let d = e && e.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
    if (e) e.scrollIntoView();
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
  const find = one("#find"), picks = all("[data-pick]"), items = all("[data-v]"), groups = all(".group");
  const was = new Map(groups.map((g) => [g, g.open]));
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
    // Groups of which the filter leaves nothing go, and the others unfold.
    for (const g of groups) {
      const some = all("[data-v]", g).some((e) => !e.hidden);
      g.hidden = !some;
      g.open = words.length + want.length > 0 ? some : was.get(g);
    }
    // So do the titles of documents without groups.
    for (const h of all(".doc-title")) {
      let has = false, some = false;
      for (let e = h.nextElementSibling; e && !e.matches(".doc-title"); e = e.nextElementSibling) {
        has ||= e.matches(".group");
        some ||= e.matches(".group") && !e.hidden;
      }
      h.hidden = has && !some;
      if (h.nextElementSibling?.matches(".heads")) h.nextElementSibling.hidden = h.hidden;
    }
  };
  if (find) {
    find.addEventListener("input", sift);
    for (const p of picks) p.addEventListener("click", () => {
      p.setAttribute("aria-pressed", String(p.getAttribute("aria-pressed") !== "true"));
      sift();
    });
    const fold = (open) => { for (const d of all(".result, .group")) if (!d.hidden) d.open = open; };
    one("#open").addEventListener("click", () => fold(true));
    one("#shut").addEventListener("click", () => fold(false));
  }
})();
