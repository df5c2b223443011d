(() => {
  const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const find = document.querySelector("#find"), device = document.querySelector("#device"), picks = all("[data-pick]"), groups = all(".group");

  // Groups of which the filter leaves nothing go, and the others unfold.
  const was = new Map(groups.map((g) => [g, g.open]));
  const tidy = () => {
    const sifting = find.value.trim() !== "" || picks.some((p) => p.getAttribute("aria-pressed") === "true");
    for (const g of groups) {
      const left = all("[data-v]", g).some((e) => !e.hidden);
      g.hidden = !left;
      g.open = sifting ? left : was.get(g);
    }
    for (const h of all(".doc-title")) {
      let left = false;
      for (let e = h.nextElementSibling; e && !e.matches(".doc-title"); e = e.nextElementSibling) left ||= e.matches(".group") && !e.hidden;
      h.hidden = !left;
      if (h.nextElementSibling.matches(".heads")) h.nextElementSibling.hidden = !left;
    }
  };
  find.addEventListener("input", tidy);
  for (const p of picks) p.addEventListener("click", tidy);

  // A device that is chosen is the one whose states are asked for.
  device.addEventListener("change", () => {
    for (const p of picks) p.dataset.pick = p.dataset.state + (device.value && "@" + device.value);
    find.dispatchEvent(new Event("input"));
  });
  const fold = (open) => { for (const g of groups) if (!g.hidden) g.open = open; };
  document.querySelector("#open").addEventListener("click", () => fold(true));
  document.querySelector("#shut").addEventListener("click", () => fold(false));
})();
