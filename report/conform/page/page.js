(() => {
  const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const one = (q, in_ = document) => in_.querySelector(q);

  // What a link leads to may lie in something that is folded.
  const unfold = () => {
    const e = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let d = e && e.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
    if (e) e.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  // Groups of which the filter leaves nothing go, and the others unfold.
  const find = one("#find"), picks = all("[data-pick]"), groups = all(".group");
  const was = new Map(groups.map((g) => [g, g.open]));
  const tidy = () => {
    const sifting = find.value.trim() !== "" || picks.some((p) => p.getAttribute("aria-pressed") === "true");
    for (const g of groups) {
      const left = all("[data-v]", g).some((e) => !e.hidden);
      g.hidden = !left;
      g.open = sifting ? left : was.get(g);
    }
  };
  if (find) {
    find.addEventListener("input", tidy);
    for (const p of picks) p.addEventListener("click", tidy);
    const fold = (open) => { for (const g of groups) if (!g.hidden) g.open = open; };
    one("#open").addEventListener("click", () => fold(true));
    one("#shut").addEventListener("click", () => fold(false));
  }

  // The grid names the case and the defect under the pointer.
  for (const box of all(".grid-box")) {
    const svg = one("svg", box), read = one(".read", box), { cell, left, top, row, cases } = svg.dataset;
    const ids = cases.split(" "), names = all(".m text", svg).map((t) => t.firstChild.data);
    box.addEventListener("pointermove", (ev) => {
      const r = svg.getBoundingClientRect();
      const x = Math.floor((ev.clientX - r.left - left) / cell), y = Math.floor((ev.clientY - r.top - top) / row);
      read.hidden = !(x >= 0 && x < ids.length && y >= 0 && y < names.length);
      if (!read.hidden) read.textContent = names[y] + "  ×  " + ids[x];
    });
    box.addEventListener("pointerleave", () => { read.hidden = true; });
  }
})();
