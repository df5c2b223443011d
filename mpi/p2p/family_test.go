package p2p

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// family is a set of programs, which are explored with all configurations.
type family struct {
	programs  []program
	mayDie    bool
	maxStates int // of a program; 0: all
	sample    int // one of so many programs with a configuration is explored without -explore
}

// stringsUpTo lists all strings of 1 to n letters.
func stringsUpTo(of string, n int) (all []string) {
	for i := range n {
		all = append(all, allStrings(of, i+1)...)
	}
	return all
}

// pairs are the programs in which rank 0 has each of the first acts, and rank 1 each of the second.
func pairs(first, second []string) (all []program) {
	for _, a := range first {
		for _, b := range second {
			all = append(all, program{parseActs(a, 1), parseActs(b, 0)})
		}
	}
	return all
}

// bothWays are the pairs of two equal sets, without those that are the same for exchanged ranks.
func bothWays(acts []string) (all []program) {
	for i := range acts {
		all = append(all, pairs(acts[i:i+1], acts[i:])...)
	}
	return all
}

// threeRanks are programs in which ranks 0 and 2 send, and rank 1 receives from both.
func threeRanks() (all []program) {
	for _, first := range stringsUpTo("el", 2) {
		for _, third := range stringsUpTo("el", 1) {
			for _, from0 := range stringsUpTo("RA", 2) {
				for _, from2 := range stringsUpTo("RAT", 1) {
					all = append(all, program{parseActs(first, 1), append(parseActs(from0, 0), parseActs(from2, 2)...), parseActs(third, 1)})
				}
			}
		}
	}
	return all
}

// families have messages of both sides of the eager limit, in all modes, and receives with wildcards
// and of both sizes.
func families() map[string]family {
	return map[string]family{
		"one way":                       {programs: pairs(stringsUpTo("elyzrq", 3), stringsUpTo("RSAT", 3)), sample: 1009},
		"both ways":                     {programs: bothWays(stringsUpTo("elRAT", 3)), sample: 1009},
		"both ways, blocking":           {programs: bothWays(stringsUpTo("elyRAW", 3)), sample: 2003},
		"three ranks":                   {programs: threeRanks(), maxStates: 50_000, sample: 67},
		"two ranks, one dies":           {programs: bothWays(stringsUpTo("elzRAW", 2)), mayDie: true, sample: 67},
		"three ranks, one of them dies": {programs: threeRanks(), mayDie: true, maxStates: 50_000, sample: 401},
	}
}

// All interleavings of the programs of each family with each configuration: without -explore of a
// sample, with it of those of -part, or as many as the time allows.
func TestAllInterleavingsOfFamilies(t *testing.T) {
	all := families()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { all[name].explore(t) })
	}
}

func (f family) explore(t *testing.T) {
	var x exploration
	began := time.Now()
	configs := exploredConfigs()
	number, left := 0, 0
	for _, p := range f.programs {
		for _, config := range slices.Sorted(maps.Keys(configs)) {
			number++
			switch {
			case *exploreFor == 0 && number%f.sample != 0 || *exploreFor > 0 && !part.Has(number):
			case *exploreFor > 0 && time.Since(began) > *exploreFor:
				left++
			default:
				x.explore(t, configs[config], p, f.mayDie, f.maxStates)
			}
		}
	}
	t.Logf("%d programs with configurations, of which %d are left; %v", number, left, &x)
}
