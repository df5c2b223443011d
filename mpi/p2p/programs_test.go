package p2p

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
)

var (
	exploreFor  = flag.Duration("explore", 0, "how long to explore random programs, instead of twelve")
	exploreFrom = flag.Uint64("explore.from", 0, "the seed of the first random program")
)

// exploredConfigs are the explored configurations, with low thresholds for short programs.
func exploredConfigs() map[string]Config {
	return map[string]Config{
		"rget":        {Protocol: RGET, EagerLimit: eagerLimit},
		"rput":        {Protocol: RPUT, EagerLimit: eagerLimit},
		"speculative": {Protocol: Speculative, EagerLimit: eagerLimit, MaxMispredicted: 2},
		"not early":   {Protocol: Speculative, EagerLimit: eagerLimit, NoEarlyProgress: true},
		"adaptive":    {Protocol: Speculative, EagerLimit: eagerLimit, Adaptive: true, Sample: 1, MaxMispredicted: 1, NoEarlyProgress: true},
	}
}

// actByLetter are the acts of a rank, by the letters of the program notation.
var actByLetter = map[byte]act{
	'e': {kind: sendAct, tag: 7, size: eagerLimit}, // eager
	'l': {kind: sendAct, tag: 7, size: rendezvousSize},
	'y': {kind: sendAct, tag: 7, size: eagerLimit, mode: Synchronous},
	'z': {kind: sendAct, tag: 7, size: rendezvousSize, mode: Synchronous},
	'r': {kind: sendAct, tag: 7, size: eagerLimit, mode: Ready},
	'q': {kind: sendAct, tag: 7, size: rendezvousSize, mode: Ready},
	'f': {kind: sendAct, tag: 7, size: eagerLimit, noCredit: true}, // falls back to a rendezvous
	'o': {kind: sendAct, tag: 8, size: rendezvousSize},             // with another tag
	'x': {kind: sendAct, tag: 7, size: rendezvousSize, noMemory: true},
	'R': {kind: recvAct, tag: 7, size: rendezvousSize},
	'S': {kind: recvAct, tag: 7, size: eagerLimit},
	'X': {kind: recvAct, tag: 7, size: rendezvousSize, noMemory: true},
	'A': {kind: recvAct, tag: 7, size: rendezvousSize, peer: Any},
	'T': {kind: recvAct, tag: Any, size: rendezvousSize},
	'O': {kind: recvAct, tag: 8, size: rendezvousSize},
	'a': {kind: sendAct, tag: 6, size: rendezvousSize, advertised: true},
	'b': {kind: sendAct, tag: 5, size: eagerLimit, advertised: true},
	'D': {kind: recvAct, tag: 6, size: rendezvousSize, advertised: true},
	'E': {kind: recvAct, tag: 5, size: eagerLimit, advertised: true},
	'Y': {kind: recvAct, tag: 6, size: rendezvousSize, advertised: true, noMemory: true},
	'C': {kind: cancelAct}, // the receive that is posted last
	'W': {kind: waitAct},   // for the last request
	'M': {kind: mprobeAct, tag: 7},
	'G': {kind: mrecvAct, size: rendezvousSize}, // the first probed message that is not received
}

// parseActs parses the acts of a rank; all of them name the same peer.
func parseActs(text string, peer int) (acts []act) {
	started, posted := -1, -1
	var probed []int
	for i := range len(text) {
		a, ok := actByLetter[text[i]]
		if !ok {
			panic("unknown act " + text[i:i+1])
		}
		switch {
		case a.kind == cancelAct:
			a.target = posted
		case a.kind == waitAct:
			a.target = started
		case a.kind == mrecvAct:
			if len(probed) == 0 {
				continue
			}
			a.target, probed = probed[0], probed[1:]
		case a.peer != Any:
			a.peer = peer
		}
		if a.kind == recvAct {
			posted = len(acts)
		}
		if a.kind == mprobeAct {
			probed = append(probed, len(acts))
		}
		if a.kind == recvAct || a.kind == sendAct || a.kind == mrecvAct {
			started = len(acts)
		}
		if (a.kind == cancelAct || a.kind == waitAct) && a.target < 0 {
			continue // no such request
		}
		acts = append(acts, a)
	}
	for _, i := range probed { // every probed message is received
		acts = append(acts, act{kind: mrecvAct, size: rendezvousSize, target: i})
	}
	return acts
}

// allStrings lists all strings of n letters.
func allStrings(of string, n int) []string {
	if n == 0 {
		return []string{""}
	}
	var all []string
	for _, w := range allStrings(of, n-1) {
		for i := range len(of) {
			all = append(all, w+of[i:i+1])
		}
	}
	return all
}

// exploration adds up the results of programs.
type exploration struct {
	Stats
	programs, unfinished int
	explore.Counts
}

// program explores all interleavings of a program, or those that reach maxStates if that is not 0.
func (x *exploration) program(t *testing.T, cfg Config, p program, maxStates int) {
	t.Helper()
	x.explore(t, cfg, p, false, maxStates)
}

// explore explores a program, in which a rank may die.
func (x *exploration) explore(t *testing.T, cfg Config, p program, mayDie bool, maxStates int) {
	t.Helper()
	r := must.Get(explore.Machines(t.Context(), explore.Options{MaxStates: maxStates, Parallel: 1}, func() explore.Machine {
		return newMachine(cfg, p, mayDie, &x.Stats)
	}))(t)
	if r.Failure != nil {
		m := newMachine(cfg, p, mayDie, new(Stats))
		var order []any
		m.log = func(event ...any) { order = append(append(order, event...), "\n") }
		err := explore.Replay(m, r.Failure.Path, nil)
		t.Fatalf("%+v: %v\nprogram:\n%vorder:\n%vpath: %v", cfg, err, p, fmt.Sprint(order...), r.Failure.Path)
	}
	x.programs++
	if !r.Finished {
		x.unfinished++
	}
	x.States += r.States
	x.Edges += r.Edges
	x.Runs += r.Runs
	x.Deepest = max(x.Deepest, r.Deepest)
}

// String describes what was explored.
func (x *exploration) String() string {
	return fmt.Sprintf("%d programs (%d not finished): %d states, %d steps, %d ends, up to %d steps; %d RTRs used, %d dropped, %d crossed, %d mispredicted; speculation stopped %d times, resumed %d",
		x.programs, x.unfinished, x.States, x.Edges, x.Runs, x.Deepest, x.RTRsUsed, x.RTRsDropped, x.RTRsCrossed, x.Mispredicted, x.SpeculationStopped, x.SpeculationResumed)
}

// All interleavings of all programs in which one rank sends two messages and another receives two.
func TestAllInterleavingsOfTwoMessages(t *testing.T) {
	for name, cfg := range exploredConfigs() {
		t.Run(name, func(t *testing.T) {
			var x exploration
			for _, s := range allStrings("elf", 2) {
				for _, r := range allStrings("RSAT", 2) {
					x.program(t, cfg, program{parseActs(s, 1), parseActs(r, 0)}, 0)
				}
			}
			t.Log(&x)
		})
	}
}

// All interleavings of longer programs: three messages of an envelope, as stopping and
// resuming RTRs needs, cancelled receives, both directions, three ranks, and waits.
func TestAllInterleavingsOfPrograms(t *testing.T) {
	programs := map[string]program{
		"three long":                {parseActs("lll", 1), parseActs("RRR", 0)},
		"eager, then long":          {parseActs("ell", 1), parseActs("RRR", 0)},
		"eager between":             {parseActs("lel", 1), parseActs("RRR", 0)},
		"after receive without RTR": {parseActs("ell", 1), parseActs("SRR", 0)},
		"after any source":          {parseActs("lll", 1), parseActs("ARR", 0)},
		"before any source":         {parseActs("lll", 1), parseActs("RAR", 0)},
		"of any tag":                {parseActs("lol", 1), parseActs("RTR", 0)},
		"two tags":                  {parseActs("ol", 1), parseActs("ROR", 0)},
		"cancelled":                 {parseActs("ll", 1), parseActs("RCRR", 0)},
		"cancelled after another":   {parseActs("ell", 1), parseActs("RRCRR", 0)},
		"both directions":           {parseActs("RlW", 1), parseActs("RlW", 0)},
		"both directions, twice":    {parseActs("RlR", 1), parseActs("lRl", 0)},
		"one after the other":       {parseActs("lWeWl", 1), parseActs("RWRWR", 0)},
		"matched probe":             {parseActs("lll", 1), parseActs("MRGR", 0)},
		"matched probe of eager":    {parseActs("ell", 1), parseActs("MRGR", 0)},
		"matched probes":            {parseActs("ll", 1), parseActs("MMGG", 0)},
		"matched probe, posted":     {parseActs("lll", 1), parseActs("RMRG", 0)},
		"a send fails":              {parseActs("xlxl", 1), parseActs("RR", 0)},
		"a send fails after eager":  {parseActs("exll", 1), parseActs("RRR", 0)},
		"a receive without RTR":     {parseActs("lll", 1), parseActs("RXR", 0)},
		"synchronous":               {parseActs("yll", 1), parseActs("RRR", 0)},
		"from two":                  {parseActs("ll", 1), append(parseActs("RA", 0), parseActs("R", 2)...), parseActs("l", 1)},
	}
	var x exploration
	for name, p := range programs {
		for _, config := range []string{"speculative", "adaptive"} {
			t.Run(name+", "+config, func(t *testing.T) { x.program(t, exploredConfigs()[config], p, 0) })
		}
	}
	if x.RTRsUsed == 0 || x.RTRsCrossed == 0 || x.Mispredicted == 0 || x.SpeculationStopped == 0 || x.SpeculationResumed == 0 {
		t.Errorf("not all cases occurred: %v", &x)
	}
	t.Log(&x)
}

// All interleavings of programs with advertised requests: several, with others between them, cancelled
// and waited for, in both directions.
func TestAllInterleavingsOfAdvertisedRequests(t *testing.T) {
	programs := []program{
		{parseActs("aaa", 1), parseActs("DDD", 0)},
		{parseActs("alba", 1), parseActs("DERD", 0)},
		{parseActs("aa", 1), parseActs("DCDD", 0)},
		{parseActs("aa", 1), parseActs("DDCD", 0)},
		{parseActs("aWaW", 1), parseActs("DWDW", 0)},
		{parseActs("DaWl", 1), parseActs("DaRW", 0)},
		{parseActs("aa", 1), parseActs("YD", 0)},
		{parseActs("bba", 1), parseActs("EDE", 0)},
		{parseActs("a", 1), append(parseActs("D", 0), parseActs("D", 2)...), parseActs("a", 1)},
	}
	for name, cfg := range exploredConfigs() {
		t.Run(name, func(t *testing.T) {
			var x exploration
			for _, p := range programs {
				x.program(t, cfg, p, 0)
			}
			if x.Advertisements == 0 || x.RTRsReceived > 0 && cfg.Protocol != Speculative {
				t.Errorf("%d advertisements and %d RTRs", x.Advertisements, x.RTRsReceived)
			}
		})
	}
}

// All interleavings of twelve random programs, or with -explore of as many as the time allows.
func TestAllInterleavingsOfRandomPrograms(t *testing.T) {
	var x exploration
	maxStates := 2000
	if *exploreFor > 0 {
		maxStates = 100_000
	}
	began := time.Now()
	for seed := *exploreFrom; seed < *exploreFrom+12 || time.Since(began) < *exploreFor; seed++ {
		for i, name := range slices.Sorted(maps.Keys(exploredConfigs())) {
			if cfg := exploredConfigs()[name]; cfg.Protocol == Speculative || seed%8 == 0 {
				x.program(t, cfg, randomProgram(rand.New(rand.NewPCG(seed, uint64(i)))), maxStates)
			}
		}
	}
	t.Log(&x)
}

// randomProgram returns a program of two or three ranks with up to nine acts.
func randomProgram(r *rand.Rand) program {
	text := func(of string, n int) (s string) {
		for range n {
			i := r.IntN(len(of))
			s += of[i : i+1]
		}
		return s
	}
	switch r.IntN(4) {
	case 0: // both directions
		return program{parseActs(text("lleRRRW", 3+r.IntN(2)), 1), parseActs(text("lleRRRW", 3+r.IntN(2)), 0)}
	case 1: // three ranks
		return program{
			parseActs(text("llef", 1+r.IntN(2)), 1),
			append(parseActs(text("RRSA", 1+r.IntN(2)), 0), parseActs(text("RRSAT", 2), 2)...),
			parseActs(text("llef", 1+r.IntN(2)), 1),
		}
	default:
		return program{parseActs(text("lllleefyoxW", 2+r.IntN(3)), 1), parseActs(text("RRRRRSATOCWMGX", 2+r.IntN(4)), 0)}
	}
}
