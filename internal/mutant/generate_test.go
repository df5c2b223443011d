package mutant

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

const clamp = `package counter

type Range struct{ Low, High int }

// Clamp returns the nearest value in a range, and how far that is.
func (r *Range) Clamp(x int) (near, distance int) {
	near = x
	if x < r.Low || x > r.High {
		near = r.High
		distance = x - r.High
	}
	switch {
	case x < r.Low:
		near, distance = r.Low, r.Low-x
	}
	return near, distance
}

const size = 2

func Pair() (all [size]int) {
	var one [1]int
	all[0] = one[0]
	return all
}

func Wait(c chan int) (got int) {
	select {
	case got = <-c:
		got++
	}
	return got
}

func (r *Range) Reset(int) { r.Low, r.High = 0, 0 }
`

const clampMain = `package main

import (
	"fmt"

	"github.com/fabrictest/fabrictest/counter"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

func main() {
	functions := mutant.Trace(func() { fmt.Println(new(counter.Range).Clamp(5)) })
	fmt.Println(len(functions), len(mutant.Functions()) == len(mutant.Names()))
}
`

func TestGeneratedMutantsCompile(t *testing.T) {
	root := newModule(t, map[string]string{"counter/counter.go": clamp, "main/main.go": clampMain})
	all := must.Get(Generate(root, []string{"counter/counter.go"}))(t)
	for _, want := range []string{
		"counter/counter.go:7:2 drops the statement", "counter/counter.go:8:5 negates the condition", "counter/counter.go:8:7 has <= for <",
		"counter/counter.go:8:15 has && for ||", "counter/counter.go:10:14 swaps the operands", "counter/counter.go:10:16 has + for -",
		"counter/counter.go:13:7 negates the condition", "counter/counter.go:23:6 has a constant that is one more",
	} {
		if !slices.ContainsFunc(all, func(m Mutant) bool { return m.Name == want }) {
			t.Errorf("no mutant %q", want)
		}
	}
	t.Chdir(root)
	program, valid, err := BuildValid(t.Context(), t.TempDir(), "main", all)
	if err != nil {
		t.Fatal(err)
	}
	// An index out of range of a fixed array does not compile.
	var dropped []string
	for _, m := range all {
		if !slices.ContainsFunc(valid, func(v Mutant) bool { return v.Name == m.Name }) {
			dropped = append(dropped, m.Name)
		}
	}
	if want := []string{"counter/counter.go:23:15 has a constant that is one more"}; !slices.Equal(dropped, want) {
		t.Errorf("%q do not compile, want %q", dropped, want)
	}
	for name, want := range map[string]string{
		"": "0 5\n1 true\n",
		"counter/counter.go:13:7 negates the condition": "0 -5\n1 true\n",
		"counter/counter.go:9:3 drops the statement":    "5 5\n1 true\n",
		"counter/counter.go:10:14 swaps the operands":   "0 -5\n1 true\n",
		"counter/counter.go:8:15 has && for ||":         "5 0\n1 true\n",
	} {
		cmd := exec.Command(program)
		cmd.Env = append(cmd.Environ(), "FABRICTEST_MUTANT="+name)
		if out, err := cmd.CombinedOutput(); string(out) != want || err != nil {
			t.Errorf("mutant %q: %v, %q, want %q", name, err, out, want)
		}
	}
}
