package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

const testEmptyWriteAfter = 50 * time.Millisecond

func withEmptyWrites(c *Config, _ *iwarp.QueueConfig) { c.EmptyWriteAfter = testEmptyWriteAfter }

// lateReceiver imitates a responder that overlooks the first FPDU right after its Reply.
func lateReceiver(c *Config, _ *iwarp.QueueConfig) { c.Policy.MPA.HoldFirst = true }

// connectAndSend connects, and sends a message of a together with its first FPDU.
func connectAndSend(t *testing.T, a, b *host) *pair {
	t.Helper()
	p := offer(t, a, b, ConnParam{IRD: 4, ORD: 4})
	must.Do(t, p.cb.Accept(p.now, b.qp, ConnParam{IRD: 4, ORD: 4}))
	p.write(1)
	p.read(1)
	b.recv(7)
	a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
	p.run()
	a.wantSends("1")
	return p
}

// A responder that waits for an RTR also processes the FPDUs that arrive with it.
func TestFPDUAfterRTRIsProcessed(t *testing.T) {
	a, b := newHost(t, peerToPeer), newHost(t, lateReceiver)
	connectAndSend(t, a, b)
	b.wantRecvs("7:0")
}

func TestEmptyWriteWakesPeerThatOverlooksFirstFPDU(t *testing.T) {
	for _, on := range []bool{false, true} {
		var opts []hostOption
		if on {
			opts = append(opts, withEmptyWrites)
		}
		a, b := newHost(t, opts...), newHost(t, lateReceiver)
		p := connectAndSend(t, a, b)
		b.wantRecvs()
		p.later(testEmptyWriteAfter-1, a.nic, b.nic)
		p.run()
		b.wantRecvs()
		p.later(1, a.nic, b.nic)
		p.run()
		got := poll(b.RecvCQ)
		if cured := len(got) == 1; cured != on || (a.nic.Count.EmptyWrites == 1) != on {
			t.Errorf("empty Writes %v: receives %q, %d empty Writes", on, got, a.nic.Count.EmptyWrites)
		}
		if b.nic.Count.EmptyWrites != 0 {
			t.Error("the responder sends empty Writes too")
		}
		// Without it the message is never processed, and neither side has a timer.
		if !on && (a.nic.Deadline() != mono.Never || b.nic.Deadline() != mono.Never) {
			t.Errorf("deadlines %v and %v", a.nic.Deadline(), b.nic.Deadline())
		}
	}
}

// emptyWriteTimes lets the NIC wait for a silent peer, and returns when it sends empty Writes.
func emptyWriteTimes(k *tester) (times []time.Duration) {
	k.pipe.t.Helper()
	start := k.now
	for k.nic.Deadline() != mono.Never && k.c.State() < Closing {
		k.later(k.nic.Deadline().Sub(k.now), k.nic)
		for _, g := range k.received() {
			if g.Control.Opcode != wire.OpWrite || !g.Control.Last || len(g.Payload) != 0 {
				k.pipe.t.Fatalf("unexpected segment %+v", g)
			}
			times = append(times, k.now.Sub(start)/time.Millisecond)
		}
	}
	return times
}

func TestEmptyWritesAreLimited(t *testing.T) {
	h := newHost(t, withEmptyWrites)
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
	if h.nic.Deadline() != mono.Never {
		t.Error("a timer is armed before the first FPDU")
	}
	h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
	k.received()
	if got, want := emptyWriteTimes(k), []time.Duration{50, 150, 350, 750, 1550}; !slices.Equal(got, want) {
		t.Errorf("empty Writes after %d ms, want %d", got, want)
	}
	h.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpSend}) // the empty Writes do not start again
	k.received()
	if h.nic.Deadline() != mono.Never || h.nic.Count.EmptyWrites != maxEmptyWrites {
		t.Errorf("%d empty Writes, and more at %v", h.nic.Count.EmptyWrites, h.nic.Deadline())
	}
	h.wantSends("1", "2")
	h.wantState(verbs.QPStateRTS)
}

func TestEmptyWriteQueuesOutput(t *testing.T) {
	h := newHost(t, withEmptyWrites)
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
	h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
	k.received()
	for _, ok := h.nic.NextOutput(); ok; _, ok = h.nic.NextOutput() {
	}
	k.later(testEmptyWriteAfter, h.nic)
	if c, ok := h.nic.NextOutput(); !ok || c != k.c {
		t.Error("the connection has no output when an empty Write is due")
	}
}

func TestEmptyWritesEndWithResponseOrConnection(t *testing.T) {
	for name, what := range map[string]func(*tester){
		"a message":              func(k *tester) { k.sendSegment(write(1, 0, nil)) },
		"a Terminate":            func(k *tester) { k.sendSegment(emptySegment(wire.OpTerminate)) },
		"EOF":                    func(k *tester) { k.c.InputEOF(k.now) },
		"a reset":                func(k *tester) { k.c.Failed(k.now, errors.New("reset")) },
		"Disconnect":             func(k *tester) { k.c.Disconnect(k.now) },
		"a Terminate of the NIC": func(k *tester) { k.qp.stream.Fail(wire.TermRDMAPLocal, true) },
		"Abort":                  func(k *tester) { k.c.Abort() },
		"DestroyQP":              func(k *tester) { _ = k.nic.DestroyQP(k.qp) },
	} {
		h := newHost(t, withEmptyWrites)
		k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
		h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
		k.received()
		k.later(testEmptyWriteAfter, h.nic)
		if segs := k.received(); len(segs) != 1 {
			t.Fatalf("%s: no first empty Write", name)
		}
		what(k)
		if !k.reset[0] {
			k.take(0)
		}
		for range 10 {
			k.later(testEmptyWriteAfter, h.nic)
			if b := k.take(0); len(b) > 0 {
				t.Errorf("after %s the NIC sends %x", name, b)
			}
		}
		if h.nic.Count.EmptyWrites != 1 {
			t.Errorf("%s: %d empty Writes", name, h.nic.Count.EmptyWrites)
		}
	}
}

// An empty Write cannot be sent within a message that TCP has accepted in part. The timer then runs
// again, although TCP accepts nothing meanwhile that would start it.
func TestEmptyWriteWaitsForEndOfMessage(t *testing.T) {
	h := newHost(t, withEmptyWrites)
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
	r, _ := h.region(1<<20, allAccess)
	h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: []verbs.SGE{sge(r, 0, 1<<20)}})
	accepted := 0
	bufs, _ := k.c.Output(make([][]byte, 0, 16))
	for _, b := range bufs {
		accepted += len(b)
	}
	k.c.Sent(k.now, accepted, k.now)
	for range 2 {
		at := h.nic.Deadline()
		k.later(at.Sub(k.now), h.nic)
		if h.nic.Count.EmptyWrites != 0 {
			t.Fatal("an empty Write within a message")
		}
		if next := h.nic.Deadline(); next == mono.Never || next <= at {
			t.Fatalf("the next empty Write is due at %v, after %v", next, at)
		}
	}
}

// emptySegment returns an empty segment of op.
func emptySegment(op wire.Opcode) wire.Segment { return segment(op, 1, nil) }

// An overlooked read blocks the requests after it. The empty Write is sent nevertheless, also for a
// connection that the program closes meanwhile.
func TestEmptyWriteOvertakesQueuedRequests(t *testing.T) {
	a, b := newHost(t, withEmptyWrites), newHost(t, lateReceiver)
	r, _ := a.region(16, allAccess)
	src, mem := b.region(16, allAccess)
	copy(mem, "0123456789abcdef")
	p := offer(t, a, b, ConnParam{IRD: 1, ORD: 1})
	must.Do(t, p.cb.Accept(p.now, b.qp, ConnParam{IRD: 1, ORD: 1}))
	p.write(1)
	p.read(1)
	for i := range 2 {
		a.send(verbs.SendWR{
			WRID: uint64(i), Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 8*i, 8)},
			Remote: verbs.Remote{Addr: src.Addr + uint64(8*i), RKey: verbs.RKey(src.Key)},
		})
	}
	p.run()
	p.ca.Disconnect(p.now)
	p.run()
	a.wantSends()
	p.later(testEmptyWriteAfter, a.nic, b.nic)
	p.run()
	a.wantSends("0", "1")
	if p.ca.State() != Closed || p.ca.Err() != nil {
		t.Errorf("%v, %v", p.ca.State(), p.ca.Err())
	}
}

func TestEmptyWriteAfterMustNotBeNegative(t *testing.T) {
	if _, err := New(Config{EmptyWriteAfter: -1}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}
