package drive

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// pipe is a link.Waiter made of channels, on which goroutines in a synctest bubble
// are durably blocked.
type pipe struct {
	in     chan []byte
	wake   chan struct{}
	done   chan struct{}
	once   sync.Once
	peeked []byte // taken from in by WaitReadable, not yet received
	// backlog is received after peeked, and does not end WaitReadable.
	backlog [][]byte
	mu      sync.Mutex
	peer    *pipe
	limit   int // datagrams that Send accepts before it reports full; -1 for all
	waits   int // calls of WaitReadable
	recvs   int // calls of Recv
}

func newPipe() *pipe {
	return &pipe{in: make(chan []byte, 1024), wake: make(chan struct{}, 1), done: make(chan struct{}), limit: -1}
}

func (p *pipe) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ds {
		if p.limit == 0 {
			return i, nil
		}
		if p.limit > 0 {
			p.limit--
		}
		p.peer.in <- append([]byte(nil), ds[i].Payload...)
	}
	return len(ds), nil
}

func (p *pipe) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recvs++
	n := 0
	for n < len(ds) {
		if p.peeked != nil {
			ds[n].Payload, p.peeked = p.peeked, nil
			n++
			continue
		}
		if len(p.backlog) > 0 {
			ds[n].Payload, p.backlog = p.backlog[0], p.backlog[1:]
			n++
			continue
		}
		select {
		case b := <-p.in:
			ds[n].Payload = b
			n++
		default:
			return n, nil
		}
	}
	return n, nil
}

func (p *pipe) WaitReadable(d time.Duration) error {
	p.mu.Lock()
	p.waits++
	held := p.peeked != nil
	p.mu.Unlock()
	if held {
		return nil
	}
	var timer <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case b := <-p.in:
		p.mu.Lock()
		p.peeked = b
		p.mu.Unlock()
	case <-timer:
	case <-p.wake:
	case <-p.done:
		return link.ErrClosed
	}
	return nil
}

func (p *pipe) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pipe) MTU() int                { return 1500 }
func (p *pipe) Features() link.Features { return link.Features{} }
func (p *pipe) Close() error            { p.once.Do(func() { close(p.done) }); return nil }

// echo is an engine that answers "ping" with "pong", and records all other input.
type echo struct {
	out      [][]byte
	got      []string
	cond     Cond
	deadline mono.Time
	ticks    []mono.Time
	onInput  func() // if not nil, runs for every datagram
}

func (e *echo) Input(_ mono.Time, d *link.Datagram) {
	if string(d.Payload) == "ping" {
		e.out = append(e.out, []byte("pong"))
		return
	}
	e.got = append(e.got, string(d.Payload))
	if e.onInput != nil {
		e.onInput()
	}
	e.cond.Notify()
}

func (e *echo) Settle(mono.Time) {}

func (e *echo) Output(_ mono.Time, ds []link.Datagram) int {
	n := min(len(ds), len(e.out))
	for i := range n {
		ds[i].Payload = append(ds[i].Payload[:0], e.out[i]...)
		ds[i].Dst = netip.AddrPort{}
	}
	e.out = e.out[n:]
	return n
}

func (e *echo) Tick(now mono.Time) {
	e.ticks = append(e.ticks, now)
	e.deadline = mono.Never
	e.cond.Notify()
}

func (e *echo) Deadline() mono.Time { return e.deadline }

type host struct {
	e *echo
	p *pipe
	r *Real
}

func newHost() *host {
	s := &host{e: &echo{deadline: mono.Never}, p: newPipe()}
	return s
}

func (s *host) start() {
	s.r = NewReal(s.e, s.p, 1)
	s.e.cond = s.r.NewCond(WaitReason("pong"))
}

func (s *host) stop() {
	s.r.Close()
	s.p.Close()
}

// twoHosts starts two drivers on one wire.
func twoHosts(t *testing.T) (a, b *host) {
	a, b = newHost(), newHost()
	a.p.peer, b.p.peer = b.p, a.p
	a.start()
	b.start()
	t.Cleanup(func() { a.stop(); b.stop() })
	return a, b
}

// oneDriver starts a driver whose peer has none: the test reads what the peer receives.
func oneDriver(t *testing.T) (a, peer *host) {
	a, peer = newHost(), newHost()
	a.p.peer, peer.p.peer = peer.p, a.p
	a.start()
	t.Cleanup(a.stop)
	return a, peer
}

func (s *host) send(packet string) {
	s.r.Lock(CallPost)
	s.e.out = append(s.e.out, []byte(packet))
	s.r.Pump()
	s.r.Unlock()
}

// waitFor waits until the engine has recorded n inputs.
func (s *host) waitFor(n int, timeout time.Duration) bool {
	s.r.Lock(CallWait)
	defer s.r.Unlock()
	for len(s.e.got) < n {
		if !s.e.cond.Wait(timeout) {
			return false
		}
	}
	return true
}

func TestBackgroundAnswersWhileNoApplicationPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoHosts(t)
		time.Sleep(time.Second) // both background goroutines sleep
		start := time.Now()
		a.send("ping")
		if !a.waitFor(1, time.Second) {
			t.Fatal("no answer")
		}
		if took := time.Since(start); took > backgroundInterval {
			t.Errorf("answer took %v", took)
		}
	})
}

// The background goroutine polls backgroundSpins times after a packet before it sleeps.
func TestBackgroundPollsForBurstsBeforeItSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := twoHosts(t)
		time.Sleep(time.Second)
		synctest.Wait()
		before := b.recvs()
		b.p.in <- []byte("ping")
		synctest.Wait()
		if n := b.recvs() - before; n < backgroundSpins || n > backgroundSpins+4 {
			t.Errorf("%d polls after a packet before it slept again, want %d", n, backgroundSpins)
		}
	})
}

func TestPollingReceivesWithoutOtherGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoHosts(t)
		a.send("ping")
		for range 1000 {
			if a.poll() {
				return
			}
			a.r.Yield()
			time.Sleep(time.Microsecond)
		}
		t.Fatal("polls never returned the answer")
	})
}

func TestAllWaitersReturnWhenNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoHosts(t)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if !a.waitFor(i+1, 10*time.Second) {
					t.Errorf("waiter %d timed out", i)
				}
			}()
		}
		synctest.Wait()
		for range 4 {
			a.send("ping")
			time.Sleep(50 * time.Millisecond)
		}
		wg.Wait()
	})
}

// A waiting application retries to send on a full link.
func TestWaiterRetriesFullLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoHosts(t)
		go a.waitFor(1, time.Minute)
		synctest.Wait()
		a.p.mu.Lock()
		a.p.limit = 0
		a.p.mu.Unlock()
		a.send("data")
		time.Sleep(100 * time.Microsecond)
		a.p.mu.Lock()
		a.p.limit = -1
		waits := a.p.waits
		a.p.mu.Unlock()
		time.Sleep(2 * fullRetry)
		synctest.Wait()
		if waits > 10 || b.received() != 1 {
			t.Errorf("%d packets arrived; the waiter woke %d times in 100 µs", b.received(), waits)
		}
		a.stop()
	})
}

// Another thread receives the packet that a sleeping waiter waits for.
func TestNotifyWakesWaiterThatSleepsOnNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoHosts(t)
		ended := make(chan time.Duration)
		start := time.Now()
		go func() { a.waitFor(1, -1); ended <- time.Since(start) }()
		synctest.Wait()
		a.r.Lock(CallPoll)
		a.e.Input(a.r.Now(), &link.Datagram{Payload: []byte("data")}) // this thread receives it first
		a.r.Unlock()
		if took := <-ended; took > time.Millisecond {
			t.Errorf("the waiter woke %v later", took)
		}
	})
}

func TestWaitTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoHosts(t)
		start := time.Now()
		if a.waitFor(1, 37*time.Millisecond) {
			t.Fatal("Wait reported a notification")
		}
		if took := time.Since(start); took != 37*time.Millisecond {
			t.Errorf("timed out after %v", took)
		}
	})
}

func TestTimersExpireOnTime(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := twoHosts(t)
			time.Sleep(time.Second)
			if waiting {
				go a.waitFor(1, 20*time.Second)
				synctest.Wait()
			}
			a.r.Lock(CallPost)
			due := a.r.Now().Add(3 * time.Millisecond)
			a.e.deadline = due
			a.r.Pump()
			a.r.Unlock()
			time.Sleep(time.Second)
			a.r.Lock(CallPoll)
			ticks := a.e.ticks
			a.r.Unlock()
			if len(ticks) != 1 || ticks[0] < due || ticks[0] > due.Add(time.Millisecond) {
				t.Errorf("waiting %v: ticked at %v, due at %v", waiting, ticks, due)
			}
			a.stop() // ends the waiter
		})
	}
}

func TestBackgroundRetriesFullLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoHosts(t)
		a.p.mu.Lock()
		a.p.limit = 3
		a.p.mu.Unlock()
		for range 200 {
			a.r.Lock(CallPost)
			a.e.out = append(a.e.out, []byte("data"))
			a.r.Unlock()
		}
		a.send("data")
		time.Sleep(10 * time.Millisecond)
		a.p.mu.Lock()
		a.p.limit = -1
		a.p.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		b.r.Lock(CallPoll)
		defer b.r.Unlock()
		if len(b.e.got) != 201 {
			t.Errorf("%d of 201 arrived", len(b.e.got))
		}
	})
}

func TestCloseWakesBlockedWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoHosts(t)
		ended := make(chan bool)
		for range 3 {
			go func() { ended <- a.waitFor(1, -1) }()
		}
		synctest.Wait()
		a.stop()
		for range 3 {
			select {
			case ok := <-ended:
				if ok {
					t.Error("a wait succeeded on a closed driver")
				}
			case <-time.After(time.Second):
				t.Fatal("a wait did not return after Close")
			}
		}
		a.r.Close() // a second Close does nothing
	})
}

func TestIdleDriverSetsNoTimers(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := twoHosts(t)
			a.send("ping")
			if !a.waitFor(1, time.Second) {
				t.Fatal("no answer")
			}
			if waiting {
				go a.waitFor(2, -1)
			}
			time.Sleep(2 * time.Second)
			before := a.sleeps() + b.sleeps()
			start := time.Now()
			// In a bubble time advances only when all goroutines sleep, and then to the
			// next timer.
			time.Sleep(time.Hour)
			if n := a.sleeps() + b.sleeps() - before; n > 0 {
				t.Errorf("waiting %v: woke %d times in an idle hour", waiting, n)
			}
			if took := time.Since(start); took != time.Hour {
				t.Errorf("an hour took %v", took)
			}
			start = time.Now()
			a.send("ping")
			time.Sleep(backgroundInterval)
			if a.received() != 2 {
				t.Errorf("waiting %v: after the hour the answer takes longer than %v", waiting, time.Since(start))
			}
			a.stop()
		})
	}
}

func (s *host) sleeps() int {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.waits
}

func (s *host) recvs() int {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.recvs
}

func (s *host) received() int {
	s.r.Lock(CallPoll)
	defer s.r.Unlock()
	return len(s.e.got)
}

// When a waiter that slept for long returns, the background goroutine takes the poller.
func TestBackgroundTakesOverAfterWaiterReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoHosts(t)
		returned := make(chan struct{})
		go func() { a.waitFor(1, -1); close(returned) }()
		time.Sleep(5 * time.Second)
		b.send("data") // ends the wait; a's application never polls again
		<-returned
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		b.send("ping")
		if !b.waitFor(1, time.Second) {
			t.Fatal("no answer")
		}
		if took := time.Since(start); took > backgroundInterval {
			t.Errorf("answer took %v", took)
		}
	})
}

// One thread waits and holds the poller; another is interactive, receives a message and
// does not answer it. The background goroutine sends the delayed acknowledgement.
func TestDelayedAckIsSentWhileAnotherThreadHoldsPoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, peer := oneDriver(t)
		other := a.r.NewCond(WaitReason("another event"))
		go func() {
			a.r.Lock(CallWait)
			defer a.r.Unlock()
			for other.Wait(-1) {
			}
		}()
		a.ackInputs()
		a.p.in <- []byte("1")
		a.pollUntilFound(t)
		a.send("answer")
		time.Sleep(10 * time.Second) // the background goroutine parks
		peer.drain()
		a.r.Lock(CallPoll)
		a.e.Input(a.r.Now(), &link.Datagram{Payload: []byte("2")}) // this thread receives it first
		a.r.acks.pending = true
		a.r.PollFound()
		a.r.Unlock()
		time.Sleep(10 * time.Millisecond)
		peer.expect(t, "while another thread waits", "ack")
	})
}

func TestSendQueueDropsPacketsOfClosedLink(t *testing.T) {
	e := &echo{deadline: mono.Never, out: [][]byte{[]byte("x"), []byte("y")}}
	o := NewSendQueue(1500)
	if more, full := o.Flush(1, e, closedLink{}); more || full || len(e.out) != 0 {
		t.Error("packets are kept for a closed link")
	}
}

type closedLink struct{ *pipe }

func (closedLink) Send(mono.Time, []link.Datagram) (int, error) { return 0, errors.New("closed") }

// poll removes the recorded input, in the steps that Driver prescribes.
func (s *host) poll() (found bool) {
	s.r.Lock(CallPoll)
	defer s.r.Unlock()
	s.r.Progress()
	found = len(s.e.got) > 0
	s.e.got = nil
	if found {
		s.r.PollFound()
	} else {
		s.r.PollEmpty()
	}
	return found
}

// pollUntilFound polls until there is input.
func (s *host) pollUntilFound(t *testing.T) {
	t.Helper()
	for range 1000 {
		if s.poll() {
			return
		}
		s.r.Yield()
		time.Sleep(time.Microsecond)
	}
	t.Fatal("no input arrived")
}

// ackInputs makes the engine answer every input with an ACK, as a NIC does.
func (s *host) ackInputs() {
	s.e.onInput = func() { s.e.out = append(s.e.out, []byte("ack")) }
}

// drain returns the packets that wait to be received.
func (s *host) drain() []string {
	var got []string
	for {
		select {
		case b := <-s.p.in:
			got = append(got, string(b))
		default:
			return got
		}
	}
}

// expect checks what the peer has received.
func (s *host) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := s.drain(); !slices.Equal(got, want) {
		t.Fatalf("%s: sent %q, want %q", when, got, want)
	}
}

func TestAcksAreSentWithAnswersOfInteractiveApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, peer := oneDriver(t)
		a.ackInputs()
		deliver := func(packet string) {
			synctest.Wait() // the background goroutine has seen that the application polls
			a.p.in <- []byte(packet)
		}

		a.poll() // the application begins to poll
		deliver("1")
		a.pollUntilFound(t)
		peer.expect(t, "before the application is known to be interactive", "ack")
		a.send("answer")
		peer.expect(t, "when the application answers", "answer")
		deliver("2")
		a.pollUntilFound(t)
		peer.expect(t, "before the answer")
		a.send("answer")
		if got := peer.drain(); len(got) != 2 {
			t.Fatalf("sent %q", got)
		}

		deliver("3")
		a.pollUntilFound(t)
		a.r.Lock(CallControl) // as to destroy the queue pair
		a.r.Unlock()
		peer.expect(t, "before a control call", "ack")

		for n := range maxUnanswered - 1 {
			deliver("4")
			a.pollUntilFound(t)
			peer.expect(t, fmt.Sprintf("an application that did not answer the last %d messages", n+1))
			a.poll() // instead of an answer
			peer.expect(t, "the application polled again", "ack")
		}
		deliver("5")
		a.pollUntilFound(t)
		peer.expect(t, "an application that is not interactive", "ack")
		a.send("answer")
		peer.drain()
		deliver("6")
		a.pollUntilFound(t)
		time.Sleep(10 * time.Millisecond) // the application computes
		peer.expect(t, "while the application computes", "ack")
	})
}

// An RDMA write completes nothing at the target, whose application polls memory. The
// acknowledgement waits for its answer until its next poll.
func TestAcksOfWritesWaitForNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, peer := oneDriver(t)
		written := 0
		a.e.onInput = func() {
			written++
			a.e.got = nil
			a.e.out = append(a.e.out, []byte("ack"))
		}
		write := func() {
			synctest.Wait()
			a.p.in <- []byte("written")
			for before := written; written == before; time.Sleep(time.Microsecond) {
				a.poll()
			}
		}
		a.poll()
		write()
		peer.drain()
		a.send("answer")
		peer.drain()
		write()
		peer.expect(t, "before the application could answer")
		a.send("answer")
		if got := peer.drain(); len(got) != 2 {
			t.Errorf("with the answer: sent %q", got)
		}
		write()
		a.poll()
		peer.expect(t, "when the application polls again", "ack")
	})
}

func TestPollsOfSpinningApplicationReceiveSeveralTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := oneDriver(t)
		recvsPerPoll := func() int {
			synctest.Wait()
			before := a.recvs()
			a.poll()
			return a.recvs() - before
		}
		a.poll()
		if n := recvsPerPoll(); n != 1 {
			t.Errorf("%d receives in a poll", n)
		}
		for range spinThreshold + 1 {
			a.r.Yield()
		}
		if n := recvsPerPoll(); n != 1+extraPolls {
			t.Errorf("%d receives in a poll of a spinning application, want %d", n, 1+extraPolls)
		}
		a.p.in <- []byte("found")
		a.pollUntilFound(t)
		if n := recvsPerPoll(); n != 1 {
			t.Errorf("%d receives in a poll after one that found input", n)
		}
	})
}

func TestSendQueueContinuesAfterFullLink(t *testing.T) {
	a, b := newPipe(), newPipe()
	a.peer, b.peer = b, a
	e := &echo{deadline: mono.Never, out: [][]byte{[]byte("1"), []byte("2"), []byte("3")}}
	o := NewSendQueue(1500)
	a.limit = 1
	if _, full := o.Flush(1, e, a); !full {
		t.Fatal("a full link accepted all packets")
	}
	e.out = append(e.out, []byte("4"))
	a.limit = -1
	if more, full := o.Flush(2, e, a); more || full || len(b.in) != 4 {
		t.Errorf("%d of 4 packets were sent", len(b.in))
	}
}

// A request that arrives during a long response is received between two of its
// batches, and its response may be sent before the rest.
func TestFlushReceivesBetweenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, peer := oneDriver(t)
		a.e.onInput = func() { a.e.out = slices.Insert(a.e.out, 0, []byte("short")) }
		a.r.Lock(CallPost)
		a.p.in <- []byte("request")
		a.e.out = slices.Repeat([][]byte{[]byte("long")}, 4*BatchSize)
		a.r.Pump()
		a.r.Unlock()
		got := peer.drain()
		if at := slices.Index(got, "short"); at != BatchSize || len(got) != 4*BatchSize+1 {
			t.Errorf("of %d packets, the response to the later request is number %d, want %d", len(got), at, BatchSize)
		}
	})
}

// flood is a link that always has a packet to receive, and room to send.
type flood struct{ *pipe }

func (flood) Send(_ mono.Time, ds []link.Datagram) (int, error) { return len(ds), nil }
func (flood) Recv(_ mono.Time, ds []link.Datagram) (int, error) { return 1, nil }

// endless is an engine that always has packets to send.
type endless struct{ *echo }

func (endless) Input(mono.Time, *link.Datagram)            {}
func (endless) Output(_ mono.Time, ds []link.Datagram) int { return len(ds) }

// A flush releases the lock although the peer never stops sending.
func TestFlushEndsDuringFlood(t *testing.T) {
	e := endless{&echo{deadline: mono.Never}}
	r := newReal(e, newPacketNetwork(e, flood{newPipe()}), 1)
	r.Lock(CallPost)
	defer r.Unlock()
	r.Pump()
	if !r.full || r.retryAt > r.Now() {
		t.Errorf("packets pending: %v, retry at %v", r.full, r.retryAt)
	}
}
