package scenarios

import (
	"encoding"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestUnitsRoundTrip(t *testing.T) {
	for _, c := range []struct {
		text  string
		value encoding.TextUnmarshaler
		want  uint64
		shown string // if not text
	}{
		{"0.1%", new(Percent), 1000, ""},
		{"0%", new(Percent), 0, ""},
		{"100%", new(Percent), 1_000_000, ""},
		{"100.0%", new(Percent), 1_000_000, "100%"},
		{"0.0001%", new(Percent), 1, ""},
		{"33.3333%", new(Percent), 333_333, ""},
		{"1.50%", new(Percent), 15_000, "1.5%"},
		{"0", new(Bytes), 0, ""},
		{"4096", new(Bytes), 4096, "4KiB"},
		{"4KiB", new(Bytes), 4096, ""},
		{"2MiB", new(Bytes), 2 << 20, ""},
		{"1GiB", new(Bytes), 1 << 30, ""},
		{"1500B", new(Bytes), 1500, "1500"},
		{"50kB", new(Bytes), 50_000, "50000"},
		{"3MB", new(Bytes), 3_000_000, "3000000"},
		{"1GB", new(Bytes), 1_000_000_000, "1000000000"},
		{"0bit", new(Rate), 0, ""},
		{"100Mbit", new(Rate), 100e6, ""},
		{"25Gbit", new(Rate), 25e9, ""},
		{"1.5Gbit", new(Rate), 15e8, ""},
		{"1500Mbit", new(Rate), 15e8, "1.5Gbit"},
		{"0.001kbit", new(Rate), 1, "1bit"},
		{"1234567bit", new(Rate), 1234567, "1234.567kbit"},
		{"1Tbit", new(Rate), 1e12, ""},
		{"999999.999Tbit", new(Rate), 999999_999000000000, ""},
	} {
		if err := c.value.UnmarshalText([]byte(c.text)); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var got uint64
		switch v := c.value.(type) {
		case *Percent:
			got = uint64(v.PPM())
		case *Bytes:
			got = uint64(*v)
		case *Rate:
			got = uint64(*v)
		}
		if got != c.want {
			t.Errorf("%s is %d, want %d", c.text, got, c.want)
		}
		want := c.shown
		if want == "" {
			want = c.text
		}
		if text := fmt.Sprint(c.value); text != want {
			t.Errorf("%s is written as %s, want %s", c.text, text, want)
		}
	}
}

func TestDurationsRoundTrip(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10ms": 10 * time.Millisecond, "1us": time.Microsecond, "1.5s": 1500 * time.Millisecond, "1m30s": 90 * time.Second,
		"1h": time.Hour, "10m": 10 * time.Minute, "24h": MaxDuration, "100ns": 100, "0s": 0, "67.108864ms": 67108864, "1h0m1s": time.Hour + time.Second,
	} {
		d, err := parseDuration(text)
		if err != nil || d != want {
			t.Errorf("%s is %v (%v), want %v", text, d, err, want)
		}
		if got := formatDuration(want); got != text {
			t.Errorf("%v is written as %s, want %s", want, got, text)
		}
	}
	if d, err := parseDuration("1µs"); err != nil || d != time.Microsecond {
		t.Errorf("1µs is %v, %v", d, err)
	}
}

// Words of the file in errors are short and printable.
func TestQuoteShortIsPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "": `""`, "two words": `"two words"`, "\x1b[31m": `"\x1b[31m"`, "\xff": `"\xff"`, "é": "é",
		strings.Repeat("a", 99): strings.Repeat("a", 40) + "…",
	} {
		if got := quoteShort(text); got != want {
			t.Errorf("quoteShort(%q) = %s, want %s", text, got, want)
		}
	}
}

// Without a direction, both directions are impaired.
func TestImpairTextImpairsBothDirections(t *testing.T) {
	fabric := Fabric{Kind: Star, Hosts: 3}
	for line, want := range map[string]struct{ out, in bool }{
		"loss=5%": {true, true}, "loss=5% way=out": {true, false}, "way=in delay=1ms": {false, true}, "way=both loss=1%": {true, true},
	} {
		text := must.Get(ImpairText(fabric, "host1", "host1", strings.Fields(line)))(t)
		s, err := Parse("set.yaml", []byte(text))
		if err != nil || len(s.Impair) != 1 || s.Impair[0].Outward() != want.out || s.Impair[0].Inward() != want.in {
			t.Errorf("%s: %v\n%s", line, err, text)
		}
	}
}

func TestSuggestionNamesSimilarWord(t *testing.T) {
	known := []string{"loss", "lost", "delay", "duplicate", "duplicate_delay", "messages"}
	for word, want := range map[string]string{
		"los":             "; did you mean loss?",
		"Loss":            "; did you mean loss?",
		"lsot":            "; did you mean lost?", // a swap is one mistake
		"duplicat":        "; did you mean duplicate?",
		"duplicate-delay": "; did you mean duplicate_delay?",
		"mesages":         "; did you mean messages?",
		"x":               "; there are loss, lost, delay, duplicate, duplicate_delay, messages",
		"colour":          "; there are loss, lost, delay, duplicate, duplicate_delay, messages",
	} {
		if got := suggestion(word, known); got != want {
			t.Errorf("suggestion(%s) = %q, want %q", word, got, want)
		}
	}
}

// A short word is similar to every other short word, and gets no suggestion.
func TestShortWordsHaveNoSuggestion(t *testing.T) {
	for _, word := range []string{"foo", "x", "no", "abc"} {
		if got, want := suggestion(word, []string{"on", "op", "psn", "way"}), "; there are on, op, psn, way"; got != want {
			t.Errorf("suggestion(%s) = %q, want %q", word, got, want)
		}
	}
	if got, want := suggestion("psm", []string{"on", "psn"}), "; did you mean psn?"; got != want {
		t.Errorf("suggestion(psm) = %q, want %q", got, want)
	}
}

func TestStatusNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range StatusNames() {
		status, ok := Status(name)
		if !ok || StatusName(status) != name || seen[name] || seen[status.String()] {
			t.Errorf("%s is the name of %v, whose name is %s", name, status, StatusName(status))
		}
		seen[name], seen[status.String()] = true, true
	}
	if _, ok := Status("no such error"); ok {
		t.Error("an unknown name has a status")
	}
}

func TestMatchesAnyMatchesHosts(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		host     string
		want     bool
	}{
		{nil, "host0", false},
		{[]string{"host0"}, "host0", true},
		{[]string{"host0"}, "host00", false},
		{[]string{"host3", "host[0-1]"}, "host1", true},
		{[]string{"host["}, "host0", false},
		{[]string{"*"}, "host12", true},
	} {
		if got := MatchesAny(c.patterns, c.host); got != c.want {
			t.Errorf("%v match %s: %v, want %v", c.patterns, c.host, got, c.want)
		}
	}
}
