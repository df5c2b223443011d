package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/psn/1, rc/psn/2, rc/psn/3, rc/psn/16: PSNs start as configured and count
// packets; a READ uses one PSN per response packet.
func TestRCRequesterPSNsWrap(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 1)
		p.post(2, verbs.OpRDMARead, 2*p.mtu+1)
		p.post(3, verbs.OpRDMARead, 0)
		p.post(4, verbs.OpAtomicFetchAdd, 8)
		p.post(5, verbs.OpRDMAWrite, p.mtu+1)
		p.post(6, verbs.OpSend, 0)
		p.expect(
			"SEND_ONLY 0 1B ackreq",
			fmt.Sprintf("READ_REQUEST 1 va+0 len %d ackreq", 2*p.mtu+1),
			"READ_REQUEST 4 va+0 len 0 ackreq",
			"FETCH_ADD 5 va+0 0 0 ackreq",
			fmt.Sprintf("WRITE_FIRST 6 %dB va+0 len %d", p.mtu, p.mtu+1), "WRITE_LAST 7 1B ackreq",
			"SEND_ONLY 8 ackreq",
		)
	})
}

// rc/psn/3: The same for the responder.
func TestRCResponderPSNsWrap(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		for k := range 12 {
			p.send(wire.OpWriteOnly, k, p.at(0, 4), data(4), ackReq)
			p.expect(fmt.Sprintf("ACK %d msn %d", k, k+1))
		}
		p.send(wire.OpReadRequest, 12, p.at(0, 3*p.mtu))
		p.expect(fmt.Sprintf("RR_FIRST 12 %dB msn 13", p.mtu), fmt.Sprintf("RR_MIDDLE 13 %dB", p.mtu), fmt.Sprintf("RR_LAST 14 %dB msn 13", p.mtu))
		p.send(wire.OpWriteOnly, 15, p.at(0, 4), data(4), ackReq)
		p.expect("ACK 15 msn 14")
	})
}

// rc/psn/4: PSNs in the half before the expected PSN are duplicates, those in the
// other half are ahead.
func TestRCPSNSpaceIsDividedInHalves(t *testing.T) {
	const half = 1 << 23
	for _, tc := range []struct {
		k    int
		want string
	}{
		{-1, "ACK 2 msn 3"},
		{-half, "ACK 2 msn 3"},
		{-half + 1, "ACK 2 msn 3"},
		{1, "NAK 3 sequence msn 3"},
		{half - 1, "NAK 3 sequence msn 3"},
		{half - 2, "NAK 3 sequence msn 3"},
	} {
		t.Run(fmt.Sprint(tc.k), func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				for k := range 3 {
					p.send(wire.OpWriteOnly, k, p.at(0, 0))
				}
				p.send(wire.OpWriteOnly, 3+tc.k, p.at(0, 4), data(4))
				p.expect(tc.want)
			})
		})
	}
}

// rc/psn/5, rc/psn/6, rc/psn/7, rc/psn/8, rc/psn/11: A gap causes one sequence NAK
// with the expected PSN and no other change.
func TestRCGapIsNAKedOnce(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 64)
		before := bytes.Clone(p.target(0, 64))
		p.send(wire.OpWriteOnly, 2, p.at(0, 4), data(4), ackReq)
		p.expect("NAK 0 sequence msn 0")
		p.send(wire.OpSendOnly, 3, data(4), ackReq)
		p.send(wire.OpFetchAdd, 4, p.word(8, 1, 0))
		p.send(wire.OpReadRequest, 5, p.at(0, 4))
		p.silence(time.Second)
		p.wcs()
		if !bytes.Equal(p.target(0, 64), before) {
			p.Error("memory changed")
		}
		p.send(wire.OpSendOnly, 0, data(4), ackReq)
		p.expect("ACK 0 msn 1")
		p.wcs("1 SUCCESS RECV 4B")
		p.send(wire.OpWriteOnly, 7, p.at(0, 4), data(4))
		p.expect("NAK 1 sequence msn 1")
		p.send(wire.OpWriteOnly, 6, p.at(0, 4), data(4))
		p.expect()
	})
}

// rc/psn/5, rc/rnr/2: A pending NAK is replaced by an ACK when the missing packet
// arrives before the NAK was sent.
func TestRCPendingNAKIsReplacedWhenPacketArrives(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpWriteOnly, 0, p.at(0, 0), ackReq)
		p.send(wire.OpWriteOnly, 2, p.at(0, 0))
		p.send(wire.OpWriteOnly, 1, p.at(0, 0))
		p.expect("ACK 1 msn 2")
		p.send(wire.OpSendOnly, 2)
		p.recv(1, 4)
		p.send(wire.OpSendOnly, 2) // a duplicate of the network
		p.expect("ACK 2 msn 3")
		p.send(wire.OpWriteOnly, 4, p.at(0, 0))
		p.send(wire.OpReadRequest, 3, p.at(0, 4))
		p.expect("ACK 2 msn 4", "RR_ONLY 3 4B msn 4")
	})
}

// rc/psn/9, rc/msn/2: A duplicate SEND or WRITE is acknowledged but not executed.
func TestRCDuplicateIsAcknowledgedNotExecuted(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 64)
		p.recv(2, 64)
		p.send(wire.OpSendOnlyImm, 0, data(4), imm(1), ackReq)
		p.expect("ACK 0 msn 1")
		p.wcs("1 SUCCESS RECV 4B imm 00000001")
		p.send(wire.OpSendOnlyImm, 0, data(4), imm(1)) // without AckReq
		p.expect("ACK 0 msn 1")
		p.send(wire.OpWriteOnly, 1, p.at(0, 4), payload([]byte{1, 1, 1, 1}), ackReq)
		p.expect("ACK 1 msn 2")
		p.send(wire.OpWriteOnly, 1, p.at(0, 4), payload([]byte{2, 2, 2, 2}), ackReq)
		p.expect("ACK 1 msn 2")
		if p.target(0, 1)[0] != 1 {
			p.Error("a duplicate was written")
		}
		p.send(wire.OpSendOnly, 0, data(4), ackReq)
		p.expect("ACK 1 msn 2")
		p.wcs()
	})
}

// rc/psn/10: The ACK of a duplicate never carries the PSN of a READ response, but
// may carry that of an atomic.
func TestRCDuplicateAckDoesNotCarryReadPSN(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		write := func(k int) { p.send(wire.OpWriteOnly, k, p.at(64, 4), data(4), ackReq) }
		write(0)
		p.expect("ACK 0 msn 1")
		p.send(wire.OpReadRequest, 1, p.at(0, p.mtu+1))
		p.expect(fmt.Sprintf("RR_FIRST 1 %dB msn 2", p.mtu), "RR_LAST 2 1B msn 2")
		write(0)
		p.expect("ACK 0 msn 2")
		p.send(wire.OpFetchAdd, 3, p.word(0, 1, 0))
		p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE 3 was %d msn 3", p.wordValue(targetData)))
		write(0)
		p.expect("ACK 3 msn 3")
	})
}

// rc/psn/12: An earlier duplicate READ is answered before the rest of a later one.
func TestRCEarlierDuplicateReadIsAnsweredFirst(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpReadRequest, 0, p.at(0, 4))
		p.expect("RR_ONLY 0 4B msn 1")
		p.send(wire.OpReadRequest, 1, p.at(0, 4*p.mtu))
		if n := p.h.nic.Output(p.now, p.ds[:2]); n != 2 {
			p.Fatalf("%d packets", n)
		}
		p.send(wire.OpReadRequest, 0, p.at(0, 4))
		p.expect("RR_ONLY 0 4B msn 1", fmt.Sprintf("RR_MIDDLE 3 %dB", p.mtu), fmt.Sprintf("RR_LAST 4 %dB msn 2", p.mtu))
	})
}

// rc/psn/13, rc/psn/14: Responses with PSNs that were never sent, or already
// acknowledged, are ignored.
func TestRCResponsesOutsideWindowAreIgnored(t *testing.T) {
	const half = 1 << 23
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.ack(0)
		p.wcs("1 SUCCESS SEND")
		p.post(2, verbs.OpSend, 4)
		p.post(3, verbs.OpRDMARead, 4)
		p.expect("SEND_ONLY 1 4B ackreq", "READ_REQUEST 2 va+0 len 4 ackreq")
		for _, k := range []int{0, -1, -100, 1 - half, 3, 4, 100, half - 1} {
			p.ack(k)
			p.nak(k, wire.NakPSNSequence)
			p.nak(k, wire.NakInvalidRequest)
			p.rnr(k, 1)
			p.send(wire.OpAcknowledge, k, syndrome(0x7f))
			p.send(wire.OpAcknowledge, k, syndrome(0x40))
			p.send(wire.OpReadResponseOnly, k, data(4))
			p.send(wire.OpReadResponseMiddle, k, data(p.mtu))
			p.send(wire.OpAtomicAcknowledge, k)
		}
		p.expect()
		p.wcs()
		p.state(verbs.QPStateRTS)
		if p.h.nic.Count.GhostResponses == 0 || p.h.nic.Count.StaleResponses == 0 {
			p.Error("not counted")
		}
		p.send(wire.OpReadResponseOnly, 2, data(4))
		p.wcs("2 SUCCESS SEND", "3 SUCCESS RDMA_READ 4B")
	})
}

// rc/psn/15: At most half of the PSN space is unacknowledged at a time.
func TestRCRequesterUsesAtMostHalfThePSNSpace(t *testing.T) {
	fl := flavours[1] // the smallest MTU
	huge := endless(1 << 31)
	p := newPeer(t, fl, setup{nic: func(c *Config) { c.WindowPackets = 1<<23 - 1 }})
	mr := must.Get(p.h.nic.RegMR(p.h.pd, huge, 0, allAccess))(t)
	read := func(id uint64, n uint32) {
		p.post(id, verbs.OpRDMARead, 0, func(wr *verbs.SendWR) {
			wr.SGL = []verbs.SGE{{Addr: mr.Addr, Length: n, LKey: verbs.LKey(mr.Key)}}
		})
	}
	read(1, 1<<30)
	read(2, 1<<30+1) // one PSN too many
	p.expect(fmt.Sprintf("READ_REQUEST 0 va+0 len %d ackreq", 1<<30))
	p.send(wire.OpReadResponseFirst, 0, data(256))
	p.expect(fmt.Sprintf("READ_REQUEST %d va+0 len %d ackreq", 1<<22, 1<<30+1))
}

// rc/len/4, rc/wr/7: The longest READ uses half of the PSN space and can be retransmitted.
func TestRCLongestReadFillsHalfThePSNSpace(t *testing.T) {
	fl := flavours[1]
	p := newPeer(t, fl, setup{})
	mr := must.Get(p.h.nic.RegMR(p.h.pd, endless(1<<31), 0, allAccess))(t)
	p.post(1, verbs.OpRDMARead, 0, func(wr *verbs.SendWR) {
		wr.SGL = []verbs.SGE{{Addr: mr.Addr, Length: 1 << 31, LKey: verbs.LKey(mr.Key)}}
	})
	p.post(2, verbs.OpRDMAWrite, 1)
	p.expect(fmt.Sprintf("READ_REQUEST 0 va+0 len %d ackreq", 1<<31))
	p.send(wire.OpReadResponseFirst, 0, data(256))
	p.send(wire.OpReadResponseMiddle, 1, data(256))
	p.send(wire.OpReadResponseMiddle, 3, data(256))
	p.expect(fmt.Sprintf("READ_REQUEST 2 va+512 len %d ackreq", 1<<31-512))
	// Most responses have arrived.
	w := p.q.sq.at(p.q.sq.head)
	w.answered = 1<<23 - 1
	p.q.req.una = w.last
	p.send(wire.OpReadResponseLast, 1<<23-1, data(256))
	p.wcs(fmt.Sprintf("1 SUCCESS RDMA_READ %dB", 1<<31))
	p.expect("WRITE_ONLY -8388608 1B va+0 len 1 ackreq")
	p.ack(1 << 23)
	p.wcs("2 SUCCESS RDMA_WRITE")
}

// rc/ack/4: An ACK of a later message acknowledges the longest message.
func TestRCAckAfterLongestMessageCoversIt(t *testing.T) {
	p := newPeer(t, flavours[1], setup{})
	mr := must.Get(p.h.nic.RegMR(p.h.pd, endless(1<<31), 0, allAccess))(t)
	p.post(1, verbs.OpRDMAWrite, 0, func(wr *verbs.SendWR) {
		wr.SGL = []verbs.SGE{{Addr: mr.Addr, Length: 1 << 31, LKey: verbs.LKey(mr.Key)}}
	})
	p.post(2, verbs.OpSend, 1)
	if n := p.h.nic.Output(p.now, p.ds); n == 0 {
		t.Fatal("nothing sent")
	}
	// All packets but the last were sent and acknowledged.
	r := &p.q.req
	w := p.q.sq.at(p.q.sq.head)
	r.pkt, r.next, r.una, r.max = w.packets-1, w.last, w.last, w.last
	p.expect("WRITE_LAST 8388607 256B ackreq", "SEND_ONLY -8388608 1B ackreq")
	p.ack(1 << 23)
	p.wcs("1 SUCCESS RDMA_WRITE", "2 SUCCESS SEND")
}

// rc/atm/4: A duplicate matches the newest request with its PSN, not one from
// before a wrap of the PSN space.
func TestRCReplayUsesNewestEntryOfPSN(t *testing.T) {
	p := newPeer(t, flavours[0], setup{})
	add := func(k int) { p.send(wire.OpFetchAdd, k, p.word(0, 1, 0)) }
	first := p.wordValue(targetData)
	add(0)
	p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE 0 was %d msn 1", first))
	p.q.resp.expected = p.rq // as after 2^24-1 WRITE packets
	add(0)
	p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE 0 was %d msn 2", first+1))
	add(0)
	p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE 0 was %d msn 2", first+1))
}
