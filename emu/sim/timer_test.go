package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
)

func TestTimerFiresAtLastDeadline(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*Timer)
		want []mono.Time
	}{
		{"once", func(t *Timer) { t.Reset(10) }, []mono.Time{10}},
		{"later", func(t *Timer) { t.Reset(10); t.Reset(20) }, []mono.Time{20}},
		{"earlier", func(t *Timer) { t.Reset(20); t.Reset(10) }, []mono.Time{10}},
		{"later and back", func(t *Timer) { t.Reset(10); t.Reset(20); t.Reset(10) }, []mono.Time{10}},
		{"stopped", func(t *Timer) { t.Reset(10); t.Stop() }, nil},
		{"never", func(t *Timer) { t.Reset(10); t.Reset(mono.Never) }, nil},
		{"stopped and reset", func(t *Timer) { t.Reset(10); t.Stop(); t.Reset(30) }, []mono.Time{30}},
		{"stopped and reset earlier", func(t *Timer) { t.Reset(10); t.Stop(); t.Reset(5) }, []mono.Time{5}},
		{"in the past", func(t *Timer) { t.Reset(-5) }, []mono.Time{0}},
	} {
		w := New(Config{})
		var got []mono.Time
		timer := w.NewTimer(HandlerFunc(func(now mono.Time, arg uint64) {
			if arg != 42 {
				t.Errorf("%s: arg %d", tc.name, arg)
			}
			got = append(got, now)
		}), 42)
		tc.set(timer)
		mustRun(t, w)
		if !slices.Equal(got, tc.want) || timer.Deadline() != mono.Never {
			t.Errorf("%s: ran at %v, want %v; deadline %v", tc.name, got, tc.want, timer.Deadline())
		}
		if len(tc.want) == 0 && w.Now() != 0 {
			t.Errorf("%s: a timer that does not run moved time to %v", tc.name, w.Now())
		}
	}
}

func TestTimerCanRearmItself(t *testing.T) {
	w := New(Config{})
	n := 0
	var timer *Timer
	timer = w.NewTimer(HandlerFunc(func(now mono.Time, _ uint64) {
		if n++; n < 5 {
			timer.Reset(now + 10)
		}
	}), 0)
	timer.Reset(10)
	mustRun(t, w)
	if n != 5 || w.Now() != 50 {
		t.Errorf("ran %d times until %v", n, w.Now())
	}
}

func TestTimerHasAtMostOneHeapEntry(t *testing.T) {
	w := New(Config{})
	r := rand.New(rand.NewPCG(1, 1))
	var timers []*Timer
	for range 10 {
		timers = append(timers, w.NewTimer(HandlerFunc(func(mono.Time, uint64) {}), 0))
	}
	for range 100_000 {
		timers[r.IntN(10)].Reset(w.now + mono.Time(r.IntN(1_000_000)))
		if r.IntN(10) == 0 {
			timers[r.IntN(10)].Stop()
		}
	}
	if n := len(w.queue.heap); n > len(timers) {
		t.Errorf("%d entries for %d timers", n, len(timers))
	}
	mustRun(t, w)
	if n := len(w.queue.slots) - len(w.queue.free); n != 0 {
		t.Errorf("%d slots leaked", n)
	}
}

// A random sequence of resets, stops and plain events runs in the order of a sorted list.
func TestTimerOrderMatchesSortedList(t *testing.T) {
	for seed := range uint64(200) {
		got, want := timerRun(seed)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d:\ngot  %v\nwant %v", seed, got, want)
		}
	}
}

func timerRun(seed uint64) (got, want []string) {
	r := rand.New(rand.NewPCG(seed, 9))
	w := New(Config{})
	type planned struct {
		at   mono.Time
		seq  int
		name string
	}
	var model []planned // sorted list of expected events
	seq := 0
	plan := func(at mono.Time, name string) {
		seq++
		model = append(model, planned{max(at, w.now), seq, name})
	}
	cancel := func(name string) {
		model = slices.DeleteFunc(model, func(p planned) bool { return p.name == name })
	}
	takeDue := func(until mono.Time) {
		slices.SortFunc(model, func(a, b planned) int {
			if a.at != b.at {
				return int(a.at - b.at)
			}
			return a.seq - b.seq
		})
		for len(model) > 0 && model[0].at <= until {
			want = append(want, fmt.Sprintf("%s@%d", model[0].name, model[0].at))
			model = model[1:]
		}
	}
	note := func(name string) Handler {
		return HandlerFunc(func(now mono.Time, _ uint64) { got = append(got, fmt.Sprintf("%s@%d", name, now)) })
	}
	var timers []*Timer
	for i := range 4 {
		timers = append(timers, w.NewTimer(note(fmt.Sprint("t", i)), 0))
	}
	for step := range 60 {
		at := w.now + mono.Time(r.IntN(20)) - 3
		i := r.IntN(len(timers))
		name := fmt.Sprint("t", i)
		switch r.IntN(6) {
		case 0, 1, 2:
			if timers[i].Deadline() != max(at, w.now) { // the same deadline keeps its order
				cancel(name)
				plan(at, name)
			}
			timers[i].Reset(at)
		case 3:
			cancel(name)
			timers[i].Stop()
		case 4:
			name = fmt.Sprint("e", step)
			plan(at, name)
			w.At(at, note(name), 0)
		case 5:
			until := w.now + mono.Time(r.IntN(10))
			takeDue(until)
			_ = w.RunUntil(until)
		}
	}
	takeDue(mono.Never)
	_ = w.Run()
	return got, want
}
