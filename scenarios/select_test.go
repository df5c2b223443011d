package scenarios

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestPatternsAndTagsSelect(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	all := must.Get(Builtin())(t)
	standard := func(s *Scenario) bool { return slices.Contains(s.Tags, StandardTag) }
	for _, c := range []struct {
		Selection
		want func(*Scenario) bool
	}{
		{Selection{}, standard},
		{Selection{Patterns: []string{"*"}}, func(*Scenario) bool { return true }},
		{Selection{Patterns: []string{"loss-*", "pingpong"}}, func(s *Scenario) bool {
			return strings.HasPrefix(s.Name, "loss-") || s.Name == "pingpong"
		}},
		{Selection{Tags: []string{"loss", "standard"}}, func(s *Scenario) bool {
			return slices.Contains(s.Tags, "loss") && standard(s)
		}},
		{Selection{Patterns: []string{"*"}, Tags: []string{"quick"}}, func(s *Scenario) bool { return slices.Contains(s.Tags, "quick") }},
	} {
		got, err := c.Find()
		want := 0
		for _, s := range all {
			if c.want(s) {
				want++
			}
		}
		if err != nil || len(got) != want || want == 0 {
			t.Errorf("%+v: %d scenarios, %v; want %d", c.Selection, len(got), err, want)
			continue
		}
		for _, s := range got {
			if !c.want(s.Scenario) || s.Given != s.Name {
				t.Errorf("%+v selects %s, given as %s", c.Selection, s.Name, s.Given)
			}
		}
	}
	missing := Selection{Patterns: []string{mine}}
	if _, err := missing.Find(); err == nil || !strings.Contains(err.Error(), "mine.yaml") {
		t.Errorf("a missing file: %v", err)
	}
}

// A run has one folder for each name.
func TestScenariosWithSameNameAreRejected(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(file, name string) {
		t.Helper()
		text := "version: 1\nname: " + name + "\ntitle: Mine\nfabric: {kind: pair}\nworkload: {kind: all-to-all}\n"
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte(text), 0o666)))
	}
	write("my.yaml", "my")
	write("d/my.yaml", "my")
	write("other.yaml", "other")
	write("pingpong.yaml", "pingpong")
	for patterns, want := range map[string]string{
		"my.yaml d/my.yaml":              "my.yaml and d/my.yaml are both called my",
		"pingpong pingpong.yaml":         "pingpong and pingpong.yaml are both called pingpong",
		"my.yaml ./my.yaml d/../my.yaml": "", // the same file
		"my.yaml other.yaml clean-rc":    "",
		"*.yaml":                         "",
		"my.yaml *.yaml":                 "",
	} {
		sel := Selection{Patterns: strings.Fields(patterns)}
		chosen, err := sel.Find()
		if want == "" {
			n := map[string]int{"my.yaml ./my.yaml d/../my.yaml": 1}[patterns]
			if err != nil || n == 0 && len(chosen) != 3 || n > 0 && len(chosen) != n {
				t.Errorf("%s: %d scenarios, %v", patterns, len(chosen), err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", patterns, err, want)
		}
	}
}
