package defects

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

type some struct {
	Deaf   bool `imitates:"R1" does:"it hears nothing"`
	DeafTo bool `imitates:"R2" does:"it hears some"`
	Count  int
	Last   bool `imitates:"R3" does:"it goes on"`
}

func TestDefectsByName(t *testing.T) {
	all := All(new(some))
	if first := (Info{"Deaf", "R1", "it hears nothing"}); all[0] != first {
		t.Errorf("%+v, want %+v", all[0], first)
	}
	names := Names(new(some))
	if want := []string{"Deaf", "DeafTo", "Last"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	for _, name := range names {
		var q some
		if err := Set(&q, name, true); err != nil {
			t.Fatal(err)
		}
		if on := On(&q); !slices.Equal(on, []string{name}) {
			t.Errorf("%s switches on %q", name, on)
		}
		if err := Set(&q, name, false); err != nil || q != (some{}) {
			t.Errorf("%s cannot be switched off: %v, %+v", name, err, q)
		}
	}
	both := some{Deaf: true, Last: true}
	if on := On(&both); !slices.Equal(on, []string{"Deaf", "Last"}) {
		t.Errorf("on are %q", on)
	}
}

func TestUnknownDefect(t *testing.T) {
	for name, hint := range map[string]string{
		"deaf":     "; did you mean Deaf or DeafTo?",
		"Deafness": "; did you mean Deaf?",
		"de":       "", // of too many
		"Count":    "", // no defect
		"":         "",
	} {
		var q some
		err := Set(&q, name, true)
		if !errors.Is(err, verbs.ErrNotFound) || q != (some{}) || !strings.HasSuffix(err.Error(), `"`+hint) && !strings.HasSuffix(err.Error(), hint) || hint == "" && strings.Contains(err.Error(), "mean") {
			t.Errorf("%q: %v, want the hint %q", name, err, hint)
		}
	}
}
