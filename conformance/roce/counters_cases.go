package roce

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// counterCases are the cases about counters.
var counterCases = slices.Concat(counterTrafficCases, counterRecoveryCases, counterResponseCases, counterDropCases(), otherCounterCases)

// luminaCite cites the study (SIGCOMM 2023) that found wrong counters of congestion and retries.
var luminaCite = cite("Lumina", "", []string{"ecn/7"})

// ofLumina makes a case cite Lumina, and adds a defect and required capabilities to it.
func ofLumina(c conformance.Case, defect string, needs verbs.Caps) conformance.Case {
	c.Cite, c.Defects = luminaCite, append(c.Defects, defect)
	c.Needs |= needs
	return c
}

// awaitPSN waits for a packet of the device with this PSN.
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

// trafficCounts returns fromRecord for the counters of packets and bytes and for that of ACKs,
// which is acks.
func trafficCounts(acks *rig.Counter) rig.Counts {
	return rig.Counts{
		cntSentPackets: fromRecord, cntRcvdPackets: fromRecord, cntSentBytes: fromRecord, cntRcvdBytes: fromRecord, acks: fromRecord,
	}
}

// serveRequests sends the device requests of several kinds, three of which use a receive.
func serveRequests(p *Port) {
	c := p.Connect(Setup{Receives: 3})
	for k := range 3 {
		c.Send(c.peerSend(k, 16))
		c.ExpectRecv(uint64(k+1), 16)
	}
	c.Send(c.peerWrite(3, 8), c.peerWrite(4, 8), c.peerRead(5, 2500))
	awaitPSN(c, c.PeerPSN(7)) // of the last of three READ responses
}

// sendRequests has the device send requests of several kinds, three of which are SENDs.
func sendRequests(p *Port) {
	c := p.Connect(Setup{})
	c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 8), c.SendWR(3, 8), c.WriteWR(4, 4*MTU))
	c.AwaitPackets(7) // three SENDs, and four packets of the WRITE
	for k := range 3 {
		c.completeWith(c.peerAck(k, uint32(k+1)), uint64(k+1))
	}
	c.completeWith(c.peerAck(6, 4), 4)
}

var counterResponseCases = []conformance.Case{
	counterCase("stale-answers", "Duplicate ACKs are counted",
		"an ACK for the second of two SENDs, then three for the first", rig.Counts{cntStaleResponses: rig.Exactly(3)},
		onNewConns(1, func(c *Conn, _ int) {
			c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 8))
			c.AwaitPackets(2)
			c.completeWith(c.peerAck(1, 2), 1, 2)
			for range 3 {
				c.Send(c.peerAck(0, 1))
			}
		})),
	counterCase("ghost-answers", "ACKs with PSNs that were never sent are counted",
		"on each of three connections, an ACK for a PSN far ahead of a SEND",
		rig.Counts{cntUnsentResponses: rig.Exactly(3)}, onNewConns(3, func(c *Conn, i int) {
			c.PostSend(c.QP, c.SendWR(1, 8))
			c.AwaitPackets(1)
			c.Send(c.peerAck(100+i, 1))
		})),
	counterCase("bad-answers", "Responses of the wrong kind are counted",
		"on each of two connections, an atomic acknowledge to a READ", rig.Counts{cntBadResponses: rig.Exactly(2)},
		onNewConns(2, func(c *Conn, _ int) {
			c.PostSend(c.QP, c.ReadWR(1, MTU))
			c.AwaitPackets(1)
			c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 7))
			c.NextCompletion() // the status is not checked here
		})),
}

var otherCounterCases = []conformance.Case{
	ofLumina(counterCase("congestion", "Received CE marks, and CNPs sent and received, are counted",
		"three marked WRITEs, at intervals longer than that of CNPs, and four CNPs",
		rig.Counts{cntMarksSeen: fromRecord, cntCNPsSent: fromRecord, cntCNPsHandled: fromRecord}, exchangeCNPs), "CNPCounterStuck", verbs.CapCongestion),
	needsCM(counterCase("connection-requests", "Connection requests and their rejections are counted",
		"three REQs for a service without a listener",
		rig.Counts{cntMADsSent: fromRecord, cntMADsRcvd: fromRecord, cntCMRequests: rig.Exactly(3), cntCMRejects: rig.Exactly(3)}, func(p *Port) {
			p.CM() // some devices answer only after the application opened the CM
			for i := range 3 {
				p.SendPacket(ib.CM(uint64(i+1), p.cmRequest(cmClosedPort, uint32(i+1))))
				_, ok := p.NextMatching(func(a *Arrival) bool { return a.DestQP() == ib.GSIQPN }, p.ResponseTimeout())
				p.Check(ok, "a REJ", "nothing in %v", p.ResponseTimeout())
			}
		})),
	counterCase("overruns", "CQ overruns are counted",
		"one SEND more than the completion queue has entries", rig.Counts{cntOverruns: rig.Between(1, 2)},
		func(p *Port) { p.overrunCQ(1, (*Conn).peerMessage) }), // the flushed receive overruns the CQ too
}

// exchangeCNPs sends three marked WRITEs, which make the device send CNPs, and then four CNPs.
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

var counterRecoveryCases = []conformance.Case{
	counterCase("duplicates", "Duplicate requests are counted",
		"a WRITE and a READ, and three duplicates of the WRITE and two of the READ",
		rig.Counts{cntDuplicates: rig.Exactly(5)}, onNewConns(1, func(c *Conn, _ int) {
			read := c.peerRead(1, 16)
			c.Send(c.peerWrite(0, 8), read)
			awaitPSN(c, c.PeerPSN(1))
			c.Send(c.peerWrite(0, 8), c.peerWrite(0, 8), c.peerWrite(0, 8), read, read)
		})),
	counterCase("gaps", "Requests after a gap, and the NAKs of them, are counted",
		"five times a WRITE after a gap, and the missing one",
		rig.Counts{cntOutOfOrder: rig.Exactly(5), cntSeqNAKsSent: fromRecord}, onNewConns(1, func(c *Conn, _ int) {
			for i := range 5 {
				c.Send(c.peerWrite(i+1, 8))
				c.Await("a sequence NAK", func(a *Arrival) bool { return a.IsNak(ib.NakSequence) })
				c.Send(c.peerWrite(i, 8))
				c.Await("an ACK", func(a *Arrival) bool { return a.IsAck(ib.AckPositive) })
			}
		})),
	counterCase("repetitions", "Received sequence NAKs, and the retransmitted packets, are counted",
		"on two connections, a sequence NAK for a packet of a WRITE of eight",
		rig.Counts{cntSeqNAKsRcvd: fromRecord, cntResentPkts: fromRecord}, onNewConns(2, func(c *Conn, i int) {
			c.PostSend(c.QP, c.WriteWR(1, 8*MTU))
			c.AwaitPackets(8)
			c.Send(c.peerNak(3+2*i, ib.NakSequence, 0))
			awaitPSN(c, c.DevicePSN(7))
			c.completeWith(c.peerAck(7, 1), 1)
		})),
	ofLumina(counterCase("implied-naks", "Responses that imply that an earlier one was lost are counted",
		"twice, an ACK for a SEND after an unanswered READ; then the response",
		rig.Counts{cntImpliedNAKs: rig.Exactly(2)}, causeImpliedNAKs), "ImpliedNAKCounterStuck", verbs.CapRC),
	counterCase("timeouts", "Timeouts, retransmitted packets, and requests with exhausted retries are counted",
		"no response to a SEND with retry_cnt 3, and to one of a queue pair that the application moves to ERR",
		rig.Counts{cntAckTimeouts: rig.Between(3, 4), cntResentPkts: fromRecord, cntRetriesEnd: rig.Exactly(1)}, func(p *Port) {
			c := p.Connect(Setup{Modify: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 10, 3 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			// Some devices count the last timeout, which ends the request, others do not.
			c.ExpectCompletion(1, verbs.WCRetryExcErr)
			failed := p.Connect(Setup{Modify: withTimeoutAndRetries(timeout67ms, 3)})
			failed.PostSend(failed.QP, failed.SendWR(2, 8))
			failed.AwaitPackets(1)
			failed.ToState(failed.QP, verbs.QPStateErr)
			failed.ExpectCompletion(2, verbs.WCWRFlushErr)
			p.Sleep(8 * ib.AckTimeout(timeout67ms)) // no timeout in ERR
		}),
	counterCase("rnr-naks-sent", "Sent RNR NAKs are counted",
		"three times a SEND without a posted receive", rig.Counts{cntRNRNAKsSent: fromRecord},
		onNewConns(1, func(c *Conn, _ int) {
			for range 3 {
				c.Send(c.peerSend(0, 8))
				c.Await("an RNR NAK", func(a *Arrival) bool { return a.IsAck(ib.AckRNR) })
			}
		})),
	counterCase("rnr-naks-received", "Received RNR NAKs, and requests with exhausted RNR retries, are counted",
		"three RNR NAKs to a SEND with rnr_retry 2", rig.Counts{cntRNRNAKsRcvd: fromRecord, cntRNREnd: rig.Exactly(1)},
		func(p *Port) {
			c := p.Connect(Setup{Modify: func(a *verbs.QPAttr) { a.RNRRetry = 2 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			for range 3 {
				c.AwaitPackets(1)
				c.Send(ib.RNR(c.DevicePSN(0), 1, 0))
			}
			c.ExpectCompletion(1, verbs.WCRNRRetryExcErr)
		}),
	counterCase("refusals-sent", "Sent fatal NAKs are counted",
		"on each of three connections a WRITE with an invalid key", rig.Counts{cntFatalSent: fromRecord},
		onNewConns(3, func(c *Conn, _ int) {
			c.Send(writeOp.packet(c.PeerPSN(0), c.unknownKeyRETH(8)))
			c.Await("a NAK", func(a *Arrival) bool { return a.IsAck(ib.AckNegative) })
		})),
	counterCase("refusals-received", "Received fatal NAKs are counted",
		"NAKs for an invalid request, an access and an operation to WRITEs of three connections",
		rig.Counts{cntFatalRcvd: fromRecord}, onNewConns(len(fatalNAKs), func(c *Conn, i int) {
			c.PostSend(c.QP, c.WriteWR(1, MTU))
			c.AwaitPackets(1)
			c.Send(c.peerNak(0, fatalNAKs[i].code, 0))
			c.expectErrorCompletion(1)
		})),
}

// onNewConns makes the body of a counterCase that calls steps with each of n new connections.
func onNewConns(n int, steps func(c *Conn, i int)) func(*Port) {
	return func(p *Port) {
		for i := range n {
			steps(p.Connect(Setup{}), i)
		}
	}
}

// causeImpliedNAKs twice has the device send a READ and a SEND, and acknowledges only the SEND,
// which implies that the READ response was lost. Then it answers both.
func causeImpliedNAKs(p *Port) {
	c := p.Connect(Setup{})
	for i := range 2 {
		c.PostSend(c.QP, c.ReadWR(1, MTU), c.SendWR(2, 8))
		c.AwaitPackets(2)
		ack := c.peerAck(2*i+1, uint32(2*i+2))
		c.Send(ack)
		c.Drain(sentSoFar)
		c.Send(ib.ReadResponseOnly(c.DevicePSN(2*i), uint32(2*i+1), Data(MTU)), ack)
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		c.Drain(sentSoFar) // the device may have retransmitted both
	}
}

// drop is a modification of a packet that makes the device drop it, and count it in counter.
type drop struct {
	name        string
	counter     *rig.Counter
	description string
	modify      func(*Conn, ib.Packet) ib.Packet
}

// dropsPerCase is how many packets of each kind are sent.
const dropsPerCase = 3

var dropKinds = []drop{
	{"wrong-icrc", cntBadICRC, "a wrong ICRC", func(_ *Conn, p ib.Packet) ib.Packet { return p.BadICRC() }},
	{"other-partition", cntBadPKey, "the P_Key of a partition that the device is not in", func(_ *Conn, p ib.Packet) ib.Packet { return p.WithPKey(0x9234) }},
	{"other-version", cntBadVersion, "transport version 3", func(_ *Conn, p ib.Packet) ib.Packet { return p.WithTVer(3) }},
	{"more-pad-than-payload", cntBadPad, "no payload and three pad bytes", func(c *Conn, _ ib.Packet) ib.Packet {
		return ib.SendOnly(c.PeerPSN(0), nil).WithPad([]byte{}).WithPadCnt(3)
	}},
	{"ends-in-its-headers", cntTooShort, "half of its RETH", func(_ *Conn, p ib.Packet) ib.Packet { return p.WithBody(make([]byte, 8)) }},
	{"other-address", cntBadAddress, "another source address than the peer's", func(c *Conn, p ib.Packet) ib.Packet { return p.From(c.PeerAddr(2)) }},
	{"no-queue-pair", cntBadQPN, "an unknown QPN", func(_ *Conn, p ib.Packet) ib.Packet { return p.To(0xfedcba) }},
	{"other-service", cntBadService, "an opcode of UC", func(_ *Conn, p ib.Packet) ib.Packet { return p.On(ib.UC).NoAckReq() }},
}

// counterDropCases returns the cases about counters of dropped packets: one for each of dropKinds,
// and those about queue pairs in INIT and about datagrams.
func counterDropCases() (all []conformance.Case) {
	for _, d := range dropKinds {
		c := counterCase("drop-"+d.name, fmt.Sprintf("Packets with %s are dropped, and counted", d.description),
			fmt.Sprintf("%d WRITEs with %s, then a valid one", dropsPerCase, d.description), rig.Counts{d.counter: rig.Exactly(dropsPerCase)},
			func(p *Port) {
				conn := p.Connect(Setup{})
				before := p.QueryPort().BadPKeys
				for range dropsPerCase {
					conn.Send(d.modify(conn, conn.peerWrite(0, 8)))
				}
				conn.Send(conn.peerWrite(0, 8))
				awaitPSN(conn, conn.PeerPSN(0))
				if d.counter == cntBadPKey {
					increase := p.QueryPort().BadPKeys - before
					p.Check(increase == dropsPerCase, fmt.Sprintf("the port's counter of bad P_Keys increased by %d", dropsPerCase), "%d", increase)
				}
			})
		if d.counter == cntBadPKey {
			c.Cite = ibta("C9-43", "bth/pkey/1")
			c.Defects = append(c.Defects, "KeyViolationsUncounted")
		}
		all = append(all, c)
	}
	return append(all,
		counterCase("drop-not-receiving", "Packets for a queue pair that is not in RTR are dropped, and counted",
			fmt.Sprintf("%d WRITEs to a queue pair in INIT", dropsPerCase), rig.Counts{cntBadState: rig.Exactly(dropsPerCase)},
			func(p *Port) {
				idle := p.connect(Setup{state: verbs.QPStateInit})
				for i := range dropsPerCase {
					idle.Send(ib.WriteOnly(ib.PSN(i), ib.At(0x1000, 7, 0), nil))
				}
			}),
		udDropCase("drop-wrong-q-key", "Datagrams with a wrong Q_Key are dropped, and counted", cntBadQKey, func(u *udPort) {
			before := u.QueryPort().QKeyViolations
			u.SendPacket(u.datagram(Data(8)).WithDETH(udQKey^1, udPeerQPN))
			u.Sync()
			increase := u.QueryPort().QKeyViolations - before
			u.Check(increase == 1, "the port's counter of wrong Q_Keys increased by 1", "%d", increase)
		}, "KeyViolationsUncounted"),
		udDropCase("drop-opcode-of-nobody", "Datagrams with an opcode that UD does not have are dropped, and counted", cntBadOpcode, func(u *udPort) {
			u.SendPacket(u.datagram(Data(8)).WithOpcode(ib.UD.Op(0x1f)))
		}),
		udDropCase("drop-no-receive", "Datagrams without a posted receive are dropped, and counted", cntNoReceive, func(u *udPort) {
			u.SendPacket(u.datagram(Data(8)))
		}),
		udDropCase("drop-too-long", "Datagrams that are longer than their receive are dropped, and counted", cntTooLong, func(u *udPort) {
			u.PostRecv(u.QP, 1, u.Memory(verbs.GRHLen+4, verbs.AccessLocalWrite).SGE(0, verbs.GRHLen+4))
			u.SendPacket(u.datagram(Data(8)))
		}),
	)
}

// udDropCase returns a case about datagrams that the device drops, and counts in counter. It calls
// send, which sends one datagram, with a new queue pair each time: on some devices a drop changes
// the state of the queue pair.
func udDropCase(name, title string, counter *rig.Counter, send func(u *udPort), defects ...string) conformance.Case {
	c := counterCase(name, title, fmt.Sprintf("%d such datagrams", dropsPerCase), rig.Counts{counter: rig.Exactly(dropsPerCase)}, func(p *Port) {
		for range dropsPerCase {
			send(p.newUDPort(0, nil)) // without receives or an SRQ
		}
	})
	c.Needs, c.Labels = verbs.CapUD|verbs.CapRC, labelUD
	if counter == cntBadQKey {
		c.Cite = ibta("9.6.1.4.1", "ud/2")
	}
	c.Defects = append(c.Defects, defects...)
	return c
}
