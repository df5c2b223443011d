//go:build unix && browser

package ranks_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/internal/browser"
	"github.com/fabrictest/fabrictest/report/ranks"
)

func TestPagesInABrowser(t *testing.T) {
	b := browser.Start(t)
	for name, run := range map[string]*ranks.Run{"job": sampleJob(40), "memory": sampleMemory(t)} {
		page := filepath.Join(t.TempDir(), name+".html")
		must.Do(t, os.WriteFile(page, []byte(html(t, run)), 0o666))
		b.Inspect(name, page, 3600)
	}
}
