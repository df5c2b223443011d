package capture

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/internal/must"
)

const (
	rping    = "../emu/softroce/wire/testdata/rxe_cm_rping.pcap"
	problems = "../emu/softroce/wire/testdata/rxe612_e1.pcap"
)

// printCapture returns the output for a capture.
func printCapture(t testing.TB, r io.Reader, opts PrintOptions) string {
	t.Helper()
	s := must.Get(Open(r))(t)
	var b bytes.Buffer
	p := NewPrinter(&b, opts)
	must.Do(t, p.Show(t.Context(), s))
	must.Do(t, p.Finish())
	return b.String()
}

func TestLinesFitTerminalWidth(t *testing.T) {
	wide := strings.Split(printCapture(t, bytes.NewReader(readFile(t, problems)), PrintOptions{}), "\n")
	for width := 40; width < 240; width += 7 {
		lines := strings.Split(printCapture(t, bytes.NewReader(readFile(t, problems)), PrintOptions{Width: width}), "\n")
		if len(lines) != len(wide) {
			t.Fatalf("width %d: %d lines, want %d", width, len(lines), len(wide))
		}
		for i, l := range lines {
			if n := utf8.RuneCountInString(l); n > max(width, 63) { // the width of the columns
				t.Errorf("width %d: line %d has %d characters: %q", width, i+1, n, l)
			}
			// A mark is shown if there is room for it.
			if width >= 110 && strings.Contains(wide[i], "  ! ") != strings.Contains(l, "  ! ") {
				t.Errorf("width %d: the mark of line %d is lost: %q", width, i+1, l)
			}
		}
	}
}

func TestColumnsAreAligned(t *testing.T) {
	columns := map[int]int{}
	for line := range strings.Lines(printCapture(t, bytes.NewReader(readFile(t, rping)), PrintOptions{})) {
		before, _, ok := strings.Cut(line, " → ")
		if !ok {
			t.Fatalf("no endpoints in %q", line)
		}
		columns[utf8.RuneCountInString(before)]++
	}
	if len(columns) != 1 {
		t.Errorf("arrows are in columns %v, want one", columns)
	}
}

func TestColoursDoNotChangeText(t *testing.T) {
	plain, coloured := printCapture(t, bytes.NewReader(readFile(t, problems)), PrintOptions{Verbose: true}), printCapture(t, bytes.NewReader(readFile(t, problems)), PrintOptions{Verbose: true, Colour: true})
	if !strings.Contains(coloured, red) || !strings.Contains(coloured, yellow) || strings.Contains(plain, "\x1b") {
		t.Error("colours are missing, or the plain output has some")
	}
	for _, code := range []string{reset, dim, red, green, yellow, cyan} {
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	strip := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if strip(plain) != strip(coloured) {
		t.Error("text differs with colours")
	}
}

// Captured text must not send escape sequences to the terminal.
func TestEscapeSequencesAreEscaped(t *testing.T) {
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriterInterface(&b, pcapgo.NgInterface{Name: "evil\x1b]0;x\x07/a", LinkType: layers.LinkTypeRaw}, pcapgo.DefaultNgWriterOptions)
	if err != nil {
		t.Fatal(err)
	}
	must.Get(w.AddInterface(pcapgo.NgInterface{Name: "b\x9b2J/a", LinkType: layers.LinkTypeRaw}))(t)
	ip := make([]byte, 40)
	ip[0], ip[6], ip[23], ip[39] = 0x60, 59, 1, 2
	opts := pcapgo.NgPacketOptions{Comments: []string{"\x1b[31mred\r\nnext \u202e"}, Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}}
	if err := w.WritePacketWithOptions(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: 40, Length: 40}, ip, opts); err != nil {
		t.Fatal(err)
	}
	must.Do(t, w.Flush())
	got := printCapture(t, &b, PrintOptions{Verbose: true, Hex: true, Stats: true})
	for _, r := range got {
		if r != '\n' && (r < ' ' || r == 0x7f || r == 0x9b || r == 0x202e) {
			t.Fatalf("%q reaches the terminal in %q", r, got)
		}
	}
	if !strings.Contains(got, `“\x1b[31mred\x0d next \u202e”`) {
		t.Errorf("the comment is not shown: %q", got)
	}
}

func TestFilterRanges(t *testing.T) {
	for s, want := range map[string]Range{"7": {7, 7}, "7-12": {7, 12}, "0xfffff0-3": {0xfffff0, 3}, " 1 - 2 ": {1, 2}} {
		if got, err := ParseRange(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-", "x", "1-", "0x1000000", "-5"} {
		if got, err := ParseRange(s); err == nil {
			t.Errorf("%q parses as %+v", s, got)
		}
	}
	wrapped := Range{0xfffffe, 1}
	for v, want := range map[uint32]bool{0xfffffd: false, 0xfffffe: true, 0xffffff: true, 0: true, 1: true, 2: false} {
		if wrapped.contains(v) != want {
			t.Errorf("%#x in %+v: %v", v, wrapped, !want)
		}
	}
}

func TestLimitAndCancelStopPrinting(t *testing.T) {
	if n := strings.Count(printCapture(t, bytes.NewReader(readFile(t, rping)), PrintOptions{Limit: 3}), "\n"); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
	s := must.Get(Open(bytes.NewReader(readFile(t, rping))))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewPrinter(io.Discard, PrintOptions{}).Show(ctx, s); err == nil {
		t.Error("Show succeeds after the context has ended")
	}
}

// endless is a capture that repeats forever.
type endless struct {
	body []byte
	at   int
	left int64
}

func (e *endless) Read(b []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := copy(b, e.body[e.at:])
	e.at = (e.at + n) % len(e.body)
	e.left -= int64(n)
	return n, nil
}

func TestMemoryIsBoundedForLongFiles(t *testing.T) {
	b := readFile(t, problems)
	const rounds = 200
	r := io.MultiReader(bytes.NewReader(b[:24]), &endless{body: b[24:], left: rounds * int64(len(b)-24)})
	s := must.Get(Open(r))(t)
	p := NewPrinter(io.Discard, PrintOptions{Stats: true})
	must.Do(t, p.Show(t.Context(), s))
	if p.shown < 50*rounds || cap(p.page.lines) > 4*pageLines || len(p.stats.namedFlows) > 20 {
		t.Errorf("of %d packets, %d lines and %d flows are kept", p.shown, cap(p.page.lines), len(p.stats.namedFlows))
	}
}

// BenchmarkLines prints captures repeatedly, as one long file.
func BenchmarkLines(b *testing.B) {
	raw := must.Get(os.ReadFile(problems))(b)
	body := int64(len(raw) - 24)
	r := io.MultiReader(bytes.NewReader(raw[:24]), &endless{body: raw[24:], left: int64(b.N) * body})
	s := must.Get(Open(r))(b)
	b.SetBytes(body)
	b.ReportAllocs()
	p := NewPrinter(io.Discard, PrintOptions{})
	must.Do(b, p.Show(b.Context(), s))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(p.shown), "ns/packet")
}
