package roce

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
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

// cnpInterval is the interval between the CNPs of a receiver for one flow in published congestion
// controls (DCQCN). A sender does not raise its rate within it.
const cnpInterval = 50 * time.Microsecond

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

var congestionCases = overRC.Cases([]conformance.Case{{
	ID: "ecn/rate/named-qp-slows", Cite: annexA17("CA17-45", "ecn/3"), Needs: verbs.CapCongestion,
	Title:   "A queue pair that receives CNPs reduces its rate",
	Sends:   "CNPs to a queue pair that sends; then 200 at short intervals, and others",
	Expects: "the packets of a burst at half the rate or less, each time",
	Defects: []string{"NoCongestion"}, Run: onFlow(func(f *flow) {
		before := f.burst()
		f.expectSlowedBy(ib.CNP())
		f.conn.sendCNPs(ib.CNP(), 200)
		limit := 2 * max(before, flowQuick)
		if after := f.burstUnder(ib.CNP(), f); before <= flowSlow {
			f.conn.Check(after >= limit, fmt.Sprintf("half the rate or less after many CNPs: %v or more for %d packets", limit, flowPackets), "%v", after)
		}
	}),
}, {
	ID: "ecn/rate/other-qps-keep-theirs", Cite: annexA17("CA17-45", "ecn/3"), Needs: verbs.CapCongestion,
	Title:   "A CNP reduces the rate of its queue pair, and of no other",
	Sends:   "CNPs to one of two queue pairs with the same peer",
	Expects: "the other at its rate",
	Defects: []string{"CNPSlowsAll"}, Run: OnPort(func(p *Port) {
		named, other := p.newFlow(peerQPN), p.newFlow(peerQPN+1)
		other.expectSameRateUnder(ib.CNP(), named)
	}),
}, {
	ID: "ecn/rate/comes-back", Cite: annexA17("CA17-46", "ecn/4"), Level: conformance.Should, Needs: verbs.CapCongestion,
	Title:   "The rate of a queue pair recovers when no more CNPs arrive",
	Sends:   "CNPs to a queue pair that sends, and then none",
	Expects: "bursts at twice the lowest rate or more, in time",
	Defects: []string{"RateNeverRecovers"}, Run: onFlow(func(f *flow) {
		before := f.burst()
		slow := f.burstUnder(ib.CNP(), f)
		if slow < 2*max(before, flowQuick) {
			rig.BenchCannot("the device does not reduce its rate, which another case checks")
		}
		now := slow
		for until := f.conn.Now() + f.conn.ResponseTimeout(); now > slow/2; now = f.burst() {
			f.conn.Check(f.conn.Now() < until, fmt.Sprintf("a rate that rises: %v or less for %d packets", slow/2, flowPackets), "%v, after %v", now, f.conn.ResponseTimeout())
			f.conn.Sleep(maxCNPInterval)
		}
	}),
}, {
	ID: "ecn/rate/becn-outside-cnps-changes-nothing", Cite: annexA17("CA17-29", "ecn/9"), Needs: verbs.CapCongestion,
	Title:   "BECN and FECN in requests and ACKs change no rate",
	Sends:   "WRITEs without data and stale ACKs, with BECN and FECN, to a queue pair that sends",
	Expects: "a queue pair that sends at its rate",
	Defects: []string{"ICRCCheckUnmasked"}, Run: onFlow(func(f *flow) {
		mark := func(p ib.Packet) ib.Packet { p.BTH.BECN, p.BTH.FECN = new(true), new(true); return p }
		before := f.burst()
		for k := range 20 {
			f.conn.exchange(mark(f.conn.peerWrite(k, 0)), f.conn.deviceAck(k, ib.AnyMSN))
		}
		after, limit := f.burst(), 4*max(before, flowSlow)
		f.conn.Check(after < limit, fmt.Sprintf("the same rate: less than %v for %d packets", limit, flowPackets), "%v", after)
		f.expectSameRateUnder(mark(f.conn.peerAck(-1, 0)), f)
	}),
}, {
	ID: "ecn/drop/cnp-takes-no-psn", Cite: ibta("", "ecn/5"),
	Title:   "A CNP does not use a PSN and gets no response, whatever its PSN is",
	Sends:   "CNPs, with PSN 0, to connections on which a PSN above 0 is due, PSN 0 itself, and one shortly before it",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"CNPTakesPSN"}, Run: OnPort(func(p *Port) {
		for _, due := range []uint32{firstPeerPSN, 0, 0xffff00} {
			c := p.connect(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.RQPSN = due }})
			c.expectDropped(ib.CNP())
			c.expectAccepted(0)
		}
	}),
}, {
	ID: "ecn/drop/cnp-for-nobody-slows-nobody", Cite: ibta("", "ecn/5", "pkt/addr/2"), Needs: verbs.CapCongestion,
	Title:   "A CNP for a queue pair that does not exist, from another address than the peer's, or of another partition is dropped without effect",
	Sends:   "CNPs for the number of no queue pair; of a P_Key that differs in its lowest bit; from another address, for a queue pair of RC and, if supported, of UC",
	Expects: "no answer, and queue pairs that send at their rate",
	Defects: []string{"QPNLoose", "CNPOfAnyHost"}, Run: onFlow(func(f *flow) {
		f.expectSameRateUnder(ib.CNP().To(0xabcdef), f)
		f.expectSameRateUnder(ib.CNP().WithPKey(f.conn.pkey(0)^1), f)
		f.expectSameRateUnder(ib.CNP().From(f.conn.PeerAddr(1)), f)
		f.conn.expectSilence(shortWait)
		if f.conn.Caps.Has(verbs.CapUC) {
			uc := f.conn.newFlowOf(verbs.QPTypeUC, peerQPN+1, f.conn.QueryPort().ActiveMTU)
			uc.expectSameRateUnder(ib.CNP().From(f.conn.PeerAddr(1)), uc)
			uc.conn.expectSilence(shortWait)
		}
	}),
}, {
	ID: "ecn/drop/cnp-with-wrong-icrc-slows-nobody", Cite: ibta("", "ecn/5"), Needs: verbs.CapCongestion,
	Title:   "A CNP with a wrong ICRC is dropped without effect",
	Sends:   "CNPs with one bit of their ICRC turned",
	Expects: "no answer, and a queue pair that sends at its rate",
	Defects: []string{"ICRCIgnored"}, Run: onFlow(func(f *flow) {
		f.expectSameRateUnder(ib.CNP().BadICRC(), f)
		f.conn.expectSilence(shortWait)
	}),
}, {
	ID:   "ecn/count/cnps-sent-agree-with-the-wire",
	Cite: luminaCite, Level: conformance.Should, Needs: verbs.CapCongestion,
	Title:   "The counters of CE marks, CNPs sent and CNPs handled agree with the wire",
	Sends:   "three marked WRITEs, at intervals longer than that of CNPs; four CNPs",
	Expects: "increases by 3 marks, by the number of CNPs received, and by 4 CNPs handled; the counter of CNPs sent is required",
	Defects: []string{"CNPCounterStuck"},
	Run:     checkingCounters([]*rig.Counter{cntCNPsSent, cntMarksSeen, cntCNPsHandled}, []*rig.Counter{cntCNPsSent}, nil, exchangeCNPs),
}, {
	ID: "ecn/count/implied-naks-agree-with-the-wire", Cite: luminaCite, Level: conformance.Should,
	Title:   "The counter of implied NAKs agrees with the wire",
	Sends:   "twice, an ACK for a SEND after a READ that was not answered; then the answer",
	Expects: "a count of 2",
	Defects: []string{"ImpliedNAKCounterStuck"},
	Run: checkingCounters([]*rig.Counter{cntImpliedNAKs}, []*rig.Counter{cntImpliedNAKs},
		rig.Counts{cntImpliedNAKs: rig.Exactly(2)}, causeImpliedNAKs),
}})

// flow is a connection on which a case measures the sending rate of the device.
type flow struct {
	conn    *Conn
	service ib.Transport
	reads   bool        // the packets are READ responses
	sent    int         // number of packets so far
	source  *rig.Memory // payload of a burst
	ah      verbs.AH    // for datagrams
}

// flowPackets is the number of packets in a burst, fewer than any window. They have the
// port's MTU, so that the line rate and not the packet rate limits the burst.
const flowPackets = 64

// onFlow makes the body of a case from a function that uses a flow.
func onFlow(body func(*flow)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { body(p.newFlow(peerQPN)) })
}

// newFlow connects to a queue pair of the peer, with the port's MTU and memory for a burst.
func (p *Port) newFlow(to verbs.QPN) *flow {
	return p.newFlowOf(verbs.QPTypeRC, to, p.QueryPort().ActiveMTU)
}

// newFlowOf connects a queue pair of the given type and path MTU to a queue pair of the peer, with
// memory for a burst.
func (p *Port) newFlowOf(kind verbs.QPType, to verbs.QPN, mtu verbs.MTU) *flow {
	services := map[verbs.QPType]ib.Transport{verbs.QPTypeUC: ib.UC, verbs.QPTypeUD: ib.UD, verbs.QPTypeXRCSend: ib.XRC}
	c := p.connect(Setup{qpType: kind, Modify: func(a *verbs.QPAttr) { a.DestQPN, a.PathMTU = to, mtu }})
	p.Sync() // resolve the peer's address first: the device's host would drop most of a burst meanwhile
	f := &flow{conn: c, service: services[kind], source: p.Memory(flowPackets*mtu.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemoteRead)}
	if kind == verbs.QPTypeUD {
		f.ah = p.newAH(p.PD)
	}
	return f
}

// burst returns how long the device takes from the first packet of a burst to the last.
// It returns the shortest of three measurements, because this host can only add delay.
func (f *flow) burst() time.Duration {
	nothing := func() {}
	return min(f.burstOnce(nothing), f.burstOnce(nothing), f.burstOnce(nothing))
}

// burstUnder returns how long a burst takes while the peer sends CNPs on connection cnpConn: 20
// before the burst and one for each packet, because a reduced rate rises when CNPs stop. It returns
// the median of three measurements, because the rate may also rise while this host is busy.
func (f *flow) burstUnder(cnp ib.Packet, cnpConn *flow) time.Duration {
	var took [3]time.Duration
	for i := range took {
		cnpConn.conn.sendCNPs(cnp, 20)
		took[i] = f.burstOnce(func() { cnpConn.conn.Send(cnp) })
	}
	slices.Sort(took[:])
	return took[1]
}

// burstOnce has the device send a burst, and returns the time from the first packet to the last. It
// calls sendCNP after each packet and, so that a reduced rate does not rise during a slow verb
// call, also while no packet arrives.
func (f *flow) burstOnce(sendCNP func()) time.Duration {
	start := f.conn.Go("start", f.startBurst)
	var first, last time.Duration
	for i := range flowPackets {
		pkt, ok := f.conn.NextPacket(cnpInterval)
		for until := f.conn.Now() + f.conn.ResponseTimeout(); !ok && f.conn.Now() < until; pkt, ok = f.conn.NextPacket(cnpInterval) {
			sendCNP()
		}
		f.conn.Check(ok, fmt.Sprintf("a burst of %d packets", flowPackets), "%d", i)
		f.conn.checkPacket(ib.Packet{}.WithPSN(f.psn(f.sent)), pkt)
		if i == 0 {
			first = pkt.At
		}
		last = pkt.At
		f.sent++
		sendCNP()
	}
	f.conn.Must("a burst that can be posted", start.Wait(f.conn.ResponseTimeout()))
	switch {
	case f.reads:
	case f.service == ib.UC || f.service == ib.UD:
		f.conn.ExpectCompletion(1, verbs.WCSuccess)
	default:
		f.conn.completeWith(f.conn.peerAck(f.sent-1, 0).On(f.service), 1)
	}
	return last - first
}

// psn returns the PSN of the n-th packet that the device sends in bursts.
func (f *flow) psn(n int) ib.PSN {
	if f.reads {
		return f.conn.PeerPSN(n)
	}
	return f.conn.DevicePSN(n)
}

// startBurst makes the device send a burst: it sends a READ to the device, or posts datagrams on
// UD, or else posts a WRITE.
func (f *flow) startBurst() error {
	if f.reads {
		f.conn.Send(ib.ReadRequest(f.psn(f.sent), rethFor(f.source, 0, len(f.source.Buf))))
		return nil
	}
	wrs := []verbs.SendWR{{Opcode: verbs.OpRDMAWrite, SGL: f.source.SGL(0, len(f.source.Buf)), Remote: PeerMemory, XRC: verbs.XRC{SRQN: 5}}}
	if f.service == ib.UD {
		wrs = make([]verbs.SendWR, flowPackets)
		for i := range wrs {
			n := len(f.source.Buf) / flowPackets
			wrs[i] = verbs.SendWR{Opcode: verbs.OpSend, SGL: f.source.SGL(i*n, n), UD: verbs.UD{AH: f.ah, QPN: udPeerQPN, QKey: udQKey}}
		}
	}
	last := &wrs[len(wrs)-1]
	last.WRID, last.Flags = 1, verbs.SendSignaled
	_, err := f.conn.QP.PostSend(wrs)
	return err
}

// sendCNPs sends n CNPs at cnpInterval, as a receiver does, and waits until they are processed.
func (c *Conn) sendCNPs(cnp ib.Packet, n int) {
	// A software device counts the CNPs that it finds in one poll of its wire as one. It does not
	// poll the wire by itself while its application polls, and until 3 ms after that.
	c.Sleep(3 * time.Millisecond)
	for range n {
		c.Send(cnp)
		c.Compute(cnpInterval)
	}
	c.Sync()
}

// Bounds for the duration of a burst: below flowQuick the simulator spends no time per bit, and
// above flowSlow the device or its host is so slow that a reduced rate would not show.
const (
	flowQuick = 100 * time.Microsecond
	flowSlow  = time.Millisecond
)

// expectSlowedBy fails the case unless copies of this CNP make a burst take twice as long as
// before, and at least 2*flowQuick. Instead of failing, the case ends as unsupported if a burst
// without CNPs takes more than flowSlow.
func (f *flow) expectSlowedBy(cnp ib.Packet) {
	before := f.burst()
	after, limit := f.burstUnder(cnp, f), 2*max(before, flowQuick)
	if after < limit && before > flowSlow {
		rig.BenchCannot("the device takes %v for %d packets without CNPs, and may be slower than the reduced rate", before, flowPackets)
	}
	f.conn.Check(after >= limit, fmt.Sprintf("half the rate or less: %v or more for %d packets", limit, flowPackets), "%v", after)
}

// expectSameRateUnder fails the case if a burst takes four times as long as before, and at least
// 4*flowSlow, while the peer sends CNPs on connection cnpConn. Other work of this host does not
// delay it that much, but a reduced rate does.
func (f *flow) expectSameRateUnder(cnp ib.Packet, cnpConn *flow) {
	before := f.burst()
	after, limit := f.burstUnder(cnp, cnpConn), 4*max(before, flowSlow)
	f.conn.Check(after < limit, fmt.Sprintf("the same rate: less than %v for %d packets", limit, flowPackets), "%v", after)
}
