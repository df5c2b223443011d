package cli

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

const hostile = "ünï 日本 \x1b[2J\x1b]0;title\x07 \u009b31m \x7f \u202e\u2028 \xff\xe6\x97 end"

func TestPrintableEscapesControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"plain – ünï ☃ 日本": "plain – ünï ☃ 日本", "a\nb\tc": "a\nb\tc", "\x1b[2J": `\x1b[2J`, "a\x00\x7f": `a\x00\u007f`, "\xff": `\xff`,
		"\u202eabc": `\u202eabc`, "\u009b": `\u009b`, "\ufeff": `\ufeff`, "\U000e0041": `\udb40\udc41`, "👩\u200d💻": "👩\u200d💻", "\r\n": `\x0d` + "\n",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
	if got := PrintableLine("a\nb\tc\x1b"); got != `a b c\x1b` {
		t.Errorf("Line: %q", got)
	}
}

func TestPrintableKeepsJSONValid(t *testing.T) {
	in := "\x7f\u009b\u202e\U000e0041\x1b"
	encoded := must.Get(json.Marshal(in))(t)
	var out string
	if err := json.Unmarshal([]byte(Printable(string(encoded))), &out); err != nil || out != in {
		t.Errorf("%s is read as %q, %v", Printable(string(encoded)), out, err)
	}
}

func TestPrintableWriterOutputIsIndependentOfWriteSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var out strings.Builder
		w := &PrintableWriter{W: &out}
		for rest := []byte(hostile); len(rest) > 0; {
			n := 1 + rng.IntN(len(rest))
			if got, err := w.Write(rest[:n]); got != n || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil || out.String() != Printable(hostile) {
			t.Fatalf("%q, %v", out.String(), err)
		}
	}
}

func TestQuantities(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"},
		{Bytes(999), "999 B"},
		{Bytes(1023), "1.0 KiB"},
		{Bytes(uint64(5_767_168)), "5.5 MiB"},
		{Bytes(int64(3) << 50), "3072.0 TiB"},
		{BitRate(0), "0 b/s"},
		{BitRate(999.7), "1.00 kb/s"},
		{BitRate(13.08e9), "13.1 Gb/s"},
		{BitRate(110e9), "110 Gb/s"},
		{SI(2_500_000, ""), "2.50 M"},
		{SI(12, ""), "12"},
		{SI(0.5, "packets/s"), "0.50 packets/s"},
		{ThreeDigits(99.99), "100"},
		{ThreeDigits(9.999), "10.0"},
		{Duration(0), "0 ns"},
		{Duration(999), "999 ns"},
		{Duration(416_100), "416 µs"},
		{Duration(999_700), "1.00 ms"},
		{Duration(3_551_000), "3.55 ms"},
		{Duration(12345 * time.Millisecond), "12.3 s"},
		{Duration(125 * time.Second), "2 min 5 s"},
		{Duration(3*time.Hour + 2*time.Minute + 40*time.Second), "3 h 3 min"},
		{Duration(-3 * time.Millisecond), "−3 ms"},
		{Duration(math.MinInt64), "−2562047 h 47 min"},
		{Count(0, " "), "0"},
		{Count(999, " "), "999"},
		{Count(1234567, " "), "1 234 567"},
		{Count(123456, ""), "123456"},
		{Percent(0, 10), "0"},
		{Percent(1, 0), "0"},
		{Percent(1, 1_000_000), "<0.01 %"},
		{Percent(49, 5000), "0.98 %"},
		{Percent(99_999, 100_000), "99.9 %"},
		{Percent(10, 10), "100 %"},
		{Plural(1, "rank"), "1 rank"},
		{Plural(64, "rank"), "64 ranks"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
