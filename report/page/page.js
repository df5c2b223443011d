"use strict";
(() => {
  const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const one = (q, in_ = document) => in_.querySelector(q);

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
