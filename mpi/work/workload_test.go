package work_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/work"
)

func TestFind(t *testing.T) {
	for _, wl := range work.All() {
		if got, err := work.Find(wl.Name); err != nil || got.Name != wl.Name {
			t.Errorf("%s: %v, %v", wl.Name, got, err)
		}
		if wl.Title == "" || wl.Paper == "" || wl.MinRanks < 1 || wl.RankRule == "" {
			t.Errorf("%s is not described: %+v", wl.Name, wl)
		}
	}
	for name, want := range map[string]string{"radxi": "is it radix?", "exchange": "exchange1 or exchange2", "whatever": "there are pingpong,"} {
		if _, err := work.Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", name, err, want)
		}
	}
}

// A workload that cannot run reports that before it sends anything.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		ranks int
		p     work.Params
		want  string // empty: it can run
	}{
		{"cg", 8, work.Params{Class: work.ClassA}, ""},
		{"cg", 6, work.Params{}, "a power of two"},
		{"bt", 9, work.Params{}, ""},
		{"bt", 8, work.Params{}, "a square of at least 4"},
		{"bt", 25, work.Params{}, "fewer than 2 points"},
		{"ft", 32, work.Params{}, "larger class"},
		{"ft", 32, work.Params{Class: work.ClassS}, ""},
		{"lu", 13, work.Params{}, "1 × 13 of them do not fit on a side of 10"},
		{"mg", 128, work.Params{}, "needs four"},
		{"multipair", 5, work.Params{}, "an even number"},
		{"ring", 1, work.Params{}, "at least 2"},
		{"ring", 2, work.Params{Bytes: 100}, ""},
		{"cg", 2, work.Params{Bytes: 100}, "the class determines"},
		{"cg", 2, work.Params{Class: "Z"}, `no class "Z"; there are T, S, W, A and for some workloads B and C`},
		{"cg", 4, work.Params{Class: work.ClassB}, ""},
		{"bt", 4, work.Params{Class: work.ClassB}, "it has no class B"},
		{"mg", 4, work.Params{Class: work.ClassB}, ""},
		{"mg", 4, work.Params{Class: work.ClassC}, "it has no class C"},
		{"lu", 4, work.Params{Class: work.ClassC}, ""},
		{"milc", 12, work.Params{}, "a power of two"},
		{"milc", 16, work.Params{Class: work.ClassW}, ""},
		{"milc", 32, work.Params{}, "less than 3 along an axis"},
		{"collective", 12, work.Params{Collective: work.Collective{Groups: 3}}, ""},
		{"collective", 12, work.Params{Collective: work.Collective{Groups: 5}}, "5 groups of 12 ranks: groups have the same number"},
		{"collective", 3, work.Params{Collective: work.Collective{Groups: 3}}, "at least two"},
		{"collective", 3, work.Params{Collective: work.Collective{Groups: -1}}, "-1 groups"},
		{"ring", 4, work.Params{Collective: work.Collective{Groups: 2}}, "groups and arrival are those of the workload collective"},
		{"ring", 2, work.Params{Bytes: -1}, "must not be negative"},
		{"ring", 2, work.Params{Iterations: -1}, "must not be negative"},
		{"ring", 2, work.Params{Compute: -time.Second}, "must not be negative"},
	} {
		wl := must.Get(work.Find(c.name))(t)
		err := wl.Check(c.ranks, c.p)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, work.ErrParams) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s on %d ranks with %+v: %v, want %q", c.name, c.ranks, c.p, err, c.want)
		}
	}
}

func TestResultsAreJSON(t *testing.T) {
	r := work.Result{
		Workload: "ring", Class: work.ClassT, Ranks: 2, Iterations: 3, Time: time.Second, Waited: time.Millisecond, Sending: 2, Communicating: 3, InCollectives: 4,
		Checks: 4, Verified: 5, Figures: []work.Figure{{Name: "time a hop", Value: 1.5, Unit: "us"}},
	}
	text := must.Get(json.Marshal(r))(t)
	var back work.Result
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(r, back) {
		t.Errorf("%s: %v, %+v", text, err, back)
	}
	if text := back.Figures[0].String(); text != "time a hop 1.5 us" {
		t.Error(text)
	}
}
