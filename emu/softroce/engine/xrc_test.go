package engine

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// xrcPeer is a scripted peer of an XRC target in an XRC domain.
type xrcPeer struct {
	*peer
	domain *nic.XRCD
}

func eachXRC(t *testing.T, f func(p xrcPeer)) {
	t.Helper()
	each(t, setup{}, func(p *peer) {
		x := xrcPeer{peer: p, domain: p.xrcd()}
		x.q = x.xrcTarget(x.domain)
		f(x)
	})
}

func (p *peer) xrcd() *nic.XRCD {
	p.Helper()
	x := must.Get(p.h.nic.OpenXRCD())(p)
	return x
}

// xrcTarget creates a connected XRC target in a domain.
func (p *peer) xrcTarget(x *nic.XRCD) *QP {
	p.Helper()
	return p.replaceQP(verbs.QPTypeXRCRecv, func(c *QPConfig) { *c = QPConfig{Type: verbs.QPTypeXRCRecv, XRCD: x} })
}

// xrcSRQ creates an SRQ in a domain, with its own CQ.
func (p *peer) xrcSRQ(x *nic.XRCD, pd nic.PD) (*nic.SRQ, *nic.CQ) {
	p.Helper()
	cq := p.cqOf(8)
	return p.h.srq(func(c *nic.SRQConfig) { c.Type, c.XRCD, c.CQ, c.PD = verbs.SRQXRC, x, cq, pd }), cq
}

// send delivers a request for an SRQ to the target.
func (p xrcPeer) send(op wire.Operation, k int, srqn uint32, edits ...edit) {
	p.Helper()
	p.peer.send(op, k, append([]edit{over(wire.TransportXRC), func(k *wire.Packet) { k.XRCETH.SRQN = srqn }}, edits...)...)
}

// xrc/1: Every request packet has the number of its SRQ after the BTH. Opcodes of requests and
// responses are those of RC plus 0xa0.
func TestXRCRequestsCarryTheSRQNumber(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.replaceQP(verbs.QPTypeXRCSend, nil)
		m := p.mtu
		to := func(srqn uint32) func(*verbs.SendWR) { return func(wr *verbs.SendWR) { wr.XRC.SRQN = srqn } }
		p.post(1, verbs.OpSend, 0, to(0xabcdef))
		p.post(2, verbs.OpSendImm, 2*m+1, to(2))
		p.post(3, verbs.OpRDMAWriteImm, m+1, to(3))
		p.post(4, verbs.OpRDMARead, m+1, to(4))
		p.post(5, verbs.OpAtomicFetchAdd, 8, to(5))
		p.post(6, verbs.OpSendInv, 0, to(6))
		p.expect(
			"XRC SEND_ONLY 0 ackreq",
			fmt.Sprintf("XRC SEND_FIRST 1 %dB", m), fmt.Sprintf("XRC SEND_MIDDLE 2 %dB", m), "XRC SEND_LAST_IMM 3 1B imm 00000000 ackreq",
			fmt.Sprintf("XRC WRITE_FIRST 4 %dB va+0 len %d", m, m+1), "XRC WRITE_LAST_IMM 5 1B imm 00000000 ackreq",
			fmt.Sprintf("XRC READ_REQUEST 6 va+0 len %d ackreq", m+1),
			"XRC FETCH_ADD 8 va+0 0 0 ackreq",
			"XRC SEND_ONLY_INV 9 inv 0 ackreq",
		)
		for i, want := range []string{
			"a4 00abcdef", "a0 00000002", "a1 00000002", "a3 00000002", "a6 00000003", "a9 00000003", "ac 00000004", "b4 00000005", "b7 00000006",
		} {
			b := p.ds[i].Payload
			if got := fmt.Sprintf("%02x %s", b[0], hex.EncodeToString(b[wire.BTHLen:][:4])); got != want {
				p.Errorf("packet %d begins with %s, want %s", i, got, want)
			}
		}
		xrc := over(wire.TransportXRC)
		p.send(wire.OpAcknowledge, 5, xrc)
		p.wcs("1 SUCCESS SEND", "2 SUCCESS SEND", "3 SUCCESS RDMA_WRITE")
		p.send(wire.OpReadResponseFirst, 6, xrc, data(m))
		p.send(wire.OpReadResponseLast, 7, xrc, data(1))
		p.send(wire.OpAtomicAcknowledge, 8, xrc)
		p.send(wire.OpAcknowledge, 9) // of RC: dropped
		p.wcs(fmt.Sprintf("4 SUCCESS RDMA_READ %dB", m+1), "5 SUCCESS FETCH_ADD 8B")
		p.send(wire.OpAcknowledge, 9, xrc)
		p.wcs("6 SUCCESS SEND")
		p.drops("drop_qp_type 1")
	})
}

// xrc/1, xrc/3: One target serves many SRQs, each with its own receives and CQ. Responses have no
// XRCETH and advertise no credits.
func TestXRCTargetDeliversToNamedSRQ(t *testing.T) {
	eachXRC(t, func(p xrcPeer) {
		s1, cq1 := p.xrcSRQ(p.domain, p.h.pd)
		s2, cq2 := p.xrcSRQ(p.domain, p.h.pd)
		p.postSRQ(s1, 1, 2*p.mtu)
		p.postSRQ(s2, 2, 8)
		p.postSRQ(s1, 3, 8)
		p.send(wire.OpSendFirst, 0, s1.Num(), data(p.mtu))
		p.send(wire.OpSendLast, 1, s1.Num(), data(4), ackReq)
		p.expect("ACK 1 msn 1")
		if b := p.ds[0].Payload; len(b) != wire.BTHLen+wire.AETHLen+wire.ICRCLen || b[0] != 0xb1 || b[wire.BTHLen] != 0x1f {
			p.Errorf("the response is %x", b)
		}
		p.send(wire.OpSendOnly, 2, s2.Num(), data(4))
		p.send(wire.OpWriteOnlyImm, 3, s1.Num(), p.at(0, 4), data(4), imm(7))
		p.polled(cq1, fmt.Sprintf("1 SUCCESS RECV %dB", p.mtu+4), "3 SUCCESS RECV_RDMA_WITH_IMM 4B imm 00000007")
		p.polled(cq2, "2 SUCCESS RECV 4B")
		p.send(wire.OpReadRequest, 4, s2.Num(), p.at(0, 4))
		p.expect("XRC RR_ONLY 4 4B msn 4")
		p.send(wire.OpFetchAdd, 5, s2.Num(), p.word(8, 1, 0))
		p.expect(fmt.Sprintf("XRC ATOMIC_ACKNOWLEDGE 5 was %d msn 5", p.wordValue(targetData[8:])))
		p.wcs()
		p.state(verbs.QPStateRTS)
	})
}

// R_Keys, and L_Keys of receives, are checked in the protection domain of the SRQ that the request
// names: the target has none.
func TestXRCKeysAreCheckedInDomainOfSRQ(t *testing.T) {
	eachXRC(t, func(p xrcPeer) {
		pd := p.h.allocPD()
		own, _ := p.xrcSRQ(p.domain, p.h.pd)
		foreign, cq := p.xrcSRQ(p.domain, pd)
		p.send(wire.OpWriteOnly, 0, own.Num(), p.at(0, 4), data(4), ackReq)
		p.expect("ACK 0 msn 1")
		p.postSRQ(foreign, 1, 8) // with a key of p.h.pd
		p.send(wire.OpWriteOnly, 1, foreign.Num(), p.at(0, 4), data(4))
		p.expect("NAK 1 access msn 1")
		p.events(verbs.EventQPAccessErr)
		p.q = p.xrcTarget(p.domain)
		p.send(wire.OpSendOnly, 0, foreign.Num(), data(4))
		p.expect("NAK 0 operational msn 0")
		p.polled(cq, "1 LOC_PROT_ERR")
		p.state(verbs.QPStateErr)
	})
}

// A READ is executed in the protection domain of its SRQ, also as a duplicate during a SEND to
// another SRQ.
func TestXRCDuplicateReadDuringSendToOtherSRQ(t *testing.T) {
	eachXRC(t, func(p xrcPeer) {
		pd := p.h.allocPD()
		mr := must.Get(p.h.nic.RegMR(pd, nic.Bytes(p.h.mem), p.h.mr.Addr, verbs.AccessRemoteRead))(p)
		s1, _ := p.xrcSRQ(p.domain, pd)
		s2, cq2 := p.xrcSRQ(p.domain, p.h.pd)
		p.postSRQ(s2, 1, 2*p.mtu)
		read := func() { p.send(wire.OpReadRequest, 0, s1.Num(), p.at(0, 4), rkey(mr.Key)) }
		read()
		p.send(wire.OpSendFirst, 1, s2.Num(), data(p.mtu))
		p.expect("XRC RR_ONLY 0 4B msn 1")
		read()
		p.expect("XRC RR_ONLY 0 4B msn 1")
		if !bytes.Equal(p.got[0].Payload, targetData[:4]) {
			p.Error("other data")
		}
		p.send(wire.OpSendLast, 2, s2.Num(), data(4), ackReq)
		p.expect("ACK 2 msn 2")
		p.polled(cq2, fmt.Sprintf("1 SUCCESS RECV %dB", p.mtu+4))
	})
}

// xrc/2: A request for an SRQ that does not exist, is not for XRC or is in another domain is
// invalid. So is a message that changes its SRQ.
func TestXRCRequestForInvalidSRQIsNAKed(t *testing.T) {
	for _, c := range []struct {
		name string
		srqn func(p xrcPeer) uint32
	}{
		{"unknown", func(xrcPeer) uint32 { return 0xabcdef }},
		{"zero", func(xrcPeer) uint32 { return 0 }},
		{"not for XRC", func(p xrcPeer) uint32 { return p.h.srq(nil).Num() }},
		{"of another domain", func(p xrcPeer) uint32 { s, _ := p.xrcSRQ(p.xrcd(), p.h.pd); p.postSRQ(s, 1, 8); return s.Num() }},
		{"destroyed", func(p xrcPeer) uint32 {
			s, _ := p.xrcSRQ(p.domain, p.h.pd)
			p.postSRQ(s, 1, 8)
			must.Do(p, p.h.nic.DestroySRQ(s))
			return s.Num()
		}},
	} {
		for _, op := range []wire.Operation{wire.OpSendOnly, wire.OpWriteOnly, wire.OpReadRequest, wire.OpFetchAdd} {
			t.Run(fmt.Sprintf("%s/%v", c.name, wire.Opcode(op)), func(t *testing.T) {
				eachXRC(t, func(p xrcPeer) {
					edits := []edit{p.at(0, 0), p.word(0, 1, 0)}
					p.send(op, 0, c.srqn(p), edits...)
					p.expect("NAK 0 invalid msn 0")
					p.events(verbs.EventQPReqErr)
					p.state(verbs.QPStateErr)
					p.expectMemoryUnchanged()
				})
			})
		}
	}
	t.Run("changed within a message", func(t *testing.T) {
		eachXRC(t, func(p xrcPeer) {
			s1, cq1 := p.xrcSRQ(p.domain, p.h.pd)
			s2, cq2 := p.xrcSRQ(p.domain, p.h.pd)
			p.postSRQ(s1, 1, 2*p.mtu)
			p.postSRQ(s2, 2, 2*p.mtu)
			p.send(wire.OpSendFirst, 0, s1.Num(), data(p.mtu))
			p.send(wire.OpSendLast, 1, s2.Num(), data(4))
			p.expect("NAK 1 invalid msn 0")
			p.polled(cq1, "1 REM_INV_REQ_ERR")
			p.polled(cq2)
			p.state(verbs.QPStateErr)
		})
	})
}

// srq/4: An XRC target sends an RNR NAK if the named SRQ is empty.
func TestEmptyXRCSRQCausesRNRNAK(t *testing.T) {
	eachXRC(t, func(p xrcPeer) {
		empty, cq := p.xrcSRQ(p.domain, p.h.pd)
		full, _ := p.xrcSRQ(p.domain, p.h.pd)
		p.postSRQ(full, 1, 8)
		p.send(wire.OpSendOnly, 0, empty.Num(), data(4))
		p.expect("RNR 0 code 12 msn 0")
		p.postSRQ(empty, 2, 8)
		p.send(wire.OpSendOnly, 0, empty.Num(), data(4), ackReq)
		p.expect("ACK 0 msn 1")
		p.polled(cq, "2 SUCCESS RECV 4B")
	})
}

// xrc/3: A target exists until its creator and all openers have destroyed it.
func TestXRCTargetExistsUntilLastHandleIsDestroyed(t *testing.T) {
	eachXRC(t, func(p xrcPeer) {
		s, cq := p.xrcSRQ(p.domain, p.h.pd)
		q, err := p.h.nic.OpenQP(p.domain, p.q.num)
		if err != nil || q != p.q {
			p.Fatalf("opened %v, %v", q, err)
		}
		must.Fail(p, "opened from another domain", must.Err(p.h.nic.OpenQP(p.xrcd(), p.q.num)), verbs.ErrNotFound)
		must.Fail(p, "opened a QP that is not a target", must.Err(p.h.nic.OpenQP(p.domain, p.h.qp(verbs.QPTypeRC, nil).num)), verbs.ErrNotFound)
		destroy := func() {
			p.Helper()
			must.Do(p, p.h.nic.DestroyQP(p.q))
		}
		destroy() // the creator
		p.postSRQ(s, 1, 8)
		p.send(wire.OpSendOnly, 0, s.Num(), data(4), ackReq)
		p.expect("ACK 0 msn 1")
		p.polled(cq, "1 SUCCESS RECV 4B")
		must.Fail(p, "closed with a target in it", p.h.nic.CloseXRCD(p.domain), verbs.ErrBusy)
		destroy()
		p.send(wire.OpSendOnly, 1, s.Num(), data(4), ackReq)
		p.silence(time.Second)
		p.drops("drop_qpn 1")
		must.Fail(p, "destroyed twice", p.h.nic.DestroyQP(p.q), verbs.ErrInvalid)
		must.Fail(p, "closed with an SRQ in it", p.h.nic.CloseXRCD(p.domain), verbs.ErrBusy)
		must.Do(p, p.h.nic.DestroySRQ(s))
		must.Do(p, p.h.nic.CloseXRCD(p.domain))
		must.Fail(p, "closed twice", p.h.nic.CloseXRCD(p.domain), verbs.ErrInvalid)
	})
}

// A target has no queues and CQs; an initiator has no receive queue.
func TestXRCTargetsAndInitiatorsRejectOtherQueues(t *testing.T) {
	eachXRC(t, func(p xrcPeer) {
		for name, c := range map[string]QPConfig{
			"a target without a domain":     {Type: verbs.QPTypeXRCRecv},
			"a target of a closed domain":   {Type: verbs.QPTypeXRCRecv, XRCD: new(nic.XRCD)},
			"a target with a send CQ":       {Type: verbs.QPTypeXRCRecv, XRCD: p.domain, SendCQ: p.h.cq},
			"a target with a receive CQ":    {Type: verbs.QPTypeXRCRecv, XRCD: p.domain, RecvCQ: p.h.cq},
			"a target with an SRQ":          {Type: verbs.QPTypeXRCRecv, XRCD: p.domain, SRQ: p.h.srq(nil)},
			"an initiator without a CQ":     {Type: verbs.QPTypeXRCSend, PD: p.h.pd},
			"an initiator without a domain": {Type: verbs.QPTypeXRCSend, PD: 99, SendCQ: p.h.cq},
			"an initiator with an SRQ":      {Type: verbs.QPTypeXRCSend, PD: p.h.pd, SendCQ: p.h.cq, SRQ: p.h.srq(nil)},
		} {
			must.Fail(p, name, must.Err(p.h.nic.CreateQP(c)), verbs.ErrInvalid)
		}
		s, _ := p.xrcSRQ(p.domain, p.h.pd)
		attached := QPConfig{Type: verbs.QPTypeRC, PD: p.h.pd, SendCQ: p.h.cq, RecvCQ: p.h.cq, SRQ: s}
		must.Fail(p, "an XRC SRQ attached to an RC QP", must.Err(p.h.nic.CreateQP(attached)), verbs.ErrInvalid)
		must.Fail(p, "a receive on a target", p.q.PostRecv(&verbs.RecvWR{}), verbs.ErrInvalid)
		must.Fail(p, "a send on a target", p.q.PostSend(p.now, &verbs.SendWR{Opcode: verbs.OpSend}, Refs{}), verbs.ErrInvalid)
		p.send(wire.OpAcknowledge, 0, 0) // a target accepts no responses
		p.replaceQP(verbs.QPTypeXRCSend, nil)
		must.Fail(p, "a receive on an initiator", p.q.PostRecv(&verbs.RecvWR{}), verbs.ErrInvalid)
		p.send(wire.OpSendOnly, 0, s.Num(), data(4)) // an initiator accepts no requests
		p.drops("drop_opcode 2")
		p.silence(time.Second)
	})
}

// An SRQ and its CQ may be destroyed while a message is incomplete. The CQ then raises no event.
func TestXRCMessageToDestroyedSRQIsNAKed(t *testing.T) {
	eachXRC(t, func(p xrcPeer) {
		s, cq := p.xrcSRQ(p.domain, p.h.pd)
		p.postSRQ(s, 1, 2*p.mtu)
		p.send(wire.OpSendFirst, 0, s.Num(), data(p.mtu))
		cq.ReqNotify(false)
		must.Do(p, p.h.nic.DestroySRQ(s))
		must.Do(p, p.h.nic.DestroyCQ(cq))
		p.send(wire.OpSendLast, 1, s.Num(), data(4))
		p.expect("NAK 1 invalid msn 0")
		p.state(verbs.QPStateErr)
		if _, ok := p.h.nic.NextCompletionEvent(); ok {
			p.Error("an event of a destroyed CQ")
		}
	})
}
