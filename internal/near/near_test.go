package near

import (
	"strings"
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	known := []string{"rc/clean", "rc/loss", "uc/loss", "ud/loss", "rc/bursts", "xrc/loss", "run", "on", "seed"}
	for word, want := range map[string]string{
		"rc/los": "rc/loss xrc/loss uc/loss", "RC/LOSS": "rc/loss xrc/loss uc/loss ud/loss", "burst": "rc/bursts",
		"rnu": "run", // a swap is one mistake
		"sed": "seed", "nonsense": "",
		"foo": "", "x": "", "": "", // nothing that they could be is like anything
	} {
		if got := strings.Join(Words(word, known), " "); got != want {
			t.Errorf("near %q: %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"loss", "loss", 0},
		{"los", "loss", 1},
		{"lsot", "lost", 1},
		{"kitten", "sitting", 3},
		{"abcd", "badc", 2},
	} {
		if got := Distance(c.a, c.b); got != c.want || Distance(c.b, c.a) != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestLongWordsTakeNoTime(t *testing.T) {
	began := time.Now()
	if got := Words(strings.Repeat("x", 1<<20), []string{"run", "seed", "exec"}); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
