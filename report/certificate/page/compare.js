(() => {
  // A device that is chosen is the one whose states are asked for.
  const device = document.querySelector("#device");
  device.addEventListener("change", () => {
    for (const p of document.querySelectorAll("[data-pick]")) p.dataset.pick = p.dataset.state + (device.value && "@" + device.value);
    document.querySelector("#find").dispatchEvent(new Event("input"));
  });
})();
