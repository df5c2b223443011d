package drive

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// pipe is a link.Waiter made of channels, so that its sleepers are durably
// blocked in a bubble of testing/synctest.
type pipe struct {
	in   chan []byte
	wake chan struct{}
	done chan struct{}
	once sync.Once
	held []byte // looked at by WaitReadable, not yet received
	// backlog is received behind held, and wakes nobody.
	backlog [][]byte
	mu      sync.Mutex
	peer    *pipe
	limit   int // datagrams that Send takes before it reports full; -1 for all
	waits   int
	looks   int
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
	p.looks++
	n := 0
	for n < len(ds) {
		if p.held != nil {
			ds[n].Payload, p.held = p.held, nil
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
	held := p.held != nil
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
		p.held = b
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

// echo is an engine that answers "ping" with "pong", notes what else arrives,
// and has deadlines.
type echo struct {
	out      [][]byte
	got      []string
	gate     Cond
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
	e.gate.Notify()
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
	e.gate.Notify()
}

func (e *echo) Deadline() mono.Time { return e.deadline }

type side struct {
	e *echo
	p *pipe
	r *Real
}

func newSide() *side {
	s := &side{e: &echo{deadline: mono.Never}, p: newPipe()}
	return s
}

func (s *side) start() {
	s.r = NewReal(s.e, s.p, 1)
	s.e.gate = s.r.NewCond(WaitReason("pong"))
}

func (s *side) stop() {
	s.r.Close()
	s.p.Close()
}

// twoSides starts two drivers on one wire.
func twoSides(t *testing.T) (a, b *side) {
	a, b = newSide(), newSide()
	a.p.peer, b.p.peer = b.p, a.p
	a.start()
	b.start()
	t.Cleanup(func() { a.stop(); b.stop() })
	return a, b
}

func (s *side) send(what string) {
	s.r.Lock(CallPost)
	s.e.out = append(s.e.out, []byte(what))
	s.r.Pump()
	s.r.Unlock()
}

// await waits until n answers have come.
func (s *side) await(n int, timeout time.Duration) bool {
	s.r.Lock(CallWait)
	defer s.r.Unlock()
	for len(s.e.got) < n {
		if !s.e.gate.Wait(timeout) {
			return false
		}
	}
	return true
}

func TestAPassiveSideAnswersWhileNobodyCallsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoSides(t)
		time.Sleep(time.Second) // both have long gone to sleep
		start := time.Now()
		a.send("ping")
		if !a.await(1, time.Second) {
			t.Fatal("no answer")
		}
		if took := time.Since(start); took > nap {
			t.Errorf("answer took %v", took)
		}
	})
}

// Packets come in bursts: who was woken for one looks for the next before it
// sleeps again, and not for long.
func TestThePassiveSideLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := twoSides(t)
		time.Sleep(time.Second)
		synctest.Wait()
		before := b.looks()
		b.p.in <- []byte("ping")
		synctest.Wait()
		if n := b.looks() - before; n < linger || n > linger+4 {
			t.Errorf("woken by a packet, it looked %d times before it slept again, want %d", n, linger)
		}
	})
}

func TestPollingNeedsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoSides(t)
		a.send("ping")
		for range 1000 {
			if a.poll() {
				return
			}
			a.r.Yield()
			time.Sleep(time.Microsecond)
		}
		t.Fatal("polling never saw the answer")
	})
}

func TestWaitersShareTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoSides(t)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if !a.await(i+1, 10*time.Second) {
					t.Errorf("waiter %d gave up", i)
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

// Whoever leads offers a full link the rest, also if that is a program that waits
// for something else.
func TestAFullLinkGetsTheRestFromAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoSides(t)
		go a.await(1, time.Minute)
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
			t.Errorf("%d arrived; the waiter looked %d times in 100 µs", b.received(), waits)
		}
		a.stop()
	})
}

// What one thread waits for at the network another may take in.
func TestALeaderHearsWhatAnotherThreadHasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoSides(t)
		ended := make(chan time.Duration)
		start := time.Now()
		go func() { a.await(1, -1); ended <- time.Since(start) }()
		synctest.Wait()
		a.r.Lock(CallPoll)
		a.e.Input(a.r.Now(), &link.Datagram{Payload: []byte("data")}) // as if this thread had been quicker
		a.r.Unlock()
		if took := <-ended; took > time.Millisecond {
			t.Errorf("it heard of it %v later", took)
		}
	})
}

func TestWaitTimesOutOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoSides(t)
		start := time.Now()
		if a.await(1, 37*time.Millisecond) {
			t.Fatal("notified of nothing")
		}
		if took := time.Since(start); took != 37*time.Millisecond {
			t.Errorf("timed out after %v", took)
		}
	})
}

func TestDeadlinesAreKeptByWhoeverLeads(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := twoSides(t)
			time.Sleep(time.Second)
			if waiting {
				go a.await(1, 20*time.Second)
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

func TestAFullLinkGetsTheRestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoSides(t)
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

func TestCloseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoSides(t)
		ended := make(chan bool)
		for range 3 {
			go func() { ended <- a.await(1, -1) }()
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
				t.Fatal("a wait survived Close")
			}
		}
		a.r.Close() // once more does no harm
	})
}

func TestAnIdleDriverSleeps(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := twoSides(t)
			a.send("ping")
			if !a.await(1, time.Second) {
				t.Fatal("no answer")
			}
			if waiting {
				go a.await(2, -1)
			}
			time.Sleep(2 * time.Second)
			before := a.sleeps() + b.sleeps()
			start := time.Now()
			// In a bubble time goes on only when all sleep, and then to the next
			// timer: nobody may have set one.
			time.Sleep(time.Hour)
			if n := a.sleeps() + b.sleeps() - before; n > 0 {
				t.Errorf("waiting %v: woke %d times in an idle hour", waiting, n)
			}
			if took := time.Since(start); took != time.Hour {
				t.Errorf("an hour took %v", took)
			}
			start = time.Now()
			a.send("ping")
			time.Sleep(nap)
			if a.received() != 2 {
				t.Errorf("waiting %v: after the hour an answer takes more than %v", waiting, time.Since(start))
			}
			a.stop()
		})
	}
}

func (s *side) sleeps() int {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.waits
}

func (s *side) looks() int {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.looks
}

func (s *side) received() int {
	s.r.Lock(CallPoll)
	defer s.r.Unlock()
	return len(s.e.got)
}

// A device whose leader sleeps for long is looked after again as soon as the
// leader leaves.
func TestTheBackgroundTakesOverFromALeaderThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoSides(t)
		left := make(chan struct{})
		go func() { a.await(1, -1); close(left) }()
		time.Sleep(5 * time.Second)
		b.send("data") // for which a's program waits; then it never looks again
		<-left
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		b.send("ping")
		if !b.await(1, time.Second) {
			t.Fatal("no answer")
		}
		if took := time.Since(start); took > nap {
			t.Errorf("answer took %v", took)
		}
	})
}

// One thread of a program waits for long; another polls, shows that it answers,
// and then goes away with a message that it has not answered.
func TestWhatIsOwedIsPaidThoughAnotherThreadLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide()
		peer := newSide()
		a.p.peer, peer.p.peer = peer.p, a.p
		a.start()
		defer a.stop()
		other := a.r.NewCond(WaitReason("something else"))
		go func() {
			a.r.Lock(CallWait)
			defer a.r.Unlock()
			for other.Wait(-1) {
			}
		}()
		a.acknowledge()
		a.p.in <- []byte("1")
		a.found(t)
		a.send("answer")
		time.Sleep(10 * time.Second) // the thread that waits leads, and all else sleeps
		peer.waiting()
		a.r.Lock(CallPoll)
		a.e.Input(a.r.Now(), &link.Datagram{Payload: []byte("2")}) // as if this thread had been quicker
		a.r.owed = true
		a.r.PollFound()
		a.r.Unlock()
		time.Sleep(10 * time.Millisecond)
		if got := peer.waiting(); len(got) != 1 || got[0] != "ack" {
			t.Errorf("sent %q", got)
		}
	})
}

func TestOutboxDropsWhatAClosedLinkRefuses(t *testing.T) {
	e := &echo{deadline: mono.Never, out: [][]byte{[]byte("x"), []byte("y")}}
	o := NewSendQueue(1500)
	if more, full := o.Flush(1, e, closedLink{}); more || full || len(e.out) != 0 {
		t.Error("packets stay for a link that is gone")
	}
}

type closedLink struct{ *pipe }

func (closedLink) Send(mono.Time, []link.Datagram) (int, error) { return 0, errors.New("gone") }

// poll takes what has come, as Driver says a poll is done.
func (s *side) poll() (found bool) {
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

// found polls until something has come.
func (s *side) found(t *testing.T) {
	t.Helper()
	for range 1000 {
		if s.poll() {
			return
		}
		s.r.Yield()
		time.Sleep(time.Microsecond)
	}
	t.Fatal("nothing came")
}

// acknowledge has the engine answer what it gets with an ACK, as a NIC does.
func (s *side) acknowledge() {
	s.e.onInput = func() { s.e.out = append(s.e.out, []byte("ack")) }
}

func (s *side) waiting() []string {
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

func TestAcknowledgementsLeaveWithTheAnswersOfAProgramThatTalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide()
		peer := newSide() // not driven: its queue is looked at
		a.p.peer, peer.p.peer = peer.p, a.p
		a.start()
		defer a.stop()
		a.acknowledge()
		say := func(what string) {
			synctest.Wait() // the background goroutine has seen that the program looks
			a.p.in <- []byte(what)
		}

		a.poll() // the program begins to look
		say("1")
		a.found(t)
		if got := peer.waiting(); len(got) != 1 {
			t.Fatalf("before the program has shown that it answers: sent %q", got)
		}
		a.send("answer")
		if got := peer.waiting(); len(got) != 1 || got[0] != "answer" {
			t.Fatalf("sent %q", got)
		}
		say("2")
		a.found(t)
		if got := peer.waiting(); len(got) != 0 {
			t.Fatalf("the acknowledgement did not wait for the answer: sent %q", got)
		}
		a.send("answer")
		if got := peer.waiting(); len(got) != 2 {
			t.Fatalf("sent %q", got)
		}

		say("3")
		a.found(t)
		a.r.Lock(CallControl) // as to take the queue pair down
		a.r.Unlock()
		if got := peer.waiting(); len(got) != 1 || got[0] != "ack" {
			t.Fatalf("before a control call: sent %q", got)
		}

		for n := range muteAfter - 1 {
			say("4")
			a.found(t)
			if got := peer.waiting(); len(got) != 0 {
				t.Fatalf("a program that did not answer the last %d times: sent %q", n+1, got)
			}
			a.poll() // and looks for more
			if got := peer.waiting(); len(got) != 1 || got[0] != "ack" {
				t.Fatalf("a program that looked for more: sent %q", got)
			}
		}
		say("5")
		a.found(t)
		if got := peer.waiting(); len(got) != 1 {
			t.Fatalf("a program that has not answered for long: sent %q", got)
		}
		a.send("answer")
		peer.waiting()
		say("6")
		a.found(t)
		time.Sleep(10 * time.Millisecond) // and then the program computes
		if got := peer.waiting(); len(got) != 1 || got[0] != "ack" {
			t.Fatalf("while the program computes: sent %q", got)
		}
	})
}

// What comes may complete nothing: it was written to memory, and the program looks there
// next. It has until its next poll to answer.
func TestAcknowledgementsWaitForWhoLooksAtMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide()
		peer := newSide()
		a.p.peer, peer.p.peer = peer.p, a.p
		a.start()
		defer a.stop()
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
		peer.waiting()
		a.send("answer")
		peer.waiting()
		write()
		if got := peer.waiting(); len(got) != 0 {
			t.Errorf("before the program could look: sent %q", got)
		}
		a.send("answer")
		if got := peer.waiting(); len(got) != 2 {
			t.Errorf("with the answer: sent %q", got)
		}
		write()
		a.poll()
		if got := peer.waiting(); len(got) != 1 || got[0] != "ack" {
			t.Errorf("when the program looks for more: sent %q", got)
		}
	})
}

// A program that spins has each of its polls look several times.
func TestSpinningPollsLookMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide()
		peer := newSide()
		a.p.peer, peer.p.peer = peer.p, a.p
		a.start()
		defer a.stop()
		looks := func() int {
			synctest.Wait()
			before := a.looks()
			a.poll()
			return a.looks() - before
		}
		a.poll()
		if n := looks(); n != 1 {
			t.Errorf("a poll looked %d times", n)
		}
		for range spinning + 1 {
			a.r.Yield()
		}
		if n := looks(); n != 1+lookAgains {
			t.Errorf("a poll of a program that spins looked %d times, want %d", n, 1+lookAgains)
		}
		a.p.in <- []byte("found")
		a.found(t)
		if n := looks(); n != 1 {
			t.Errorf("after something was found, a poll looked %d times", n)
		}
	})
}

func TestOutboxAsksForMoreAfterLeftovers(t *testing.T) {
	a, b := newPipe(), newPipe()
	a.peer, b.peer = b, a
	e := &echo{deadline: mono.Never, out: [][]byte{[]byte("1"), []byte("2"), []byte("3")}}
	o := NewSendQueue(1500)
	a.limit = 1
	if _, full := o.Flush(1, e, a); !full {
		t.Fatal("a full link took everything")
	}
	e.out = append(e.out, []byte("4")) // has come to be sent since
	a.limit = -1
	if more, full := o.Flush(2, e, a); more || full || len(b.in) != 4 {
		t.Errorf("%d of 4 packets were sent", len(b.in))
	}
}

// A request that arrives while a long answer is being sent is taken in between two
// batches of it, and its own answer may leave before the rest.
func TestFlushTakesInBetweenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, peer := newSide(), newSide()
		a.p.peer, peer.p.peer = peer.p, a.p
		a.start()
		defer a.stop()
		a.e.onInput = func() { a.e.out = slices.Insert(a.e.out, 0, []byte("short")) }
		a.r.Lock(CallPost)
		a.p.in <- []byte("request")
		a.e.out = slices.Repeat([][]byte{[]byte("long")}, 4*BatchSize)
		a.r.Pump()
		a.r.Unlock()
		got := peer.waiting()
		if at := slices.Index(got, "short"); at != BatchSize || len(got) != 4*BatchSize+1 {
			t.Errorf("of %d packets, the answer to the later request is number %d, want %d", len(got), at, BatchSize)
		}
	})
}

// flood is a link that always has a packet and takes everything, flooded an engine that
// always has something to send.
type flood struct{ *pipe }

func (flood) Send(_ mono.Time, ds []link.Datagram) (int, error) { return len(ds), nil }
func (flood) Recv(_ mono.Time, ds []link.Datagram) (int, error) { return 1, nil }

type flooded struct{ *echo }

func (flooded) Input(mono.Time, *link.Datagram)            {}
func (flooded) Output(_ mono.Time, ds []link.Datagram) int { return len(ds) }

// A peer that never stops asking does not keep the lock from the program.
func TestFlushEndsBesideAnEndlessFlood(t *testing.T) {
	e := flooded{&echo{deadline: mono.Never}}
	r := newReal(e, newDatagrams(e, flood{newPipe()}), 1)
	r.Lock(CallPost)
	defer r.Unlock()
	r.Pump()
	if !r.full || r.retryAt > r.Now() {
		t.Errorf("the rest is to be sent: %v, at %v", r.full, r.retryAt)
	}
}
