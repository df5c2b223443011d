"use strict";
(() => {
  const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const one = (q, in_ = document) => in_.querySelector(q);
  const run = one(".run");
  if (!run) return;
  const lanes = JSON.parse(one("#lanes").textContent);

  // A view has its own steps. Step 0 is the whole run.
  const views = new Map(all(".view").map((e) => [e.id, {
    e, at: 0, steps: all(".steps li", e), canvas: one(".canvas", e), cursor: one(".cursor", e),
    drawn: all("[data-s]", e).map((d) => ({ d, from: +d.dataset.s, to: +d.dataset.e || Infinity, isCall: d.matches(".call") })),
  }]));
  const current = () => views.get(one("input[name=view]:checked").value);

  // Numbers as ranges: 0, 2–5.
  const ranges = (list) => {
    const parts = [];
    for (let i = 0; i < list.length;) {
      let k = i;
      while (k + 1 < list.length && list[k + 1] === list[k] + 1) k++;
      parts.push(i === k ? list[i] : list[i] + "–" + list[k]);
      i = k + 1;
    }
    return parts.join(", ");
  };

  // The calls that the ranks are in, those of ranks in equal calls together.
  const showNow = (v, at) => {
    const doing = new Map(lanes.map((name, i) => [i, name.startsWith("rank") ? "computes, or has ended" : null]));
    for (const x of v.drawn) {
      if (x.isCall && x.from <= at && at < x.to) {
        const [text, where] = one("title", x.d).textContent.split("\n");
        doing.set(+x.d.dataset.lane, text.slice(text.indexOf(": ") + 2) + (where ? " — " + where : ""));
      }
    }
    const groups = new Map();
    for (const [lane, text] of doing) if (text) groups.set(text, [...(groups.get(text) || []), +lanes[lane].split(" ")[1]]);
    const list = one(".now dl", v.e);
    list.replaceChildren(...[...groups].flatMap(([text, ranks]) => [
      Object.assign(document.createElement("dt"), { textContent: (ranks.length > 1 ? "ranks " : "rank ") + ranges(ranks) }),
      Object.assign(document.createElement("dd"), { textContent: text }),
    ]));
  };

  const show = (v, at, scroll = true) => {
    const n = v.steps.length;
    v.at = at = Math.max(0, Math.min(n, at));
    v.e.classList.toggle("stepping", at > 0);
    let y = 0;
    for (const x of v.drawn) {
      x.d.classList.toggle("later", at > 0 && x.from > at);
      x.d.classList.toggle("active", at > 0 && x.isCall && x.from <= at && at < x.to);
      const isCurrent = at > 0 && (x.from === at || x.to === at);
      x.d.classList.toggle("current", isCurrent);
      if (!isCurrent) continue;
      const box = x.d.getBBox();
      y = x.isCall && x.to !== at ? box.y + 6 : Math.max(y, box.y + (x.d.matches(".packet, .message") || x.to === at ? box.height : box.height / 2));
    }
    if (at > 0) v.cursor.setAttribute("transform", `translate(0 ${y})`);
    v.steps.forEach((s, i) => s.classList.toggle("current", i + 1 === at));
    showNow(v, at || n);
    one(".count").textContent = at > 0 ? `step ${at} of ${n}` : `${n} steps`;
    if (!scroll || at === 0) return;
    v.canvas.scrollTop = y - v.canvas.clientHeight / 2;
    const s = v.steps[at - 1], aside = s.closest("aside");
    aside.scrollTop = s.offsetTop - aside.offsetTop - aside.clientHeight * 0.6;
  };

  const find = (v, q, from) => {
    const i = v.steps.findIndex((s, i) => i + 1 > from && s.matches(q));
    return i < 0 ? from : i + 1;
  };
  const failure = (v) => {
    const bad = v.steps.findIndex((s) => s.matches(".wrong"));
    return bad < 0 ? v.steps.length : bad + 1;
  };
  const go = {
    first: () => 1,
    back: (v) => (v.at || v.steps.length + 1) - 1,
    next: (v) => v.at === v.steps.length ? v.at : v.at + 1,
    last: () => 0,
    choice: (v) => find(v, ".choice", v.at),
    failure,
  };
  const keys = { Home: "first", ArrowLeft: "back", ArrowRight: "next", End: "last", c: "choice", f: "failure" };
  const step = (name) => { const v = current(); show(v, go[name](v)); };

  one(".steppers").hidden = false;
  for (const e of all(".now")) e.hidden = false;
  for (const b of all("[data-go]")) b.addEventListener("click", () => step(b.dataset.go));
  for (const i of all("input[name=view]")) i.addEventListener("change", () => show(current(), current().at));
  addEventListener("keydown", (ev) => {
    if (!keys[ev.key] || ev.ctrlKey || ev.metaKey || ev.altKey || ev.target.matches("input[type=radio]") && ev.key.startsWith("Arrow")) return;
    ev.preventDefault();
    step(keys[ev.key]);
  });
  for (const v of views.values()) {
    v.steps.forEach((s, i) => s.addEventListener("click", () => show(v, i + 1)));
    for (const x of v.drawn) x.d.addEventListener("click", () => show(v, x.from, false));
  }
  show(current(), 0);
})();
