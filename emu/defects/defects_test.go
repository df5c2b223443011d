package defects

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

type some struct {
	Deaf  bool `imitates:"R1" does:"it hears nothing"`
	Count int
	Last  bool `imitates:"R3" does:"it goes on"`
}

func TestDefectsByName(t *testing.T) {
	all := All(new(some))
	if want := []Info{{"Deaf", "R1", "it hears nothing"}, {"Last", "R3", "it goes on"}}; !slices.Equal(all, want) {
		t.Fatalf("%+v, want %+v", all, want)
	}
	for _, d := range all {
		var q some
		if err := Set(&q, d.Name, true); err != nil {
			t.Fatal(err)
		}
		if (q.Deaf && q.Last) || q == (some{}) {
			t.Errorf("%s switches on %+v", d.Name, q)
		}
		if err := Set(&q, d.Name, false); err != nil || q != (some{}) {
			t.Errorf("%s cannot be switched off: %v, %+v", d.Name, err, q)
		}
	}
	for _, name := range []string{"deaf", "Count", ""} {
		var q some
		if err := Set(&q, name, true); !errors.Is(err, verbs.ErrNotFound) || q != (some{}) {
			t.Errorf("%q: %v, %+v", name, err, q)
		}
	}
}
