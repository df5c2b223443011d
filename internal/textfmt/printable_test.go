package textfmt

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

const hostile = "ünï 日本 \x1b[2J\x1b]0;title\x07 \u009b31m \x7f \u202e\u2028 \xff\xe6\x97 end"

func TestPrintableEscapesControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"plain – ünï ☃ 日本": "plain – ünï ☃ 日本", "a\nb\tc": "a\nb\tc", "\x1b[2J": `\x1b[2J`, "a\x00\x7f": `a\x00\u007f`, "\xff": `\xff`,
		"\u202eabc": `\u202eabc`, "\u009b": `\u009b`, "\ufeff": `\ufeff`, "\U000e0041": `\udb40\udc41`, "👩\u200d💻": "👩\u200d💻", "\r\n": `\x0d` + "\n",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q becomes %q, not %q", in, got, want)
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
