package fuzz

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// A new run removes the folders of killed processes, and keeps those in use.
func TestTempDirsOfKilledProcessesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	killed := must.Get(newTempDir())(t)
	held := must.Get(newTempDir())(t)
	defer held.remove()
	_ = killed.lock.Close() // as the kernel does when a process dies
	next := must.Get(newTempDir())(t)
	if _, err := os.Stat(killed.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s still exists: %v", killed.path, err)
	}
	if _, err := os.Stat(held.path); err != nil {
		t.Errorf("a folder in use was removed: %v", err)
	}
	next.remove()
	if _, err := os.Stat(next.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s still exists: %v", next.path, err)
	}
}

func TestWholeStackTargetsGetMoreTime(t *testing.T) {
	targets := []Target{{Package: "./a", Name: "FuzzOne"}, {Package: "./fuzz", Name: "FuzzTwo"}}
	for _, c := range []struct {
		total, each time.Duration
		want        []time.Duration
	}{
		{10 * time.Second, 0, []time.Duration{2 * time.Second, 8 * time.Second}},
		{time.Second, 0, []time.Duration{time.Second, time.Second}}, // the shortest useful time
		{time.Hour, 3 * time.Second, []time.Duration{3 * time.Second, 3 * time.Second}},
	} {
		if got := Times(c.total, c.each, targets); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c, got, c.want)
		}
	}
}

func TestTargetMatchesPackageNameAndPattern(t *testing.T) {
	target := Target{Package: "./emu/softroce/engine", Name: "FuzzInput"}
	for arg, want := range map[string]bool{
		"emu/softroce/engine": true, "./emu/softroce/engine": true, "FuzzInput": true, "emu/softroce/engine.FuzzInput": true,
		"emu/*": true, "./emu/...": true, "emu/softroce": true, "Fuzz*": true, "emu/softroce/engine.Fuzz*": true,
		"emu": true, "em": false, "engine": false, "FuzzInputs": false, "emu/softiwarp/*": false, "[": false,
	} {
		if got := target.matches(arg); got != want {
			t.Errorf("%q: %v", arg, got)
		}
	}
}
