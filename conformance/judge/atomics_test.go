package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestCheckRejectsHistoriesThatAreNotLinearizable(t *testing.T) {
	const ms = time.Millisecond
	add := func(old uint64, from, to time.Duration) atomicOp {
		return atomicOp{Add: 1, Old: old, Call: from * ms, Return: to * ms}
	}
	swap := func(compare, by, old uint64, from, to time.Duration) atomicOp {
		return atomicOp{Swap: true, Compare: compare, New: by, Old: old, Call: from * ms, Return: to * ms}
	}
	for name, c := range map[string]struct {
		history []atomicOp
		sound   bool
	}{
		"sequential":              {[]atomicOp{add(0, 0, 1), add(1, 2, 3), add(2, 4, 5)}, true},
		"concurrent":              {[]atomicOp{add(1, 0, 5), add(0, 0, 5)}, true},
		"lost update":             {[]atomicOp{add(0, 0, 5), add(0, 0, 5)}, false},
		"executed twice":          {[]atomicOp{add(0, 0, 1), add(2, 2, 3)}, false},
		"returns a future value":  {[]atomicOp{add(1, 0, 1), add(0, 2, 3)}, false},
		"successful swap":         {[]atomicOp{add(0, 0, 1), swap(1, 7, 1, 2, 3), add(7, 4, 5)}, true},
		"failed swap":             {[]atomicOp{swap(1, 7, 0, 0, 1), add(0, 2, 3)}, true},
		"failed swap with effect": {[]atomicOp{swap(1, 7, 0, 0, 1), add(7, 2, 3)}, false},
		"two successful swaps":    {[]atomicOp{swap(0, 1, 0, 0, 5), swap(0, 2, 0, 0, 5)}, false},
		"two words":               {[]atomicOp{add(0, 0, 1), {Word: 1, Add: 1, Call: 2 * ms, Return: 3 * ms}}, true},
	} {
		err := checkLinearizable(c.history)
		if (err == nil) != c.sound || err != nil && !conformance.IsViolation(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The history has all atomics, with their times and results, and few of them outstanding at a time.
func TestHistoryOfAtomicsIsComplete(t *testing.T) {
	var history []atomicOp
	lab := bench.InSimulation(must.Get(nics.Find("softroce"))(t), bench.SimOptions{})
	must.Do(t, lab.WithBench(t.Context(), conformance.BenchSpec{Seed: 1}, func(b *conformance.Bench) error {
		return rig.Catch(func() {
			s := newAtomicsTest(rig.NewPair(rig.New(b)))
			s.clearWords()
			history = s.run()
		})
	}))
	if len(history) != 2*atomicQPs*atomicsPerQP {
		t.Fatalf("%d atomics, want %d", len(history), 2*atomicQPs*atomicsPerQP)
	}
	var reads, adds, swapped, failed int
	words := map[int]bool{}
	for i, a := range history {
		words[a.Word] = true
		switch {
		case a.Swap && a.Old == a.Compare:
			swapped++
		case a.Swap:
			failed++
		case a.Add == 0:
			reads++
		default:
			adds++
		}
		outstanding := 0
		for _, b := range history {
			if b.Client == a.Client && b.Call <= a.Call && b.Return > a.Call {
				outstanding++
			}
		}
		if a.Call <= 0 || a.Return <= a.Call || a.Client != i/atomicsPerQP || outstanding > atomicDepth {
			t.Errorf("%v of client %d from %v to %v, with %d outstanding", a, a.Client, a.Call, a.Return, outstanding)
		}
	}
	if reads < 20 || adds < 20 || swapped < 10 || failed < 10 || len(words) != 2*atomicWords {
		t.Errorf("%d reads, %d adds, %d swaps and %d failed ones on %d words", reads, adds, swapped, failed, len(words))
	}
	if err := checkLinearizable(history); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(atomicOp{Word: 1, Swap: true, Compare: 4, New: 5, Old: 4}, "; ", atomicOp{Add: 2, Old: 7}); got != "word 1: swap 4 by 5 -> 4; word 0: add 2 -> 7" {
		t.Errorf("in words: %s", got)
	}
	err := checkLinearizable(append(history, atomicOp{Add: 1, Old: 999, Call: time.Hour, Return: 2 * time.Hour}))
	if !conformance.IsViolation(err) || !strings.Contains(err.Error(), "atomics on word 0, got none: word 0: ") || strings.Count(err.Error(), ";") != 6 {
		t.Errorf("a wrong result: %v", err)
	}
}

// The case fails on a device whose atomics are wrong, and the ladder has a note for each round.
func TestAtomicsCaseDetectsSwappedOperands(t *testing.T) {
	lab := bench.InSimulation(must.Get(nics.Find("softroce"))(t), bench.SimOptions{})
	c := atomicsCase("roce", conformance.Cite{}, conformance.Case{})
	for _, defects := range [][]string{nil, {"AtomicOperandsSwapped"}} {
		r := conformance.Judge(t.Context(), lab, &c, conformance.Options{Seed: 1, Defects: defects})
		want := conformance.VerdictPass
		if len(defects) > 0 {
			want = conformance.VerdictFail
		}
		if r.Verdict != want || !hasNote(r.Record, "192 atomics, 0 ppm of packets lost") {
			t.Errorf("with %q: %v, %v", defects, r.Verdict, r.Err)
		}
	}
}

// hasNote reports whether a record has a note that begins with text.
func hasNote(r *conformance.Record, text string) bool {
	events, _ := r.Events()
	return slices.ContainsFunc(events, func(e conformance.Event) bool {
		return e.Kind == conformance.EventNote && strings.HasPrefix(e.Text, text)
	})
}
