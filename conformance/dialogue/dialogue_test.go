package dialogue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// stopped is a clock that stands still.
type stopped struct{ conformance.Runtime }

func (stopped) Now() time.Duration { return 0 }

// letter is a step of the test protocol, in which an "a" and a later "b" are a violation.
type letter string

func (l letter) String() string { return string(l) }

type letters struct {
	seenA  bool
	closed *int
}

func (s *letters) Draw(r *rand.Rand) letter { return letter(rune('a' + r.IntN(26))) }

func (s *letters) Play(l letter) {
	if s.seenA && l == "b" {
		rig.Abort(conformance.Violatedf("no b after an a", "%v", l))
	}
	s.seenA = s.seenA || l == "a"
}

func (s *letters) Close() { *s.closed++ }

func newRig() *rig.Rig {
	return &rig.Rig{Bench: &conformance.Bench{Runtime: stopped{}, Record: new(conformance.Record), Virtual: true}}
}

func TestViolationIsShownByTheShortestDialogue(t *testing.T) {
	opened, closed := 0, 0
	spec := Spec[letter]{Dialogues: 1, Steps: 2000, Open: func(*rig.Rig) Session[letter] {
		opened++
		return &letters{closed: &closed}
	}}
	r := newRig()
	steps, err := spec.run(r, rand.New(rand.NewPCG(1, 1)))
	if !conformance.IsViolation(err) || len(steps) < 3 {
		t.Fatalf("%d steps end with %v, want a violation after several", len(steps), err)
	}
	err = spec.explain(r, steps, err)
	if !conformance.IsViolation(err) || !strings.Contains(err.Error(), "in a dialogue of 2 steps") {
		t.Errorf("shortened: %v, want a violation in 2 steps", err)
	}
	var notes []string
	events, _ := r.Record.Events()
	for _, e := range events {
		notes = append(notes, e.Text)
	}
	if want := []string{"step 1: a", "step 2: b"}; !slices.Equal(notes, want) {
		t.Errorf("the record has %q, want %q", notes, want)
	}
	if opened != closed {
		t.Errorf("%d sessions opened, %d closed", opened, closed)
	}
}

func TestViolationThatIsNotRepeatedIsStillReported(t *testing.T) {
	spec := Spec[letter]{Open: func(*rig.Rig) Session[letter] { return &letters{closed: new(int)} }}
	first := conformance.Violatedf("something", "another thing")
	err := spec.explain(newRig(), []letter{"x", "y"}, first)
	if !conformance.IsViolation(err) || !strings.Contains(err.Error(), "not when it was repeated: [x y]") {
		t.Errorf("%v, want the first violation and the steps", err)
	}
}

func TestShorten(t *testing.T) {
	for _, needed := range [][]int{{0}, {99}, {0, 99}, {17, 18, 60}, {}} {
		var all []int
		for i := range 100 {
			all = append(all, i)
		}
		calls := 0
		got := Shorten(all, func(s []int) bool {
			calls++
			return !slices.ContainsFunc(needed, func(n int) bool { return !slices.Contains(s, n) })
		})
		if fmt.Sprint(got) != fmt.Sprint(needed) || calls > maxReplays {
			t.Errorf("%v after %d calls, want %v", got, calls, needed)
		}
	}
}
