//go:build unix

package ranks_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fabrictest/fabrictest/report/internal/reporttest"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// TestPagesInABrowser looks at the pages in Chromium: bright and dark, wide and on a
// telephone, on paper. FABRICTEST_SHOTS names a folder for pictures of what it saw.
func TestPagesInABrowser(t *testing.T) {
	b := reporttest.StartBrowser(t)
	for name, run := range map[string]*ranks.Run{"job": sampleJob(40), "memory": sampleMemory(t)} {
		page := filepath.Join(t.TempDir(), name+".html")
		if err := os.WriteFile(page, []byte(html(t, run)), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, l := range []reporttest.Look{
			{Name: name + " light", Width: 1280, Scheme: "light"},
			{Name: name + " dark", Width: 1280, Scheme: "dark"},
			{Name: name + " phone", Width: 390, Scheme: "dark"},
			{Name: name + " paper", Width: 718, Scheme: "dark", Media: "print"},
		} {
			b.Open(page, l)
			shade := b.Shoot(l, 3600)
			if bright := l.Scheme == "light" || l.Media == "print"; bright && shade < 0.8 || !bright && shade > 0.4 {
				t.Errorf("%s: how bright it is: %v", l.Name, shade)
			}
			for _, w := range b.Audit() {
				t.Errorf("%s: %s", l.Name, w)
			}
		}
	}
	for _, p := range b.Problems {
		t.Errorf("the console, or the network: %s", p)
	}
}
