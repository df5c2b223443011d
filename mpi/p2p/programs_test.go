package p2p

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/mpi/match"
)

var (
	exploreFor  = flag.Duration("explore", 0, "for how long to go on with random programs in every order, instead of with a few")
	exploreFrom = flag.Uint64("explore.from", 0, "the seed of the first random program")
)

// exploredConfigs are those whose orders are all gone through. Decisions come soon:
// programs are short.
func exploredConfigs() map[string]Config {
	return map[string]Config{
		"rget":        {Protocol: RGET, EagerLimit: limit},
		"rput":        {Protocol: RPUT, EagerLimit: limit},
		"speculative": {Protocol: Speculative, EagerLimit: limit, MaxMispredicted: 2},
		"not early":   {Protocol: Speculative, EagerLimit: limit, NoEarlyProgress: true},
		"adaptive":    {Protocol: Speculative, EagerLimit: limit, Adaptive: true, Sample: 1, MaxMispredicted: 1, NoEarlyProgress: true},
	}
}

// The letters of programs: what a rank does with another.
var letters = map[byte]act{
	'e': {what: sends, tag: 7, size: limit}, // eagerly
	'l': {what: sends, tag: 7, size: long},
	'y': {what: sends, tag: 7, size: limit, mode: Synchronous},
	'f': {what: sends, tag: 7, size: limit, noRoom: true}, // falls back to a rendezvous
	'o': {what: sends, tag: 8, size: long},                // with another tag
	'x': {what: sends, tag: 7, size: long, noMemory: true},
	'R': {what: receives, tag: 7, size: long},
	'S': {what: receives, tag: 7, size: limit},
	'X': {what: receives, tag: 7, size: long, noMemory: true},
	'A': {what: receives, tag: 7, size: long, peer: match.Any},
	'T': {what: receives, tag: match.Any, size: long},
	'O': {what: receives, tag: 8, size: long},
	'C': {what: cancels}, // the receive that is posted last
	'W': {what: waits},   // for what was begun last
	'M': {what: takes, tag: 7},
	'G': {what: gets, size: long}, // the message that was taken first and not received
}

// spell makes the acts of a rank from letters; all that name a peer name the same.
func spell(text string, peer int) (acts []act) {
	begun, posted := -1, -1
	var taken []int
	for i := range len(text) {
		a, ok := letters[text[i]]
		if !ok {
			panic("no act is spelt " + text[i:i+1])
		}
		switch {
		case a.what == cancels:
			a.which = posted
		case a.what == waits:
			a.which = begun
		case a.what == gets:
			if len(taken) == 0 {
				continue
			}
			a.which, taken = taken[0], taken[1:]
		case a.peer != match.Any:
			a.peer = peer
		}
		if a.what == receives {
			posted = len(acts)
		}
		if a.what == takes {
			taken = append(taken, len(acts))
		}
		if a.what == receives || a.what == sends || a.what == gets {
			begun = len(acts)
		}
		if (a.what == cancels || a.what == waits) && a.which < 0 {
			continue // there is nothing
		}
		acts = append(acts, a)
	}
	for _, i := range taken { // whoever takes a message receives it
		acts = append(acts, act{what: gets, size: long, which: i})
	}
	return acts
}

// words lists all of n letters.
func words(of string, n int) []string {
	if n == 0 {
		return []string{""}
	}
	var all []string
	for _, w := range words(of, n-1) {
		for i := range len(of) {
			all = append(all, w+of[i:i+1])
		}
	}
	return all
}

// explore goes through all orders of a program, and adds up what happened.
func explore(t *testing.T, cfg Config, p program, most int, sum *Stats) (states int) {
	t.Helper()
	x := &explorer{cfg: cfg, prog: p, most: most}
	if err := x.explore(); err != nil {
		t.Fatal(err)
	}
	sum.merge(&x.stats)
	return len(x.seen)
}

// All orders of all programs in which one rank sends two messages, and another
// receives two.
func TestEveryOrderOfSmallPrograms(t *testing.T) {
	for name, cfg := range exploredConfigs() {
		t.Run(name, func(t *testing.T) {
			var sum Stats
			states := 0
			for _, s := range words("elf", 2) {
				for _, r := range words("RSAT", 2) {
					states += explore(t, cfg, program{spell(s, 1), spell(r, 0)}, 1<<20, &sum)
				}
			}
			t.Logf("%d states; %d RTRs used, %d dropped, %d crossed, %d mispredicted", states, sum.RTRsUsed, sum.RTRsDropped, sum.Crossed, sum.Mispredicted)
		})
	}
}

// All orders of programs that are more than that: three messages of an envelope, as
// the stop and resumption of RTRs need, cancelled receives, both ways at once, three
// ranks, and waits in between.
func TestEveryOrderOfPrograms(t *testing.T) {
	programs := map[string]program{
		"three long":               {spell("lll", 1), spell("RRR", 0)},
		"eager, then long":         {spell("ell", 1), spell("RRR", 0)},
		"eager between":            {spell("lel", 1), spell("RRR", 0)},
		"behind a silent receive":  {spell("ell", 1), spell("SRR", 0)},
		"behind anybody's":         {spell("lll", 1), spell("ARR", 0)},
		"before anybody's":         {spell("lll", 1), spell("RAR", 0)},
		"of any tag":               {spell("lol", 1), spell("RTR", 0)},
		"two tags":                 {spell("ol", 1), spell("ROR", 0)},
		"cancelled":                {spell("ll", 1), spell("RCRR", 0)},
		"cancelled behind another": {spell("ell", 1), spell("RRCRR", 0)},
		"both ways":                {spell("RlW", 1), spell("RlW", 0)},
		"both ways, twice":         {spell("RlR", 1), spell("lRl", 0)},
		"one after the other":      {spell("lWeWl", 1), spell("RWRWR", 0)},
		"matched probe":            {spell("lll", 1), spell("MRGR", 0)},
		"matched probe of eager":   {spell("ell", 1), spell("MRGR", 0)},
		"matched probes":           {spell("ll", 1), spell("MMGG", 0)},
		"matched probe, posted":    {spell("lll", 1), spell("RMRG", 0)},
		"a send fails":             {spell("xlxl", 1), spell("RR", 0)},
		"a send fails after eager": {spell("exll", 1), spell("RRR", 0)},
		"a receive is silent":      {spell("lll", 1), spell("RXR", 0)},
		"synchronous":              {spell("yll", 1), spell("RRR", 0)},
		"from two":                 {spell("ll", 1), append(spell("RA", 0), spell("R", 2)...), spell("l", 1)},
	}
	var sum Stats
	for name, p := range programs {
		for _, how := range []string{"speculative", "adaptive"} {
			t.Run(name+", "+how, func(t *testing.T) {
				states := explore(t, exploredConfigs()[how], p, 1<<20, &sum)
				t.Logf("%d states", states)
			})
		}
	}
	if sum.RTRsUsed == 0 || sum.Crossed == 0 || sum.Mispredicted == 0 || sum.SpeculationStopped == 0 || sum.SpeculationResumed == 0 {
		t.Errorf("ways were not gone: %+v", sum)
	}
}

// Random programs, each in every order: a few, or with -explore as many as there is
// time for.
func TestEveryOrderOfRandomPrograms(t *testing.T) {
	var sum Stats
	states, n := 0, 0
	began := time.Now()
	for seed := *exploreFrom; seed < *exploreFrom+12 || time.Since(began) < *exploreFor; seed++ {
		for i, name := range slices.Sorted(maps.Keys(exploredConfigs())) {
			cfg := exploredConfigs()[name]
			if cfg.Protocol != Speculative && seed%8 > 0 {
				continue
			}
			p := randomProgram(rand.New(rand.NewPCG(seed, uint64(i))))
			x := &explorer{cfg: cfg, prog: p, most: 2000}
			if *exploreFor > 0 {
				x.most = 100_000
			}
			if err := x.explore(); err != nil {
				t.Fatalf("%s, seed %d: %v", name, seed, err)
			}
			sum.merge(&x.stats)
			states, n = states+len(x.seen), n+1
		}
	}
	t.Logf("%d programs with %d states; %d RTRs used, %d dropped, %d crossed, %d mispredicted; speculation stopped %d times, resumed %d",
		n, states, sum.RTRsUsed, sum.RTRsDropped, sum.Crossed, sum.Mispredicted, sum.SpeculationStopped, sum.SpeculationResumed)
}

// randomProgram is of two or three ranks, with up to nine acts.
func randomProgram(r *rand.Rand) program {
	text := func(of string, n int) (s string) {
		for range n {
			i := r.IntN(len(of))
			s += of[i : i+1]
		}
		return s
	}
	switch r.IntN(4) {
	case 0: // both ways
		return program{spell(text("lleRRRW", 3+r.IntN(2)), 1), spell(text("lleRRRW", 3+r.IntN(2)), 0)}
	case 1: // three ranks
		return program{
			spell(text("llef", 1+r.IntN(2)), 1),
			append(spell(text("RRSA", 1+r.IntN(2)), 0), spell(text("RRSAT", 2), 2)...),
			spell(text("llef", 1+r.IntN(2)), 1),
		}
	default:
		return program{spell(text("lllleefyoxW", 2+r.IntN(3)), 1), spell(text("RRRRRSATOCWMGX", 2+r.IntN(4)), 0)}
	}
}
