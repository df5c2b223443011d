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

func TestTooLongMessageMovesQPToError(t *testing.T) {
	w, a, b := pair(t, false)
	b.recv(1, 0, 100)
	b.recv(2, 0, 100)
	a.send(b, 9, 61) // one octet more than the receive has
	w.run(time.Millisecond)
	done := b.expectCompletions(2)
	if done[0].WRID != 1 || done[0].Status != verbs.WCLocLenErr || done[1].Status != verbs.WCWRFlushErr || b.state != verbs.QPStateErr {
		t.Errorf("%+v, state %v", done, b.state)
	}
	if e, ok := b.h.nic.NextEvent(); !ok || e.Type != verbs.EventQPReqErr || e.QP != any(b.QP) {
		t.Errorf("event %+v, %v", e, ok)
	}
	// It drops packets until it is reset.
	a.send(b, 9, 10)
	w.run(time.Millisecond)
	if b.h.nic.Count.DropState != 1 {
		t.Errorf("%d packets dropped because of the state, want 1", b.h.nic.Count.DropState)
	}
	must.Do(t, b.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
	b.toRTS()
	b.recv(3, 0, 100)
	a.send(b, 9, 10)
	w.run(time.Millisecond)
	b.expectSuccess(1)
}

func TestIsolatedQPSurvivesPeerErrors(t *testing.T) {
	w, a, b := pair(t, false, func(c *QPConfig) { c.Isolate = true })
	b.recv(1, 0, 100)
	a.send(b, 9, 61)
	a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: verbs.Remote{RKey: 1}})
	a.send(b, 9, 60)
	w.run(time.Millisecond)
	if wc := b.expectSuccess(1)[0]; wc.WRID != 1 || b.state != verbs.QPStateRTS || b.h.nic.Count.ErrorsFound != 2 || b.h.nic.Count.ErrorsSent != 2 {
		t.Errorf("%+v, state %v, %d errors found, %d reported", wc, b.state, b.h.nic.Count.ErrorsFound, b.h.nic.Count.ErrorsSent)
	}
}

func TestErrorMessageReachesSender(t *testing.T) {
	w, a, b := pair(t, false)
	b.recv(1, 0, 1000)
	a.send(b, 1, 10)
	b.recv(2, 0, 50)
	a.send(b, 2, 60)
	var message []byte
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Dst.Addr() == a.h.addr {
			message = bytes.Clone(k.ULPDU)
			if k.Key != testKey {
				t.Errorf("the error message has the key %#x, want that of the request", k.Key)
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

// A NIC sends 100 error messages per second, up to 16 at once, and none about an error message.
func TestErrorMessagesAreRateLimited(t *testing.T) {
	w, a, b := pair(t, false, func(c *QPConfig) { c.Isolate = true })
	burst := func(n int) {
		for range n {
			a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 4), Remote: verbs.Remote{RKey: 1}})
		}
		w.run(time.Millisecond)
		a.expectCompletions(n)
	}
	burst(50)
	c := &b.h.nic.Count
	if c.ErrorsSent != 16 || c.ErrorsSuppressed != 34 {
		t.Errorf("%d sent, %d suppressed, want 16 and 34", c.ErrorsSent, c.ErrorsSuppressed)
	}
	w.run(99 * time.Millisecond)
	burst(50)
	if c.ErrorsSent != 26 {
		t.Errorf("%d sent after 100 ms, want 26", c.ErrorsSent)
	}
	// An error message about an invalid segment, and an invalid one, get no reply.
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		modifyULPDU(d, k, func(u []byte) { u[0], u[1] = 0x41, 0x47; clear(u[2:18]); u[9] = 2 })
		return false
	}
	before := w.sent
	a.send(b, 1, 2)
	a.send(b, 1, 20)
	w.run(time.Millisecond)
	if w.sent != before+2 {
		t.Errorf("%d packets for two error messages", w.sent-before)
	}
}

// A receive that is shorter than the address area, or not writable, fails even for an empty
// message.
func TestUnusableReceiveFails(t *testing.T) {
	for _, length := range []int{0, 10} {
		for name, c := range map[string]struct {
			sgl  func(e *testQP) []verbs.SGE
			want verbs.WCStatus
		}{
			"shorter than the address area": {func(e *testQP) []verbs.SGE { return e.sge(recvAt, verbs.GRHLen-1) }, verbs.WCLocLenErr},
			"invalid L_Key": {func(e *testQP) []verbs.SGE {
				sgl := e.sge(recvAt, 100)
				sgl[0].LKey ^= 0xff00
				return sgl
			}, verbs.WCLocProtErr},
		} {
			for _, reliable := range []bool{false, true} {
				w, a, b := pair(t, reliable)
				must.Do(t, b.PostRecv(&verbs.RecvWR{WRID: 1, SGL: c.sgl(b)}))
				a.send(b, 2, length)
				w.run(10 * time.Millisecond)
				if done := b.expectCompletions(1); done[0].WRID != 1 || done[0].Status != c.want || b.state != verbs.QPStateErr {
					t.Errorf("%s, reliable %v, %d bytes: %+v in %v, want %v in ERR", name, reliable, length, done[0], b.state, c.want)
				}
			}
		}
	}
}
