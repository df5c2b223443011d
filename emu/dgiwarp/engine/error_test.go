package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestErrorsStopTheQP(t *testing.T) {
	w, a, b := pair(t, false)
	b.recv(1, 0, 100)
	b.recv(2, 0, 100)
	a.send(b, 9, 61) // one octet more than the receive has
	w.run(time.Millisecond)
	done := b.got(2)
	if done[0].WRID != 1 || done[0].Status != verbs.WCLocLenErr || done[1].Status != verbs.WCWRFlushErr || b.state != verbs.QPStateErr {
		t.Errorf("%+v, state %v", done, b.state)
	}
	if e, ok := b.h.nic.NextEvent(); !ok || e.Type != verbs.EventQPReqErr || e.QP != any(b.QP) {
		t.Errorf("event %+v, %v", e, ok)
	}
	// It takes nothing more until it is reset.
	a.send(b, 9, 10)
	w.run(time.Millisecond)
	if b.h.nic.Count.DropState != 1 {
		t.Errorf("%d packets dropped for its state", b.h.nic.Count.DropState)
	}
	must.Do(t, b.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
	b.ready()
	b.recv(3, 0, 100)
	a.send(b, 9, 10)
	w.run(time.Millisecond)
	b.ok(1)
}

func TestErrorsCanBeIsolated(t *testing.T) {
	w, a, b := pair(t, false, func(c *QPConfig) { c.Isolate = true })
	b.recv(1, 0, 100)
	a.send(b, 9, 61)
	a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: verbs.Remote{RKey: 1}})
	a.send(b, 9, 60)
	w.run(time.Millisecond)
	if wc := b.ok(1)[0]; wc.WRID != 1 || b.state != verbs.QPStateRTS || b.h.nic.Count.ErrorsFound != 2 || b.h.nic.Count.ErrorsSent != 2 {
		t.Errorf("%+v, state %v, %d errors found, %d told", wc, b.state, b.h.nic.Count.ErrorsFound, b.h.nic.Count.ErrorsSent)
	}
}

func TestErrorMessagesReachTheSender(t *testing.T) {
	w, a, b := pair(t, false)
	b.recv(1, 0, 1000)
	a.send(b, 1, 10)
	b.recv(2, 0, 50)
	a.send(b, 2, 60)
	var message []byte
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Dst.Addr() == a.h.addr {
			message = bytes.Clone(k.ULPDU)
			if k.Key != testKey {
				t.Errorf("the error message has the key %#x, not that of what it answers", k.Key)
			}
		}
		return false
	}
	w.run(time.Millisecond)
	r, ok := a.LastError()
	if !ok || r.Error != ddp.TermUntaggedTooLong || !r.HasMSN || r.MSN != 2 || r.FromQP != b.QPN || r.From.Addr() != b.h.addr {
		t.Errorf("reported %+v, %v", r, ok)
	}
	if e, ok := a.h.nic.NextEvent(); !ok || e.Type != verbs.EventQPReqErr || a.state != verbs.QPStateRTS {
		t.Errorf("event %+v, %v, state %v", e, ok, a.state)
	}
	var s ddp.Segment
	if err := s.Parse(message); err != nil || s.Untagged.QN != ddp.QueueTerminate || s.Terminate.SegmentLength != 78 || s.Terminate.DDP.Untagged.MSN != 2 {
		t.Errorf("%v: %+v", err, s)
	}
}

// A hundred errors a second, sixteen at once, and none about an error.
func TestErrorMessagesAreLimited(t *testing.T) {
	w, a, b := pair(t, false, func(c *QPConfig) { c.Isolate = true })
	burst := func(n int) {
		for range n {
			a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: verbs.Remote{RKey: 1}})
		}
		w.run(time.Millisecond)
		a.got(n)
	}
	burst(50)
	c := &b.h.nic.Count
	if c.ErrorsSent != 16 || c.ErrorsSuppressed != 34 {
		t.Errorf("%d sent, %d not, want 16 and 34", c.ErrorsSent, c.ErrorsSuppressed)
	}
	w.run(99 * time.Millisecond)
	burst(50)
	if c.ErrorsSent != 26 {
		t.Errorf("%d sent after 100 ms, want 26", c.ErrorsSent)
	}
	// An error message about nonsense, and one that is nonsense, draw nothing.
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		tamper(d, k, func(u []byte) { u[0], u[1] = 0x41, 0x47; clear(u[2:18]); u[9] = 2 })
		return false
	}
	before := w.seen
	a.send(b, 1, 2)
	a.send(b, 1, 20)
	w.run(time.Millisecond)
	if w.seen != before+2 {
		t.Errorf("%d packets for two error messages", w.seen-before)
	}
}

// A receive that has no room for the address area, or may not be written, fails with
// the right reason, even for a message of no length.
func TestReceivesThatTakeNothing(t *testing.T) {
	for _, length := range []int{0, 10} {
		for name, c := range map[string]struct {
			sgl  func(e *end) []verbs.SGE
			want verbs.WCStatus
		}{
			"too short for the area": {func(e *end) []verbs.SGE { return e.sge(recvAt, verbs.GRHLen-1) }, verbs.WCLocLenErr},
			"nobody's memory": {func(e *end) []verbs.SGE {
				sgl := e.sge(recvAt, 100)
				sgl[0].LKey ^= 0xff00
				return sgl
			}, verbs.WCLocProtErr},
		} {
			w, a, b := pair(t, true)
			must.Do(t, b.PostRecv(&verbs.RecvWR{WRID: 1, SGL: c.sgl(b)}))
			a.send(b, 2, length)
			w.run(10 * time.Millisecond)
			if done := b.got(1); done[0].WRID != 1 || done[0].Status != c.want {
				t.Errorf("%s, %d bytes: %+v, want %v", name, length, done[0], c.want)
			}
		}
	}
}
