package engine

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestDefectsOfSharedObjects(t *testing.T) {
	var q Defects
	for _, name := range []string{"CQErrRepeats", "WindowBounds"} {
		must.Do(t, q.Set(name, true))
	}
	n, err := New(Config{GIDs: hostGIDs(false, 1), Defects: q})
	if err != nil || !n.Defects.CQErrRepeats || !n.Mem.Defects.WindowBounds {
		t.Errorf("%v: %+v", err, q)
	}
	if len(AllDefects()) < 4 {
		t.Errorf("%d defects", len(AllDefects()))
	}
}
