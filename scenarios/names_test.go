package scenarios

import "testing"

func TestSuggestion(t *testing.T) {
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

func TestStatusNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range StatusNames() {
		status, ok := Status(name)
		if !ok || StatusName(status) != name || seen[name] || seen[status.String()] {
			t.Errorf("%s stands for %v, whose name is %s", name, status, StatusName(status))
		}
		seen[name], seen[status.String()] = true, true
	}
	if _, ok := Status("no such error"); ok {
		t.Error("an unknown name has a status")
	}
}

func TestMatchHost(t *testing.T) {
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
		if got := MatchHost(c.patterns, c.host); got != c.want {
			t.Errorf("%v picks %s: %v, want %v", c.patterns, c.host, got, c.want)
		}
	}
}
