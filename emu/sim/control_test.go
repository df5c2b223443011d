package sim

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestKillUnwindsParkedProgram(t *testing.T) {
	var never Signal
	for name, park := range map[string]func(*Proc){
		"in a sleep":            func(p *Proc) { p.Sleep(time.Hour) },
		"in a wait":             func(p *Proc) { p.Wait(&never, WaitReason("nothing"), -1) },
		"in a wait with a time": func(p *Proc) { p.Wait(&never, WaitReason("nothing"), time.Hour) },
	} {
		w := New(Config{Seed: 1})
		deferred, returned := false, false
		killed := w.Go("killed", func(p *Proc) error {
			defer func() { deferred = true; p.Sleep(1) }() // continues to unwind
			park(p)
			returned = true
			return nil
		})
		w.Go("other", func(p *Proc) error { p.Sleep(10); return nil })
		w.AtFunc(5, func() {
			if err := killed.Kill(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := killed.Kill(); err != nil {
				t.Errorf("%s, killed twice: %v", name, err)
			}
		})
		if err := w.Run(); err != nil || w.Now() != 10 {
			t.Errorf("%s: the world ended at %v with %v, want at 10ns", name, w.Now(), err)
		}
		if !deferred || returned || len(never.waiters) != 0 {
			t.Errorf("%s: deferred %v, returned %v, %d still wait", name, deferred, returned, len(never.waiters))
		}
	}
}

func TestKillBeforeFirstRunAndByAnotherProgram(t *testing.T) {
	w := New(Config{Seed: 1, Chooser: first{}})
	began := false
	var killed *Proc
	w.Go("killer", func(p *Proc) error { return killed.Kill() })
	killed = w.Go("killed", func(*Proc) error { began = true; return nil })
	if err := w.Run(); err != nil || began {
		t.Errorf("%v; the program started: %v", err, began)
	}
}

func TestKillReturnsPanicOfDeferredCall(t *testing.T) {
	w := New(Config{Seed: 1})
	killed := w.Go("killed", func(p *Proc) error {
		defer func() { panic("boom") }()
		p.Sleep(time.Hour)
		return nil
	})
	w.AtFunc(5, func() {
		var panicked *PanicError
		if err := killed.Kill(); !errors.As(err, &panicked) || panicked.Value != "boom" {
			t.Errorf("Kill = %v", err)
		}
	})
	if err := w.Run(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestProgramCannotKillOrPauseItself(t *testing.T) {
	for _, f := range []func(*Proc){func(p *Proc) { _ = p.Kill() }, (*Proc).Pause} {
		w := New(Config{Seed: 1})
		w.Go("p", func(p *Proc) error { f(p); return nil })
		if err := w.Run(); err == nil || !strings.Contains(err.Error(), "itself") {
			t.Errorf("Run = %v", err)
		}
	}
}

// A paused program runs after Resume, at the later time.
func TestPausedProgramRunsAfterResume(t *testing.T) {
	w := New(Config{Seed: 1})
	var s Signal
	var woke []time.Duration
	sleeper := w.Go("sleeper", func(p *Proc) error {
		p.Sleep(10)
		woke = append(woke, p.Now())
		p.Sleep(10)
		woke = append(woke, p.Now())
		return nil
	})
	waiter := w.Go("waiter", func(p *Proc) error {
		ok := p.Wait(&s, WaitReason("the signal"), 20)
		woke = append(woke, p.Now())
		if !ok {
			t.Error("the paused program missed the signal")
		}
		return nil
	})
	w.AtFunc(5, func() { sleeper.Pause(); waiter.Pause() })
	w.AtFunc(15, func() { s.Broadcast() })
	w.AtFunc(100, sleeper.Resume)
	w.AtFunc(200, waiter.Resume)
	mustRun(t, w)
	if len(woke) != 3 || woke[0] != 100 || woke[1] != 110 || woke[2] != 200 {
		t.Errorf("woke at %v, want 100, 110 and 200", woke)
	}
	// A program that is never resumed is a deadlock.
	w = New(Config{Seed: 1})
	p := w.Go("p", func(p *Proc) error { p.Sleep(10); return nil })
	w.AtFunc(5, p.Pause)
	var deadlock *DeadlockError
	if err := w.Run(); !errors.As(err, &deadlock) {
		t.Errorf("Run = %v", err)
	}
}

func TestStopErrorEndsRun(t *testing.T) {
	errEnough := errors.New("enough")
	calls := 0
	w := New(Config{Seed: 1, Stop: func() error {
		if calls++; calls == 3 {
			return errEnough
		}
		return nil
	}})
	unwound := false
	w.Go("p", func(p *Proc) error {
		defer func() { unwound = true }()
		for {
			p.Sleep(1)
		}
	})
	if err := w.Run(); !errors.Is(err, errEnough) || !unwound {
		t.Errorf("Run = %v, unwound %v", err, unwound)
	}
	if w.Events() < 2*stopInterval || w.Events() > 2*stopInterval+10 {
		t.Errorf("stopped after %d events", w.Events())
	}
}
