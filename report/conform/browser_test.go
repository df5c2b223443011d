//go:build unix && browser

package conform_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/browser"
)

func pageFile(t *testing.T, name string, run *conform.Run) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".html")
	must.Do(t, os.WriteFile(path, []byte(html(t, run)), 0o666))
	return path
}

func TestPageInBrowser(t *testing.T) {
	b := browser.Start(t)
	page := pageFile(t, "conform", sample())
	b.Inspect("conform", page, 2600)
	t.Run("script", func(t *testing.T) { checkScript(t, b, page) })
	b.Open(pageFile(t, "hostile", hostileRun()), browser.Look{Name: "hostile", Width: 1280, Scheme: "light"})
	var seen struct{ Scripts, Images, Handlers, Wide int }
	b.Eval(`({
		scripts: document.scripts.length, images: document.images.length, wide: Math.max(0, document.documentElement.scrollWidth - innerWidth),
		handlers: [...document.querySelectorAll("*")].filter((e) => [...e.attributes].some((a) => a.name.startsWith("on"))).length,
	})`, &seen)
	if seen.Scripts != 1 || seen.Images != 0 || seen.Handlers != 0 || seen.Wide != 0 {
		t.Errorf("a page with hostile texts: %+v", seen)
	}
}

// checkScript uses the search, the filters and the read-out that the script adds.
func checkScript(t *testing.T, b *browser.Browser, page string) {
	b.Open(page, browser.Look{Width: 1280, Scheme: "light"})
	var seen struct {
		Cases, Found, Failing, None, Nothing int
		Opened                               bool
		Read                                 string
	}
	b.Eval(`(() => {
		const shown = () => [...document.querySelectorAll(".case, .clause")].filter((e) => !e.hidden && !e.closest("[hidden]")).length;
		const find = document.querySelector("#find");
		const type = (s) => { find.value = s; find.dispatchEvent(new Event("input")); return shown(); };
		const r = { cases: shown(), found: type("BEHAVIOUR-12"), none: type("no such thing") };
		r.nothing = document.querySelector(".none-left").hidden ? 0 : 1;
		type("");
		const fail = document.querySelector("[data-pick=fail]");
		fail.click();
		r.failing = shown();
		fail.click();
		location.hash = "#c.softroce.rc-read-behaviour-20";
		dispatchEvent(new HashChangeEvent("hashchange"));
		const d = document.getElementById("c.softroce.rc-read-behaviour-20");
		r.opened = d.open && d.closest(".group").open;
		const box = document.querySelector(".grid-box"), svg = box.querySelector("svg"), at = svg.getBoundingClientRect();
		box.dispatchEvent(new PointerEvent("pointermove", { clientX: at.left + +svg.dataset.left + 1, clientY: at.top + +svg.dataset.top + 2 }));
		r.read = box.querySelector(".read").textContent;
		return r;
	})()`, &seen)
	// The search finds one case. Two cases fail, and two clauses have a failing case.
	if seen.Cases < 50 || seen.Found != 1 || seen.Failing != 4 || seen.None != 0 || seen.Nothing != 1 || !seen.Opened {
		t.Errorf("%+v", seen)
	}
	if !strings.HasPrefix(seen.Read, "PSNUnsigned") || !strings.HasSuffix(seen.Read, "rc/psn/behaviour-0") {
		t.Errorf("the read-out is %q", seen.Read)
	}
}
