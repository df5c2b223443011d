package window

import (
	"flag"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

var (
	exploreAll = flag.Bool("explore", false, "explore longer programs and three ranks, for minutes")
	part       = testutil.PartFlag()
)

// newDigest omits engines, regions, which are counted, and errors.
func newDigest() *explore.Digest {
	return &explore.Digest{Types: map[string]func(reflect.Value) uint64{
		"*window.Engine": nil, "wire.Region": nil, "error": func(v reflect.Value) uint64 {
			if v.IsNil() {
				return 0
			}
			return 1
		},
	}}
}

// programs are short programs, and with -explore longer ones.
func programs() map[string]program {
	two := func(a, b string) program { return program{calls: []string{a, b}} }
	three := func(a, b, c string) program { return program{calls: []string{a, b, c}} }
	all := map[string]program{
		"exclusive locks":        two("X0g0F0q0U0", "X0g0F0q0U0"),
		"exclusive locks, a put": two("X0p0U0", "X0g0F0q0U0"),
		"shared and exclusive":   two("S0g0U0", "X0a0U0"),
		"two targets":            two("X1X0p0p1U0U1", "X1p1U1"),
		"lock all":               two("L-p1F1p0K-", "L-p0a0K-"),
		"lock all and lock":      two("L-a1h1K-", "X1h1U1"),
		"fence":                  two("f-p1a0f-g1|-", "f-p0a0f-g0|-"),
		"start and post":         two("(2p1a1)-", "{1}-"),
		"start and post, twice":  two("(2p1)-(2a1)-", "{1}-{1}-"),
		"start and post of both": two("{2(2p1)-}-", "{1(1p0)-}-"),
		"compare and swap":       two("S1c1U1", "S1c1U1"),
		"flush":                  two("S1a1a1F1a1M1U1", ""),
		"atomics of NICs":        {calls: []string{"S1a1c1h1U1", "S1h1U1"}, atomics: true},
		"loops of NICs":          {calls: []string{"S1m1m1U1", "S1h1h1U1"}, atomics: true},
		"three ranks":            three("X0a0U0", "X0a0U0", "S0g0U0"),
		"a rank dies":            {calls: []string{"X0a0U0", "X0g0F0q0U0"}, mayDie: true},
		"a rank dies, start":     {calls: []string{"(2p1a1)-", "{1}-"}, mayDie: true},
		"a rank dies, fence":     {calls: []string{"f-a1|-", "f-p0|-"}, mayDie: true},
		"a rank dies, lock all":  {calls: []string{"L-a1h1K-", "L-p0K-"}, mayDie: true, atomics: true},
	}
	if *exploreAll {
		all["exclusive locks of three"] = three("X0g0F0q0U0", "X0g0F0q0U0", "X0g0F0q0U0")
		all["shared and exclusive of three"] = three("S0g0U0X0g0F0q0U0", "X0g0F0q0U0", "S0g0U0")
		all["locks of two targets"] = three("X0X1a0a1U0U1", "X0p0U0X1p1U1", "S1g1U1X0a0U0")
		all["lock all of three"] = three("L-a1F1h2K-", "L-a2K-", "X1a1U1")
		all["fence of three"] = three("f-p1p2f-a1|-", "f-p0a2f-|-", "f-p0f-a0|-")
		all["start and post of three"] = three("(6p1a2)-", "{5}-", "{1(2p1)-}-")
		all["post before lock"] = two("{2}-X1a1U1", "(1p0)-S0a0U0")
		all["atomics of three"] = program{calls: []string{"S2a2c2U2", "S2h2a2U2", "L-h2K-"}, atomics: true}
		all["two of three ranks lock, one dies"] = program{calls: []string{"X0g0F0q0U0", "X0g0F0q0U0", "S0a0U0"}, mayDie: true}
		all["start and post of three, one dies"] = program{calls: []string{"(6p1a2)-", "{5}-", "{1(2p1)-}-"}, mayDie: true}
		all["fence of three, one dies"] = program{calls: []string{"f-p1a2|-", "f-a0|-", "f-p0|-"}, mayDie: true}
		all["lock all of three, one dies"] = program{calls: []string{"L-a1h2K-", "L-a2K-", "X1U1"}, mayDie: true}
		all["atomics of three, one dies"] = program{calls: []string{"S2a2c2U2", "S2h2U2", "L-h2K-"}, atomics: true, mayDie: true}
	}
	return all
}

// Epochs and locks exclude what they must, and end.
func TestAllStates(t *testing.T) {
	all := programs()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if !part.Has(i) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := newDigest()
			r := must.Get(explore.Machines(t.Context(), explore.Options{Parallel: 1}, func() explore.Machine { return all[name].machine(d) }))(t)
			t.Logf("%d states, %d steps, %d ends, up to %d steps; finished: %v, in %v", r.States, r.Edges, r.Runs, r.Deepest, r.Finished, r.Elapsed)
			if r.Failure != nil {
				_ = explore.Replay(all[name].machine(d), r.Failure.Path, func(s explore.Step) { t.Logf("%v %d %d", s.Kind, s.A, s.B) })
				t.Fatalf("%v; path: %v", r.Failure.Err, r.Failure.Path)
			}
		})
	}
}
