package explore

import (
	"slices"
	"strings"
	"testing"
)

func TestPathText(t *testing.T) {
	p := Path{{"run", 2, 3}, {"event", 0, 1}, {"early-progress", 10, 11}}
	const text = "run:2/3 event:0/1 early-progress:10/11"
	if got := p.String(); got != text {
		t.Errorf("String() = %q, want %q", got, text)
	}
	if got, err := ParsePath("\t" + text + "\n"); err != nil || !slices.Equal(got, p) {
		t.Errorf("ParsePath(%q) = %v, %v", text, got, err)
	}
	if got, err := ParsePath(" "); err != nil || got != nil {
		t.Errorf("ParsePath of an empty path = %v, %v", got, err)
	}
}

func TestParsePathRefusesInvalidChoices(t *testing.T) {
	for _, text := range []string{"run", "run:", "run:1", "run:1/", "run:/2", ":1/2", "run:2/2", "run:-1/2", "run:0/0", "run:1/2/3", "run:x/2", "r/n:1/2", "run:1/99999999999999999999"} {
		if p, err := ParsePath("event:0/2 " + text); err == nil || !strings.Contains(err.Error(), "choice 1") {
			t.Errorf("ParsePath(%q) = %v, %v; want an error that names choice 1", text, p, err)
		}
	}
}

func FuzzPath(f *testing.F) {
	f.Add(Path{{"run", 2, 3}, {"event", 0, 1}}.String())
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePath(text)
		if err != nil {
			return
		}
		if q, err := ParsePath(p.String()); err != nil || !slices.Equal(p, q) {
			t.Errorf("ParsePath(%q) = %v, %v; want %v", p.String(), q, err, p)
		}
	})
}
