package sim

import (
	"fmt"
	"slices"
	"testing"
)

// first always chooses the first candidate (FIFO).
type first struct{}

func (first) Choose(string, int) int { return 0 }

// script answers from a list, then 0, and records the choices.
type script struct {
	answers []int
	asked   []string
	sizes   []int
}

func (s *script) Choose(kind string, n int) int {
	a := 0
	if i := len(s.asked); i < len(s.answers) {
		a = s.answers[i]
	}
	s.asked = append(s.asked, kind)
	s.sizes = append(s.sizes, n)
	return a
}

func orderOf(c Chooser) (order string) {
	w := New(Config{Chooser: c})
	for _, name := range []string{"a", "b", "c"} {
		w.Go(name, func(*Proc) error { order += name; return nil })
	}
	if err := w.Run(); err != nil {
		panic(err)
	}
	return order
}

// A Chooser that enumerates all answers sees every order once.
func TestChooserEnumeratesEverySchedule(t *testing.T) {
	var orders []string
	for path := []int{}; ; {
		s := &script{answers: path}
		orders = append(orders, orderOf(s))
		path = append(slices.Clone(path), make([]int, len(s.sizes)-len(path))...)
		i := len(path) - 1
		for ; i >= 0 && path[i] == s.sizes[i]-1; i-- {
		}
		if i < 0 {
			break
		}
		path = append(path[:i:i], path[i]+1)
	}
	if want := []string{"abc", "acb", "bac", "bca", "cab", "cba"}; !slices.Equal(orders, want) {
		t.Errorf("orders %v, want %v", orders, want)
	}
}

func TestChooserIsNotCalledForOneCandidate(t *testing.T) {
	s := &script{}
	orderOf(s)
	if !slices.Equal(s.sizes, []int{3, 2}) || !slices.Equal(s.asked, []string{"run", "run"}) {
		t.Errorf("asked %v of %v", s.asked, s.sizes)
	}
}

func TestChoosePanicsOnInvalidArguments(t *testing.T) {
	w := New(Config{Chooser: &script{answers: []int{2, -1}}})
	mustPanic(t, `Chooser answered 2 to Choose("x", 2)`, func() { w.Choose("x", 2) })
	mustPanic(t, "Chooser answered -1", func() { w.Choose("x", 2) })
	mustPanic(t, "nothing to choose from", func() { w.Choose("x", 0) })
}

func TestRandomChoiceIsUniform(t *testing.T) {
	w := New(Config{Seed: 11})
	var n [5]int
	for range 50_000 {
		n[w.Choose("x", 5)]++
	}
	for i, k := range n {
		if k < 9_500 || k > 10_500 {
			t.Errorf("choice %d came %d times of 50000", i, k)
		}
	}
}

func TestRandDependsOnSeedAndNameOnly(t *testing.T) {
	draw := func(seed uint64, others ...string) (out [4]uint64) {
		w := New(Config{Seed: seed})
		for _, name := range others {
			w.Rand(name).Uint64()
		}
		for i := range out {
			out[i] = w.Rand("mine").Uint64() // the same stream at its current position
		}
		return out
	}
	want := draw(1)
	if got := draw(1, "a", "b", "zz"); got != want {
		t.Error("other streams disturb this one")
	}
	if draw(2) == want {
		t.Error("the seed does not matter")
	}
	seen := map[uint64]string{}
	w := New(Config{Seed: 1})
	for i := range 1000 {
		name := fmt.Sprint("stream", i)
		v := w.Rand(name).Uint64()
		if other, ok := seen[v]; ok {
			t.Fatalf("streams %s and %s begin alike", name, other)
		}
		seen[v] = name
	}
	if want[0] != 0xa71b7a1faf9a81bd {
		t.Errorf("seed 1, stream \"mine\" begins with %#x: it must be the same on every machine and in every version", want[0])
	}
}
