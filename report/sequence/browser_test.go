//go:build unix && browser

package sequence_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/internal/browser"
	"github.com/fabrictest/fabrictest/report/sequence"
)

func TestDiagramInABrowser(t *testing.T) {
	b := browser.Start(t)
	pages := map[string]string{}
	for name, d := range map[string]*sequence.Diagram{"sequence": sampleDiagram(), "sequence 40": largeDiagram(40, 500)} {
		pages[name] = filepath.Join(t.TempDir(), strings.ReplaceAll(name, " ", "-")+".html")
		must.Do(t, os.WriteFile(pages[name], []byte(html(t, d)), 0o666))
		b.Inspect(name, pages[name], 1400)
	}
	t.Run("steps", func(t *testing.T) { stepThrough(t, b, pages["sequence"]) })
}

// stepThrough checks the keys, the buttons and the list of steps.
func stepThrough(t *testing.T, b *browser.Browser, page string) {
	look := browser.Look{Name: "sequence step", Width: 1280, Scheme: "light"}
	b.Open(page, look)
	var seen struct {
		Whole, First, Choice, Failure, Clicked, Back string
		Later, Hidden                                int
		Now                                          string
	}
	b.Eval(`(() => {
		const key = (k) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true }));
		const count = () => document.querySelector(".count").textContent;
		const r = { whole: count() };
		key("Home"); r.first = count();
		r.later = document.querySelectorAll("#packets .later").length;
		key("c"); r.choice = document.querySelector("#packets .steps .current").textContent;
		r.now = document.querySelector("#packets .now").innerText;
		key("f"); r.failure = document.querySelector("#packets .steps .current").textContent;
		document.querySelectorAll("#packets .steps li")[2].click(); r.clicked = count();
		document.querySelector("[data-go=back]").click(); r.back = count();
		document.querySelector("input[value=calls]").click();
		r.hidden = document.querySelector("#packets").offsetHeight;
		document.querySelector("input[value=packets]").click();
		key("c");
		return r;
	})()`, &seen)
	b.Screenshot(look, 1400)
	if seen.Whole != "19 steps" || seen.First != "step 1 of 19" || seen.Later == 0 || !strings.Contains(seen.Choice, "choice 67") ||
		!strings.Contains(seen.Failure, "message race") || seen.Clicked != "step 3 of 19" || seen.Back != "step 2 of 19" || seen.Hidden != 0 {
		t.Errorf("%+v", seen)
	}
	if !strings.Contains(seen.Now, "Recv from any, tag 0, 1 byte — main.go:31") {
		t.Errorf("at the choice: %q", seen.Now)
	}
}
