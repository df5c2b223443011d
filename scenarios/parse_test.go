package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Every file in testdata/bad is rejected with the errors in its .txt file.
func TestErrorsHavePositionAndRemedy(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no bad files:", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		_, err := Parse(name, readFile(t, file))
		if err == nil {
			t.Errorf("%s was accepted", file)
			continue
		}
		compareGolden(t, strings.TrimSuffix(file, ".yaml")+".txt", []byte(err.Error()+"\n"))
		last := 0
		var all Errors
		if !errors.As(err, &all) {
			t.Fatalf("%s: the error is %T, want Errors", file, err)
		}
		for _, e := range all {
			if e.File != name || e.Line < last || e.Line == 0 {
				t.Errorf("%s: %v: line %d after line %d", file, e, e.Line, last)
			}
			last = e.Line
		}
	}
}

const small = "version: 1\nname: x\ntitle: X\nfabric: {kind: pair}\nworkload: {kind: stream}\n"

func parseSmall(t *testing.T, more string) *Scenario {
	t.Helper()
	s := must.Get(Parse("x.yaml", []byte(small+more)))(t)
	return s
}

func TestParseLimits(t *testing.T) {
	deep := small + "expect: " + strings.Repeat("{a: ", 40) + "1" + strings.Repeat("}", 40)
	wide := small + "tags: [" + strings.Repeat("a,", maxNodes) + "a]"
	patterns := small + "impair: [{loss: 1%, on: [" + strings.Repeat("host0,", maxPatterns) + "host0]}]"
	impairs := small + "impair:\n" + strings.Repeat("- {loss: 1%}\n", 65)
	wrongs := small + strings.Repeat("x: 1\n", 80)
	large := small + "description: " + strings.Repeat("a", MaxFileBytes)
	for _, c := range []struct{ name, text, want string }{
		{"deep", deep, "x.yaml:6:50: nested too deeply"},
		{"wide", wide, fmt.Sprintf("too many keys and values: at most %d", maxNodes)},
		{"patterns", patterns, "more than 256 patterns of hosts and ports"},
		{"list", impairs, "x.yaml:7:1: impair: 65 entries: at most 64"},
		{"errors", wrongs, "x.yaml:56: 30 more errors"},
		{"large", large, "x.yaml:1: the file is too large: a scenario has at most 128KiB"},
	} {
		_, err := Parse("x.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	fsys := fstest.MapFS{
		"dir/x.yaml": {Data: []byte(small)},
		"dir/y.yaml": {Data: []byte(small)},
	}
	s, err := Load(fsys, "dir/x.yaml")
	if err != nil || s.Name != "x" {
		t.Fatalf("Load = %+v, %v", s, err)
	}
	_, err = Load(fsys, "dir/y.yaml")
	if want := "dir/y.yaml:2:7: name: x in a file called y.yaml: give both the same name"; err == nil || err.Error() != want {
		t.Errorf("Load = %v, want %s", err, want)
	}
	if _, err := Load(fsys, "dir/z.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of no file = %v, want ErrNotExist", err)
	}
}

// Errors of Errorf look like those of the loader.
func TestErrorfHasPosition(t *testing.T) {
	s := parseSmall(t, "nic:\n  defects: [NoCongestion, Levitate]\n")
	unknown := errors.New("no such defect")
	for _, c := range []struct{ key, want string }{
		{"nic.defects[1]", "x.yaml:7:27: nic.defects[1]: no such defect"},
		{"nic.defects[9]", "x.yaml:7:12: nic.defects[9]: no such defect"},
		{"nic.icrc", "x.yaml:7:3: nic.icrc: no such defect"},
		{"expect.lost.max", "x.yaml:1: expect.lost.max: no such defect"},
	} {
		err := s.Errorf(c.key, "%w", unknown)
		if err.Error() != c.want || !errors.Is(err, unknown) {
			t.Errorf("Errorf(%s) = %q, want %q", c.key, err, c.want)
		}
	}
	made := &Scenario{Name: "made"}
	if got, want := made.Errorf("nic.defects[0]", "no").Error(), "made: nic.defects[0]: no"; got != want {
		t.Errorf("without a file: %q, want %q", got, want)
	}
}
