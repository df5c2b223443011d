//go:build unix && browser

package peers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/internal/browser"
)

func TestPagesInABrowser(t *testing.T) {
	b := browser.Start(t)
	for name, run := range samples() {
		file := filepath.Join(t.TempDir(), name+".html")
		must.Do(t, os.WriteFile(file, []byte(page(t, run)), 0o666))
		b.Inspect("peers "+name, file, 3600)
	}
}
