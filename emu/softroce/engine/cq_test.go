package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// cq/1, cq/5: Requests complete in posting order, including after unsignaled ones.
// With SignalAll all are signaled.
func TestSendCompletionsComeInOrder(t *testing.T) {
	for _, all := range []bool{false, true} {
		each(t, setup{qp: func(c *QPConfig) { c.SignalAll = all }}, func(p *peer) {
			p.post(1, verbs.OpRDMARead, 8, unsignaled)
			p.post(2, verbs.OpSend, 4)
			p.post(3, verbs.OpRDMAWrite, 4, unsignaled)
			p.post(4, verbs.OpAtomicFetchAdd, 8)
			p.expect("READ_REQUEST 0 va+0 len 8 ackreq", "SEND_ONLY 1 4B ackreq", "WRITE_ONLY 2 4B va+0 len 4 ackreq", "FETCH_ADD 3 va+0 0 0 ackreq")
			p.wcs()
			p.send(wire.OpReadResponseOnly, 0, data(8))
			p.ack(2)
			p.send(wire.OpAtomicAcknowledge, 3)
			if all {
				p.wcs("1 SUCCESS RDMA_READ 8B", "2 SUCCESS SEND", "3 SUCCESS RDMA_WRITE", "4 SUCCESS FETCH_ADD 8B")
			} else {
				p.wcs("2 SUCCESS SEND", "4 SUCCESS FETCH_ADD 8B")
			}
		})
	}
}

// cq/2: Receives complete in the order of their messages, of any type.
func TestReceiveCompletionsComeInMessageOrder(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		for id := range uint64(4) {
			p.recv(id, 2*p.mtu)
		}
		p.send(wire.OpSendFirst, 0, data(p.mtu))
		p.send(wire.OpSendLast, 1, data(4))
		p.send(wire.OpWriteOnlyImm, 2, p.at(0, 4), data(4), imm(1))
		p.send(wire.OpSendOnlyImm, 3, imm(2))
		p.send(wire.OpSendOnly, 4, data(1))
		p.wcs(fmt.Sprintf("0 SUCCESS RECV %dB", p.mtu+4), "1 SUCCESS RECV_RDMA_WITH_IMM 4B imm 00000001",
			"2 SUCCESS RECV imm 00000002", "3 SUCCESS RECV 1B")
	})
}

// cq/3, cq/4: A fenced request waits for the responses to all earlier READs and
// atomics; others do not.
func TestFenceWaitsForReadsAndAtomics(t *testing.T) {
	fenced := func(wr *verbs.SendWR) { wr.Flags |= verbs.SendFence }
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpRDMARead, p.mtu+8)
		p.post(2, verbs.OpAtomicFetchAdd, 8)
		p.post(3, verbs.OpSend, 4)
		p.post(4, verbs.OpSend, 8, fenced)
		p.post(5, verbs.OpSend, 12)
		p.expect(fmt.Sprintf("READ_REQUEST 0 va+0 len %d ackreq", p.mtu+8), "FETCH_ADD 2 va+0 0 0 ackreq", "SEND_ONLY 3 4B ackreq")
		p.send(wire.OpReadResponseFirst, 0, data(p.mtu))
		p.expect()
		p.send(wire.OpReadResponseLast, 1, data(8))
		p.expect()
		p.send(wire.OpAtomicAcknowledge, 2)
		p.expect("SEND_ONLY 4 8B ackreq", "SEND_ONLY 5 12B ackreq") // the fence does not wait for the SEND
		p.wcs(fmt.Sprintf("1 SUCCESS RDMA_READ %dB", p.mtu+8), "2 SUCCESS FETCH_ADD 8B")
	})
}

// cq/6 (error class G): If the CQ has no room for a receive completion, the CQ
// reports one error, the QP fails and the message is not acknowledged.
func TestRecvCQOverrunFailsQP(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		cq := p.cqOf(1)
		other := p.replaceQP(verbs.QPTypeRC, func(c *QPConfig) { c.RecvCQ = cq })
		p.recv(8, 4)
		hit := p.replaceQP(verbs.QPTypeRC, func(c *QPConfig) { c.RecvCQ = cq })
		for id := range uint64(3) {
			p.recv(id, 4)
		}
		p.send(wire.OpSendOnly, 0, data(4), ackReq)
		p.expect("ACK 0 msn 1")
		p.send(wire.OpSendOnly, 1, data(4), ackReq)
		p.expect()
		p.state(verbs.QPStateErr)
		if e, ok := p.h.nic.NextEvent(); !ok || e.Type != verbs.EventCQErr || e.CQ != cq {
			p.Fatalf("event %+v", e)
		}
		p.events() // no second event for the flushed receives
		if n := p.h.nic.CQOverruns; n != 1 {
			p.Errorf("%d overruns counted", n)
		}
		// Earlier completions can be polled; then Poll returns the overrun.
		p.polled(cq, "0 SUCCESS RECV 4B")
		must.Fail(p, "polled", must.Err(cq.Poll(make([]verbs.WC, 1))), verbs.ErrOverrun)
		// The CQ stays in error, for all of its QPs.
		p.with(other).send(wire.OpSendOnly, 0, data(4), ackReq)
		p.expect()
		p.state(verbs.QPStateErr)
		p.events()
		p.with(hit).silence(time.Second)
	})
}

// cq/6: The same for completions of send requests.
func TestSendCQOverrunFailsQP(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		cq := p.cqOf(2)
		p.replaceQP(verbs.QPTypeRC, func(c *QPConfig) { c.SendCQ = cq })
		p.recv(9, 4)
		for id := range uint64(4) {
			p.post(id, verbs.OpSend, 0)
		}
		p.post(4, verbs.OpSend, 0, unsignaled)
		p.expect("SEND_ONLY 0 ackreq", "SEND_ONLY 1 ackreq", "SEND_ONLY 2 ackreq", "SEND_ONLY 3 ackreq", "SEND_ONLY 4 ackreq")
		p.ack(1)
		p.state(verbs.QPStateRTS)
		p.ack(3)
		p.state(verbs.QPStateErr)
		p.events(verbs.EventCQErr)
		p.polled(cq, "0 SUCCESS SEND", "1 SUCCESS SEND")
		p.wcs("9 WR_FLUSH_ERR") // in the receive CQ
		p.silence(time.Minute)
	})
}

// fired returns the CQs of all pending completion events.
func fired(n *NIC) (cqs []*nic.CQ) {
	for cq, ok := n.NextCompletionEvent(); ok; cq, ok = n.NextCompletionEvent() {
		cqs = append(cqs, cq)
	}
	return cqs
}

// cq/7, bth/se/2: ReqNotify raises one event. NEXT overrides SOLICITED but not vice
// versa; a completion in error counts as solicited.
func TestReqNotifyRaisesOneEvent(t *testing.T) {
	type arm = bool
	const next, solicitedOnly arm = false, true
	for _, c := range []struct {
		name   string
		arms   []arm
		plain  int // events at a plain message
		marked int // events at the solicited one that follows it
	}{
		{"not armed", nil, 0, 0},
		{"next", []arm{next}, 1, 0},
		{"solicited", []arm{solicitedOnly}, 0, 1},
		{"next, then solicited", []arm{next, solicitedOnly}, 1, 0},
		{"solicited, then next", []arm{solicitedOnly, next}, 1, 0},
		{"twice", []arm{next, next}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				for id := range uint64(4) {
					p.recv(id, 8)
				}
				for _, a := range c.arms {
					p.h.cq.ReqNotify(a)
				}
				p.send(wire.OpSendOnly, 0)
				if got := fired(p.h.nic); len(got) != c.plain {
					p.Errorf("%d events at a plain message", len(got))
				}
				p.send(wire.OpSendOnly, 1, solicited)
				if got := fired(p.h.nic); len(got) != c.marked {
					p.Errorf("%d events at a solicited message", len(got))
				}
				p.h.cq.ReqNotify(solicitedOnly)
				p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
				if got := fired(p.h.nic); len(got) != 1 || got[0] != p.h.cq {
					p.Errorf("%d events at two flushed receives", len(got))
				}
			})
		})
	}
}

// cq/7: Only completions after ReqNotify raise an event, so applications poll again
// after ReqNotify.
func TestReqNotifyIgnoresEarlierCompletions(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 8)
		p.recv(2, 8)
		p.send(wire.OpSendOnly, 0, solicited)
		p.h.cq.ReqNotify(false)
		if got := fired(p.h.nic); len(got) != 0 {
			p.Errorf("%d events for earlier completions", len(got))
		}
		p.send(wire.OpSendOnly, 1)
		if got := fired(p.h.nic); len(got) != 1 {
			p.Errorf("%d events for a new completion", len(got))
		}
		p.wcs("1 SUCCESS RECV", "2 SUCCESS RECV")
	})
}

// cq/8: A CQ in use cannot be destroyed.
func TestDestroyCQ(t *testing.T) {
	h := newHost(t, "10.0.0.1", nil)
	cq := must.Get(h.nic.CreateCQ(16))(t)
	domain := must.Get(h.nic.OpenXRCD())(t)
	sender := h.qp(verbs.QPTypeRC, func(c *QPConfig) { c.SendCQ = cq })
	receiver := h.qp(verbs.QPTypeRC, func(c *QPConfig) { c.RecvCQ = cq })
	srq := h.srq(func(c *nic.SRQConfig) { c.Type, c.XRCD, c.CQ = verbs.SRQXRC, domain, cq })
	busy := func(why string) {
		t.Helper()
		must.Fail(t, fmt.Sprintf("destroyed under %s", why), h.nic.DestroyCQ(cq), verbs.ErrBusy)
	}
	busy("all three")
	must.Do(t, h.nic.DestroyQP(sender))
	busy("a receiver and an SRQ")
	must.Do(t, h.nic.DestroyQP(receiver))
	busy("an SRQ")
	must.Do(t, h.nic.DestroySRQ(srq))
	must.Do(t, h.nic.DestroyCQ(cq))
}

// cq/9: ByteLen is the length of a READ, or the length written by a WRITE with
// immediate. TestUDCompletionsHaveSourceQP covers UD.
func TestCompletionByteLen(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		n := 2*p.mtu + 1
		p.recv(1, 4)
		p.recv(2, n+7)
		p.send(wire.OpWriteFirst, 0, p.at(0, n), data(p.mtu))
		p.send(wire.OpWriteMiddle, 1, data(p.mtu))
		p.send(wire.OpWriteLastImm, 2, data(1), imm(1))
		p.send(wire.OpSendFirst, 3, data(p.mtu))
		p.send(wire.OpSendMiddle, 4, data(p.mtu))
		p.send(wire.OpSendLast, 5, data(1))
		p.wcs(fmt.Sprintf("1 SUCCESS RECV_RDMA_WITH_IMM %dB imm 00000001", n), fmt.Sprintf("2 SUCCESS RECV %dB", n))
		p.post(3, verbs.OpRDMARead, p.mtu+3)
		p.post(4, verbs.OpRDMARead, 0)
		p.post(5, verbs.OpAtomicCmpAndSwp, 8)
		p.h.nic.Output(p.now, p.ds)
		p.send(wire.OpReadResponseFirst, 0, data(p.mtu))
		p.send(wire.OpReadResponseLast, 1, data(3))
		p.send(wire.OpReadResponseOnly, 2)
		p.send(wire.OpAtomicAcknowledge, 3)
		p.wcs(fmt.Sprintf("3 SUCCESS RDMA_READ %dB", p.mtu+3), "4 SUCCESS RDMA_READ", "5 SUCCESS COMP_SWAP 8B")
	})
}

// cq/10: All data is in memory when the completion is added.
func TestDataIsWrittenBeforeCompletion(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		n := 2 * p.mtu
		want := pattern(n, 42)
		p.recv(1, n)
		p.send(wire.OpSendFirst, 0, payload(bytes.Clone(want[:p.mtu])))
		p.wcs()
		p.send(wire.OpSendLast, 1, payload(bytes.Clone(want[p.mtu:])))
		p.wcs(fmt.Sprintf("1 SUCCESS RECV %dB", n))
		if !bytes.Equal(p.recvBuf(1, n), want) {
			p.Error("the receive buffer has other data")
		}
		p.post(2, verbs.OpRDMARead, n)
		p.h.nic.Output(p.now, p.ds)
		p.send(wire.OpReadResponseFirst, 0, payload(bytes.Clone(want[:p.mtu])))
		p.send(wire.OpReadResponseFirst, 0, payload(bytes.Clone(want[:p.mtu]))) // a duplicate does not complete the READ
		p.wcs()
		p.send(wire.OpReadResponseLast, 1, payload(bytes.Clone(want[p.mtu:])))
		p.wcs(fmt.Sprintf("2 SUCCESS RDMA_READ %dB", n))
		if !bytes.Equal(p.h.mem[sinkAt:][:n], want) {
			p.Error("the READ returned other data")
		}
	})
}
