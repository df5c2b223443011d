package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var counterRecoveryCases = []conformance.Case{
	counterCase("duplicates", "Duplicate requests are counted",
		"a WRITE and a READ, and three duplicates of the WRITE and two of the READ", rig.Counts{cntDuplicates: rig.Exactly(5)},
		onNewConn(func(c *Conn) {
			read := c.peerRead(1, 16)
			c.Send(c.peerWrite(0, 8), read)
			awaitPSN(c, c.PeerPSN(1))
			c.Send(c.peerWrite(0, 8), c.peerWrite(0, 8), c.peerWrite(0, 8), read, read)
		})),
	counterCase("gaps", "Requests after a gap, and the NAKs of them, are counted",
		"five times a WRITE after a gap, and the missing one", rig.Counts{cntOutOfOrder: rig.Exactly(5), cntSeqNAKsSent: fromRecord},
		onNewConn(func(c *Conn) {
			for i := range 5 {
				c.Send(c.peerWrite(i+1, 8))
				c.Await("a sequence NAK", func(a *Arrival) bool { return a.IsNak(ib.NakSequence) })
				c.Send(c.peerWrite(i, 8))
				c.Await("an ACK", func(a *Arrival) bool { return a.IsAck(ib.AckPositive) })
			}
		})),
	counterCase("repetitions", "Received sequence NAKs, and the retransmitted packets, are counted",
		"on two connections, a sequence NAK for a packet of a WRITE of eight", rig.Counts{cntSeqNAKsRcvd: fromRecord, cntResentPkts: fromRecord},
		func(p *Port) {
			for _, lost := range []int{3, 5} {
				c := p.Connect(Setup{})
				c.PostSend(c.QP, c.WriteWR(1, 8*MTU))
				c.AwaitPackets(8)
				c.Send(c.peerNak(lost, ib.NakSequence, 0))
				awaitPSN(c, c.DevicePSN(7))
				c.completeWith(c.peerAck(7, 1), 1)
			}
		}),
	withLumina(counterCase("implied-naks", "Responses that imply that an earlier one was lost are counted",
		"twice, an ACK for a SEND after an unanswered READ; then the response", rig.Counts{cntImpliedNAKs: rig.Exactly(2)},
		causeImpliedNAKs), "ImpliedNAKCounterStuck"),
	counterCase("timeouts", "Timeouts, retransmitted packets, and requests with exhausted retries are counted",
		"no response to a SEND with retry_cnt 3", rig.Counts{cntAckTimeouts: rig.Between(3, 4), cntResentPkts: fromRecord, cntRetriesEnd: rig.Exactly(1)},
		func(p *Port) {
			c := p.Connect(Setup{Modify: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 10, 3 }})
			c.PostSend(c.QP, c.SendWR(1, 8))
			// The last timeout ends the request. Some devices count timeouts, others
			// retransmissions.
			c.ExpectCompletion(1, verbs.WCRetryExcErr)
		}),
	counterCase("rnr-naks-sent", "Sent RNR NAKs are counted",
		"three times a SEND without a posted receive", rig.Counts{cntRNRNAKsSent: fromRecord},
		onNewConn(func(c *Conn) {
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
		func(p *Port) {
			for range 3 {
				c := p.Connect(Setup{})
				c.Send(writeOp.packet(c.PeerPSN(0), c.unknownKeyRETH(8)))
				c.Await("a NAK", func(a *Arrival) bool { return a.IsAck(ib.AckNegative) })
			}
		}),
	counterCase("refusals-received", "Received fatal NAKs are counted",
		"NAKs for an invalid request, an access and an operation to WRITEs of three connections", rig.Counts{cntFatalRcvd: fromRecord},
		func(p *Port) {
			for code := ib.NakInvalidRequest; code <= ib.NakRemoteOp; code++ {
				c := p.Connect(Setup{})
				c.PostSend(c.QP, c.WriteWR(1, MTU))
				c.AwaitPackets(1)
				c.Send(c.peerNak(0, code, 0))
				c.expectErrorCompletion(1)
			}
		}),
}

// onNewConn makes the body of a counterCase from a function that uses a connection.
func onNewConn(steps func(*Conn)) func(*Port) { return func(p *Port) { steps(p.Connect(Setup{})) } }

// causeImpliedNAKs acknowledges a SEND after an unanswered READ, twice, which implies that the READ
// response was lost. Then it answers both.
func causeImpliedNAKs(p *Port) {
	c := p.Connect(Setup{})
	for i := range 2 {
		c.PostSend(c.QP, c.ReadWR(1, MTU), c.SendWR(2, 8))
		c.AwaitPackets(2)
		ack := c.peerAck(2*i+1, uint32(2*i+2))
		c.Send(ack)
		c.Drain(0)
		c.Send(ib.ReadResponseOnly(c.DevicePSN(2*i), uint32(2*i+1), Data(MTU)), ack)
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		c.Drain(0) // the device may have retransmitted both
	}
}

// drop is a modification of a packet that makes the device drop it.
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

// counterDropCases returns the cases about packets that are dropped and counted.
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
					more := p.QueryPort().BadPKeys - before
					p.Check(more == dropsPerCase, fmt.Sprintf("the port's counter of bad P_Keys increased by %d", dropsPerCase), "%d", more)
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
			more := u.QueryPort().QKeyViolations - before
			u.Check(more == 1, "the port's counter of wrong Q_Keys increased by 1", "%d", more)
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

// udDropCase returns a case about dropped datagrams. Each is sent to a new queue pair,
// because some devices change their state.
func udDropCase(name, title string, why *rig.Counter, drop func(u *udPort), defects ...string) conformance.Case {
	c := counterCase(name, title, fmt.Sprintf("%d such datagrams", dropsPerCase), rig.Counts{why: rig.Exactly(dropsPerCase)}, func(p *Port) {
		for range dropsPerCase {
			drop(p.newUDPort(0, nil))
		}
	})
	c.Needs, c.Labels = verbs.CapUD|verbs.CapRC, labelUD
	if why == cntBadQKey {
		c.Cite = ibta("9.6.1.4.1", "ud/2")
	}
	c.Defects = append(c.Defects, defects...)
	return c
}
