package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var msnCases = overRC.Cases([]conformance.Case{{
	ID: "rc/msn/first-message-counts-one", Cite: ibta("C9-148", "rc/msn/1"),
	Title:   "The MSN starts at 0 and counts completed messages, including the acknowledged one",
	Sends:   "SENDs and WRITEs by turns, on a connection that begins with each; on the last 256 WRITEs more",
	Expects: "MSN 1 in the first ACK, and one more in each further",
	Defects: []string{"MSNLate", "MSNHasEightBits"}, Run: OnPort(func(p *Port) {
		ops := []ib.Opcode{ib.OpSendOnly, ib.OpWriteOnly, ib.OpSendOnlyImm, ib.OpWriteOnlyImm}
		var c *Conn
		for i := range ops {
			c = p.connect(Setup{Receives: 4})
			for k := range ops {
				c.exchange(packetOf(c, ops[(i+k)%len(ops)], k), c.deviceAck(k, uint32(k+1)))
			}
		}
		for k := len(ops); k < len(ops)+256; k++ {
			c.exchange(c.peerWrite(k, 0), c.deviceAck(k, uint32(k+1)))
		}
	}),
}, {
	ID: "rc/msn/duplicates-do-not-count", Cite: ibta("C9-148", "rc/msn/2"),
	Title:   "The MSN does not count duplicates",
	Sends:   "a SEND and a READ, both again, and another SEND",
	Expects: "the same MSN for the duplicates, and one more for the new SEND",
	Defects: []string{"MSNCountsPackets"}, Run: onRC(func(c *Conn) {
		send := c.peerSend(0, 16)
		read := c.peerRead(1, 16).AckReq()
		c.exchange(send, c.deviceAck(0, 1))
		c.exchange(read, ib.ReadResponseOnly(c.PeerPSN(1), 2, nil))
		c.exchange(send, ib.Ack(ib.AnyPSN, 2))
		c.exchange(read, ib.ReadResponseOnly(c.PeerPSN(1), 2, nil))
		c.exchange(c.peerSend(2, 16), c.deviceAck(2, 3))
	}),
}, {
	ID: "rc/msn/read-counted-by-its-last-response", Cite: ibta("C9-148", "rc/msn/3"),
	Title:   "The MSN counts a READ at the latest in its last response",
	Sends:   "a SEND, a READ of three responses and one of one",
	Expects: "MSN 1; 1 or 2 in the first response of the READ and 2 in its last; 3 in the only one of the other",
	Defects: []string{"MSNLate"}, Run: onRC(func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)))
		c.Drain(sentSoFar)
		c.Send(c.peerRead(1, 2500).AckReq())
		first := c.expect(ib.Response(ib.OpReadResponseFirst, c.PeerPSN(1), ib.AnyMSN, nil))
		c.Check(first.MSN() == 1 || first.MSN() == 2, "MSN 1 or 2 in the first response", "%d", first.MSN())
		c.expect(ib.New(ib.OpReadResponseMiddle, c.PeerPSN(2), nil))
		c.expect(ib.Response(ib.OpReadResponseLast, c.PeerPSN(3), 2, nil))
		c.exchange(c.peerRead(4, 16).AckReq(), ib.ReadResponseOnly(c.PeerPSN(4), 3, nil))
	}),
}, {
	ID: "rc/msn/message-of-many-packets-counts-once", Cite: ibta("C9-148", "rc/msn/4"),
	Title:   "The MSN counts a message of several packets once, at its end",
	Sends:   "a SEND of three packets and a WRITE of three, all with AckReq, one at a time",
	Expects: "MSN 0, 0, 1 and 1, 1, 2",
	Defects: []string{"MSNCountsPackets"}, Run: onConn(Setup{Receives: 1, recvLen: 4096}, func(c *Conn) {
		messages := [][]ib.Packet{
			ib.Send(c.PeerPSN(0), Data(2500), MTU),
			ib.Write(c.PeerPSN(3), c.RETH(0, 0), Data(2500), MTU),
		}
		for done, parts := range messages {
			for i, part := range parts {
				c.exchange(part.AckReq(), ib.Ack(part.PSN(), uint32(done+i/2)))
			}
		}
	}),
}, {
	ID: "rc/msn/naks-carry-the-count-reached", Cite: ibta("", "rc/msn/5"),
	Title:   "NAKs carry the MSN of the last completed message; the refused one does not count",
	Sends:   "after two SENDs, one after a gap, one without a receive, twice, and a WRITE with an invalid key",
	Expects: "MSN 2 in the NAK for a sequence error, in both RNR NAKs, and in the NAK of the WRITE",
	Defects: []string{"MSNCountsPackets"}, Run: onConn(Setup{Receives: 2}, func(c *Conn) {
		c.exchange(c.peerSend(0, 8), c.deviceAck(0, ib.AnyMSN))
		c.exchange(c.peerSend(1, 8), c.deviceAck(1, ib.AnyMSN))
		c.exchangeIgnoringCNPs(c.peerSend(4, 8), c.deviceNak(2, ib.NakSequence, 2))
		for range 2 {
			c.exchangeIgnoringCNPs(c.peerSend(2, 8), anyRNRNak(c.PeerPSN(2)).WithMSN(2))
		}
		c.exchange(writeOp.packet(c.PeerPSN(2), c.unknownKeyRETH(8)), anyNak(c.PeerPSN(2), 2))
	}),
}, {
	ID:   "rc/credit/advertised-where-claimed",
	Cite: ibta("", "rc/credit/1"), Level: conformance.May, Needs: verbs.CapCredits,
	Title:   "A responder that claims end-to-end flow control advertises credits",
	Sends:   "a SEND to a queue pair with three receives, a WRITE, READs of one and three packets and, if supported, a FETCH_ADD and a COMPARE_SWAP",
	Expects: "a credit code in every AETH",
	Defects: []string{"NoCreditReporting", "AtomicAckWithoutCredits", "ReadResponseWithoutCredits"}, Run: onConn(Setup{Receives: 3}, func(c *Conn) {
		ack := c.exchange(c.peerSend(0, 16), c.deviceAck(0, ib.AnyMSN))
		for _, a := range append(c.creditResponses(1), ack) {
			_, advertised := ib.Credits(a.Syndrome())
			c.Check(advertised, "credits in each AETH", "%v with code %d, which means none", a, a.Syndrome())
		}
	}),
}, {
	ID:   "rc/credit/never-more-than-receives-posted",
	Cite: ibta("", "rc/credit/1"), Level: conformance.May, Needs: verbs.CapCredits,
	Title:   "A responder advertises no more credits than it has receives",
	Sends:   "WRITEs, READs, atomics if supported, and SENDs with no, one and thirteen receives, a number without a credit code",
	Expects: "no more credits than there are receives, in any AETH",
	Defects: []string{"CreditsInvented"}, Run: onConn(Setup{}, func(c *Conn) {
		k, posted := 0, 0
		send := func(p ib.Packet) {
			ack := c.exchange(p.WithPSN(c.PeerPSN(k)).AckReq(), ib.Ack(ib.AnyPSN, ib.AnyMSN))
			for ack.PSN() == c.PeerPSN(k-1) { // an unsolicited ACK with new credits
				expectCreditsAtMost(c, posted+1, ack) // sent before this message arrived
				ack = c.expect(ib.Ack(ib.AnyPSN, ib.AnyMSN))
			}
			c.checkPacket(c.deviceAck(k, ib.AnyMSN), ack)
			expectCreditsAtMost(c, posted, ack)
			k++
		}
		for _, more := range []int{0, 1, 12} {
			for range more {
				c.PostRecv(c.QP, uint64(k), c.LocalMem.SGE(0, 64))
				posted++
			}
			send(ib.WriteOnly(0, c.RETH(0, 0), nil))
			for _, a := range c.creditResponses(k) {
				expectCreditsAtMost(c, posted, a)
				k = a.PSN().Sub(c.PeerPSN(0)) + 1
			}
		}
		for posted > 0 {
			posted--
			send(ib.SendOnly(0, Data(8)))
		}
	}),
}, {
	ID:   "rc/credit/none-advertised-with-an-srq",
	Cite: ibta("", "rc/credit/1"), Level: conformance.May, Needs: verbs.CapSRQ,
	Title:   "A queue pair with a shared receive queue advertises no credits",
	Sends:   "a SEND, a WRITE, READs and, if supported, atomics to a queue pair on an SRQ with four receives",
	Expects: "credit code 31 in every AETH",
	Defects: []string{"CreditsInvented"}, Run: OnPort(func(p *Port) {
		srq := p.newSRQ(p.PD)
		c := p.connect(Setup{srq: srq})
		for id := range 4 {
			c.PostRecv(srq, uint64(id+1), c.LocalMem.SGE(64*id, 64))
		}
		c.exchange(c.peerSend(0, 16), c.deviceAck(0, ib.AnyMSN).WithCredits(ib.NoCreditCount))
		for _, a := range c.creditResponses(1) {
			c.Check(a.Syndrome() == ib.NoCreditCount, "credit code 31 in each AETH", "%v with code %d", a, a.Syndrome())
		}
	}),
}, {
	ID: "rc/credit/requester-stops-where-they-end", Cite: ibta("", "rc/credit/2"), Needs: verbs.CapCredits,
	Title:   "A requester with flow control sends at most one SEND without a credit",
	Sends:   "to a SEND an ACK with 0 credits, with three more SENDs to follow; later an ACK with 8",
	Expects: "at most one packet before the second ACK, and all after it",
	Defects: []string{"NoCreditHeeding"}, Run: onConn(Setup{}, func(c *Conn) {
		exhaustCredits(c)
		c.PostSend(c.QP, c.SendWR(2, 8), c.SendWR(3, 8), c.SendWR(4, 8))
		early := c.Drain(sentSoFar)
		c.Check(len(early) <= 1, "at most one packet without credits", "%d", len(early))
		c.expectSilence(shortWait) // short, so that the device does not probe again
		// Acknowledge the probe, if the device sent one; otherwise repeat the last
		// ACK with new credits.
		n := len(early)
		c.Send(c.peerAck(n, uint32(n+1)).WithCredits(creditCode8))
		for k := n + 1; k <= 3; k++ {
			c.expectAll(c.wantSend(k, 8))
		}
		c.completeWith(c.peerAck(3, 4).WithCredits(creditCode8), 2, 3, 4)
	}),
}, {
	ID: "rc/credit/requester-probes-where-they-end", Cite: ibta("", "rc/credit/2"), Needs: verbs.CapCredits,
	Title:   "A requester without credits sends one SEND as a probe",
	Sends:   "an ACK with 0 credits to each of four SENDs",
	Expects: "the next SEND, one at a time",
	Defects: []string{"CreditsBlockAll"}, Run: onConn(Setup{}, func(c *Conn) {
		exhaustCredits(c)
		c.PostSend(c.QP, c.SendWR(2, 8), c.SendWR(3, 8), c.SendWR(4, 8))
		for k := 1; k <= 3; k++ {
			c.expectAll(c.wantSend(k, 8))
			c.completeWith(c.peerAck(k, uint32(k+1)).WithCredits(0), uint64(k+1))
		}
	}),
}, {
	ID: "rc/credit/writes-and-reads-need-none", Cite: ibta("", "rc/credit/3"), Needs: verbs.CapCredits,
	Title:   "Requests that use no receive are sent without credits",
	Sends:   "an ACK with 0 credits, before two WRITEs, a READ and, if supported, a FETCH_ADD",
	Expects: "all of them at once",
	Defects: []string{"CreditsBlockAll"}, Run: onConn(Setup{}, func(c *Conn) {
		exhaustCredits(c)
		c.request(1, c.WriteWR(2, 2500), c.WriteWR(3, 8), c.ReadWR(4, 8))
		if c.Caps.Has(verbs.CapAtomics) {
			c.request(6, c.fetchAddWR(5))
		}
	}),
}})

// creditResponses sends requests of every kind that needs no receive, one at a time from the k-th
// PSN on. It returns the responses that have an AETH.
func (c *Conn) creditResponses(k int) (all []Arrival) {
	requests := []ib.Packet{c.peerWrite(0, 16), c.peerRead(0, 16), c.peerRead(0, 2500)}
	if c.Caps.Has(verbs.CapAtomics) {
		at := wordRETH(c.TargetMem, 2)
		requests = append(requests, ib.FetchAdd(0, at, 1), ib.CompareSwap(0, at, 1, 2))
	}
	for _, request := range requests {
		c.Send(request.WithPSN(c.PeerPSN(k)).AckReq())
		if request.Opcode() == ib.OpReadRequest {
			k += ib.Packets(int(*request.RETH.Len), MTU) - 1
		}
		for done := false; !done; { // the device may send ACKs with new credits before the response
			a := c.expect(ib.Packet{})
			if done = a.PSN() == c.PeerPSN(k); a.AETH != nil {
				all = append(all, a)
			}
		}
		k++
	}
	return all
}

// expectCreditsAtMost fails the case if an ACK advertises more than most credits.
func expectCreditsAtMost(c *Conn, most int, ack Arrival) {
	if n, advertised := ib.Credits(ack.Syndrome()); advertised {
		c.Check(n <= most, fmt.Sprintf("at most %d credits", most), "%d", n)
	}
}

// creditCode8 is the code of eight credits.
const creditCode8 = 6

// exhaustCredits has the device send a SEND, and acknowledges it with 0 credits.
func exhaustCredits(c *Conn) {
	c.request(0, c.SendWR(1, 8))
	c.completeWith(c.peerAck(0, 1).WithCredits(0), 1)
}
