package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// stop moves the QP to SQD with SQ_DRAINED enabled.
func (p *peer) stop() {
	p.Helper()
	must.Do(p, p.modify(verbs.QPStateSQD, verbs.QPAttr{EnSQDAsyncNotify: true}, verbs.QPAttrEnSQDAsyncNotify))
	p.state(verbs.QPStateSQD)
}

// draining fails the test unless the QP reports draining and rejects Modify.
func (p *peer) draining() {
	p.Helper()
	expectUnchanged(p.T, p.q, func() {
		for _, to := range []verbs.QPState{verbs.QPStateRTS, verbs.QPStateSQD} {
			must.Fail(p, fmt.Sprintf("to %v while draining", to), p.modify(to, verbs.QPAttr{MinRNRTimer: 3}, verbs.QPAttrMinRNRTimer), verbs.ErrInvalid)
		}
	})
	if !p.q.Query().SQDraining {
		p.Error("Query does not report draining")
	}
}

// sqd/1..sqd/5: in SQD, started requests are finished and retransmitted if necessary; others wait.
// Receiving continues, SQ_DRAINED is raised once, and the queue resumes in RTS.
func TestSQDDrainsSendQueue(t *testing.T) {
	const T = 4096 << 14
	each(t, setup{nic: func(c *Config) { c.WindowPackets = 2 }}, func(p *peer) {
		first, last := fmt.Sprintf("SEND_FIRST 0 %dB ackreq", p.mtu), fmt.Sprintf("SEND_LAST 2 %dB ackreq", p.mtu)
		middle := fmt.Sprintf("SEND_MIDDLE 1 %dB ackreq", p.mtu)
		p.recv(9, 8)
		p.post(1, verbs.OpSend, 3*p.mtu)
		p.post(2, verbs.OpSend, 4)
		p.expect(first, middle) // the window is full
		p.stop()
		p.post(3, verbs.OpSend, 4)
		p.draining()
		p.expect()

		p.send(wire.OpSendOnly, 0, data(8), ackReq)
		p.expect("ACK 0 msn 1")

		p.wait(T) // all packets were lost
		p.expect(first, middle)
		p.ack(1)
		p.expect(last)
		p.events()
		p.draining()
		p.ack(2)
		p.events(verbs.EventSQDrained)
		p.wcs("9 SUCCESS RECV 8B", "1 SUCCESS SEND")
		if p.q.Query().SQDraining {
			p.Error("Query reports draining of a drained queue")
		}
		p.post(4, verbs.OpSend, 4)
		p.silence(10 * T)
		p.events()

		must.Do(p, p.modify(verbs.QPStateSQD, verbs.QPAttr{Timeout: 8, RetryCnt: 1}, verbs.QPAttrTimeout|verbs.QPAttrRetryCnt))
		p.enter(verbs.QPStateRTS)
		p.expect("SEND_ONLY 3 4B ackreq", "SEND_ONLY 4 4B ackreq")
		p.wait(4096 << 8) // the new timeout is used
		p.expect("SEND_ONLY 3 4B ackreq", "SEND_ONLY 4 4B ackreq")
		p.ack(4)
		p.expect("SEND_ONLY 5 4B ackreq")
		p.ack(5)
		p.wcs("2 SUCCESS SEND", "3 SUCCESS SEND", "4 SUCCESS SEND")
		p.events()
	})
}

// sqd/1, sqd/2: Draining waits for the last response of a READ and for the end of an RNR wait.
func TestSQDWaitsForResponses(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.post(2, verbs.OpRDMARead, 2*p.mtu)
		p.expect("SEND_ONLY 0 4B ackreq", fmt.Sprintf("READ_REQUEST 1 va+0 len %d ackreq", 2*p.mtu))
		p.stop()
		p.rnr(0, 1)
		p.draining()
		p.wait(10 * time.Microsecond)
		p.expect("SEND_ONLY 0 4B ackreq", fmt.Sprintf("READ_REQUEST 1 va+0 len %d ackreq", 2*p.mtu))
		p.send(wire.OpReadResponseFirst, 1, data(p.mtu))
		p.draining()
		p.events()
		p.send(wire.OpReadResponseLast, 2, data(p.mtu))
		p.events(verbs.EventSQDrained)
		p.wcs("1 SUCCESS SEND", fmt.Sprintf("2 SUCCESS RDMA_READ %dB", 2*p.mtu))
		if at := p.q.deadline(); at != mono.Never {
			p.Errorf("deadline %v after draining", at)
		}
	})
}

// sqd/2: An idle queue is drained at once. SQ_DRAINED is raised only if requested
// in the same Modify.
func TestIdleSendQueueIsDrainedAtOnce(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		each(t, setup{qp: func(c *QPConfig) { c.Type = typ }}, func(p *peer) {
			for range 2 {
				p.stop()
				p.events(verbs.EventSQDrained)
				p.enter(verbs.QPStateRTS)
				p.events()
				p.enter(verbs.QPStateSQD)
				p.events()
				p.enter(verbs.QPStateSQD)
				p.events()
				p.enter(verbs.QPStateRTS)
			}
			p.post(1, verbs.OpSend, 4) // posted, but not started before SQD
			p.stop()
			p.events(verbs.EventSQDrained)
			p.silence(time.Second)
			p.enter(verbs.QPStateRTS)
			if len(p.drain()) != 1 {
				p.Error("the queued request was not sent")
			}
		})
	}
}

// sqd/1, sqd/2: In SQD, a UC QP finishes the message that it has started.
func TestSQDFinishesUCMessage(t *testing.T) {
	each(t, setup{qp: func(c *QPConfig) { c.Type = verbs.QPTypeUC }}, func(p *peer) {
		p.post(1, verbs.OpSend, 2*p.mtu)
		p.post(2, verbs.OpSend, 4)
		p.ds = p.ds[:1]
		if p.h.nic.Output(p.now, p.ds) != 1 {
			p.Fatal("nothing sent")
		}
		p.stop()
		p.draining()
		p.events()
		p.expect(fmt.Sprintf("UC SEND_LAST 1 %dB", p.mtu))
		p.events(verbs.EventSQDrained)
		p.wcs("1 SUCCESS SEND")
		p.silence(time.Second)
		p.enter(verbs.QPStateRTS)
		p.expect("UC SEND_ONLY 2 4B")
		p.wcs("2 SUCCESS SEND")
	})
}

// sqd/1, sqd/5: In SQD, a UD QP sends nothing and continues to receive.
func TestUDSendsNothingInSQD(t *testing.T) {
	a, b := newHost(t, "fd00::1", nil), newHost(t, "fd00::2", nil)
	net := newNetwork(a, b)
	qa, qb := a.qp(verbs.QPTypeUD, nil), b.qp(verbs.QPTypeUD, nil)
	a.readyUD(qa, 5)
	b.readyUD(qb, 5)
	a.recv(qa, 1, a.sge(0, 100))
	b.recv(qb, 2, b.sge(0, 100))
	sendDatagram := func(from *host, q *QP, to *host, peer *QP, id uint64) {
		ah := must.Get(from.nic.CreateAH(from.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(to.addr)}}))(t)
		wr := verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, UD: verbs.UD{QPN: verbs.QPN(peer.num), QKey: 5}}
		must.Do(t, q.PostSend(net.now, &wr, Refs{AH: ah}))
	}
	sendDatagram(a, qa, b, qb, 3)
	a.modify(qa, verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: true}, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify)
	if e, ok := a.nic.NextEvent(); !ok || e.Type != verbs.EventSQDrained || e.QP != qa {
		t.Errorf("event %+v, %v", e, ok)
	}
	sendDatagram(b, qb, a, qa, 4)
	net.run(1e9)
	if got := a.poll(); len(got) != 1 || got[0].WRID != 1 || got[0].Status != verbs.WCSuccess {
		t.Errorf("completions in SQD: %+v", got)
	}
	a.modify(qa, verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
	net.run(2e9)
	if got := a.poll(); len(got) != 1 || got[0].WRID != 3 || got[0].Status != verbs.WCSuccess {
		t.Errorf("completions in RTS: %+v", got)
	}
	if got := b.poll(); len(got) != 2 || got[0].WRID != 4 || got[1].WRID != 2 {
		t.Errorf("completions of the peer: %+v", got)
	}
}

// sqd/3: A draining QP can be moved to ERR and RESET; SQ_DRAINED is then not raised.
func TestERRAndRESETEndDraining(t *testing.T) {
	for _, to := range []verbs.QPState{verbs.QPStateErr, verbs.QPStateReset} {
		each(t, setup{}, func(p *peer) {
			p.post(1, verbs.OpSend, 4)
			p.expect("SEND_ONLY 0 4B ackreq")
			p.stop()
			p.post(2, verbs.OpSend, 4)
			p.enter(to)
			p.events()
			if to == verbs.QPStateErr {
				p.wcs("1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR")
			}
			p.ack(0)
			p.silence(time.Minute)
			p.wcs()
			p.events()
		})
	}
}

// sqd/1: An error ends draining and is reported instead of SQ_DRAINED.
func TestErrorEndsDraining(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.stop()
		p.post(2, verbs.OpSend, 4)
		p.nak(0, wire.NakRemoteAccess)
		p.state(verbs.QPStateErr)
		p.wcs("1 REM_ACCESS_ERR", "2 WR_FLUSH_ERR")
		p.events()
	})
}

// sqd/1: In SQD, binds and invalidations do not start.
func TestLocalOperationsDoNotStartInSQD(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		w := must.Get(p.h.nic.AllocMW(p.h.pd, verbs.MWType2))(p)
		bind := verbs.SendWR{WRID: 1, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{
			RKey: verbs.RKey(w.Key), Info: verbs.BindInfo{Addr: p.h.mr.Addr + targetAt, Length: 64, Access: verbs.AccessRemoteWrite},
		}}
		p.stop()
		p.events(verbs.EventSQDrained)
		must.Do(p, p.q.PostSend(p.now, &bind, Refs{Window: w, Region: p.h.mr}))
		p.h.send(p.q, p.now, verbs.SendWR{WRID: 2, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: verbs.RKey(w.Key)})
		p.silence(time.Second)
		p.wcs()
		if p.bound(w) {
			p.Error("the window was bound")
		}
		p.enter(verbs.QPStateRTS)
		p.expect()
		p.wcs("1 SUCCESS BIND_MW", "2 SUCCESS LOCAL_INV")
		p.events()
	})
}

// bound reports whether the peer can write through a window.
func (p *peer) bound(w *nic.Window) bool {
	_, _, err := p.h.nic.Mem.Remote(w.Key, nic.TargetQP{PD: p.h.pd, QPN: p.q.num}, p.h.mr.Addr+targetAt, 8, verbs.AccessRemoteWrite)
	return err == nil
}
