package judge

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// Each outcome of a test's table names all registers and variables in order. A typing
// error would make an outcome impossible.
func TestOutcomesNameAllRegistersAndVariables(t *testing.T) {
	for _, test := range []litmusTest{
		writeThenRead, writeThenWrite, sendBehindWrites, fencedWriteBehindRead, fencedAddBehindRead, addBehindWrite,
		readBehindAdd, completionBehindRead, readsInOrder, concurrentAdds, concurrentSwaps,
	} {
		regs, variables := test.names()
		for _, outcome := range slices.Concat(test.Allowed, test.Unfenced) {
			var names []string
			for _, part := range strings.Fields(outcome) {
				name, _, _ := strings.Cut(part, "=")
				names = append(names, name)
			}
			if want := slices.Concat(regs, variables); !slices.Equal(names, want) {
				t.Errorf("%s: the outcome %q has %v, the test %v", test.Name, outcome, names, want)
			}
		}
	}
}

func TestUnfencedOutcomesAreAllowedWithoutFences(t *testing.T) {
	if fencedWriteBehindRead.allows("r0=1 x=1", true) || !fencedWriteBehindRead.allows("r0=1 x=1", false) || !fencedWriteBehindRead.allows("r0=0 x=1", true) {
		t.Error("only the fence forbids r0=1")
	}
	if got := fencedWriteBehindRead.Threads[0].String(); got != "read x -> r0; fence, write x=1" {
		t.Error(got)
	}
}

// runOn runs a test over some schedules on devices without defects.
func runOn(t *testing.T, provider string, test litmusTest, schedules int) (seen litmusOutcomes, err error) {
	t.Helper()
	p := must.Get(nics.Find(provider))(t)
	err = bench.InSimulation(p, bench.SimOptions{}).WithBench(t.Context(), conformance.BenchSpec{Seed: 1}, func(b *conformance.Bench) (err error) {
		seen, err = test.run(b, schedules)
		return err
	})
	return seen, err
}

// The schedules reach rare allowed outcomes. Otherwise the absence of forbidden outcomes
// would prove little.
func TestSchedulesReachRareOutcomes(t *testing.T) {
	for _, c := range []struct {
		provider string
		test     litmusTest
		want     []string
	}{
		{"softroce", fencedWriteBehindRead, []string{"r0=1 x=1", "r0=torn x=1"}},
		{"softroce", readsInOrder, readsInOrder.Allowed},
		{"softroce", concurrentAdds, concurrentAdds.Allowed},
		{"softiwarp", fencedWriteBehindRead, []string{"r0=1 x=1"}},
		{"softiwarp", readsInOrder, readsInOrder.Allowed},
	} {
		got := must.Get(runOn(t, c.provider, c.test, 500))(t)
		for _, o := range c.want {
			if got[o] == 0 {
				t.Errorf("%s, %s: %q was never seen: %v", c.provider, c.test.Name, o, got)
			}
		}
	}
}

// The outcomes are in the ladder of the case.
func TestOutcomesAreNoted(t *testing.T) {
	p, record := must.Get(nics.Find("softroce"))(t), new(conformance.Record)
	must.Do(t, bench.InSimulation(p, bench.SimOptions{}).WithBench(t.Context(), conformance.BenchSpec{Seed: 1, Record: record}, func(b *conformance.Bench) error {
		return must.Err(writeThenRead.run(b, 3))
	}))
	if !hasNote(record, "outcomes of up to 3 schedules: ") {
		t.Error("no note of the outcomes")
	}
}

// A forbidden outcome is reported with its schedule.
func TestForbiddenOutcomeIsViolation(t *testing.T) {
	wrong := writeThenRead
	wrong.Allowed = []string{"r0=0 x=1"}
	_, err := runOn(t, "softroce", wrong, 10)
	if !conformance.IsViolation(err) || !strings.Contains(err.Error(), "r0=1 x=1, in schedule 0") {
		t.Error(err)
	}
	// The completion of a WRITE covers the READ before it.
	if seen := must.Get(runOn(t, "softroce", completionBehindRead, 4))(t); seen["r0=0 x=0 y=1"] != 4 {
		t.Errorf("%v", seen)
	}
	for _, c := range litmusIWARP() {
		if c.Cite.Section == "" {
			t.Errorf("%s cites no section of %s", c.ID, c.Cite.Doc)
		}
	}
	for _, c := range litmusRoCE() {
		if c.Cite.Section == "5.5" {
			t.Errorf("%s cites section 5.5, which is one of RFC 5040", c.ID)
		}
	}
}

// Schedules vary the requester, fences, path, batches and pauses.
func TestSchedulesVary(t *testing.T) {
	for provider, test := range map[string]litmusTest{"softroce": fencedWriteBehindRead, "softiwarp": readsInOrder} {
		p := must.Get(nics.Find(provider))(t)
		seen := map[string]bool{}
		must.Do(t, bench.InSimulation(p, bench.SimOptions{}).WithBench(t.Context(), conformance.BenchSpec{Seed: 1}, func(b *conformance.Bench) error {
			return rig.Catch(func() {
				l := newLitmus(&test, rig.NewPair(rig.New(b)))
				for i := range 4 * len(orderedPaths) {
					s := l.draw(i)
					path := orderedPaths[i/4]
					if provider == "softiwarp" { // simulated streams have no impairments
						path = conformance.Path{}
					}
					if s.path != path || len(s.pauses) != len(test.Threads) {
						t.Errorf("schedule %d has the path %+v and pauses %v", i, s.path, s.pauses)
					}
					seen[fmt.Sprint("active ", s.active)], seen[fmt.Sprint("fences ", s.fences)], seen[fmt.Sprint("batched ", s.batched[0])] = true, true, true
					for _, pause := range s.pauses[0] {
						seen[fmt.Sprint("pause ", pause > maxPause/2)] = true
					}
				}
			})
		}))
		want := []string{"active 0", "active 1", "batched false", "batched true", "fences false", "fences true", "pause false", "pause true"}
		if !test.omitsFences() {
			want = slices.DeleteFunc(want, func(s string) bool { return s == "fences false" })
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", test.Name, got, want)
		}
	}
}

func TestLitmusTestsInWords(t *testing.T) {
	for want, got := range map[string]fmt.Stringer{
		"swap x 0:1 -> r0":                      swapVar("x", 0, 1, "r0"),
		"fence, add x+1 -> r0":                  addOne("x", "r0").fenced(),
		"send; peer reads x -> r0":              sendAndRead("x", "r0"),
		"b (3 times), a (2 times), c (2 times)": litmusOutcomes{"a": 2, "b": 3, "c": 2},
		"the device is the requester":           &schedule{fences: true},
		"the device is the responder, without fences, 1 ppm loss, 2 ppm duplicates, 3ns jitter": &schedule{active: 1, path: conformance.Path{LossPPM: 1, DuplicatePPM: 2, Jitter: 3}},
	} {
		if got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	swapped := litmusTest{Threads: []litmusThread{{readVar("y", "r1"), readVar("x", "r0")}}}
	if regs, variables := swapped.names(); !slices.Equal(regs, []string{"r0", "r1"}) || !slices.Equal(variables, []string{"x", "y"}) {
		t.Errorf("%q and %q are not sorted", regs, variables)
	}
}

// A variable with different words is torn; one that was never written is unset.
func TestValuesOfVariables(t *testing.T) {
	l := &litmus{size: 24}
	m := &rig.Memory{Buf: make([]byte, 2*stride)}
	words := func(all ...uint64) {
		for i, w := range all {
			binary.NativeEndian.PutUint64(m.Buf[stride+8*i:], w)
		}
	}
	for _, tc := range []struct {
		words []uint64
		want  string
	}{
		{[]uint64{0, 0, 0, 9}, "0"}, {[]uint64{7, 7, 7, 9}, "7"}, {[]uint64{7, 7, 8}, torn}, {[]uint64{8, 7, 7}, torn}, {[]uint64{unwritten, unwritten, unwritten}, unset},
	} {
		words(tc.words...)
		if got := l.value(m, 1); got != tc.want {
			t.Errorf("%x: %s, want %s", tc.words, got, tc.want)
		}
	}
}
