//go:build unix && browser

package certificate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/browser"
)

// TestPagesInABrowser opens a certificate and a comparison in Chromium.
func TestPagesInABrowser(t *testing.T) {
	b := browser.Start(t)
	_, dir := written(t, conform.Pass, conform.Fail, conform.Deviates, conform.Unsupported, conform.Broken, conform.Stale)
	c, _, _ := compared(t)
	matrix := filepath.Join(t.TempDir(), "matrix.html")
	f := must.Get(os.Create(matrix))(t)
	must.Do(t, c.WriteHTML(f, dir))
	must.Do(t, f.Close())
	b.Inspect("certificate", filepath.Join(dir, PageFile), 2600)
	b.Inspect("matrix", matrix, 2600)
	t.Run("filter", func(t *testing.T) { filter(t, b, matrix) })
}

// filter filters the clauses of a comparison by text, state and device.
func filter(t *testing.T, b *browser.Browser, page string) {
	b.Open(page, browser.Look{Width: 1280, Scheme: "light"})
	var seen struct{ All, Word, None, Fail, FailThere, FailElsewhere, Titles int }
	b.Eval(`(() => {
		const shown = () => [...document.querySelectorAll("#clauses tr[data-v]")].filter((e) => !e.hidden && !e.closest("[hidden]")).length;
		const find = document.querySelector("#find"), device = document.querySelector("#device");
		const type = (s) => { find.value = s; find.dispatchEvent(new Event("input")); return shown(); };
		const on = (s) => { device.value = s; device.dispatchEvent(new Event("change")); return shown(); };
		const r = { all: shown(), word: type("PSN/1"), none: type("no such thing") };
		type("");
		document.querySelector("[data-state=fail]").click();
		r.fail = shown();
		r.titles = [...document.querySelectorAll("#clauses .doc-title")].filter((e) => !e.hidden).length;
		r.failThere = on("3");
		r.failElsewhere = on("0");
		return r;
	})()`, &seen)
	// Clause 1 fails on the first certificate, clause 3 on the second; nothing on the emulated
	// device.
	if seen.All != 6 || seen.Word != 1 || seen.None != 0 || seen.Fail != 2 || seen.Titles != 1 || seen.FailThere != 1 || seen.FailElsewhere != 0 {
		t.Errorf("%+v", seen)
	}
}
