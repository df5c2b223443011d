package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var creditCases = overRC.Cases([]conformance.Case{{
	ID:    "rc/credit/advertised-where-claimed",
	Title: "A responder that claims end-to-end flow control advertises credits",
	Cite:  ibta("", "roce/rc/credit/1"), Level: conformance.May, Needs: verbs.CapCredits,
	Defects: []string{"NoCreditReporting"},
	Sends:   "a SEND to a queue pair with three receives",
	Expects: "an ACK with a credit code",
	Run: onConn(Setup{Receives: 3}, func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq())
		ack := c.expect(ib.Ack(c.PeerPSN(0), ib.AnyMSN))
		_, advertised := ib.Credits(ack.Syndrome())
		c.Check(advertised, "credits in the ACK", "code %d, which means none", ack.Syndrome())
	}),
}, {
	ID:    "rc/credit/never-more-than-receives-posted",
	Title: "A responder advertises no more credits than it has receives",
	Cite:  ibta("", "roce/rc/credit/1"), Level: conformance.May, Needs: verbs.CapCredits, Defects: []string{"CreditsInvented"},
	Sends:   "WRITEs and SENDs with no, one and thirteen receives, a number without a credit code",
	Expects: "no more credits than there are receives, in any ACK",
	Run: onConn(Setup{}, func(c *Conn) {
		k, posted := 0, 0
		send := func(p ib.Packet) {
			c.Send(p.WithPSN(c.PeerPSN(k)).AckReq())
			ack := c.expect(ib.Ack(ib.AnyPSN, ib.AnyMSN))
			for ack.PSN() == c.PeerPSN(k-1) { // an unsolicited ACK with new credits
				expectCreditsAtMost(c, posted+1, ack) // sent before this message arrived
				ack = c.expect(ib.Ack(ib.AnyPSN, ib.AnyMSN))
			}
			c.checkPacket(ib.Ack(c.PeerPSN(k), ib.AnyMSN), ack)
			expectCreditsAtMost(c, posted, ack)
			k++
		}
		for _, more := range []int{0, 1, 12} {
			for range more {
				c.PostRecv(c.QP, uint64(k), c.LocalMem.SGE(0, 64))
				posted++
			}
			send(ib.WriteOnly(0, c.RETH(0, 0), nil))
		}
		for posted > 0 {
			posted--
			send(ib.SendOnly(0, Data(8)))
		}
	}),
}, {
	ID:    "rc/credit/none-advertised-with-an-srq",
	Title: "A queue pair with a shared receive queue advertises no credits",
	Cite:  ibta("", "roce/rc/credit/1"), Level: conformance.May, Needs: verbs.CapSRQ, Defects: []string{"CreditsInvented"},
	Sends:   "a SEND, a WRITE and a READ to a queue pair on an SRQ with four receives",
	Expects: "credit code 31 in all answers",
	Run: OnPort(func(p *Port) {
		srq, err := p.Device.CreateSRQ(verbs.SRQInit{PD: p.PD, MaxWR: 4, MaxSGE: 1})
		p.Must("a shared receive queue", err)
		c := p.connect(Setup{srq: srq})
		for id := range 4 {
			c.PostRecv(srq, uint64(id+1), c.LocalMem.SGE(64*id, 64))
		}
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq())
		c.expect(ib.Ack(c.PeerPSN(0), ib.AnyMSN).WithCredits(ib.NoCredits))
		c.Send(ib.WriteOnly(c.PeerPSN(1), c.RETH(0, 8), Data(8)).AckReq())
		c.expect(ib.Ack(c.PeerPSN(1), ib.AnyMSN).WithCredits(ib.NoCredits))
		c.Send(ib.ReadRequest(c.PeerPSN(2), c.RETH(0, 8)).AckReq())
		c.expect(ib.ReadResponseOnly(c.PeerPSN(2), ib.AnyMSN, nil).WithCredits(ib.NoCredits))
	}),
}, {
	ID:    "rc/credit/requester-stops-where-they-end",
	Title: "A requester with flow control sends at most one SEND without a credit",
	Cite:  ibta("", "roce/rc/credit/2"), Needs: verbs.CapCredits, Defects: []string{"NoCreditHeeding"},
	Sends:   "to a SEND an ACK with 0 credits, with three more SENDs to follow; later an ACK with 8",
	Expects: "at most one packet before the second ACK, and all after it",
	Run: onConn(Setup{}, func(c *Conn) {
		exhaustCredits(c)
		c.PostSend(c.QP, c.SendWR(2, 8), c.SendWR(3, 8), c.SendWR(4, 8))
		early := c.drain()
		c.Check(len(early) <= 1, "at most one packet without credits", "%d", len(early))
		c.expectSilence(creditsQuiet)
		// Acknowledge the probe, if the device sent one; otherwise repeat the last
		// ACK with new credits.
		n := len(early)
		c.Send(ib.Ack(c.DevicePSN(n), uint32(n+1)).WithCredits(creditCode8))
		for k := n + 1; k <= 3; k++ {
			c.expectAll(c.wantSend(k, 8))
		}
		c.Send(ib.Ack(c.DevicePSN(3), 4).WithCredits(creditCode8))
		for id := uint64(2); id <= 4; id++ {
			c.ExpectCompletion(id, verbs.WCSuccess)
		}
	}),
}, {
	ID:    "rc/credit/requester-probes-where-they-end",
	Title: "A requester without credits sends one SEND as a probe",
	Cite:  ibta("", "roce/rc/credit/2"), Needs: verbs.CapCredits, Defects: []string{"CreditsBlockAll"},
	Sends:   "an ACK with 0 credits to each of four SENDs",
	Expects: "the next SEND, one at a time",
	Run: onConn(Setup{}, func(c *Conn) {
		exhaustCredits(c)
		c.PostSend(c.QP, c.SendWR(2, 8), c.SendWR(3, 8), c.SendWR(4, 8))
		for k := 1; k <= 3; k++ {
			c.expectAll(c.wantSend(k, 8))
			c.Send(ib.Ack(c.DevicePSN(k), uint32(k+1)).WithCredits(0))
			c.ExpectCompletion(uint64(k+1), verbs.WCSuccess)
		}
	}),
}, {
	ID:    "rc/credit/writes-and-reads-need-none",
	Title: "Requests that use no receive are sent without credits",
	Cite:  ibta("", "roce/rc/credit/3"), Needs: verbs.CapCredits, Defects: []string{"CreditsBlockAll"},
	Sends:   "an ACK with 0 credits, before two WRITEs, a READ and, if supported, a FETCH_ADD",
	Expects: "all of them at once",
	Run: onConn(Setup{}, func(c *Conn) {
		exhaustCredits(c)
		c.PostSend(c.QP, c.WriteWR(2, 2500), c.WriteWR(3, 8), c.ReadWR(4, 8))
		c.expectAll(c.wantWrite(1, 2500), c.wantWrite(4, 8), c.wantRead(5, 8))
		if c.Caps.Has(verbs.CapAtomics) {
			c.PostSend(c.QP, c.fetchAddWR(5))
			c.expectAll(c.wantFetchAdd(6))
		}
	}),
}})

// expectCreditsAtMost fails the case if an ACK grants more credits.
func expectCreditsAtMost(c *Conn, most int, ack ib.Packet) {
	n, advertised := ib.Credits(ack.Syndrome())
	c.Check(!advertised || n <= most, fmt.Sprintf("at most %d credits", most), "%d", n)
}

// creditCode8 is the code of eight credits.
const creditCode8 = 6

// creditsQuiet is how long a requester without credits must be silent. It is short, so
// that the requester does not probe again.
const creditsQuiet = shortWait

// exhaustCredits has the device send a SEND, and acknowledges it with 0 credits.
func exhaustCredits(c *Conn) {
	c.PostSend(c.QP, c.SendWR(1, 8))
	c.expectAll(c.wantSend(0, 8))
	c.Send(ib.Ack(c.DevicePSN(0), 1).WithCredits(0))
	c.ExpectCompletion(1, verbs.WCSuccess)
}
