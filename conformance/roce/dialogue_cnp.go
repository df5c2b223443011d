package roce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/dialogue"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var cnpDialogueCases = conformance.Group{Needs: verbs.CapRC | verbs.CapCongestion, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "dialogue/cnp/marks-over-ipv4", Cite: annexA17("CA17-44", "ecn/1", "ecn/2", "ecn/5", "ecn/6"), Setup: ipv4,
	Title:   "Queue pairs of all services answer marked packets over IPv4 by CNPs like the reference model",
	Sends:   "packets of all kinds with all ECN bits, some invalid, to queue pairs of two peers",
	Expects: "the CNPs of the model with all their fields, the usual responses, and no CNP for invalid packets",
	Defects: []string{"CNPMisaddressed", "CNPReservedUsed", "CNPPerPeer", "SourceUnchecked"}, Run: cnpMarks.body(5, 36, openCNP),
}, {
	ID: "dialogue/cnp/marks-over-ipv6", Cite: annexA17("CA17-44", "ecn/1", "ecn/2", "ecn/5", "ecn/6"), Setup: ipv6,
	Title:   "Queue pairs of all services answer marked packets over IPv6 by CNPs like the reference model",
	Sends:   "packets of all kinds with all ECN bits, some invalid, to queue pairs of two peers",
	Expects: "the CNPs of the model with all their fields, the usual responses, and no CNP for invalid packets",
	Defects: []string{"NoCongestion", "MarkedDropped", "CNPPerPort", "CNPOnNAK", "CNPTakesPSN"}, Run: cnpMarks.body(5, 36, openCNP),
}, {
	ID: "dialogue/cnp/rates", Cite: annexA17("CA17-45, CA17-46", "ecn/3", "ecn/4", "ecn/5", "ecn/6"),
	Title:   "CNPs reduce the rate of the queue pair that they name like the reference model, and of no other",
	Sends:   "CNPs with any content of their reserved fields to queue pairs that send; some invalid",
	Expects: "bursts at a lower rate after valid CNPs, and at the full rate after others and when the rate has recovered",
	Defects: []string{"CNPSlowsAll", "CNPReservedUsed", "NoCongestion"}, Run: rateMix{
		{3, drawRateCNPs}, {2, drawRateInvalid}, {4, drawRateBurst}, {1, drawRateWait},
	}.body(2, 20, openRates),
}})

// cnpMarks are packets with marks, at short and at long intervals.
var cnpMarks = cnpMix{
	{8, drawCNPRequest},
	{2, drawCNPResponse},
	{3, drawCNPDatagram},
	{3, drawCNPInvalid},
	{1, drawCNPBurst},
	{2, drawCNPGap},
	{1, drawCNPDuplicate},
	{5, drawCNPWait},
	{3, drawCNPToDevice},
}

type (
	cnpMix  = dialogueMix[*cnpDialogue]
	cnpStep = dialogueStep[*cnpDialogue]
)

// cnpDialogue is a dialogue with queue pairs that receive marked packets.
type cnpDialogue struct {
	*Port
	m     model.CNPReceiver
	conns []*cnpConn
	ud    *udPort // nil if the device has no UD
	ids   uint64
}

// cnpConn is a connection of the dialogue.
type cnpConn struct {
	*Conn
	service  ib.Transport
	received int // packets of the peer
	messages int
	sent     int // requests of the device
}

// openCNP makes connections: of RC two with the first peer and one with the second, and one of UC;
// and a UD queue pair.
func openCNP(p *Port) *cnpDialogue {
	s := &cnpDialogue{Port: p, m: model.CNPReceiver{Interval: maxCNPInterval}, ids: 1}
	for i, peer := range []int{0, 0, 1, 0} {
		c := &cnpConn{service: ib.RC}
		setup := Setup{PeerIndex: peer, memLen: 256, signalAll: true}
		if i == 3 {
			if !p.Caps.Has(verbs.CapUC) {
				continue
			}
			c.service, setup.qpType = ib.UC, verbs.QPTypeUC
		}
		from := p.PeerAddr(peer)
		setup.Modify = func(a *verbs.QPAttr) { a.DestQPN, a.AH.GRH.DGID = verbs.QPN(0x0a0001+i), verbs.GIDFrom(from) }
		c.Conn = p.connect(setup)
		c.from = from
		s.conns = append(s.conns, c)
	}
	if p.Caps.Has(verbs.CapUD) {
		s.ud = p.newUDPort(0, nil)
	}
	return s
}

// Close frees the objects.
func (s *cnpDialogue) Close() {
	for _, c := range s.conns {
		s.closeConn(c.Conn)
	}
	if s.ud != nil {
		s.closeConn(s.ud.Conn)
	}
}

// closeConn frees the objects of a connection.
func (p *Port) closeConn(c *Conn) {
	p.Must("a queue pair that can be destroyed", c.QP.Close())
	p.Must("memory that can be deregistered", c.TargetMem.Close())
	p.Must("memory that can be deregistered", c.LocalMem.Close())
}

// senderFields draws fields of a packet that its CNP depends on, or that must not change it.
func senderFields(r *rand.Rand, p ib.Packet) ib.Packet {
	p = p.WithTClass(uint8(r.Uint32())&^3 | dialogue.Pick[uint8](r, 0, 1, 2, 3, 3, 3)).WithPKey(dialogue.Pick[uint16](r, 0xffff, 0xffff, 0x7fff))
	p.BTH.MigReq, p.BTH.FECN, p.BTH.BECN = new(chance(r, 2)), new(chance(r, 3)), new(chance(r, 3))
	return p.WithSrcPort(uint16(0xc000 + r.IntN(0x4000))).WithHopLimit(uint8(1 + r.IntN(255)))
}

func isMarked(p ib.Packet) bool { return *p.IP.TClass&3 == 3 }

// sendMarked sends a packet to a queue pair, and notes its mark. valid is false if the device may
// take the packet for one that causes no CNP.
func (s *cnpDialogue) sendMarked(c *Conn, pkt ib.Packet, sender uint32, valid bool) {
	pkt = pkt.Or(ib.Packet{}.To(uint32(c.QP.QPN())).Via(c.from, s.deviceAddr))
	if isMarked(pkt) {
		mark := model.MarkOf(pkt, c.QP.QPN(), sender)
		mark.Valid = valid
		s.m.Mark(mark)
	}
	s.SendPacket(pkt)
}

// compare fails the case unless the device sends these packets and the CNPs of the model, and has no
// completion.
func (s *cnpDialogue) compare(responses ...ib.Packet) {
	required := s.m.Required(s.Now())
	take := func(a *Arrival) {
		if isCNP(a) {
			qpn, ok := s.m.Take(a.Packet, s.Now())
			s.Check(ok, "no CNP, or one for a marked packet with its addresses, queue pair and P_Key", "%v to %v, P_Key %#04x", a, a.IP.Dst, *a.BTH.PKey)
			const ecn = 3
			s.Check(*a.IP.TClass&ecn != ecn, "a CNP without a CE mark", "traffic class %#02x", *a.IP.TClass)
			delete(required, qpn)
			return
		}
		s.Check(len(responses) > 0, "nothing is sent", "%v", a)
		s.checkPacket(responses[0], *a)
		responses = responses[1:]
	}
	for len(responses) > 0 || len(required) > 0 {
		want := "a CNP"
		if len(required) == 0 {
			want = responses[0].String()
		}
		a := s.expectAnyPacket(want)
		take(&a)
	}
	s.Sync()
	for a, ok := s.NextPacket(0); ok; a, ok = s.NextPacket(0) {
		take(&a)
	}
	s.m.Expire()
	s.ExpectNoCompletion()
}

// request returns the next request of the peer on a connection, and the response to it: a WRITE, or a
// READ of RC.
func (c *cnpConn) request(read bool, n int) (request ib.Packet, responses []ib.Packet) {
	psn := c.PeerPSN(c.received)
	c.received++
	c.messages++
	switch {
	case c.service == ib.UC:
		return ib.WriteOnly(psn, c.RETH(0, n), c.TargetMem.Buf[:n]).NoAckReq().On(ib.UC), nil
	case read:
		return ib.ReadRequest(psn, c.RETH(0, n)), []ib.Packet{c.response(ib.ReadResponseOnly(psn, uint32(c.messages), c.TargetMem.Buf[:n]))}
	}
	return ib.WriteOnly(psn, c.RETH(0, n), c.TargetMem.Buf[:n]).AckReq(), []ib.Packet{c.response(ib.Ack(psn, uint32(c.messages)))}
}

// response adds the addresses of the connection to an expected packet.
func (c *cnpConn) response(p ib.Packet) ib.Packet {
	return p.To(uint32(c.Attr.DestQPN)).Via(c.deviceAddr, c.from)
}

// drawCNPRequest draws a WRITE or READ with any ECN bits.
func drawCNPRequest(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, read, n, fields := r.IntN(len(s.conns)), chance(r, 3), r.IntN(64), senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		pkt, responses := c.request(read, n)
		s.sendMarked(c.Conn, pkt.Or(fields), uint32(c.Attr.DestQPN), true)
		s.compare(responses...)
	}, "a request on connection %d, read %v, ECN %d", i, read, *fields.IP.TClass&3)
}

// drawCNPBurst draws marked WRITEs that are sent at once.
func drawCNPBurst(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, n, fields := r.IntN(len(s.conns)), 2+r.IntN(6), senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		for range n {
			pkt, _ := c.request(false, 8)
			s.sendMarked(c.Conn, pkt.Or(fields).NoAckReq(), uint32(c.Attr.DestQPN), true)
		}
		s.takeAcks()
		s.compare()
	}, "%d WRITEs at once on connection %d, ECN %d", n, i, *fields.IP.TClass&3)
}

// takeAcks discards ACKs of requests without AckReq.
func (s *cnpDialogue) takeAcks() {
	s.Sync()
	s.skipped = slices.DeleteFunc(s.skipped, func(a Arrival) bool { return a.IsAck(ib.AckPositive) })
}

// drawCNPGap draws a WRITE after a gap and then the missing one, with any ECN bits. The device may send
// a CNP for a marked WRITE after the gap.
func drawCNPGap(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, early, fields := r.IntN(3), senderFields(r, ib.Packet{}), senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		ahead := ib.WriteOnly(c.PeerPSN(c.received+1), c.RETH(0, 8), c.TargetMem.Buf[:8]).AckReq()
		s.sendMarked(c.Conn, ahead.Or(early), uint32(c.Attr.DestQPN), false)
		s.compare(c.response(ib.Nak(c.PeerPSN(c.received), ib.NakSequence, uint32(c.messages))))
		pkt, responses := c.request(false, 8)
		s.sendMarked(c.Conn, pkt.Or(fields), uint32(c.Attr.DestQPN), true)
		s.compare(responses...)
	}, "a WRITE after a gap on connection %d, ECN %d, and the missing one, ECN %d", i, *early.IP.TClass&3, *fields.IP.TClass&3)
}

// drawCNPDuplicate draws a WRITE, and a duplicate with any ECN bits, for which the device may send a CNP.
func drawCNPDuplicate(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, fields := r.IntN(3), senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		pkt, responses := c.request(false, 8)
		c.Send(pkt)
		s.compare(responses...)
		s.sendMarked(c.Conn, pkt.Or(fields), uint32(c.Attr.DestQPN), false)
		s.compare(responses...)
	}, "a WRITE and a duplicate on connection %d, ECN %d", i, *fields.IP.TClass&3)
}

// drawCNPResponse draws a request of the device whose response has any ECN bits.
func drawCNPResponse(_ *cnpDialogue, r *rand.Rand) cnpStep {
	i, read, fields := r.IntN(3), chance(r, 2), senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		psn, id := c.DevicePSN(c.sent), s.ids
		c.sent++
		s.ids++
		response := ib.Ack(psn, uint32(c.sent))
		wr := c.WriteWR(id, 16)
		if read {
			wr.Opcode, response = verbs.OpRDMARead, ib.ReadResponseOnly(psn, uint32(c.sent), Data(16))
		}
		c.PostSend(c.QP, wr)
		s.expectPacket(c.response(ib.Packet{}.WithPSN(psn)))
		s.sendMarked(c.Conn, response.Or(fields), uint32(c.Attr.DestQPN), true)
		c.ExpectCompletion(id, verbs.WCSuccess)
		s.compare()
	}, "a response to the device on connection %d, to a READ: %v, ECN %d", i, read, *fields.IP.TClass&3)
}

// drawCNPDatagram draws a datagram with any ECN bits, of one of several senders. Without a receive it
// is dropped, and the device need not send a CNP.
func drawCNPDatagram(s *cnpDialogue, r *rand.Rand) cnpStep {
	source, from, receive := dialogue.Pick[uint32](r, udPeerQPN, 0x123456, 7), s.Peers[r.IntN(min(2, len(s.Peers)))], !chance(r, 4)
	fields := senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		if s.ud == nil {
			return
		}
		id := s.ids
		s.ids++
		if receive {
			s.PostRecv(s.ud.QP, id, s.ud.LocalMem.SGE(0, 64))
		}
		s.sendMarked(s.ud.Conn, s.ud.datagram(Data(16)).WithDETH(udQKey, source).From(from).Or(fields), source, receive)
		if receive {
			s.ExpectRecv(id, ib.GRHLen+16)
		}
		s.compare()
	}, "a datagram of queue pair %#x at %v, ECN %d, with a receive: %v", source, from, *fields.IP.TClass&3, receive)
}

// cnpInvalid are changes of a marked packet that make the device drop it without a CNP.
var cnpInvalid = []struct {
	name   string
	change func(p ib.Packet, other netip.Addr, x uint32) ib.Packet
}{
	{"a wrong ICRC", func(p ib.Packet, _ netip.Addr, x uint32) ib.Packet {
		return p.ChooseICRC(func(c uint32) uint32 { return c ^ 1<<(x%32) })
	}},
	{"another P_Key", func(p ib.Packet, _ netip.Addr, x uint32) ib.Packet {
		return p.WithPKey([]uint16{0x0000, 0x8000, 0xfffe, 0x8001}[x%4])
	}},
	{"the address of another peer", func(p ib.Packet, other netip.Addr, _ uint32) ib.Packet { return p.From(other) }},
	{"the number of no queue pair", func(p ib.Packet, _ netip.Addr, x uint32) ib.Packet {
		return p.To([]uint32{0, 0xfffff0, 0xffffff}[x%3])
	}},
	{"a transport version", func(p ib.Packet, _ netip.Addr, x uint32) ib.Packet { return p.WithTVer(uint8(1 + x%15)) }},
	{"an opcode of another service", func(p ib.Packet, _ netip.Addr, _ uint32) ib.Packet {
		return p.WithOpcode(p.Opcode() ^ 0x60)
	}},
}

// drawCNPInvalid draws a marked packet that the device must drop.
func drawCNPInvalid(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, f, x := r.IntN(len(s.conns)), dialogue.Pick(r, cnpInvalid...), r.Uint32()
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		pkt, _ := c.request(false, 8)
		c.received--
		c.messages--
		other := s.PeerAddr(0)
		if other == c.from {
			other = s.PeerAddr(1)
		}
		s.SendPacket(f.change(pkt.CE().Or(ib.Packet{}.To(uint32(c.QP.QPN())).Via(c.from, s.deviceAddr)), other, x))
		s.compare()
	}, "a marked WRITE on connection %d with %s (%d)", i, f.name, x)
}

// drawCNPWait draws a pause after which each queue pair has to send a CNP again.
func drawCNPWait(_ *cnpDialogue, _ *rand.Rand) cnpStep {
	return step(func(s *cnpDialogue) {
		s.Sleep(maxCNPInterval + time.Millisecond)
		s.compare()
	}, "a pause that is longer than the interval of CNPs")
}

// drawCNPToDevice draws a CNP for a queue pair of the device, with any content, even marked: it has
// no response and takes no PSN.
func drawCNPToDevice(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, ahead, fill, ecn := r.IntN(len(s.conns)), dialogue.Pick(r, 0, 1, 1, -1, r.IntN(1<<23)), byte(r.Uint32()), uint8(r.IntN(3))
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		c.Send(ib.CNP().WithPSN(c.PeerPSN(c.received + ahead)).WithPayload(bytes.Repeat([]byte{fill}, 16)).WithTClass(ecn))
		s.compare()
	}, "a CNP for connection %d with the expected PSN %+d and bytes %#02x", i, ahead, fill)
}

type (
	rateMix  = dialogueMix[*rateDialogue]
	rateStep = dialogueStep[*rateDialogue]
)

// rateDialogue is a dialogue with queue pairs that send bursts.
type rateDialogue struct {
	*Port
	flows []*rateFlow
	full  time.Duration // duration of a burst at the full rate
}

// rateQuick is the shortest burst at the full rate that is taken for one: the simulator spends no
// time per bit.
const rateQuick = time.Microsecond

// rateFlow is a queue pair of the dialogue. Its rate is full until a CNP arrives, and then not known
// until a burst was as fast as at first.
type rateFlow struct {
	*flow
	full bool
}

// openRates makes three queue pairs, two of them with the same peer.
func openRates(p *Port) *rateDialogue {
	s := &rateDialogue{Port: p}
	for i := range 3 {
		s.flows = append(s.flows, &rateFlow{p.newFlowOf(verbs.QPN(peerQPN+i), verbs.MTU1024), true})
	}
	s.full = s.flows[0].burst()
	return s
}

// Close frees the objects.
func (s *rateDialogue) Close() {
	for _, f := range s.flows {
		s.closeConn(f.Conn)
		s.Must("memory that can be deregistered", f.source.Close())
	}
}

// drawRateCNPs draws CNPs for a queue pair, with any content of their reserved fields.
func drawRateCNPs(s *rateDialogue, r *rand.Rand) rateStep {
	cnp, text := ib.CNP(), "CNPs"
	if chance(r, 2) {
		cnp = cnp.WithPSN(ib.PSN(r.Uint32() & 0xffffff)).WithPayload(bytes.Repeat([]byte{byte(r.Uint32())}, 16)).WithTClass(uint8(r.IntN(256)) &^ 3)
		cnp.BTH.SE, cnp.BTH.MigReq, cnp.BTH.BECN, cnp.BTH.FECN = new(chance(r, 2)), new(chance(r, 2)), new(chance(r, 2)), new(chance(r, 2))
		text = "CNPs with reserved fields that are not 0"
	}
	to, sends := r.IntN(len(s.flows)), r.IntN(len(s.flows))
	return step(func(s *rateDialogue) { s.burst(sends, s.flows[to], cnp, true) }, "queue pair %d sends while %s for queue pair %d arrive", sends, text, to)
}

// drawRateInvalid draws CNPs that the device must ignore.
func drawRateInvalid(s *rateDialogue, r *rand.Rand) rateStep {
	type kind struct {
		name string
		cnp  ib.Packet
	}
	kinds := []kind{
		{"a wrong ICRC", ib.CNP().BadICRC()},
		{"another P_Key", ib.CNP().WithPKey(0x8001)},
		{"a transport version", ib.CNP().WithTVer(1)},
		{"the number of no queue pair", ib.CNP().To(0xabcdef)},
		{"another opcode", ib.CNP().WithOpcode(0x80 + ib.Opcode(dialogue.Pick(r, 0, 2, 3, 0x1f)))},
	}
	if len(s.Peers) > 1 {
		kinds = append(kinds, kind{"the address of another peer", ib.CNP().From(s.Peers[1])})
	}
	k, i := dialogue.Pick(r, kinds...), r.IntN(len(s.flows))
	return step(func(s *rateDialogue) { s.burst(i, s.flows[i], k.cnp, false) }, "queue pair %d sends while CNPs for it with %s arrive", i, k.name)
}

// drawRateBurst draws a burst of a queue pair without CNPs.
func drawRateBurst(s *rateDialogue, r *rand.Rand) rateStep {
	i := r.IntN(len(s.flows))
	return step(func(s *rateDialogue) { s.burst(i, nil, ib.Packet{}, false) }, "queue pair %d sends", i)
}

// burst has the i-th queue pair send while CNPs arrive on a connection, unless that is nil, and
// compares the rate.
func (s *rateDialogue) burst(i int, to *rateFlow, cnp ib.Packet, valid bool) {
	send := func() {}
	if to != nil {
		to.full = to.full && !valid
		to.sendCNPs(cnp, 20)
		send = func() { to.Send(cnp) }
	}
	f := s.flows[i]
	took := f.burstOnce(send)
	s.Note("the burst of queue pair %d takes %v", i, took)
	s.Sync()
	s.expectNoPackets()
	slow := 2 * max(s.full, rateQuick)
	switch {
	case to == f && valid && s.Virtual: // in real time, other work of this host changes the rate
		s.Check(took >= slow, fmt.Sprintf("queue pair %d at half its rate or less: %v or more for %d packets", i, slow, flowPackets), "%v", took)
	case f.full && s.Virtual:
		s.Check(took < slow, fmt.Sprintf("queue pair %d at its full rate: less than %v for %d packets", i, slow, flowPackets), "%v", took)
	case (to != f || !valid) && took <= slow:
		f.full = true
	}
}

// drawRateWait draws a pause, in which rates recover.
func drawRateWait(_ *rateDialogue, _ *rand.Rand) rateStep {
	return step(func(s *rateDialogue) { s.Sleep(maxCNPInterval) }, "a pause")
}
