package nic

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

type defects struct {
	Deaf   bool `imitates:"R1" does:"it hears nothing"`
	DeafTo bool `imitates:"R2" does:"it hears some"`
	Queues Defects
	Last   bool `imitates:"R3" does:"it goes on"`
}

func TestDefectsByName(t *testing.T) {
	all := AllDefects(new(defects))
	if first := (DefectInfo{"Deaf", "R1", "it hears nothing"}); all[0] != first {
		t.Errorf("%+v, want %+v", all[0], first)
	}
	names := DefectNames(new(defects))
	if want := append(append([]string{"Deaf", "DeafTo"}, DefectNames(new(Defects))...), "Last"); !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	for _, name := range names {
		var q defects
		if err := SetDefect(&q, name, true); err != nil {
			t.Fatal(err)
		}
		if on := DefectsOn(&q); !slices.Equal(on, []string{name}) {
			t.Errorf("%s switches on %q", name, on)
		}
		if err := SetDefect(&q, name, false); err != nil || q != (defects{}) {
			t.Errorf("%s cannot be switched off: %v, %+v", name, err, q)
		}
	}
	both := defects{Deaf: true, Last: true}
	both.Queues.CQErrRepeats = true
	if on := DefectsOn(&both); !slices.Equal(on, []string{"Deaf", "CQErrRepeats", "Last"}) {
		t.Errorf("on are %q", on)
	}
}

func TestUnknownDefect(t *testing.T) {
	for name, hint := range map[string]string{
		"deaf":     "; did you mean Deaf or DeafTo?",
		"cqerrrep": "; did you mean CQErrRepeats?",
		"Deafness": "; did you mean Deaf?",
		"de":       "", // of too many
		"Queues":   "", // a group
		"":         "",
	} {
		var q defects
		err := SetDefect(&q, name, true)
		if !errors.Is(err, verbs.ErrNotFound) || q != (defects{}) || !strings.HasSuffix(err.Error(), `"`+hint) && !strings.HasSuffix(err.Error(), hint) || hint == "" && strings.Contains(err.Error(), "mean") {
			t.Errorf("%q: %v, want the hint %q", name, err, hint)
		}
	}
}
