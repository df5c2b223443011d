package engine

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A program that destroys its queue pair after an error does not suppress the Terminate: the peer
// gets it, then the end of the stream.
func TestDestroyQPStillSendsTerminate(t *testing.T) {
	damaged := func(k *tester) {
		g := segment(wire.OpSend, 1, nil)
		b := k.framer.Append(nil, g.Append(nil))
		b[5] ^= 1
		k.give(0, b)
	}
	for name, tc := range map[string]struct {
		fail func(k *tester)
		want wire.TermError
	}{
		"RDMAP": {func(k *tester) { k.sendSegment(segment(wire.OpSend, 9, nil)) }, wire.TermUntaggedMSN},
		"MPA":   {damaged, wire.TermMPACRC},
	} {
		for _, written := range []bool{false, true} { // before the program acts
			h := newHost(t)
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			k.sendSegment(write(1, 0, nil)) // the NIC may send now
			tc.fail(k)
			if written {
				k.write(0)
			}
			must.Do(t, h.nic.DestroyQP(h.qp))
			if got := k.receivedOne().Terminate.Error; got != tc.want {
				t.Errorf("%s, written %v: Terminate %v", name, written, got)
			}
			if k.reset[0] || !k.fin[0] {
				t.Errorf("%s, written %v: reset %v, FIN %v", name, written, k.reset[0], k.fin[0])
			}
			k.c.InputEOF(k.now)
			if k.c.State() != Closed || k.c.mpa != nil {
				t.Errorf("%s, written %v: %v", name, written, k.c.State())
			}
		}
	}
}

// A rejected peer may reset the stream: the connection has no error.
func TestResetAfterRejectIsNoError(t *testing.T) {
	h := newHost(t)
	c := h.nic.Incoming()
	p := newPipe(t, c, nil)
	p.give(0, unhex(t, requestFrame+crcEnhanced))
	must.Do(t, c.Reject(0, nil))
	if p.take(0); !p.fin[0] || c.State() != Closing {
		t.Fatalf("%v, FIN %v", c.State(), p.fin[0])
	}
	c.Failed(0, link.ErrReset)
	if c.State() != Closed || c.Err() != nil || h.nic.Count.Failed != 0 {
		t.Errorf("%v, %v, %d failed", c.State(), c.Err(), h.nic.Count.Failed)
	}
}

// A queue pair with a shared receive queue reports once that it takes no more receives, in any
// sequence of closing.
func TestLastWQEIsReportedOnce(t *testing.T) {
	h := newHost(t)
	srq := must.Get(h.nic.CreateSRQ(nic.SRQConfig{PD: h.pd, MaxWR: 4, MaxSGE: 1}))(t)
	h.qp = h.newQP(iwarp.QueueConfig{PD: h.pd, SendCQ: h.SendCQ, RecvCQ: h.RecvCQ, SRQ: srq, Caps: verbs.QPCaps{MaxSendWR: 4, MaxSendSGE: 1}})
	k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
	k.sendSegment(segment(wire.OpSend, 9, nil)) // Terminate, then the end
	h.wantState(verbs.QPStateSQE)
	k.take(0)
	k.c.InputEOF(0)
	h.wantState(verbs.QPStateErr)
	h.wantEvents(verbs.EventQPReqErr, verbs.EventQPLastWQEReached)
}

// The RDMA Consortium's verbs close only an idle queue pair.
func TestClosingBusyQPFailsIt(t *testing.T) {
	for _, busy := range []bool{false, true} {
		h := newHost(t)
		k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
		if busy {
			r, _ := h.region(8, allAccess)
			h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
			k.received()
		}
		must.Do(t, h.qp.Modify(0, verbs.QPAttr{State: verbs.QPStateSQD}, verbs.QPAttrState))
		k.take(0)
		if k.reset[0] != busy || k.fin[0] == busy {
			t.Errorf("busy %v: reset %v, FIN %v", busy, k.reset[0], k.fin[0])
		}
		if busy {
			h.wantState(verbs.QPStateErr)
			h.wantSends("1 WR_FLUSH_ERR")
		} else {
			h.wantState(verbs.QPStateSQD)
		}
	}
}

// CloseTimeout runs from the first cause: later errors do not extend it.
func TestLaterErrorsDoNotExtendCloseTimeout(t *testing.T) {
	h := newHost(t)
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
	r, _ := h.region(8, allAccess)
	h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
	k.received()
	k.c.Disconnect(k.now)
	k.later(5*time.Second-time.Second, h.nic)
	k.sendSegment(segment(wire.OpSend, 9, nil))
	k.take(0)
	if k.c.State() != Closing {
		t.Fatalf("%v", k.c.State())
	}
	k.later(time.Second, h.nic)
	if k.c.State() != Closed || h.nic.Count.CloseTimeouts != 1 {
		t.Errorf("%v, %d timeouts", k.c.State(), h.nic.Count.CloseTimeouts)
	}
}

func TestConnectAcceptsDepthsUpToLimit(t *testing.T) {
	h := newHost(t)
	limit := uint16(h.nic.cfg.Limits.RdAtomic)
	for _, p := range []ConnParam{{IRD: limit + 1}, {ORD: limit + 1}} {
		if _, err := h.nic.Connect(h.qp, p); err == nil {
			t.Errorf("%+v is accepted, the limit is %d", p, limit)
		}
	}
	for _, p := range []ConnParam{{IRD: limit, ORD: limit}, {IRD: wire.DepthNotNegotiated, ORD: wire.DepthNotNegotiated}} {
		c, err := h.nic.Connect(h.qp, p)
		if err != nil {
			t.Errorf("%+v: %v", p, err)
			continue
		}
		c.Abort()
	}
}

// tester is a scripted peer that exchanges octets with a NIC; the NIC is end 0.
type tester struct {
	*pipe
	*host
	c      *Conn
	framer wire.Framer
	parser *wire.Deframer
}

// unhex decodes hex digits, which may have spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
	return b
}

const (
	requestFrame = "4d504120494420526571204672616d65"
	replyFrame   = "4d504120494420526570204672616d65"
)

// asResponder connects a host to which the tester sends a Request with these flags and private
// data.
func asResponder(t testing.TB, h *host, request string, p ConnParam) *tester {
	t.Helper()
	c := h.nic.Incoming()
	k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
	k.give(0, unhex(t, requestFrame+request))
	if c.State() != Requested {
		t.Fatalf("the Request is not accepted: %v %v", c.State(), c.Err())
	}
	must.Do(t, c.Accept(0, h.qp, p))
	k.start(k.take(0))
	return k
}

// asInitiator connects a host to the tester, which answers with reply.
func asInitiator(t testing.TB, h *host, p ConnParam, reply string) *tester {
	t.Helper()
	c := must.Get(h.nic.Connect(h.qp, p))(t)
	k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
	if got := string(k.take(0)); !strings.HasPrefix(got, wire.RequestKey) {
		t.Fatalf("no Request: %x", got)
	}
	b := unhex(t, replyFrame+reply)
	k.give(0, b)
	k.start(b)
	return k
}

// start sets the framing of FPDUs from a Reply.
func (k *tester) start(reply []byte) {
	f := wire.Framing{CRC: reply[16]&0x40 != 0}
	k.framer, k.parser = wire.NewFramer(f), wire.NewDeframer(f)
}

// sendSegment sends a segment to the NIC.
func (k *tester) sendSegment(g wire.Segment) { k.give(0, k.framer.Append(nil, g.Append(nil))) }

// received returns the segments that the NIC has sent since the last call.
func (k *tester) received() (segs []wire.Segment) {
	k.pipe.t.Helper()
	b := k.take(0)
	for len(b) > 0 {
		f, rest, ok := k.parser.Next(b)
		b = rest
		if !ok {
			break
		}
		if f.CRCStatus == wire.CRCBad {
			k.pipe.t.Errorf("an FPDU has a wrong CRC: %x", f.ULPDU)
		}
		var g wire.Segment
		if err := g.Parse(slices.Clone(f.ULPDU)); err != nil {
			k.pipe.t.Fatalf("%x: %v", f.ULPDU, err)
		}
		segs = append(segs, g)
	}
	return segs
}

// receivedOne returns the only segment that the NIC has sent.
func (k *tester) receivedOne() wire.Segment {
	k.pipe.t.Helper()
	segs := k.received()
	if len(segs) != 1 {
		k.pipe.t.Fatalf("%d segments, want 1: %+v", len(segs), segs)
	}
	return segs[0]
}

func segment(op wire.Opcode, msn wire.MSN, payload []byte) (g wire.Segment) {
	g.Control = wire.NewControl(op, true)
	info, _ := op.Info()
	g.Untagged = wire.Untagged{QN: info.Queue, MSN: msn}
	g.Payload = payload
	return g
}

func write(stag uint32, to uint64, payload []byte) (g wire.Segment) {
	g.Control = wire.NewControl(wire.OpWrite, true)
	g.Tagged = wire.Tagged{STag: wire.STag(stag), TO: to}
	g.Payload = payload
	return g
}
