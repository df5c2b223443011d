(() => {
  const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const one = (q, in_ = document) => in_.querySelector(q);

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
