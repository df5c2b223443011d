// Looks at the page as a picky reader would, and returns what is wrong with it.
(() => {
  const wrong = [];
  const say = (e, what) => {
    if (wrong.length < 20) wrong.push(`${what}: <${e.tagName} class="${e.getAttribute("class") || ""}"> ${(e.textContent || "").trim().slice(0, 60)}`);
  };
  // Rows that are folded away look like those that are not.
  for (const d of document.querySelectorAll("details:not(.more)")) d.open = true;

  if (document.documentElement.scrollWidth > innerWidth) {
    wrong.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);
  }

  const rgb = (s) => {
    const m = s.match(/[\d.]+/g).map(Number);
    return { r: m[0], g: m[1], b: m[2], a: m.length > 3 ? m[3] : 1 };
  };
  const light = (c) => {
    const f = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * f(c.r) + 0.7152 * f(c.g) + 0.0722 * f(c.b);
  };
  const known = new Map();
  const behind = (e) => {
    if (!e) return { r: 255, g: 255, b: 255, a: 1 };
    if (!known.has(e)) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      known.set(e, c.a > 0.99 ? c : behind(e.parentElement));
    }
    return known.get(e);
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };

  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const style = getComputedStyle(e);
    if (!own || style.display === "none" || ["TITLE", "SCRIPT", "STYLE", "OUTPUT"].includes(e.tagName)) continue;
    const box = e.getBoundingClientRect();
    if (box.width === 0) continue;
    const drawn = e instanceof SVGElement;

    // Texts are whole: not cut off by their own box, nor by the window.
    if (!drawn && style.overflowX === "hidden" && e.scrollWidth > e.clientWidth + 1 && !e.title) say(e, "cut off");
    if (!e.closest(".scroll, .plot") && (box.right > innerWidth + 1 || box.left < -1)) say(e, "outside the window");

    // And can be read.
    const ink = rgb(drawn ? style.fill : style.color);
    const ratio = contrast(ink, behind(drawn ? e.ownerSVGElement.parentElement : e));
    if (ratio < 4.5 && !e.matches(".none")) say(e, `contrast ${ratio.toFixed(1)}`);
  }

  // Labels of a drawing stay in it and clear of each other; so do those of an axis.
  const clear = (texts, what) => {
    const boxes = texts.map((t) => t.getBoundingClientRect());
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b, j) => {
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // Lines of text have air above and below: boxes may touch.
      if (x > 1 && y > 4) say(texts[i], `${what} overlaps ${texts[i + 1 + j].textContent}`);
    }));
  };
  for (const svg of document.querySelectorAll("svg.fabric")) {
    const all = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")];
    for (const t of texts) {
      const b = t.getBoundingClientRect();
      if (b.left < all.left - 1 || b.right > all.right + 1 || b.top < all.top - 1 || b.bottom > all.bottom + 1) say(t, "outside its drawing");
    }
    clear(texts, "label");
  }
  for (const axis of document.querySelectorAll(".axis .plot")) clear([...axis.querySelectorAll("span")], "tick");
  for (const lanes of document.querySelectorAll(".lanes .plot")) clear([...lanes.querySelectorAll(".lane")], "fault");
  return wrong;
})()
