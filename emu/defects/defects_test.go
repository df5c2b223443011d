package defects

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

type testDefects struct {
	DropsAll bool `imitates:"R1" does:"it drops all packets"`
	Count    int
	NoAck    bool `imitates:"R3" does:"it sends no ACK"`
}

func TestDefectsByName(t *testing.T) {
	all := All(new(testDefects))
	if want := []Info{{"DropsAll", "R1", "it drops all packets"}, {"NoAck", "R3", "it sends no ACK"}}; !slices.Equal(all, want) {
		t.Fatalf("%+v, want %+v", all, want)
	}
	for _, d := range all {
		var q testDefects
		if err := Set(&q, d.Name, true); err != nil {
			t.Fatal(err)
		}
		if (q.DropsAll && q.NoAck) || q == (testDefects{}) {
			t.Errorf("%s enables %+v", d.Name, q)
		}
		if err := Set(&q, d.Name, false); err != nil || q != (testDefects{}) {
			t.Errorf("%s cannot be disabled: %v, %+v", d.Name, err, q)
		}
	}
	for _, name := range []string{"dropsall", "Count", ""} {
		var q testDefects
		if err := Set(&q, name, true); !errors.Is(err, verbs.ErrNotFound) || q != (testDefects{}) {
			t.Errorf("%q: %v, %+v", name, err, q)
		}
	}
}
