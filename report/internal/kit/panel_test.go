package kit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

// screen is a terminal with the control sequences that a Panel uses, and records its lines.
type screen struct {
	mu     sync.Mutex
	cols   int
	lines  []string
	at     int // column in the last line
	errors []string
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
				s.errors = append(s.errors, text)
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
				s.errors = append(s.errors, "overwritten: "+*last)
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

// openPanel opens a panel in an empty environment, unless cfg has one.
func openPanel(cfg PanelConfig) *Panel {
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) string { return "" }
	}
	d := new(Panel)
	d.Open(cfg)
	return d
}

func TestTerminalShowsProgressLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{cols: 60}
		d := openPanel(PanelConfig{Out: s, Status: s, Total: 3})
		d.Start("rc-clean on sim")
		if got := s.last(); got != "0 of 3 done, 0:00: rc-clean on sim" {
			t.Errorf("%q", got)
		}
		time.Sleep(62 * time.Second)
		synctest.Wait()
		if got := s.last(); got != "0 of 3 done, 1:02: rc-clean on sim" {
			t.Errorf("a minute later: %q", got)
		}
		for i := range 9 {
			d.Start(fmt.Sprintf("incast-%d on netns", i))
		}
		d.Start("incast-8 on netns") // again
		if got := s.last(); got != "0 of 3 done, 1:02: rc-clean on sim and 9 more" {
			t.Errorf("%q", got)
		}
		d.SetStepProgress("incast-0 on netns", 3, 10)
		d.EndWith("rc-clean on sim", func() string { return "ok\n" })
		if got := s.last(); !strings.HasPrefix(got, "1 of 3 done, 1:02: incast-0 on netns (3 of 10)") {
			t.Errorf("%q", got)
		}
		d.Note("disk is filling up")
		d.Close()
		d.Close()
		if got := s.last(); got != "" {
			t.Errorf("the line is not cleared: %q", got)
		}
		for _, l := range s.lines {
			if strings.Contains(l, "done, ") {
				t.Errorf("progress line in the output: %q", l)
			}
		}
		if len(s.errors) > 0 {
			t.Errorf("%q", s.errors)
		}
		if all := strings.Join(s.lines, "\n"); !strings.Contains(all, "ok\ndisk is filling up\n") {
			t.Errorf("the note is not printed:\n%s", all)
		}
	})
}

// A progress line that wraps could not be cleared.
func TestProgressLineFitsTerminalWidth(t *testing.T) {
	for cols := 1; cols < 140; cols += 3 {
		s := &screen{cols: cols}
		d := openPanel(PanelConfig{Out: &bytes.Buffer{}, Status: s, Total: 70})
		for _, name := range []string{"rc-clean", "日本語の名前", "a-scenario-with-a-very-long-name-that-goes-on-and-on", "x\x1b[2J\r\n"} {
			d.Start(name)
			if got := TextWidth(s.last()); got >= cols {
				t.Errorf("%d of %d columns: %q", got, cols, s.last())
			}
		}
		d.Close()
		if s.last() != "" || len(s.errors) > 0 {
			t.Errorf("the line is %q after Close; errors %q", s.last(), s.errors)
		}
	}
}

// Colours and a progress line need a terminal that supports them; a quiet panel has no progress.
func TestPanelUsesTerminalFeatures(t *testing.T) {
	for _, c := range []struct {
		name             string
		cols             int
		env              map[string]string
		quiet            bool
		colour, progress bool
	}{
		{name: "a terminal", cols: 80, colour: true, progress: true},
		{name: "NO_COLOR", cols: 80, env: map[string]string{"NO_COLOR": "1"}, progress: true},
		{name: "a dumb terminal", cols: 80, env: map[string]string{"TERM": "dumb"}},
		{name: "a file"},
		{name: "quiet", cols: 80, quiet: true, colour: true},
	} {
		out, status := &screen{cols: c.cols}, &screen{cols: c.cols}
		d := openPanel(PanelConfig{Out: out, Status: status, Quiet: c.quiet, Getenv: func(k string) string { return c.env[k] }})
		d.Start("a\x1b[2J")
		d.EndWith("a\x1b[2J", func() string { return "line\n" })
		if got := d.Paint("32", "ok") == "\x1b[32mok\x1b[0m"; got != c.colour {
			t.Errorf("%s: colours are %v", c.name, got)
		}
		if err := d.Finish("sum\n", Paths{HTML: "x\x1b/report.html", Result: "x/result.json"}); err != nil {
			t.Error(err)
		}
		if progress := len(status.lines) > 0; progress != c.progress || len(status.errors) > 0 {
			t.Errorf("%s: progress is %v, %q", c.name, progress, status.errors)
		}
		want := "line\nsum\nReport: x\\x1b/report.html\n"
		if c.quiet {
			want = strings.TrimPrefix(want, "line\n")
		}
		if got := strings.Join(out.lines, "\n"); got != want {
			t.Errorf("%s: printed %q, want %q", c.name, got, want)
		}
	}
}

func TestFilesHaveNoColumns(t *testing.T) {
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer f.Close()
	if n := columns(f); n != 0 {
		t.Errorf("a file has %d columns", n)
	}
	if n := columns((*os.File)(nil)); n != 0 {
		t.Errorf("no file has %d columns", n)
	}
}

// lockedBuffer is a buffer that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Without a terminal, progress is printed at intervals.
func TestPanelLogsProgressWithoutTerminal(t *testing.T) {
	defer func(was time.Duration) { logTick = was }(logTick)
	logTick = time.Millisecond
	var log lockedBuffer
	d := openPanel(PanelConfig{Out: new(bytes.Buffer), Status: &log, Total: 7})
	d.Start("rc/psn/one")
	want := regexp.MustCompile(`(?m)^0 of 7 done, 0:\d\d: rc/psn/one$`)
	for range 20_000 {
		if want.MatchString(log.String()) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	d.Close()
	if !want.MatchString(log.String()) {
		t.Errorf("no progress in %q", log.String())
	}
	if strings.ContainsAny(log.String(), "\r\x1b") {
		t.Errorf("control characters in a log: %q", log.String())
	}
	quiet := lockedBuffer{}
	d = openPanel(PanelConfig{Out: new(bytes.Buffer), Status: &quiet, Quiet: true})
	time.Sleep(5 * time.Millisecond)
	d.Close()
	if quiet.String() != "" {
		t.Errorf("a quiet panel printed %q", quiet.String())
	}
}
