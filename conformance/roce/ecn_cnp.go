package roce

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var cnpCases = conformance.Group{Needs: verbs.CapRC | verbs.CapCongestion, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "ecn/cnp/marked-packet-answered", Cite: annexA17("CA17-44", "ecn/1"),
	Title:   "A request or response with a CE mark is answered by a CNP",
	Sends:   "on separate connections, a WRITE, a SEND and a READ response with ECN 11",
	Expects: "a CNP for each, and the usual responses",
	Defects: []string{"NoCongestion", "MarkedDropped"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{})
		c.Send(c.peerWrite(0, 16).CE())
		c.expectCNPAnd(c.deviceAck(0, 1))
		c.ExpectBytes(c.TargetMem, 0, Data(16))
		c.Sleep(maxCNPInterval)
		c = p.connect(Setup{Receives: 1})
		c.Send(c.peerSend(0, 16).CE())
		c.expectCNPAnd(c.deviceAck(0, 1))
		c.ExpectRecv(1, 16)
		c.ExpectBytes(c.LocalMem, 0, Data(16))
		c.Sleep(maxCNPInterval)
		c = p.connect(Setup{})
		c.request(0, c.ReadWR(1, 16))
		c.Send(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(16)).CE())
		c.expectCNP()
		c.ExpectCompletion(1, verbs.WCSuccess)
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(16))
	}),
}, {
	ID: "ecn/cnp/names-the-senders-qp", Cite: annexA17("CA17-44", "ecn/1"),
	Title:   "A CNP is sent to the source address and the queue pair of the marked packet",
	Sends:   "a SEND with ECN 11",
	Expects: "a CNP from the device's address to the peer's, for the peer's queue pair",
	Defects: []string{"CNPMisaddressed"}, Run: onRC(func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).CE())
		c.checkPacket(ib.CNP().To(peerQPN).Via(c.deviceAddr, c.Peer), c.expectCNP())
	}),
}, {
	ID: "ecn/cnp/copies-the-partition", Cite: annexA17("CA17-44", "ecn/1"),
	Title:   "A CNP has the P_Key of the marked packet",
	Sends:   "a SEND with ECN 11 of a limited member, with P_Key 0x7fff",
	Expects: "a CNP with P_Key 0x7fff",
	Defects: []string{"CNPMisaddressed"}, Run: onRC(func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).WithPKey(0x7fff).CE())
		c.checkPacket(ib.CNP().WithPKey(0x7fff), c.expectCNP())
	}),
}, {
	ID: "ecn/cnp/each-marked-qp-has-its-own", Cite: annexA17("CA17-44", "ecn/1"),
	Title:   "Each queue pair with marked packets gets a CNP, even if several are marked at the same time",
	Sends:   "at once, a WRITE with ECN 11 on each of three connections, two of them with the same peer address",
	Expects: "a CNP for each of the three queue pairs",
	Defects: []string{"CNPPerPort", "CNPPerPeer"}, Run: OnPort(func(p *Port) {
		missing := make(map[uint32]bool)
		var all []*Conn
		for i, peer := range []int{0, 0, 1} {
			all = append(all, p.connect(Setup{Modify: func(a *verbs.QPAttr) {
				a.DestQPN = peerQPN + verbs.QPN(i)
				a.AH.GRH.DGID = verbs.GIDFrom(p.PeerAddr(peer))
			}}))
			missing[peerQPN+uint32(i)] = true
		}
		for i, c := range all {
			c.Send(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)).CE().From(p.PeerAddr(i / 2)))
		}
		for len(missing) > 0 {
			cnp, ok := p.NextMatching(isCNP, p.ResponseTimeout())
			p.Check(ok, "a CNP for each of three queue pairs", "none for %d of them", len(missing))
			delete(missing, cnp.DestQP())
		}
	}),
}, {
	ID: "ecn/cnp/loss-is-no-mark", Cite: annexA17("CA17-44", "ecn/1"),
	Title:   "Packets without a CE mark cause no CNP, even if packets are lost or ECN-capable",
	Sends:   "WRITEs with ECN 00, 01 and 10; then one after a gap, and a duplicate",
	Expects: "ACKs and a NAK, and no CNP",
	Defects: []string{"CNPOnNAK"}, Run: onConn(Setup{}, func(c *Conn) {
		for i := range 3 {
			c.exchange(c.peerWrite(i, 16).WithTClass(uint8(i)), c.deviceAck(i, uint32(i+1)))
		}
		c.exchange(c.peerWrite(5, 16), c.deviceNak(3, ib.NakSequence, 3))
		c.expectSilence(silencePeriod)
		c.exchange(c.peerWrite(2, 16), ib.Ack(ib.AnyPSN, 3))
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "ecn/cnp/burst-of-marks-shares-cnps", Cite: annexA17("CA17-44", "ecn/2"), Level: conformance.May,
	Title:   "Marks in quick succession are answered by fewer CNPs",
	Sends:   "at once, 100 WRITEs with ECN 11 on one connection",
	Expects: "at least one CNP, and not 100",
	Defects: []string{"CNPBurst"}, Run: onConn(Setup{}, func(c *Conn) {
		for i := range 100 {
			c.Send(ib.WriteOnly(c.PeerPSN(i), c.RETH(0, 16), Data(16)).CE())
		}
		n := len(c.drainCNPs(maxCNPInterval))
		c.Check(n >= 1 && n < 100, "between 1 and 99 CNPs for 100 marks in quick succession", "%d", n)
	}),
}, {
	ID: "ecn/cnp/bytes-without-meaning-are-zero", Cite: annexA17("A17.9.3", "ecn/6"),
	Title:   "A CNP has SE, MigReq, AckReq, PadCnt and PSN 0, and 16 zero bytes after its BTH",
	Sends:   "a SEND with ECN 11, SE and MigReq",
	Expects: "a CNP with all of these 0",
	Defects: []string{"CNPReservedUsed"}, Run: onRC(func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).CE().SE().MigReq())
		want := ib.CNP().NoSE().NoAckReq().WithPadCnt(0).WithTVer(0).WithPayload(make([]byte, 16))
		want.BTH.MigReq, want.BTH.Resv6, want.BTH.Resv7 = new(false), new(uint8(0)), new(uint8(0))
		c.checkPacket(want, c.expectCNP())
	}),
}, {
	ID: "ecn/cnp/bytes-without-meaning-are-ignored", Cite: annexA17("A17.9.3", "ecn/6"),
	Title:   "A CNP has effect whatever its reserved bytes contain",
	Sends:   "CNPs with SE, MigReq, a PSN, BECN 0 and 16 bytes 0xff, to a queue pair that sends",
	Expects: "that it sends more slowly, and answers nothing",
	Defects: []string{"CNPReservedUsed"}, Run: onFlow(func(f *flow) {
		invalid := ib.CNP().SE().MigReq().WithPSN(0x123456).WithPayload(bytes.Repeat([]byte{0xff}, 16))
		invalid.BTH.BECN = new(false)
		f.expectSlowedBy(invalid)
	}),
}})

// cnpInterval is the published interval between the CNPs of a receiver for one flow. A
// sender does not raise its rate within it.
const cnpInterval = 50 * time.Microsecond

// pollLatency is the longest time until a software device polls its wire after its
// application stopped polling. CNPs that it receives in one poll count as one.
const pollLatency = 3 * time.Millisecond

// maxCNPInterval is longer than the CNP interval of any device.
const maxCNPInterval = 20 * time.Millisecond

// isCNP reports whether a packet is a CNP.
func isCNP(a *Arrival) bool { return a.Opcode() == ib.OpCNP }

// expectCNP waits for a CNP and returns it. It ignores other packets.
func (c *Conn) expectCNP() Arrival {
	a, ok := c.NextMatching(isCNP, c.ResponseTimeout())
	c.Check(ok, "a CNP", "none in %v", c.ResponseTimeout())
	return a
}

// expectCNPAnd waits for a CNP and this packet, in any order and with nothing between them.
func (c *Conn) expectCNPAnd(want ib.Packet) {
	for gotCNP, answered := false, false; !gotCNP || !answered; {
		pkt := c.expectAnyPacket(fmt.Sprintf("%v and a CNP", want))
		if isCNP(&pkt) && !gotCNP {
			gotCNP = true
			continue
		}
		c.checkPacket(c.fromDevice(want), pkt)
		answered = true
	}
}

// drainCNPs returns the CNPs that the device has sent until [Port.Sync] returns, and within
// quiet after the last packet. It discards other packets.
func (p *Port) drainCNPs(quiet time.Duration) []Arrival {
	return slices.DeleteFunc(p.Drain(quiet), func(a Arrival) bool { return !isCNP(&a) })
}
