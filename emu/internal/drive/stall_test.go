package drive

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// queueReplies makes the next Recv return n datagrams without waking the goroutine that
// sleeps on the network, as if no thread of the process had been scheduled.
func (s *host) queueReplies(n int) {
	s.p.mu.Lock()
	s.p.peeked = []byte("reply")
	s.p.mu.Unlock()
	for range n - 1 {
		s.p.backlog = append(s.p.backlog, []byte("reply"))
	}
}

// A timer that expired while the process was not scheduled does not fire if the reply has
// arrived meanwhile.
func TestRepliesAreReceivedBeforeTimersExpire(t *testing.T) {
	for name, call := range map[string]func(s *host){
		"post":       func(s *host) { s.r.Pump() },
		"poll":       func(s *host) { s.r.Progress(); s.r.PollEmpty() },
		"background": func(s *host) { s.r.receiveAndSend() },
	} {
		for _, waiting := range []int{1, BatchSize + 1, 2*BatchSize + 1} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, _ := twoHosts(t)
					time.Sleep(time.Second + 77*time.Microsecond) // long after the last receive
					synctest.Wait()
					a.r.Lock(CallPost)
					defer a.r.Unlock()
					a.e.onInput = func() {
						if len(a.e.got) == waiting {
							a.e.deadline = mono.Never // all replies are there
						}
					}
					a.e.deadline = a.r.Now() - 1
					a.queueReplies(waiting)
					call(a)
					if len(a.e.got) != waiting || len(a.e.ticks) != 0 {
						t.Errorf("%d of %d replies received, %d timers expired", len(a.e.got), waiting, len(a.e.ticks))
					}
				})
			})
		}
	}
}

// Timers expire if the received packets do not stop them.
func TestTimersExpireAfterUnrelatedPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoHosts(t)
		time.Sleep(time.Second + 77*time.Microsecond) // long after the last receive
		synctest.Wait()
		a.r.Lock(CallPost)
		defer a.r.Unlock()
		a.e.deadline = a.r.Now() - 1
		a.queueReplies(1)
		a.r.Pump()
		if len(a.e.got) != 1 || len(a.e.ticks) != 1 {
			t.Errorf("%d packets received, %d timers expired, want 1 and 1", len(a.e.got), len(a.e.ticks))
		}
	})
}
