package drive

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// arrivals puts datagrams where the link's next Recv finds them, without waking
// the goroutine that waits for the network: as if none of the process's threads
// were scheduled.
func (s *side) arrivals(n int) {
	s.p.mu.Lock()
	s.p.held = []byte("answer")
	s.p.mu.Unlock()
	for range n - 1 {
		s.p.backlog = append(s.p.backlog, []byte("answer"))
	}
}

// A timer that expired while the process was not scheduled must not be taken for the
// peer's silence if the answer has arrived meanwhile.
func TestAnswersAreTakenInBeforeTimersExpire(t *testing.T) {
	for name, call := range map[string]func(s *side){
		"post":       func(s *side) { s.r.Pump() },
		"poll":       func(s *side) { s.r.Progress(); s.r.PollEmpty() },
		"background": func(s *side) { s.r.turn() },
	} {
		for _, waiting := range []int{1, BatchSize + 1, 2*BatchSize + 1} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, _ := twoSides(t)
					time.Sleep(time.Second + 77*time.Microsecond) // long after the last look at the network
					synctest.Wait()
					a.r.Lock(CallPost)
					defer a.r.Unlock()
					a.e.onInput = func() {
						if len(a.e.got) == waiting {
							a.e.deadline = mono.Never // all is answered
						}
					}
					a.e.deadline = a.r.Now() - 1
					a.arrivals(waiting)
					call(a)
					if len(a.e.got) != waiting || len(a.e.ticks) != 0 {
						t.Errorf("%d of %d answers taken in, and %d timers expired", len(a.e.got), waiting, len(a.e.ticks))
					}
				})
			})
		}
	}
}

// Timers expire if what has arrived does not stop them.
func TestTimersExpireBehindOtherArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoSides(t)
		time.Sleep(time.Second + 77*time.Microsecond) // long after the last look at the network
		synctest.Wait()
		a.r.Lock(CallPost)
		defer a.r.Unlock()
		a.e.deadline = a.r.Now() - 1
		a.arrivals(1)
		a.r.Pump()
		if len(a.e.got) != 1 || len(a.e.ticks) != 1 {
			t.Errorf("%d arrivals taken in, %d timers expired, want 1 and 1", len(a.e.got), len(a.e.ticks))
		}
	})
}
