package nic

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

type quirks struct {
	Deaf   bool `defect:"R1" does:"it hears nothing"`
	DeafTo bool `defect:"R2" does:"it hears some"`
	Queues Lax
	Last   bool `defect:"R3" does:"it goes on"`
}

func TestQuirksByName(t *testing.T) {
	all := AllQuirks(new(quirks))
	if first := (QuirkInfo{"Deaf", "R1", "it hears nothing"}); all[0] != first {
		t.Errorf("%+v, want %+v", all[0], first)
	}
	names := QuirkNames(new(quirks))
	if want := append(append([]string{"Deaf", "DeafTo"}, QuirkNames(new(Lax))...), "Last"); !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	for _, name := range names {
		var q quirks
		if err := SetQuirk(&q, name, true); err != nil {
			t.Fatal(err)
		}
		if on := QuirksOn(&q); !slices.Equal(on, []string{name}) {
			t.Errorf("%s switches on %q", name, on)
		}
		if err := SetQuirk(&q, name, false); err != nil || q != (quirks{}) {
			t.Errorf("%s cannot be switched off: %v, %+v", name, err, q)
		}
	}
	both := quirks{Deaf: true, Last: true}
	both.Queues.NoEmptyMR = true
	if on := QuirksOn(&both); !slices.Equal(on, []string{"Deaf", "NoEmptyMR", "Last"}) {
		t.Errorf("on are %q", on)
	}
}

func TestWhatIsNoQuirk(t *testing.T) {
	for name, hint := range map[string]string{
		"deaf":     "; did you mean Deaf or DeafTo?",
		"emptymr":  "; did you mean NoEmptyMR?",
		"Deafness": "; did you mean Deaf?",
		"de":       "", // of too many
		"Queues":   "", // a group
		"":         "",
	} {
		var q quirks
		err := SetQuirk(&q, name, true)
		if !errors.Is(err, verbs.ErrNotFound) || q != (quirks{}) || !strings.HasSuffix(err.Error(), `"`+hint) && !strings.HasSuffix(err.Error(), hint) || hint == "" && strings.Contains(err.Error(), "mean") {
			t.Errorf("%q: %v, want the hint %q", name, err, hint)
		}
	}
}
