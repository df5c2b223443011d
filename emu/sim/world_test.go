package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

func mustRun(t testing.TB, w *World) {
	t.Helper()
	if err := w.Run(); err != nil {
		t.Fatalf("Run: %v", err)
	}
}

func TestEventsRunByTimeThenSequence(t *testing.T) {
	w := New(Config{})
	var got []string
	add := func(at mono.Time, name string) {
		w.AtFunc(at, func() { got = append(got, fmt.Sprintf("%s@%d", name, w.Now())) })
	}
	add(20, "c")
	add(10, "a")
	add(20, "d")
	add(10, "b")
	w.AtFunc(10, func() {
		add(5, "late")  // the past means now, after events due now
		add(10, "same") // as does now
		w.AfterFunc(5, func() { got = append(got, fmt.Sprintf("after@%d", w.Now())) })
		w.AfterFunc(-5, func() { got = append(got, fmt.Sprintf("before@%d", w.Now())) })
		add(mono.Never, "never")
	})
	add(10, "last of the first")
	mustRun(t, w)
	want := "a@10 b@10 last of the first@10 late@10 same@10 before@10 after@15 c@20 d@20"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	if w.Events() != 10 {
		t.Errorf("%d events, want 10", w.Events())
	}
}

func TestManyEventsRunSorted(t *testing.T) {
	w := New(Config{})
	r := rand.New(rand.NewPCG(1, 2))
	type key struct {
		at  mono.Time
		seq int
	}
	var want, got []key
	h := HandlerFunc(func(now mono.Time, arg uint64) { got = append(got, key{now, int(arg)}) })
	for i := range 5000 {
		k := key{mono.Time(r.IntN(500)), i}
		want = append(want, k)
		w.At(k.at, h, uint64(i))
	}
	slices.SortFunc(want, func(a, b key) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.seq - b.seq
	})
	mustRun(t, w)
	if !slices.Equal(got, want) {
		t.Error("events did not run in order of time and sequence")
	}
}

func TestRunUntilStopsAndContinues(t *testing.T) {
	w := New(Config{})
	var got []mono.Time
	for _, at := range []mono.Time{10, 20, 30} {
		w.AtFunc(at, func() { got = append(got, w.Now()) })
	}
	var s Signal
	w.Go("waiter", func(p *Proc) error { p.Wait(&s, WaitReason("the end"), -1); return nil })
	must.Do(t, w.RunUntil(20))
	if !slices.Equal(got, []mono.Time{10, 20}) || w.Now() != 20 {
		t.Fatalf("ran %v, now %v", got, w.Now())
	}
	if err := w.RunUntil(25); err != nil || w.Now() != 25 {
		t.Fatalf("now %v, err %v, want 25 and no error for a parked program", w.Now(), err)
	}
	if err := w.RunUntil(5); err != nil || w.Now() != 25 {
		t.Fatalf("now %v: time decreased", w.Now())
	}
	s.Notify()
	mustRun(t, w)
	if w.Now() != 30 {
		t.Errorf("now %v, want 30", w.Now())
	}
}

// A sleep beyond the end of RunUntil must not advance the world past it.
func TestRunUntilKeepsProgramAsleep(t *testing.T) {
	w := New(Config{})
	woken := mono.Time(0)
	w.Go("sleeper", func(p *Proc) error { p.Sleep(100); woken = w.Now(); return nil })
	if err := w.RunUntil(60); err != nil || w.Now() != 60 || woken != 0 {
		t.Fatalf("now %v, woken %v, err %v", w.Now(), woken, err)
	}
	mustRun(t, w)
	if woken != 100 {
		t.Errorf("woken at %v, want 100", woken)
	}
}

func TestRunProgramsLeavesPendingEvents(t *testing.T) {
	w := New(Config{})
	ran := false
	w.AtFunc(1000, func() { ran = true })
	w.Go("short", func(p *Proc) error { p.Sleep(10); return nil })
	if err := w.RunPrograms(); err != nil || w.Now() != 10 || ran {
		t.Fatalf("now %v, ran %v, err %v", w.Now(), ran, err)
	}
	mustRun(t, w)
	if !ran {
		t.Error("Run did not continue")
	}
}

type forever struct{ w *World }

func (f forever) HandleEvent(now mono.Time, _ uint64) { f.w.At(now+f.gap(), f, 0) }
func (f forever) gap() mono.Time                      { return 7 }

func TestLimitsEndEndlessRun(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{MaxEvents: 100}, "limit of events reached at 686ns after 100 events"},
		{Config{MaxTime: 100}, "limit of time reached at 98ns after 16 events"},
	} {
		w := New(tc.cfg)
		w.At(0, forever{w}, 0)
		var s Signal
		w.Go("rank 3", func(p *Proc) error { p.Wait(&s, WaitReason("godot"), -1); return nil })
		err := w.Run()
		var limit *LimitError
		if !errors.As(err, &limit) || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), "rank 3 waits for godot since 0s") {
			t.Errorf("%+v: %v", tc.cfg, err)
		}
	}
}

func TestEventLimitEndsSpinningProgram(t *testing.T) {
	for name, spin := range map[string]func(*Proc){
		"Yield": (*Proc).Yield,
		"Sleep": func(p *Proc) { p.Sleep(time.Nanosecond) },
	} {
		w := New(Config{MaxEvents: 1000})
		w.Go("spinner", func(p *Proc) error {
			for {
				spin(p)
			}
		})
		var limit *LimitError
		if err := w.Run(); !errors.As(err, &limit) {
			t.Errorf("%s: %v, want a LimitError", name, err)
		}
	}
	w := New(Config{MaxTime: 1000})
	w.Go("sleeper", func(p *Proc) error { p.Sleep(time.Second); return nil })
	err := w.Run()
	var limit *LimitError
	if !errors.As(err, &limit) || w.Now() > 1000 || !strings.Contains(err.Error(), "sleeper waits for the end of its sleep at 1s since 0s") {
		t.Errorf("now %v: %v", w.Now(), err)
	}
}

func TestHandlerPanicPropagatesAndUnwinds(t *testing.T) {
	checkLeaks(t)
	w := New(Config{})
	var s Signal
	unwound := false
	w.Go("p", func(p *Proc) error {
		defer func() { unwound = true }()
		p.Wait(&s, WaitReason("nothing"), -1)
		return nil
	})
	w.AtFunc(10, func() { panic("handler") })
	func() {
		defer func() {
			if v := recover(); v != "handler" {
				t.Errorf("recovered %v", v)
			}
		}()
		_ = w.Run()
	}()
	if !unwound {
		t.Error("the program was not unwound")
	}
	if err := w.Run(); err == nil {
		t.Error("Run after a panic = nil")
	}
}

func TestSchedulingDoesNotAllocate(t *testing.T) {
	w := New(Config{})
	h := HandlerFunc(func(mono.Time, uint64) {})
	timer := w.NewTimer(h, 0)
	run := func() {
		for i := range mono.Time(100) {
			w.At(w.now+i, h, uint64(i))
			timer.Reset(w.now + 50 - i/2)
		}
		must.Do(t, w.RunUntil(w.now+100))
	}
	run()
	if n := testing.AllocsPerRun(10, run); n != 0 {
		t.Errorf("a hundred events allocate %v times", n)
	}
}
