package drive

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

func TestPollerHasOneHolder(t *testing.T) {
	p := newPoller(1)
	if !p.tryAcquire() || p.tryAcquire() {
		t.Fatal("the poller has two holders, or none can acquire it")
	}
	p.release()
	if !p.tryAcquire() {
		t.Error("a released poller cannot be acquired")
	}
}

func TestPollerSleepTime(t *testing.T) {
	now := mono.Time(time.Hour)
	for _, c := range []struct {
		name      string
		lastEvent mono.Time
		deadline  mono.Time
		want      time.Duration
	}{
		{"until the deadline", now, now.Add(time.Millisecond), time.Millisecond},
		{"not into the past", now, now.Add(-time.Millisecond), 0},
		{"bounded while there is traffic", now, now.Add(time.Minute), maxPollSleep},
		{"bounded until quietAfter has passed", now.Add(1 - quietAfter), now.Add(time.Minute), maxPollSleep},
		{"unbounded without traffic", now.Add(-quietAfter), now.Add(time.Minute), time.Minute},
		{"for ever without traffic and deadline", now.Add(-quietAfter), mono.Never, mono.Never.Sub(now)},
	} {
		p := poller{lastEvent: c.lastEvent}
		if got := p.sleepTime(now, c.deadline); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPollerOversleeps(t *testing.T) {
	for _, c := range []struct {
		name     string
		held     bool
		wakeAt   mono.Time
		deadline mono.Time
		want     bool
	}{
		{"wakes after the deadline", true, 20, 10, true},
		{"wakes at the deadline", true, 10, 10, false},
		{"wakes before the deadline", true, 10, 20, false},
		{"is awake", true, 0, 10, false},
		{"has released the poller", false, 20, 10, false},
	} {
		p := newPoller(1)
		if c.held {
			p.tryAcquire()
		}
		p.wakeAt = c.wakeAt
		if got := p.oversleeps(c.deadline); got != c.want {
			t.Errorf("the holder %s: oversleeps %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPollerKnowsActiveApplications(t *testing.T) {
	p := newPoller(mono.Time(time.Second))
	if p.appActive(mono.Time(time.Second)) {
		t.Error("an application is active before any has polled")
	}
	p.lastPoll = mono.Time(time.Second)
	if !p.appActive(p.lastPoll.Add(appIdle-1)) || p.appActive(p.lastPoll.Add(appIdle)) {
		t.Errorf("an application is not active for %v after its poll", appIdle)
	}
}

// ackCall is one call of an ackDelay in a table test.
type ackCall struct {
	name string
	call func(*ackDelay) (delay bool)
}

var (
	callReceived   = ackCall{"received", func(a *ackDelay) bool { a.received(); return false }}
	callSent       = ackCall{"sent", func(a *ackDelay) bool { a.sent(); return false }}
	callPosted     = ackCall{"posted", func(a *ackDelay) bool { a.posted(); return false }}
	callDelivered  = ackCall{"delivered", (*ackDelay).delivered}
	callEmpty      = ackCall{"empty poll", func(a *ackDelay) bool { return a.emptyPoll(false) }}
	callEmptyWrite = ackCall{"empty poll with packets", func(a *ackDelay) bool { return a.emptyPoll(true) }}
	callOther      = ackCall{"not answered", func(a *ackDelay) bool { a.noteUnanswered(); return false }}
)

func TestAckDelay(t *testing.T) {
	interactive := ackDelay{interactive: true}
	almostNot := ackDelay{interactive: true, unanswered: maxUnanswered - 1}
	for _, c := range []struct {
		name  string
		start ackDelay
		calls []ackCall
		delay bool // result of the last call
		want  ackDelay
	}{
		{"packets wait to be acknowledged", ackDelay{}, []ackCall{callReceived}, false, ackDelay{pending: true}},
		{"a send includes the acknowledgements", ackDelay{}, []ackCall{callReceived, callSent}, false, ackDelay{}},
		{"not before the first answer", ackDelay{}, []ackCall{callDelivered}, false, ackDelay{awaiting: true}},
		{"an answer makes it interactive", ackDelay{}, []ackCall{callDelivered, callPosted}, false, interactive},
		{"work that answers nothing does not", ackDelay{}, []ackCall{callPosted}, false, ackDelay{}},
		{"delayed for an interactive application", interactive, []ackCall{callDelivered}, true, ackDelay{interactive: true, awaiting: true}},
		{"polled again without an answer", interactive, []ackCall{callDelivered, callEmpty}, false, ackDelay{interactive: true, unanswered: 1}},
		{"only the first empty poll counts", interactive, []ackCall{callDelivered, callEmpty, callEmpty}, false, ackDelay{interactive: true, unanswered: 1}},
		{"other calls count too", interactive, []ackCall{callDelivered, callOther}, false, ackDelay{interactive: true, unanswered: 1}},
		{"too many without an answer", almostNot, []ackCall{callDelivered, callEmpty}, false, ackDelay{unanswered: maxUnanswered}},
		{"an answer resets the count", almostNot, []ackCall{callDelivered, callPosted}, false, interactive},
		{"a write without completion may be answered", interactive, []ackCall{callEmptyWrite}, true, ackDelay{interactive: true, awaiting: true}},
		{"until the next poll", interactive, []ackCall{callEmptyWrite, callEmptyWrite}, false, ackDelay{interactive: true, unanswered: 1}},
		{"a write is no reason to delay before the first answer", ackDelay{}, []ackCall{callEmptyWrite}, false, ackDelay{awaiting: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, delay := c.start, false
			for _, call := range c.calls {
				delay = call.call(&a)
			}
			if a != c.want || delay != c.delay {
				t.Errorf("%+v, delay %v; want %+v, %v", a, delay, c.want, c.delay)
			}
		})
	}
}

func TestYieldPolicyAdaptsToSharedProcessor(t *testing.T) {
	var y yieldPolicy
	adapt := func(took time.Duration, times int) uint32 {
		for range times {
			y.adapt(y.shift.Load(), took)
		}
		return yieldInterval >> y.shift.Load()
	}
	for _, c := range []struct {
		sharedWith string
		took       time.Duration
		times      int
		interval   uint32
	}{
		{"no program", 300 * time.Nanosecond, 10, 64},
		{"a spinning program", 5 * time.Microsecond, 1, 32},
		{"a spinning program", 5 * time.Microsecond, 10, 2},
		{"three programs that spin or exchange messages", 400 * time.Microsecond, 10, 2},
		{"a computing program", 3 * time.Millisecond, 2, 8},
		{"no program", 300 * time.Nanosecond, 10, 64},
	} {
		if got := adapt(c.took, c.times); got != c.interval {
			t.Errorf("%d yields to %s: %d polls between yields, want %d", c.times, c.sharedWith, got, c.interval)
		}
	}
}

func TestYieldPolicyCountsConsecutiveEmptyPolls(t *testing.T) {
	var y yieldPolicy
	for range 3 * yieldInterval {
		y.emptyPolls.Store(yieldInterval - 2)
		y.pollEmpty()
		y.pollFound()
	}
	if n := y.emptyPolls.Load(); n != 0 {
		t.Errorf("%d empty polls counted", n)
	}
}

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
							a.e.deadline = mono.Never // all replies have arrived
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
