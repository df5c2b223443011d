package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/msn/1, rc/msn/3, rc/msn/4: The MSN counts completed messages from 0. READs
// count when accepted.
func TestRCMSNCountsMessages(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		m := p.mtu
		p.recv(1, m+1)
		p.send(wire.OpWriteFirst, 0, p.at(0, 2*m+1), data(m), ackReq)
		p.expect("ACK 0 msn 0")
		p.send(wire.OpWriteMiddle, 1, data(m), ackReq)
		p.expect("ACK 1 msn 0")
		p.send(wire.OpWriteLast, 2, data(1), ackReq)
		p.expect("ACK 2 msn 1")
		p.send(wire.OpReadRequest, 3, p.at(0, m+1))
		p.expect(fmt.Sprintf("RR_FIRST 3 %dB msn 2", m), "RR_LAST 4 1B msn 2")
		p.send(wire.OpSendFirst, 5, data(m), ackReq)
		p.expect("ACK 5 msn 2")
		p.send(wire.OpSendLast, 6, data(1), ackReq)
		p.expect("ACK 6 msn 3")
	})
}

// rc/msn/5: NAKs carry the MSN of the last completed message.
func TestRCNAKsCarryCurrentMSN(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpWriteOnly, 0, p.at(0, 0))
		p.send(wire.OpSendOnly, 1)
		p.expect("RNR 1 code 12 msn 1")
		p.send(wire.OpWriteOnly, 1, p.at(0, 0))
		p.send(wire.OpWriteOnly, 3, p.at(0, 0))
		p.expect("NAK 2 sequence msn 2")
		p.send(wire.OpSendLast, 2, data(1))
		p.expect("NAK 2 invalid msn 2")
	})
}

// rc/msn/6: The MSN wraps at 24 bits and does not change the syndrome.
func TestRCMSNWraps(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.q.resp.msn = wire.MSNMask - 1 // as after that many messages
		for k, msn := range []wire.MSN{wire.MSNMask, 0, 1} {
			p.send(wire.OpWriteOnly, k, p.at(0, 0), ackReq)
			p.expect(fmt.Sprintf("ACK %d msn %d", k, msn))
		}
	})
}

// credits returns the credits in the last packet seen.
func (p *peer) credits() string {
	n, counted := wire.CreditCount(p.got[len(p.got)-1].AETH.Syndrome.Value())
	if !counted {
		return "unlimited"
	}
	return fmt.Sprint(n)
}

// rc/credit/1: A QP advertises the number of its receives, rounded down to a credit code. The
// receive of an unfinished message counts, since the MSN does not include that message.
func TestRCResponderAdvertisesItsReceives(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		check := func(want string) {
			p.Helper()
			if got := p.credits(); got != want {
				p.Fatalf("%s credits, want %s", got, want)
			}
		}
		p.send(wire.OpWriteOnly, 0, p.at(0, 0), ackReq)
		p.expect("ACK 0 msn 1")
		check("0")
		for id := range uint64(6) {
			p.recv(id, 2*p.mtu)
		}
		p.send(wire.OpSendFirst, 1, data(p.mtu), ackReq)
		p.expect("ACK 1 msn 1")
		check("6")
		p.send(wire.OpSendLast, 2, data(1), ackReq)
		p.expect("ACK 2 msn 2")
		check("4") // of 5
		p.send(wire.OpReadRequest, 3, p.at(0, 4))
		p.expect("RR_ONLY 3 4B msn 3")
		check("4")
		p.send(wire.OpFetchAdd, 4, p.word(0, 0, 0))
		p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE 4 was %d msn 4", p.wordValue(targetData)))
		check("4")
	})
}

// rc/credit/1: A QP with an SRQ advertises unlimited credits.
func TestRCResponderWithSRQAdvertisesNoCredits(t *testing.T) {
	p := newPeer(t, flavours[0], setup{})
	srq := must.Get(p.h.nic.CreateSRQ(nic.SRQConfig{PD: p.h.pd, MaxWR: 4, MaxSGE: 1}))(t)
	p.q = p.h.qp(verbs.QPTypeRC, func(c *QPConfig) { c.SRQ = srq })
	p.h.ready(p.q, p.addr, peerQPN, func(a *verbs.QPAttr) { a.RQPSN, a.SQPSN = uint32(p.rq), uint32(p.sq) })
	p.send(wire.OpWriteOnly, 0, p.at(0, 0), ackReq)
	p.expect("ACK 0 msn 1")
	if got := p.credits(); got != "unlimited" {
		t.Errorf("%s credits", got)
	}
}

// grant sends an ACK of the k-th PSN with a credit code.
func (p *peer) grant(k int, msn wire.MSN, code uint8) {
	p.send(wire.OpAcknowledge, k, func(k *wire.Packet) { k.AETH = wire.AETH{Syndrome: wire.Ack(code), MSN: msn} })
}

// rc/credit/2: Without credits, the requester sends SENDs one packet at a time with
// AckReq set, until it gets credits.
func TestRCRequesterSendsOnePacketWithoutCredits(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.grant(0, 1, 0)
		p.post(2, verbs.OpSend, 2*p.mtu+1)
		p.post(3, verbs.OpSendImm, 4)
		p.post(4, verbs.OpRDMAWriteImm, 4)
		p.post(5, verbs.OpSend, 4)
		p.expect(fmt.Sprintf("SEND_FIRST 1 %dB ackreq", p.mtu))
		p.silence(time.Millisecond)
		p.grant(1, 1, 0)
		p.expect(fmt.Sprintf("SEND_MIDDLE 2 %dB ackreq", p.mtu))
		p.grant(2, 1, 0)
		p.expect("SEND_LAST 3 1B ackreq")
		p.grant(3, 2, 1) // one more
		p.expect("SEND_ONLY_IMM 4 4B imm 00000000 ackreq")
		p.grant(4, 3, 0)
		p.expect("WRITE_ONLY_IMM 5 4B va+0 len 4 imm 00000000 ackreq")
		p.ack(5)                          // unlimited again
		p.expect("SEND_ONLY 6 4B ackreq") // rc/credit/1
	})
}

// rc/credit/2: A duplicate of the last ACK may grant more credits. A lower limit
// than before is ignored.
func TestRCDuplicateAckUpdatesCredits(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.grant(0, 1, 0)
		for id := range uint64(3) {
			p.post(2+id, verbs.OpSend, 4)
		}
		p.expect("SEND_ONLY 1 4B ackreq")
		p.grant(0, 1, 4) // up to the fifth
		p.expect("SEND_ONLY 2 4B ackreq", "SEND_ONLY 3 4B ackreq")
		p.grant(1, 2, 0)
		p.post(5, verbs.OpSend, 4)
		p.post(6, verbs.OpSend, 4)
		p.expect("SEND_ONLY 4 4B ackreq")
		p.ack(4)
		p.expect("SEND_ONLY 5 4B ackreq")
	})
}

// rc/credit/3: Requests that consume no receive need no credits.
func TestRCCreditsDoNotLimitWritesReadsAndAtomics(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.grant(0, 1, 0)
		p.post(2, verbs.OpRDMAWrite, 4)
		p.post(3, verbs.OpRDMARead, 4)
		p.post(4, verbs.OpAtomicFetchAdd, 8)
		p.post(5, verbs.OpSend, 4)
		p.post(6, verbs.OpRDMAWrite, 4)
		p.expect("WRITE_ONLY 1 4B va+0 len 4 ackreq", "READ_REQUEST 2 va+0 len 4 ackreq", "FETCH_ADD 3 va+0 0 0 ackreq")
		p.send(wire.OpReadResponseOnly, 2, data(4), syndrome(wire.Ack(0)))
		p.expect()
		p.send(wire.OpAtomicAcknowledge, 3, syndrome(wire.Ack(0)))
		p.expect("SEND_ONLY 4 4B ackreq", "WRITE_ONLY 5 4B va+0 len 4 ackreq")
	})
}
