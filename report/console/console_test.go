package console

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/reporttest"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; it would be\n%s\nIf it should: go test ./report/console -update", path, got)
	}
}

func names(run *report.Run) []string {
	var all []string
	for i := range run.Scenarios {
		all = append(all, run.Scenarios[i].Name)
	}
	return all
}

// show shows a whole run.
func show(t *testing.T, cfg Config, run *report.Run) {
	t.Helper()
	cfg.Total, cfg.Names = len(run.Scenarios), names(run)
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) string { return "" }
	}
	d := New(cfg)
	for i := range run.Scenarios {
		d.Start(run.Scenarios[i].Name, run.Scenarios[i].Tier)
	}
	for i := range run.Scenarios {
		d.Done(&run.Scenarios[i])
	}
	if err := d.Finish(run, report.Paths{HTML: "runs/7/report.html", Result: "runs/7/result.json", JUnit: "runs/7/junit.xml"}); err != nil {
		t.Fatal(err)
	}
}

func TestPlainOutputIsGolden(t *testing.T) {
	var out, status bytes.Buffer
	show(t, Config{Out: &out, Status: &status}, reporttest.Run())
	golden(t, "plain.golden", out.String())
	if status.Len() > 0 {
		t.Errorf("progress where there is no terminal: %q", status.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "\x1b") || strings.HasSuffix(line, " \n") {
			t.Errorf("%q", line)
		}
	}
}

func TestPassingRunIsGolden(t *testing.T) {
	run := reporttest.Run()
	run.Scenarios = []report.Result{run.Scenarios[0], run.Scenarios[2], run.Scenarios[6]}
	var out bytes.Buffer
	show(t, Config{Out: &out, Status: &out}, run)
	golden(t, "passing.golden", out.String())
}

// screen is a terminal as far as the display uses one: it shows what is on it.
type screen struct {
	mu    sync.Mutex
	cols  int
	lines []string
	at    int // column in the last line
	bad   []string
}

func (s *screen) Columns() int { return s.cols }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 0 {
		s.lines = []string{""}
	}
	for text := string(p); text != ""; {
		last := &s.lines[len(s.lines)-1]
		switch {
		case strings.HasPrefix(text, "\x1b[K"):
			*last = string([]rune(*last)[:s.at])
			text = text[3:]
		case text[0] == 0x1b:
			end := strings.IndexByte(text, 'm')
			if end < 0 {
				s.bad = append(s.bad, text)
				return len(p), nil
			}
			text = text[end+1:]
		case text[0] == '\r':
			s.at = 0
			text = text[1:]
		case text[0] == '\n':
			s.lines = append(s.lines, "")
			s.at = 0
			text = text[1:]
		default:
			r := []rune(text)[0]
			if s.at < len([]rune(*last)) {
				s.bad = append(s.bad, "written over: "+*last)
			}
			*last += string(r)
			s.at++
			text = text[len(string(r)):]
		}
	}
	return len(p), nil
}

func (s *screen) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 0 {
		return ""
	}
	return s.lines[len(s.lines)-1]
}

func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{cols: 60}
		d := New(Config{Out: s, Status: s, Total: 3, Names: []string{"a"}, Getenv: func(string) string { return "" }})
		d.Start("rc-clean", "sim")
		if got := s.last(); got != "0 of 3 done, 0:00: rc-clean on sim" {
			t.Errorf("%q", got)
		}
		time.Sleep(62 * time.Second)
		synctest.Wait()
		if got := s.last(); got != "0 of 3 done, 1:02: rc-clean on sim" {
			t.Errorf("a minute later: %q", got)
		}
		for range 9 {
			d.Start("incast-64", "netns")
		}
		if got := s.last(); got != "0 of 3 done, 1:02: rc-clean on sim and 9 more" {
			t.Errorf("%q", got)
		}
		d.Done(&report.Result{Name: "rc-clean", Tier: "sim", Verdict: report.Passed})
		if got := s.last(); !strings.HasPrefix(got, "1 of 3 done, 1:02: incast-64 on netns") {
			t.Errorf("%q", got)
		}
		d.Note("disk is filling up")
		d.Close()
		d.Close()
		if got := s.last(); got != "" {
			t.Errorf("left behind: %q", got)
		}
		for _, l := range s.lines {
			if strings.Contains(l, "done, ") {
				t.Errorf("progress among the lines: %q", l)
			}
		}
		if len(s.bad) > 0 {
			t.Errorf("%q", s.bad)
		}
		if all := strings.Join(s.lines, "\n"); !strings.Contains(all, "\ndisk is filling up\n") {
			t.Errorf("the note is lost:\n%s", all)
		}
	})
}

// TestProgressFits: a line that wraps cannot be taken back.
func TestProgressFits(t *testing.T) {
	for cols := 1; cols < 140; cols += 3 {
		s := &screen{cols: cols}
		d := New(Config{Out: &bytes.Buffer{}, Status: s, Total: 70, Getenv: func(string) string { return "" }})
		for _, name := range []string{"rc-clean", "日本語の名前", "a-scenario-with-a-very-long-name-that-goes-on-and-on", "x\x1b[2J\r\n"} {
			d.Start(name, "netns")
			if got := width(s.last()); got >= cols {
				t.Errorf("%d of %d columns: %q", got, cols, s.last())
			}
		}
		d.Close()
		if s.last() != "" || len(s.bad) > 0 {
			t.Errorf("left %q, %q", s.last(), s.bad)
		}
	}
}

func TestColoursWhereTheyAreWanted(t *testing.T) {
	for _, c := range []struct {
		name   string
		env    map[string]string
		plain  bool
		colour bool
	}{
		{name: "a terminal", colour: true},
		{name: "NO_COLOR", env: map[string]string{"NO_COLOR": "1"}},
		{name: "a dumb terminal", env: map[string]string{"TERM": "dumb"}},
		{name: "a file", plain: true},
	} {
		var out bytes.Buffer
		cfg := Config{Out: &out, Status: &bytes.Buffer{}, Getenv: func(k string) string { return c.env[k] }}
		if !c.plain {
			cfg.Out = struct {
				*bytes.Buffer
				fixed
			}{&out, 100}
		}
		show(t, cfg, reporttest.Run())
		for _, want := range []string{"\x1b[32mok\x1b[0m", "\x1b[1;31mFAIL\x1b[0m", "\x1b[1;35mBROKEN\x1b[0m", "\x1b[2mskip\x1b[0m"} {
			if strings.Contains(out.String(), want) != c.colour {
				t.Errorf("%s: %q in the output: %v", c.name, want, !c.colour)
			}
		}
		if !c.colour && strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: escape sequences", c.name)
		}
	}
}

type fixed int

func (f fixed) Columns() int { return int(f) }

func TestDumbTerminalHasNoProgress(t *testing.T) {
	s := &screen{cols: 80}
	show(t, Config{Out: &bytes.Buffer{}, Status: s, Getenv: func(k string) string { return map[string]string{"TERM": "dumb"}[k] }}, reporttest.Run())
	if len(s.lines) > 0 {
		t.Errorf("%q", s.lines)
	}
}

// TestControlCharactersAreEscaped: a name cannot move the cursor or clear the screen.
func TestControlCharactersAreEscaped(t *testing.T) {
	evil := "x\x1b[2J\x1b]0;t\x07\r\n\u202e\xff"
	run := &report.Run{Command: evil, Scenarios: []report.Result{
		{Name: evil, Tier: evil, Verdict: report.Failed, Reason: evil, Replay: evil, Checks: []report.Check{{Name: evil, Want: evil, Got: evil}}},
		{Name: evil, Tier: evil, Verdict: report.Skipped, Reason: evil},
		{Name: evil, Tier: evil, Verdict: report.Passed},
	}}
	var out bytes.Buffer
	s := &screen{cols: 80}
	show(t, Config{Out: &out, Status: s}, run)
	if i := strings.IndexAny(out.String(), "\x1b\x07\r\u202e"); i >= 0 {
		t.Errorf("%q", out.String()[i:])
	}
	if !strings.Contains(out.String(), `x\x1b[2J`) {
		t.Errorf("the name is not shown:\n%s", out.String())
	}
}

func TestColumnsLineUp(t *testing.T) {
	var out bytes.Buffer
	d := New(Config{Out: &out, Status: &out, Names: []string{"rc-clean", "a-longer-name"}})
	d.Done(&report.Result{Name: "rc-clean", Tier: "sim", Verdict: report.Passed})
	d.Done(&report.Result{
		Name: "a-longer-name", Tier: "netns", Verdict: report.Passed, Elapsed: 59 * time.Second,
		Ranks: []report.Rank{{Messages: 40_000_000, Bytes: 999 << 30, Resent: 9_999_999}},
		Links: []report.Link{{Lost: map[string]uint64{"loss": 9_999_999}}},
	})
	d.Close()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, l := range lines {
		if width(l) != width(lines[0]) || width(l) > 100 {
			t.Errorf("%d columns:\n%s", width(l), out.String())
		}
	}
}

// TestFailureReasonIsPrintedOnce: a row has room for the beginning of the reason, and the
// summary tells it under the check that found it.
func TestFailureReasonIsPrintedOnce(t *testing.T) {
	long := "rank 0 on host0: " + strings.Repeat("byte 7 is wrong, ", 30) + "and so on"
	run := &report.Run{Scenarios: []report.Result{{
		Name: "a", Tier: "sim", Verdict: report.Failed, Reason: "memory: want identical, got " + long,
		Checks: []report.Check{
			{Name: "memory", Want: "identical", Got: long},
			{Name: "delivered", Want: "exactly-once", Got: "9 of 9", OK: true},
			{Name: "violations", Want: "none", Got: "1, listed under memory"},
		},
	}}}
	for _, cols := range []int{0, 80, 20} {
		var out bytes.Buffer
		cfg := Config{Out: &out, Status: &bytes.Buffer{}, Getenv: func(string) string { return "dumb" }}
		if cols > 0 {
			cfg.Out = struct {
				*bytes.Buffer
				fixed
			}{&out, fixed(cols)}
		}
		show(t, cfg, run)
		if n := strings.Count(out.String(), "and so on"); n != 1 {
			t.Errorf("%d columns: told %d times\n%s", cols, n, out.String())
		}
		if !strings.Contains(out.String(), "\nFAIL a on sim: memory, violations\n") {
			t.Errorf("%d columns: no heading that names the checks\n%s", cols, out.String())
		}
		row := strings.Split(out.String(), "\n")[1]
		if most := max(cols, 50); !strings.HasPrefix(row, "FAIL    a ") || cols > 0 && width(row) > most || width(row) > 120 {
			t.Errorf("%d columns: %d in %q", cols, width(row), row)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no reader") }

func TestFinishReturnsWriteError(t *testing.T) {
	d := New(Config{Out: broken{}, Status: &bytes.Buffer{}})
	d.Done(&report.Result{Verdict: report.Passed})
	if err := d.Finish(&report.Run{}, report.Paths{}); err == nil {
		t.Error("nothing was said")
	}
}

func TestQuietShowsTheSummaryOnly(t *testing.T) {
	var out bytes.Buffer
	s := &screen{cols: 80}
	show(t, Config{Out: &out, Status: s, Quiet: true}, reporttest.Run())
	if strings.Contains(out.String(), "scenario  ") || len(s.lines) > 0 || !strings.Contains(out.String(), "2 failed") {
		t.Errorf("%s%q", out.String(), s.lines)
	}
}

func TestPlainFilesAreNoTerminals(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := columns(f); n != 0 {
		t.Errorf("a file has %d columns", n)
	}
	if n := columns((*os.File)(nil)); n != 0 {
		t.Errorf("no file has %d columns", n)
	}
}

// Starved results are told apart from failures, with what to do about them.
func TestStarvedResultsSayWhatToDo(t *testing.T) {
	first := &report.Attempt{Reason: "the machine is too busy: the first time", Wall: time.Second}
	run := &report.Run{Scenarios: []report.Result{
		{Name: "a", Tier: "netns", Verdict: report.Passed, First: first},
		{Name: "b", Tier: "netns", Verdict: report.Starved, Reason: "the machine is too busy: the second time", First: first},
	}}
	var out bytes.Buffer
	show(t, Config{Out: &out}, run)
	for _, want := range []string{
		"STARVED  b", "STARVED b on netns: the machine is too busy: the second time; the first attempt: the machine is too busy: the first time",
		"1 starved, 1 passed", "1 passed only when repeated", "Starved 1: other processes kept the processors busy, twice. Repeat with fewer",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
