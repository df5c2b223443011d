//go:build unix && browser

package report_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/browser"
)

// pageFile writes a run's page into a folder.
func pageFile(t *testing.T, name string, run *report.Run) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, report.WriteHTML(&b, run))
	path := filepath.Join(t.TempDir(), name+".html")
	must.Do(t, os.WriteFile(path, b.Bytes(), 0o666))
	return path
}

// TestPageInABrowser opens pages in Chromium, with and without scripts.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	page := pageFile(t, "sample", sampleRun())
	b.Inspect("run", page, 1400)
	shapes := browser.Look{Name: "shapes", Width: 1280, Scheme: "light"}
	b.Open(pageFile(t, "shapes", shapesRun()), shapes)
	b.Audit("shapes")
	b.Screenshot(shapes, 1400)
	t.Run("long texts", func(t *testing.T) { longTexts(t, b) })
	t.Run("scripts", func(t *testing.T) { withScripts(t, b, page) })
	t.Run("hostile", func(t *testing.T) { hostilePage(t, b) })
	t.Run("without scripts", func(t *testing.T) { withoutScripts(t, b, page) })
}

// shapesRun is a run with fabrics of many shapes and sizes.
func shapesRun() *report.Run {
	run := &report.Run{}
	for _, f := range []*topology.Topology{
		pairOf(4), starOf(2, 1), starOf(3, 1), starOf(16, 1), starOf(17, 1), starOf(96, 1), starOf(6, 4), starOf(64, 2),
		fatTreeOf(8, 2, 2), fatTreeOf(96, 12, 8), fatTreeOf(1000, 10, 4), starOf(300, 1),
	} {
		run.Scenarios = append(run.Scenarios, report.Result{
			Verdict: report.Failed, Fabric: f,
			Links: []report.Link{{From: "host1/rdma0", To: f.Cables[1].B.Node, Packets: 100, Lost: map[string]uint64{"loss": 3}}},
		})
	}
	return run
}

// longTexts shows a check with a long result, which must leave room for the wanted value.
func longTexts(t *testing.T, b *browser.Browser) {
	t.Helper()
	page := pageFile(t, "long texts", longReasonRun())
	for _, l := range []browser.Look{{Name: "long texts", Width: 1280, Scheme: "light"}, {Name: "long texts phone", Width: 390, Scheme: "light"}} {
		b.Open(page, l)
		b.Screenshot(l, 1400)
		var seen struct{ Want, Got, Em float64 }
		b.Eval(`(() => {
			const cells = document.querySelector(".checks tbody").rows[1].cells;
			return {
				want: cells[1].getBoundingClientRect().width, got: cells[2].getBoundingClientRect().width,
				em: parseFloat(getComputedStyle(cells[1]).fontSize),
			};
		})()`, &seen)
		if seen.Want < 9*seen.Em || seen.Got < 240 {
			t.Errorf("%s: columns of %.0f and %.0f pixels, at a font size of %.0f", l.Name, seen.Want, seen.Got, seen.Em)
		}
	}
}

// withScripts checks search, filters, links and the read-out of charts.
func withScripts(t *testing.T, b *browser.Browser, page string) {
	t.Helper()
	b.Open(page, browser.Look{Width: 1280, Scheme: "light"})
	var seen struct {
		Open, All, Loss, Broken, None, Nothing int
		Opened                                 bool
		Readout, When                          string
		Values                                 []string
	}
	b.Eval(`(() => {
		const shown = () => [...document.querySelectorAll(".result")].filter((d) => !d.hidden).length;
		const find = document.querySelector("#find");
		const type = (s) => { find.value = s; find.dispatchEvent(new Event("input")); return shown(); };
		const r = { open: document.querySelectorAll(".result[open]").length, all: shown(), loss: type("LOSS  rc"), none: type("no such thing") };
		r.nothing = document.querySelector(".none-left").hidden ? 0 : 1;
		type("");
		document.querySelector("[data-pick=broken]").click();
		r.broken = shown();
		document.querySelector("[data-pick=broken]").click();
		location.hash = "#r.sim.rc-flap-short";
		dispatchEvent(new HashChangeEvent("hashchange"));
		const d = document.getElementById("r.sim.rc-flap-short");
		r.opened = d.open;
		const time = d.querySelector(".time"), box = time.querySelector(".panel .plot").getBoundingClientRect();
		time.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width * 0.375, clientY: box.top + 5 }));
		r.values = [...time.querySelectorAll(".panel output")].map((o) => o.textContent);
		r.when = time.querySelector(".axis output").textContent;
		return r;
	})()`, &seen)
	if seen.Open != 3 || seen.All != 14 || seen.Loss != 2 || seen.Broken != 1 || seen.None != 0 || seen.Nothing != 1 || !seen.Opened {
		t.Errorf("%+v", seen)
	}
	// At 15 ms of 40 the link of rank 1 was down.
	if seen.When != "15.0 ms" || len(seen.Values) != 2 || !strings.Contains(seen.Values[0], "rank 1 0 b/s") || !strings.Contains(seen.Values[0], "rank 2 1") {
		t.Errorf("the read-out at %q: %q", seen.When, seen.Values)
	}
}

// hostilePage shows a page with HTML and scripts in every text.
func hostilePage(t *testing.T, b *browser.Browser) {
	t.Helper()
	page := pageFile(t, "hostile", hostileRun())
	for _, l := range []browser.Look{{Name: "hostile", Width: 1280, Scheme: "light"}, {Name: "hostile phone", Width: 390, Scheme: "light"}} {
		b.Open(page, l)
		var seen struct {
			Scripts, Images, Handlers, Links, Wide int
			Title                                  string
		}
		b.Eval(`(() => {
			const all = [...document.querySelectorAll("*")];
			for (const d of document.querySelectorAll("details")) d.open = true;
			return {
				scripts: document.scripts.length, images: document.images.length,
				handlers: all.filter((e) => [...e.attributes].some((a) => a.name.startsWith("on"))).length,
				links: [...document.links].filter((a) => !a.getAttribute("href").startsWith("#") && a.protocol !== "file:").length,
				wide: Math.max(0, document.documentElement.scrollWidth - innerWidth),
				title: document.title,
			};
		})()`, &seen)
		if seen.Scripts != 1 || seen.Images != 0 || seen.Handlers != 0 || seen.Links != 0 || seen.Wide != 0 || !strings.HasPrefix(seen.Title, "fabrictest: ") {
			t.Errorf("%s: %+v", l.Name, seen)
		}
	}
}

// withoutScripts opens the page in a browser that runs no scripts.
func withoutScripts(t *testing.T, b *browser.Browser, page string) {
	t.Helper()
	b.EnableScripts(false)
	defer b.EnableScripts(true)
	b.Open(page, browser.Look{Width: 1280, Scheme: "light"})
	var seen struct {
		Buttons int
		Text    string
	}
	b.Eval(`({
		buttons: [...document.querySelectorAll("button, input")].filter((e) => e.offsetParent).length,
		text: document.querySelector("main").innerText,
	})`, &seen)
	if seen.Buttons != 0 {
		t.Errorf("%d buttons that do nothing", seen.Buttons)
	}
	for _, want := range []string{
		"3 of 14 did not pass", "fabrictest run rc-flap-short --on netns --seed 7", "rank 0: retry exceeded (1), work request flushed (2)",
		"waits for the border of the left neighbour", "Ranks 1–7, 9–15",
	} {
		if !strings.Contains(seen.Text, want) {
			t.Errorf("%q cannot be read", want)
		}
	}
}
