package roce

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// counterCases are the cases about counters.
var counterCases = slices.Concat(counterTrafficCases, counterRecoveryCases, counterResponseCases, counterDropCases(), otherCounterCases)

// luminaCite is the study that found wrong counters of congestion and retries.
var luminaCite = cite("Lumina", "", []string{"ecn/7"})

// withLumina makes a case cite Lumina, and adds defects.
func withLumina(c conformance.Case, defects ...string) conformance.Case {
	c.Cite = luminaCite
	c.Defects = append(c.Defects, defects...)
	return c
}

// awaitPSN waits for a response with this PSN.
func awaitPSN(c *Conn, psn ib.PSN) {
	c.Await("a response", func(a *Arrival) bool { return a.PSN() == psn })
}

var counterTrafficCases = []conformance.Case{
	counterCase("what-is-received", "Received packets and bytes, and the ACKs of them, are counted",
		"three SENDs, two WRITEs and a READ of three responses", trafficCounts(cntAcksSent), serveRequests),
	counterCase("receives", "Completed receives are counted, and nothing else",
		"three SENDs, two WRITEs and a READ", rig.Counts{cntReceives: rig.Exactly(3)}, serveRequests),
	counterCase("what-is-sent", "Sent packets and bytes, and the ACKs of them, are counted",
		"ACKs for three SENDs and a WRITE of four packets", trafficCounts(cntAcksRcvd), sendRequests),
	counterCase("sends", "SENDs are counted, and no other requests",
		"ACKs for three SENDs and a WRITE of four packets", rig.Counts{cntSends: rig.Exactly(3)}, sendRequests),
}

// trafficCounts returns the counters of packets, of bytes and of these ACKs.
func trafficCounts(acks *rig.Counter) rig.Counts {
	return rig.Counts{
		cntSentPackets: fromRecord, cntRcvdPackets: fromRecord, cntSentBytes: fromRecord, cntRcvdBytes: fromRecord, acks: fromRecord,
	}
}

// serveRequests sends requests of several kinds, three of which use a receive.
func serveRequests(p *Port) {
	c := p.Connect(Setup{Receives: 3})
	for k := range 3 {
		c.Send(c.peerSend(k, 16))
		c.ExpectRecv(uint64(k+1), 16)
	}
	c.Send(c.peerWrite(3, 8), c.peerWrite(4, 8), c.peerRead(5, 2500))
	awaitPSN(c, c.PeerPSN(7))
}

// sendRequests has the device send requests of several kinds, three of which are SENDs.
func sendRequests(p *Port) {
	c := p.Connect(Setup{})
	c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 8), c.SendWR(3, 8), c.WriteWR(4, 4*MTU))
	c.AwaitPackets(7)
	for k := range 3 {
		c.completeWith(c.peerAck(k, uint32(k+1)), uint64(k+1))
	}
	c.completeWith(c.peerAck(6, 4), 4)
}

var counterResponseCases = []conformance.Case{
	counterCase("stale-answers", "Duplicate ACKs are counted",
		"an ACK for the second of two SENDs, then three for the first", rig.Counts{cntStaleResponses: rig.Exactly(3)},
		onNewConn(func(c *Conn) {
			c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 8))
			c.AwaitPackets(2)
			c.completeWith(c.peerAck(1, 2), 1, 2)
			for range 3 {
				c.Send(c.peerAck(0, 1))
			}
		})),
	counterCase("ghost-answers", "ACKs with PSNs that were never sent are counted",
		"on each of three connections, an ACK for a PSN far ahead of a SEND", rig.Counts{cntUnsentResponses: rig.Exactly(3)},
		func(p *Port) {
			for i := range 3 {
				c := p.Connect(Setup{})
				c.PostSend(c.QP, c.SendWR(1, 8))
				c.AwaitPackets(1)
				c.Send(c.peerAck(100+i, 1))
			}
		}),
	counterCase("bad-answers", "Responses of the wrong kind are counted",
		"on each of two connections, an atomic acknowledge to a READ", rig.Counts{cntBadResponses: rig.Exactly(2)},
		func(p *Port) {
			for range 2 {
				c := p.Connect(Setup{})
				c.PostSend(c.QP, c.ReadWR(1, MTU))
				c.AwaitPackets(1)
				c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 7))
				c.NextCompletion() // the status is not checked here
			}
		}),
}

var otherCounterCases = []conformance.Case{
	needsCongestion(counterCase("congestion", "Received CE marks, and CNPs sent and received, are counted",
		"three marked WRITEs, at intervals longer than that of CNPs, and four CNPs", rig.Counts{cntMarksSeen: fromRecord, cntCNPsSent: fromRecord, cntCNPsHandled: fromRecord},
		exchangeCNPs)),
	needsCM(counterCase("connection-requests", "Connection requests and their rejections are counted",
		"three REQs for a service without a listener", rig.Counts{cntMADsSent: fromRecord, cntMADsRcvd: fromRecord, cntCMRequests: rig.Exactly(3), cntCMRejects: rig.Exactly(3)},
		func(p *Port) {
			p.CM() // some devices answer only after the application opened the CM
			for i := range 3 {
				p.SendPacket(ib.CM(uint64(i+1), p.cmRequest(cmClosedPort, uint32(i+1))))
				_, ok := p.NextMatching(func(a *Arrival) bool { return a.DestQP() == ib.GSIQPN }, p.ResponseTimeout())
				p.Check(ok, "a REJ", "nothing in %v", p.ResponseTimeout())
			}
		})),
	counterCase("overruns", "CQ overruns are counted",
		"one SEND more than the completion queue has entries", rig.Counts{cntOverruns: rig.Between(1, 2)},
		func(p *Port) {
			full := p.CreateCQ(verbs.CQInit{Depth: 1})
			n := full.Depth() // the device may have rounded it up
			if n > 60 {
				rig.BenchCannot("the smallest completion queue has room for %d", n)
			}
			cq := p.CQ
			p.CQ = full
			c := p.Connect(Setup{Receives: n + 2})
			p.CQ = cq
			for i := range n + 1 {
				c.Send(c.peerSend(i, 8))
			}
			// The queue pair fails, and the flushed receive overruns the CQ too.
		}),
}

// exchangeCNPs sends three marked WRITEs, for which the device sends CNPs, and four CNPs.
func exchangeCNPs(p *Port) {
	c := p.Connect(Setup{})
	for i := range 3 {
		c.Send(c.peerWrite(i, 8).CE())
		c.Sleep(maxCNPInterval)
	}
	for range 4 {
		c.Send(ib.CNP())
	}
}

// needsCM restricts a case to devices with a connection manager.
func needsCM(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapCM
	return c
}

// needsCongestion restricts a case to devices with congestion control.
func needsCongestion(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapCongestion
	return withLumina(c, "CNPCounterStuck")
}
