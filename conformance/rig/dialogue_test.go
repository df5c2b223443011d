package rig

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
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
		Abort(conformance.Violatedf("no b after an a", "%v", l))
	}
	s.seenA = s.seenA || l == "a"
}

func (s *letters) Close() { *s.closed++ }

func newRig() *Rig {
	return &Rig{Bench: &conformance.Bench{Runtime: stopped{}, Record: new(conformance.Record), Virtual: true}}
}

func TestViolationIsShownByTheShortestDialogue(t *testing.T) {
	opened, closed := 0, 0
	spec := Dialogue[letter]{Dialogues: 1, Steps: 2000, Open: func(*Rig) DialogueSession[letter] {
		opened++
		return &letters{closed: &closed}
	}}
	r := newRig()
	steps, err := spec.run(r, rand.New(rand.NewPCG(1, 1)))
	if !conformance.IsViolation(err) || len(steps) < 3 {
		t.Fatalf("%d steps end with %v, want a violation after several", len(steps), err)
	}
	if events, _ := r.Record.Events(); len(events) != len(steps) {
		t.Errorf("%d notes of %d steps", len(events), len(steps))
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
	spec := Dialogue[letter]{Open: func(*Rig) DialogueSession[letter] { return &letters{closed: new(int)} }}
	first := conformance.Violatedf("something", "another thing")
	err := spec.explain(newRig(), []letter{"x", "y"}, first)
	if !conformance.IsViolation(err) || !strings.Contains(err.Error(), "not when it was repeated: [x y]") {
		t.Errorf("%v, want the first violation and the steps", err)
	}
}

// fakeLab makes benches with a device that has only the objects of a  In real time, it takes
// a while to open a session.
type fakeLab struct {
	conformance.Runtime
	verbs.Context
	virtual bool
	now     time.Duration
}

func (l *fakeLab) Now() time.Duration                      { return l.now }
func (l *fakeLab) QueryPort(uint8) (verbs.PortAttr, error) { return verbs.PortAttr{}, nil }
func (l *fakeLab) AllocPD() (verbs.PD, error)              { return nil, nil }
func (l *fakeLab) CreateCQ(verbs.CQInit) (verbs.CQ, error) { return nil, nil }
func (l *fakeLab) Close() error                            { return nil }
func (l *fakeLab) bench(r *conformance.Record) *conformance.Bench {
	return &conformance.Bench{Runtime: l, Device: l, Virtual: l.virtual, Record: r, Rand: rand.New(rand.NewPCG(1, 2))}
}

func (l *fakeLab) WithBench(_ context.Context, spec conformance.BenchSpec, body func(*conformance.Bench) error) error {
	return body(l.bench(spec.Record))
}

// counted is a session that ends with err after some steps, and with closeErr when it is closed.
type counted struct {
	played, failAfter int
	err, closeErr     error
}

func (s *counted) Draw(*rand.Rand) letter { return "x" }

func (s *counted) Play(letter) {
	if s.played++; s.played == s.failAfter {
		Abort(s.err)
	}
}

func (s *counted) Close() {
	if s.closeErr != nil {
		Abort(s.closeErr)
	}
}

func TestBodyRunsDialoguesUntilViolation(t *testing.T) {
	violated := conformance.Violated("an ACK", "none")
	for name, tc := range map[string]struct {
		virtual              bool
		dialogues, schedules int
		session              counted
		opened               int // with those that shorten a dialogue
		progress             string
		want                 string
	}{
		"virtual time":          {virtual: true, dialogues: 3, opened: 3, progress: "1/3 2/3 3/3"},
		"real time":             {dialogues: 16, opened: 2, progress: "1/2 2/2"},
		"real time, few":        {dialogues: 3, opened: 1, progress: "1/1"},
		"another number":        {virtual: true, dialogues: 3, schedules: 2, opened: 2, progress: "1/2 2/2"},
		"violation":             {virtual: true, dialogues: 3, session: counted{failAfter: 1, err: violated}, opened: 3, want: "in a dialogue of 1 steps (1 before it was shortened): want an ACK, got none"},
		"violation at the end":  {virtual: true, dialogues: 3, session: counted{closeErr: violated}, opened: 5, want: "in a dialogue of 0 steps (7 before it was shortened): want an ACK"},
		"violation, then close": {virtual: true, dialogues: 3, session: counted{failAfter: 1, err: violated, closeErr: conformance.ErrBenchCannot}, opened: 3, want: "in a dialogue of 1 steps (1 before it was shortened): want an ACK, got none"},
		"bench cannot":          {virtual: true, dialogues: 3, session: counted{failAfter: 2, err: conformance.ErrBenchCannot, closeErr: violated}, opened: 1, want: "cannot be done on this bench"},
	} {
		t.Run(name, func(t *testing.T) {
			opened := 0
			spec := Dialogue[letter]{Dialogues: tc.dialogues, Steps: 7, Open: func(*Rig) DialogueSession[letter] {
				opened++
				s := tc.session
				return &s
			}}
			var progress []string
			opt := conformance.Options{Schedules: tc.schedules, Progress: func(_ *conformance.Case, done, total int) {
				progress = append(progress, fmt.Sprintf("%d/%d", done, total))
			}}
			res := conformance.Judge(t.Context(), &fakeLab{virtual: tc.virtual}, &conformance.Case{ID: "a/b/c", Run: spec.Body()}, opt)
			if got := strings.Join(progress, " "); opened != tc.opened || got != tc.progress {
				t.Errorf("%d sessions, progress %q; want %d, %q", opened, got, tc.opened, tc.progress)
			}
			if (res.Err == nil) != (tc.want == "") || res.Err != nil && !strings.HasPrefix(res.Err.Error(), tc.want) {
				t.Errorf("%v, want %q", res.Err, tc.want)
			}
		})
	}
}

// A dialogue of which every step is needed is repeated a limited number of times, and in real time
// for a limited time.
func TestShorteningIsLimited(t *testing.T) {
	const steps = 400
	for virtual, want := range map[bool]int{true: maxReplays + 1, false: 4 + 1} { // and once for the record
		opened := 0
		lab := &fakeLab{virtual: virtual, now: time.Hour}
		spec := Dialogue[letter]{Open: func(*Rig) DialogueSession[letter] {
			opened++
			lab.now += maxShortenTime / 3
			return &counted{failAfter: steps, err: conformance.Violated("an ACK", "none")}
		}}
		err := spec.explain(New(lab.bench(new(conformance.Record))), make([]letter, steps), nil)
		if opened != want || !strings.Contains(err.Error(), "in a dialogue of 400 steps") {
			t.Errorf("virtual %v: %d sessions, want %d: %v", virtual, opened, want, err)
		}
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
