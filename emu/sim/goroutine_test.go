package sim_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/process"
)

// inGoroutine makes a call in another goroutine and returns its panic value.
func inGoroutine(f func()) any {
	panicked := make(chan any)
	go func() {
		defer func() { panicked <- recover() }()
		f()
	}()
	return <-panicked
}

func wantWrongGoroutine(t *testing.T, got any, call string) {
	t.Helper()
	if process.Goroutine() == 0 {
		t.Skip("goroutines cannot be identified on this architecture")
	}
	err, _ := got.(error)
	var wrong *sim.WrongGoroutineError
	if !errors.As(err, &wrong) {
		t.Fatalf("the panic is %v", got)
	}
	for _, want := range []string{call, "goroutine_test.go:", "without go", "sim.World.Go", "--on netns"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if !strings.Contains(wrong.CallSite, "goroutine_test.go:") || !strings.Contains(wrong.StartSite, "goroutine_test.go:") || wrong.CallSite == wrong.StartSite {
		t.Errorf("called at %q, started at %q", wrong.CallSite, wrong.StartSite)
	}
}

func TestCallFromStartedGoroutinePanics(t *testing.T) {
	var s sim.Signal
	for call, f := range map[string]func(p *sim.Proc){
		"Sleep":   func(p *sim.Proc) { p.Sleep(time.Second) },
		"Yield":   func(p *sim.Proc) { p.Yield() },
		"Wait":    func(p *sim.Proc) { p.Wait(&s, sim.WaitReason("it"), -1) },
		"Current": func(p *sim.Proc) { p.World().Current() },
	} {
		w := sim.New(sim.Config{})
		var running, parked any
		w.Go("starts it", func(p *sim.Proc) error {
			running = inGoroutine(func() { f(p) })
			p.Sleep(time.Second)
			return nil
		})
		w.Go("runs meanwhile", func(*sim.Proc) error {
			first := w.Go("another", func(p *sim.Proc) error { return nil })
			parked = inGoroutine(func() { f(first) })
			return nil
		})
		must.Do(t, w.Run())
		wantWrongGoroutine(t, running, call)
		wantWrongGoroutine(t, parked, call)
	}
}

func TestCallAfterWorldEndedPanics(t *testing.T) {
	w := sim.New(sim.Config{})
	var p *sim.Proc
	w.Go("ended early", func(own *sim.Proc) error {
		p = own
		own.Sleep(time.Hour)
		return nil
	})
	must.Do(t, w.RunUntil(1))
	w.Close()
	wantWrongGoroutine(t, inGoroutine(func() { p.Sleep(1) }), "Sleep")
}
