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
  const sift = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const want = picks.filter((p) => p.getAttribute("aria-pressed") === "true").map((p) => p.dataset.pick);
    let left = 0;
    for (const e of items) {
      const text = e.dataset.t.toLowerCase(), has = e.dataset.v.split(" ");
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

  // Read-outs: values are read off the lines themselves, which are steps.
  const si = (v, unit) => {
    let u = 0;
    while (v >= 999.5 && u < 5) { v /= 1000; u++; }
    const text = v >= 99.95 || v === Math.round(v) ? v.toFixed(0) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2);
    return (text + " " + ["", "k", "M", "G", "T", "P"][u] + unit).trim();
  };
  const show = { bits: (v) => si(v, "b/s"), rate: (v) => si(v, "") + "/s", count: (v) => si(Math.round(v), "") };
  const time = (ns) => ns < 1e3 ? ns.toFixed(0) + " ns" : ns < 999.5e3 ? (ns / 1e3).toPrecision(3) + " µs" :
    ns < 999.5e6 ? (ns / 1e6).toPrecision(3) + " ms" : (ns / 1e9).toPrecision(4) + " s";
  const levelAt = (path, x) => {
    let y = 1000;
    for (const [, c, a, b] of path.matchAll(/([MHV])([\d.]+)(?: ([\d.]+))?/g)) {
      if (c === "M") y = +b;
      else if (c === "V") y = +a;
      else if (+a >= x) break;
    }
    return y;
  };
  const put = (o, part, text) => {
    o.textContent = text;
    o.style.left = part < 0.5 ? `calc(${100 * part}% + 8px)` : "auto";
    o.style.right = part < 0.5 ? "auto" : `calc(${100 - 100 * part}% + 8px)`;
  };
  for (const t of all(".time")) {
    const plots = all(".panel .plot", t);
    t.addEventListener("pointermove", (ev) => {
      const box = plots[0] && plots[0].getBoundingClientRect();
      const part = box && (ev.clientX - box.left) / box.width;
      t.classList.toggle("live", part >= 0 && part <= 1);
      if (!(part >= 0 && part <= 1)) return;
      for (const plot of plots) {
        const panel = plot.parentElement, lines = all(".l", plot);
        const text = lines.map((l) => {
          const v = show[panel.dataset.kind]((1 - levelAt(l.getAttribute("d"), 960 * part) / 1000) * panel.dataset.max);
          return lines.length > 1 ? l.dataset.name + " " + v : v;
        }).join(" · ");
        const cross = one(".cross", plot) || plot.appendChild(Object.assign(document.createElement("i"), { className: "cross" }));
        cross.style.left = 100 * part + "%";
        put(one("output", plot), part, text);
      }
      put(one(".axis output", t), part, time(part * t.dataset.end));
    });
    t.addEventListener("pointerleave", () => {
      t.classList.remove("live");
      for (const c of all(".cross", t)) c.remove();
    });
  }
})();
