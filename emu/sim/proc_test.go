package sim

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// checkLeaks fails the test if it ends with more goroutines than it began with.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); { // a coroutine may need a moment to exit
			if runtime.NumGoroutine() <= before {
				return
			}
			runtime.Gosched()
			time.Sleep(time.Millisecond)
		}
		t.Errorf("%d goroutines at the start, %d at the end", before, runtime.NumGoroutine())
	})
}

func TestSleepAdvancesTime(t *testing.T) {
	checkLeaks(t)
	w := New(Config{})
	var log []string
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"a", 30}, {"b", 20}, {"c", 25}} {
		w.Go(x.name, func(p *Proc) error {
			for range 2 {
				p.Sleep(x.d)
				log = append(log, fmt.Sprintf("%s@%d", p.Name(), p.Now()))
			}
			return nil
		})
	}
	mustRun(t, w)
	if got, want := strings.Join(log, " "), "b@20 c@25 a@30 b@40 c@50 a@60"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCurrentIsTheOneRunningProgram(t *testing.T) {
	w := New(Config{Seed: 3})
	running := 0
	for i := range 10 {
		w.Go(fmt.Sprint(i), func(p *Proc) error {
			for range 20 {
				if running++; running != 1 {
					return errors.New("two programs run at once")
				}
				if w.Current() != p || p.World() != w {
					return fmt.Errorf("current is %v", w.Current())
				}
				running--
				p.Yield()
			}
			return nil
		})
	}
	w.AtFunc(0, func() {
		if w.Current() != nil {
			t.Error("a program is current in a handler")
		}
	})
	mustRun(t, w)
	if w.Current() != nil {
		t.Error("a program is current after Run")
	}
}

func TestYieldRunsOtherPrograms(t *testing.T) {
	w := New(Config{Chooser: first{}})
	var log []string
	for _, name := range []string{"a", "b"} {
		w.Go(name, func(p *Proc) error {
			for range 3 {
				log = append(log, name)
				p.Yield()
			}
			return nil
		})
	}
	mustRun(t, w)
	if got := strings.Join(log, ""); got != "ababab" || w.Now() != 0 {
		t.Errorf("got %s at %v", got, w.Now())
	}
}

func TestProgramsMayStartPrograms(t *testing.T) {
	w := New(Config{})
	var done []string
	w.Go("parent", func(p *Proc) error {
		p.Sleep(10)
		w.Go("child", func(p *Proc) error {
			done = append(done, fmt.Sprintf("child@%d", p.Now()))
			return nil
		})
		p.Sleep(10)
		done = append(done, fmt.Sprintf("parent@%d", p.Now()))
		return nil
	})
	mustRun(t, w)
	if !slices.Equal(done, []string{"child@10", "parent@20"}) {
		t.Errorf("got %v", done)
	}
}

func TestFirstProgramErrorEndsWorld(t *testing.T) {
	checkLeaks(t)
	w := New(Config{})
	boom := errors.New("boom")
	after, cleaned := false, false
	w.Go("rank 1", func(p *Proc) error { p.Sleep(10); return boom })
	w.Go("rank 2", func(p *Proc) error {
		defer func() { cleaned = true }()
		p.Sleep(20)
		after = true
		return nil
	})
	err := w.Run()
	var prog *ProgramError
	if !errors.As(err, &prog) || prog.Program != "rank 1" || !errors.Is(err, boom) || err.Error() != "program rank 1: boom" {
		t.Errorf("err %v", err)
	}
	if after || !cleaned || w.Now() != 10 {
		t.Errorf("went on %v, cleaned up %v, now %v", after, cleaned, w.Now())
	}
	if again := w.Run(); again != err {
		t.Errorf("Run again = %v, want the same error", again)
	}
}

func explode() { panic(fmt.Errorf("wrapped: %w", errBoom)) }

var errBoom = errors.New("boom")

func TestPanicErrorHasProgramAndStack(t *testing.T) {
	checkLeaks(t)
	w := New(Config{})
	w.Go("bystander", func(p *Proc) error { p.Sleep(time.Hour); return nil })
	w.Go("rank 7", func(p *Proc) error { p.Sleep(1); explode(); return nil })
	err := w.Run()
	var p *PanicError
	if !errors.As(err, &p) || p.Program != "rank 7" || !errors.Is(err, errBoom) {
		t.Fatalf("err %v", err)
	}
	for _, want := range []string{"program rank 7 panicked: wrapped: boom", "sim.explode", "proc_test.go"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

func TestUnwindRunsDeferredCallsThatBlockOrPanic(t *testing.T) {
	checkLeaks(t)
	w := New(Config{})
	var s Signal
	var log []string
	w.Go("polite", func(p *Proc) error {
		defer func() { log = append(log, "outer") }()
		defer func() {
			log = append(log, "inner")
			timer := w.NewTimer(HandlerFunc(func(mono.Time, uint64) {}), 0)
			timer.Reset(99) // as closing a queue pair might
			s.Broadcast()
			p.Sleep(1) // continues to unwind
			log = append(log, "slept")
		}()
		p.Wait(&s, WaitReason("x"), -1)
		return nil
	})
	w.Go("clumsy", func(p *Proc) error {
		defer func() { panic("while cleaning up") }()
		p.Wait(&s, WaitReason("y"), -1)
		return nil
	})
	err := w.Run()
	var dead *DeadlockError
	var pan *PanicError
	if !errors.As(err, &dead) || !errors.As(err, &pan) || pan.Program != "clumsy" {
		t.Errorf("err %v, want the deadlock and the panic in cleaning up", err)
	}
	if !slices.Equal(log, []string{"inner", "outer"}) {
		t.Errorf("deferred calls: %v", log)
	}
}

// FailNow in a program must end the test and leave no goroutine.
func TestGoexitPropagatesToCallerOfRun(t *testing.T) {
	checkLeaks(t)
	for _, where := range []string{"running", "unwinding"} {
		w := New(Config{})
		var s Signal
		cleaned, returned := 0, false
		for i := range 3 {
			w.Go(fmt.Sprint("rank ", i), func(p *Proc) error {
				defer func() { cleaned++ }()
				if where == "unwinding" {
					defer runtime.Goexit()
				}
				p.Wait(&s, WaitReason("nothing"), -1)
				return nil
			})
		}
		if where == "running" {
			w.Go("fails", func(p *Proc) error { p.Sleep(5); runtime.Goexit(); return nil })
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = w.Run()
			returned = true
		}()
		<-done
		if returned || cleaned != 3 {
			t.Errorf("%s: Run returned %v, %d of 3 programs unwound", where, returned, cleaned)
		}
	}
}

func TestCloseUnwindsParkedPrograms(t *testing.T) {
	checkLeaks(t)
	w := New(Config{})
	var s Signal
	unwound := 0
	for range 100 {
		w.Go("p", func(p *Proc) error {
			defer func() { unwound++ }()
			p.Wait(&s, WaitReason("x"), -1)
			return nil
		})
	}
	must.Do(t, w.RunUntil(10))
	w.Go("never started", func(*Proc) error { t.Error("ran"); return nil })
	w.Close()
	w.Close()
	if unwound != 100 {
		t.Errorf("%d of 100 unwound", unwound)
	}
	if err := w.Run(); err != nil {
		t.Errorf("Run after Close: %v", err)
	}
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), want) {
			t.Errorf("panic %v, want %q", v, want)
		}
	}()
	f()
}

func TestMisusePanicsWithHint(t *testing.T) {
	w := New(Config{})
	var s Signal
	p := w.Go("p", func(p *Proc) error {
		mustPanic(t, "park the program", func() { _ = w.Run() })
		mustPanic(t, "from inside", w.Close)
		p.Sleep(10)
		return nil
	})
	w.AtFunc(5, func() {
		mustPanic(t, `Sleep of program "p" called from outside it`, func() { p.Sleep(1) })
		mustPanic(t, `Yield of program "p"`, p.Yield)
		mustPanic(t, `Wait of program "p"`, func() { p.Wait(&s, WaitReason("x"), 1) })
	})
	mustRun(t, w)
	w.Close()
	mustPanic(t, "has ended", func() { w.Go("late", nil) })
}

// Sleep's shortcut past the scheduler must not change the trace.
func TestSleepShortcutKeepsTrace(t *testing.T) {
	run := func(slow bool) (string, uint64) {
		var log strings.Builder
		w := New(Config{Seed: 5, Trace: &log})
		w.noSleepShortcut = slow
		r := w.Rand("test")
		var s Signal
		for i := range 5 {
			w.Go(fmt.Sprint("p", i), func(p *Proc) error {
				for range 200 {
					switch r.IntN(4) {
					case 0:
						p.Sleep(time.Duration(r.IntN(50)))
					case 1:
						p.Yield()
					case 2:
						p.Wait(&s, WaitReason("x"), time.Duration(r.IntN(30)))
					case 3:
						s.Notify()
						p.Sleep(time.Duration(r.IntN(3)))
					}
				}
				return nil
			})
		}
		for i := range 50 {
			w.AtFunc(mono.Time(i*37), s.Broadcast)
		}
		mustRun(t, w)
		return log.String(), w.Events()
	}
	fast, _ := run(false)
	slow, _ := run(true)
	if fast != slow {
		t.Error("the trace differs with the short cut")
	}
	if !strings.Contains(fast, "choose run") {
		t.Error("no choice was made: the test has no effect")
	}
}

func TestParkingDoesNotAllocate(t *testing.T) {
	w := New(Config{})
	var s Signal
	var allocs float64
	what := WaitReason("the other")
	w.Go("a", func(p *Proc) error {
		for p.Wait(&s, what, -1) {
			if allocs >= 0 && p.Now() > 100_000 {
				break
			}
		}
		return nil
	})
	w.Go("b", func(p *Proc) error {
		run := func() {
			p.Sleep(50)
			s.Notify()
			p.Yield()
		}
		run()
		allocs = testing.AllocsPerRun(1000, run)
		p.Sleep(100_000)
		s.Notify()
		return nil
	})
	mustRun(t, w)
	if allocs != 0 {
		t.Errorf("a sleep and a wake-up allocate %v times", allocs)
	}
}
