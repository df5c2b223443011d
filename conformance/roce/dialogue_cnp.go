package roce

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var cnpDialogueCases = conformance.Group{Needs: verbs.CapRC | verbs.CapCongestion, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "dialogue/cnp/marks-over-ipv4", Cite: annexA17("CA17-44", "ecn/1", "ecn/2", "ecn/5", "ecn/6"), Setup: conformance.Setup{Family: 4, TwoAddresses: true},
	Title:   "Queue pairs of all services answer marked packets over IPv4 by CNPs like the reference model",
	Sends:   "packets of all kinds with all ECN bits, some invalid, to queue pairs of two peers",
	Expects: "the CNPs of the model with all their fields, the usual responses, and no CNP for invalid packets",
	Defects: []string{"CNPMisaddressed", "CNPReservedUsed", "CNPPerPeer", "SourceUnchecked", "CNPPerDatagramQP"}, Run: cnpMarks.body(5, 40, openCNP),
}, {
	ID: "dialogue/cnp/marks-over-ipv6", Cite: annexA17("CA17-44", "ecn/1", "ecn/2", "ecn/5", "ecn/6"), Setup: conformance.Setup{Family: 6, TwoAddresses: true},
	Title:   "Queue pairs of all services answer marked packets over IPv6 by CNPs like the reference model",
	Sends:   "packets of all kinds with all ECN bits, some invalid, to queue pairs of two peers",
	Expects: "the CNPs of the model with all their fields, the usual responses, and no CNP for invalid packets",
	Defects: []string{"NoCongestion", "MarkedDropped", "CNPPerPort", "CNPOnNAK", "CNPTakesPSN"}, Run: cnpMarks.body(5, 40, openCNP),
}, {
	ID: "dialogue/cnp/rates", Cite: annexA17("CA17-45", "ecn/3", "ecn/5", "ecn/6", "ecn/9", "bth/len/1"), Setup: conformance.Setup{TwoAddresses: true},
	Title:   "CNPs reduce the rate of the queue pair that they name like the reference model, and of no other",
	Sends:   "single CNPs and many, with any content of their reserved fields, to queue pairs of all services that send requests or READ responses; some invalid",
	Expects: "bursts at a lower rate after valid CNPs, and at the full rate after others and when the rate has recovered",
	Defects: []string{"CNPSlowsAll", "CNPReservedUsed", "NoCongestion", "ShortCNPTaken"}, Run: rateMix{
		{4, drawRateCNPs}, {4, drawRateInvalid}, {2, drawRateBurst}, {2, drawRateRecovery},
	}.body(2, 30, openRates),
}, {
	ID: "dialogue/cnp/recovery", Cite: annexA17("CA17-46", "ecn/4"), Level: conformance.Should,
	Title:   "The rates of queue pairs of all services rise again each time CNPs end",
	Sends:   "single CNPs and many to queue pairs that send requests or READ responses",
	Expects: "bursts as fast as at first some time after the last CNP",
	Defects: []string{"RateNeverRecovers"}, Run: rateMix{{1, drawRateCNPs}, {1, drawRateRecovered}}.body(1, 16, openRates),
}})

// cnpMarks are the steps of dialogues with marked packets, at short and at long intervals.
var cnpMarks = cnpMix{
	{9, drawCNPRequest},
	{3, drawCNPResponse},
	{4, drawCNPDatagram},
	{3, drawCNPInvalid},
	{1, drawCNPInvalidDatagram},
	{1, drawCNPBurst},
	{2, drawCNPGap},
	{1, drawCNPDuplicate},
	{1, drawCNPDrained},
	{1, drawCNPReconnect},
	{5, drawCNPWait},
	{3, drawCNPToDevice},
}

type (
	cnpMix  = dialogueMix[*cnpDialogue]
	cnpStep = dialogueStep[*cnpDialogue]
)

// cnpDialogue is a dialogue with queue pairs that receive marked packets. The first four
// connections are of RC: two of one peer, one of another, and one with another P_Key.
type cnpDialogue struct {
	port       *Port
	m          model.NotificationPoint
	conns      []*cnpConn // on which the peer sends requests
	requesters []*cnpConn // on which the device sends requests, of reliable services
	xrc        *xrcTarget // nil if the device has no XRC
	ud         *udPort    // nil if the device has no UD
	nextID     uint64     // ID of the next work request
}

// cnpConn is a connection of the dialogue.
type cnpConn struct {
	conn     *Conn
	service  ib.Transport
	srqn     uint32 // SRQ number of XRC
	received int    // number of request packets of the peer
	messages int    // number of requests of the peer
	sent     int    // number of request packets of the device
}

// cnpRC is the number of RC connections.
const cnpRC = 4

// openCNP makes connections of all services that the device has. One RC connection has the second
// P_Key of the port, if there is one.
func openCNP(p *Port) *cnpDialogue {
	s := &cnpDialogue{port: p, m: model.NotificationPoint{Interval: maxCNPInterval}, nextID: 1}
	for i, peer := range []int{0, 0, 1} {
		s.conns = append(s.conns, s.newConn(verbs.QPTypeRC, ib.RC, i, peer))
	}
	keyed := s.newConn(verbs.QPTypeRC, ib.RC, 3, 0)
	if keys := p.pkeyTable(); len(keys) > 1 && keys[1]&^pkeyFullMember != 0 {
		p.closeConn(keyed.conn)
		keyed.conn = p.connectWithPKey(s.setup(verbs.QPTypeRC, 3, 0), 1, keys[1])
		keyed.conn.from = p.PeerAddr(0)
	}
	s.conns = append(s.conns, keyed)
	s.requesters = slices.Clone(s.conns)
	if p.Caps.Has(verbs.CapUC) {
		s.conns = append(s.conns, s.newConn(verbs.QPTypeUC, ib.UC, 4, 0))
	}
	if p.Caps.Has(verbs.CapXRC) {
		s.requesters = append(s.requesters, s.newConn(verbs.QPTypeXRCSend, ib.XRC, 5, 0))
		s.xrc = p.newXRCTarget()
		s.conns = append(s.conns, &cnpConn{conn: s.xrc.Conn, service: ib.XRC, srqn: s.xrc.srqs[0].Number()})
	}
	if p.Caps.Has(verbs.CapUD) {
		s.ud = p.newUDPort(0, nil)
	}
	return s
}

// setup returns the setup of the i-th connection, which is with the peer of this index.
func (s *cnpDialogue) setup(kind verbs.QPType, i, peer int) Setup {
	return Setup{qpType: kind, memLen: cnpMemLen, signalAll: true, Modify: func(a *verbs.QPAttr) {
		a.DestQPN, a.AH.GRH.DGID, a.PathMTU = verbs.QPN(0x0a0001+i), verbs.GIDFrom(s.port.PeerAddr(peer)), verbs.MTU256
	}}
}

const cnpMemLen = 4 * ucMTU

// newConn makes the i-th connection, with the peer of this index.
func (s *cnpDialogue) newConn(kind verbs.QPType, service ib.Transport, i, peer int) *cnpConn {
	c := &cnpConn{conn: s.port.connect(s.setup(kind, i, peer)), service: service}
	c.conn.from = s.port.PeerAddr(peer)
	return c
}

// Close frees the objects of the dialogue.
func (s *cnpDialogue) Close() {
	for _, c := range slices.Concat(s.conns, s.requesters[cnpRC:]) { // both lists have those of RC
		if s.xrc != nil && c.conn == s.xrc.Conn {
			s.xrc.close()
		} else {
			s.port.closeConn(c.conn)
		}
	}
	if s.ud != nil {
		s.port.closeConn(s.ud.Conn)
	}
}

// closeConn frees the objects of a connection.
func (p *Port) closeConn(c *Conn) {
	p.Must("a queue pair that can be destroyed", c.QP.Close())
	p.Must("memory that can be deregistered", c.TargetMem.Close())
	p.Must("memory that can be deregistered", c.LocalMem.Close())
}

// senderFields adds random fields to a packet, from which its CNP is made or which must not matter
// to the CNP. Half of the packets are marked; the P_Key is that of a full or a limited member.
func senderFields(r *rand.Rand, p ib.Packet) ib.Packet {
	p = p.WithTClass(uint8(r.Uint32())&^3 | rig.Pick[uint8](r, 0, 1, 2, 3, 3, 3)).WithPKey(rig.Pick[uint16](r, 0xffff, 0xffff, 0x7fff))
	p.BTH.MigReq, p.BTH.FECN, p.BTH.BECN = new(chance(r, 2)), new(chance(r, 3)), new(chance(r, 3))
	return p.WithSrcPort(uint16(0xc000 + r.IntN(0x4000))).WithHopLimit(uint8(1 + r.IntN(255)))
}

// isMarked reports whether a packet has a CE mark.
func isMarked(p ib.Packet) bool { return *p.IP.TClass&3 == 3 }

// sendMarked sends a packet, with the P_Key of the connection and the membership of pkt. If it is
// marked, the model expects a CNP to the sender's QPN; the device need not send it if valid is
// false.
func (s *cnpDialogue) sendMarked(c *Conn, pkt ib.Packet, sender uint32, valid bool) {
	partition := cmp.Or(s.port.Checker.PKeys[sender], s.port.Checker.PKey) &^ pkeyFullMember
	membership := *pkt.BTH.PKey & pkeyFullMember
	pkt = pkt.Or(ib.Packet{}.To(uint32(c.QP.QPN())).Via(c.peerAddr(), s.port.deviceAddr)).WithPKey(partition | membership)
	if isMarked(pkt) {
		mark := model.MarkOf(pkt, sender)
		mark.Valid = valid
		s.m.Mark(mark)
	}
	s.port.SendPacket(pkt)
}

// peerAddr returns the source address of the peer's packets.
func (c *Conn) peerAddr() netip.Addr {
	if c.from.IsValid() {
		return c.from
	}
	return c.Peer
}

// compare fails the case unless the device sends these packets, in order, and the CNPs of the
// model, and has no completion.
func (s *cnpDialogue) compare(responses ...ib.Packet) {
	required := s.m.Required(s.port.Now())
	take := func(a *Arrival) {
		if isCNP(a) {
			sender, ok := s.m.Take(a.Packet, s.port.Now())
			s.port.Check(ok, "no CNP, or one for a marked packet with its addresses, queue pair and P_Key", "%v to %v, P_Key %#04x", a, a.IP.Dst, *a.BTH.PKey)
			const ecn = 3
			s.port.Check(*a.IP.TClass&ecn != ecn, "a CNP without a CE mark", "traffic class %#02x", *a.IP.TClass)
			delete(required, sender)
			return
		}
		s.port.Check(len(responses) > 0, "nothing is sent", "%v", a)
		s.port.checkPacket(responses[0], *a)
		responses = responses[1:]
	}
	for len(responses) > 0 || len(required) > 0 {
		want := "a CNP"
		if len(required) == 0 {
			want = responses[0].String()
		}
		a := s.port.expectAnyPacket(want)
		take(&a)
	}
	s.port.Sync()
	for a, ok := s.port.NextPacket(0); ok; a, ok = s.port.NextPacket(0) {
		take(&a)
	}
	s.m.Expire()
	s.port.ExpectNoCompletion()
}

// cnpKind is a kind of requests.
type cnpKind uint8

const (
	cnpWrite cnpKind = iota
	cnpSend
	cnpRead
	cnpAtomic // a FETCH_ADD of 0
)

// request returns the packets of the peer's next request on a connection and, except on UC, the
// response to each of them. The request does not change the content of TargetMem.
func (c *cnpConn) request(kind cnpKind, n int) (packets, responses []ib.Packet) {
	psn, data, mtu := c.conn.PeerPSN(c.received), c.conn.TargetMem.Buf[:n], c.conn.Attr.PathMTU.Bytes()
	if c.service == ib.UC && kind != cnpSend {
		kind = cnpWrite
	}
	c.messages++
	var last ib.Packet // the response to the last packet, if it is not an ACK
	switch kind {
	case cnpRead:
		packets, last = []ib.Packet{ib.ReadRequest(psn, c.conn.RETH(0, min(n, mtu)))}, ib.ReadResponseOnly(psn, uint32(c.messages), data[:min(n, mtu)])
	case cnpAtomic:
		word := binary.NativeEndian.Uint64(c.conn.TargetMem.Buf[c.conn.TargetMem.WordOffset(0):])
		packets, last = []ib.Packet{ib.FetchAdd(psn, wordRETH(c.conn.TargetMem, 0), 0)}, ib.AtomicAck(psn, uint32(c.messages), word)
	case cnpSend:
		packets = ib.Send(psn, data, mtu)
	default:
		packets = ib.Write(psn, c.conn.RETH(0, n), data, mtu)
	}
	c.received += len(packets)
	for i := range packets {
		response := ib.Ack(psn.Add(i), uint32(c.messages-1))
		if i == len(packets)-1 {
			response = last.Or(ib.Ack(psn.Add(i), uint32(c.messages)))
		}
		switch packets[i] = packets[i].AckReq(); c.service {
		case ib.UC:
			packets[i] = packets[i].NoAckReq().On(ib.UC)
			continue
		case ib.XRC:
			packets[i], response = packets[i].OnXRC(c.srqn), response.On(ib.XRC)
		}
		responses = append(responses, c.response(response))
	}
	return packets, responses
}

// response adds the addresses and the peer's QPN to an expected packet.
func (c *cnpConn) response(p ib.Packet) ib.Packet {
	return p.To(uint32(c.conn.Attr.DestQPN)).Via(c.conn.deviceAddr, c.conn.peerAddr())
}

// drawCNPRequest draws a request, each packet with random ECN bits.
func drawCNPRequest(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, kind, n := r.IntN(len(s.conns)), rig.Pick(r, cnpWrite, cnpWrite, cnpSend, cnpRead, cnpAtomic), rig.Pick(r, r.IntN(64), r.IntN(3*ucMTU))
	var fields []ib.Packet
	for range 3 {
		fields = append(fields, senderFields(r, ib.Packet{}))
	}
	return step(func(s *cnpDialogue) { s.sendRequest(s.conns[i], kind, n, fields) },
		"a request of kind %d and %d bytes on connection %d, ECN %d", kind, n, i, *fields[0].IP.TClass&3)
}

// sendRequest sends the packets of a request, with these fields, and compares the responses to
// each. A WRITE replaces an atomic that the device does not support, and a SEND on XRC.
func (s *cnpDialogue) sendRequest(c *cnpConn, kind cnpKind, n int, fields []ib.Packet) {
	if kind == cnpAtomic && !s.port.Caps.Has(verbs.CapAtomics) || kind == cnpSend && c.service == ib.XRC {
		kind = cnpWrite
	}
	id := s.nextID
	if kind == cnpSend {
		s.nextID++
		s.port.PostRecv(c.conn.QP, id, c.conn.LocalMem.SGE(0, cnpMemLen))
	}
	packets, responses := c.request(kind, n)
	for k, pkt := range packets {
		s.sendMarked(c.conn, pkt.Or(fields[k]), uint32(c.conn.Attr.DestQPN), true)
		if kind == cnpSend && k == len(packets)-1 {
			s.port.ExpectRecv(id, n)
		}
		if c.service == ib.UC {
			s.compare()
		} else {
			s.compare(responses[k])
		}
	}
}

// drawCNPBurst draws two to seven WRITEs with the same ECN bits, sent without a pause.
func drawCNPBurst(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, n, fields := r.IntN(len(s.conns)), 2+r.IntN(6), senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		for range n {
			packets, _ := c.request(cnpWrite, 8)
			s.sendMarked(c.conn, packets[0].Or(fields).NoAckReq(), uint32(c.conn.Attr.DestQPN), true)
		}
		s.discardAcks()
		s.compare()
	}, "%d WRITEs at once on connection %d, ECN %d", n, i, *fields.IP.TClass&3)
}

// drawCNPDrained draws a request to a queue pair in SQD, which must respond as in RTS.
func drawCNPDrained(_ *cnpDialogue, r *rand.Rand) cnpStep {
	i, fields := r.IntN(cnpRC+1), []ib.Packet{senderFields(r, ib.Packet{})}
	return step(func(s *cnpDialogue) {
		c := s.conns[min(i, len(s.conns)-1)]
		if c.service == ib.XRC { // an XRC target has no SQD
			return
		}
		s.port.ToState(c.conn.QP, verbs.QPStateSQD)
		s.sendRequest(c, cnpWrite, 8, fields)
		s.port.ToState(c.conn.QP, verbs.QPStateRTS)
	}, "a request on connection %d in SQD, ECN %d", i, *fields[0].IP.TClass&3)
}

// drawCNPReconnect draws a marked WRITE to a queue pair in ERR, which must cause no CNP. Then the
// queue pair is connected to another QPN of the peer, and a WRITE with random ECN bits is sent.
func drawCNPReconnect(_ *cnpDialogue, r *rand.Rand) cnpStep {
	i, fields := r.IntN(3), []ib.Packet{senderFields(r, ib.Packet{})}
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		s.port.ToState(c.conn.QP, verbs.QPStateErr)
		c.conn.Send(c.conn.peerWrite(c.received, 8).CE())
		s.compare()
		s.port.ToState(c.conn.QP, verbs.QPStateReset)
		c.conn.Attr.DestQPN += 0x100
		s.port.ToInit(c.conn.QP, allAccess&^verbs.AccessLocalWrite, 0)
		s.port.ToRTR(c.conn.QP, c.conn.Attr)
		s.port.ToRTS(c.conn.QP, c.conn.Attr)
		c.received, c.messages, c.sent = 0, 0, 0
		s.sendRequest(c, cnpWrite, 8, fields)
	}, "connection %d in ERR, and then to another queue pair, ECN %d", i, *fields[0].IP.TClass&3)
}

// discardAcks discards ACKs of requests without AckReq, which the device may send.
func (s *cnpDialogue) discardAcks() {
	s.port.Sync()
	s.port.skipped = slices.DeleteFunc(s.port.skipped, func(a Arrival) bool { return a.IsAck(ib.AckPositive) })
}

// drawCNPGap draws a WRITE after a gap and then the missing one, with random ECN bits. The device
// may send a CNP for a marked WRITE after the gap.
func drawCNPGap(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, early, fields := r.IntN(3), senderFields(r, ib.Packet{}), senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		ahead := ib.WriteOnly(c.conn.PeerPSN(c.received+1), c.conn.RETH(0, 8), c.conn.TargetMem.Buf[:8]).AckReq()
		s.sendMarked(c.conn, ahead.Or(early), uint32(c.conn.Attr.DestQPN), false)
		s.compare(c.response(ib.Nak(c.conn.PeerPSN(c.received), ib.NakSequence, uint32(c.messages))))
		s.sendRequest(c, cnpWrite, 8, []ib.Packet{fields})
	}, "a WRITE after a gap on connection %d, ECN %d, and the missing one, ECN %d", i, *early.IP.TClass&3, *fields.IP.TClass&3)
}

// drawCNPDuplicate draws a WRITE, and a duplicate with random ECN bits. The device may send a CNP
// for a marked duplicate.
func drawCNPDuplicate(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, fields := r.IntN(3), senderFields(r, ib.Packet{})
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		packets, responses := c.request(cnpWrite, 8)
		s.sendMarked(c.conn, packets[0].Or(fields.WithTClass(0)), uint32(c.conn.Attr.DestQPN), true)
		s.compare(responses...)
		s.sendMarked(c.conn, packets[0].Or(fields), uint32(c.conn.Attr.DestQPN), false)
		s.compare(responses...)
	}, "a WRITE and a duplicate on connection %d, ECN %d", i, *fields.IP.TClass&3)
}

// drawCNPResponse draws a request of the device whose responses have random ECN bits: a WRITE with
// an ACK, perhaps after a sequence NAK, or a READ with one or three responses.
func drawCNPResponse(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, reads, nak := r.IntN(len(s.requesters)), rig.Pick(r, 0, 0, 1, 3), chance(r, 2)
	var fields []ib.Packet
	for range 3 {
		fields = append(fields, senderFields(r, ib.Packet{}))
	}
	return step(func(s *cnpDialogue) {
		c := s.requesters[i]
		psn, id, n := c.conn.DevicePSN(c.sent), s.nextID, max(16, reads*ucMTU)
		s.nextID++
		wr := c.conn.WriteWR(id, n)
		wr.XRC.SRQN = 5 // not used on RC
		responses := []ib.Packet{ib.Ack(psn, uint32(c.sent+1))}
		switch {
		case reads > 0:
			wr.Opcode = verbs.OpRDMARead
			responses = ib.ReadResponses(psn, uint32(c.sent+1), Data(n), ucMTU)
		case nak:
			responses = []ib.Packet{ib.Nak(psn, ib.NakSequence, uint32(c.sent)), responses[0]}
		}
		c.sent += max(1, reads)
		request := c.response(ib.Packet{}.WithPSN(psn))
		c.conn.PostSend(c.conn.QP, wr)
		s.port.expectPacket(request)
		for k, response := range responses {
			s.sendMarked(c.conn, response.On(c.service).Or(fields[k]), uint32(c.conn.Attr.DestQPN), true)
			switch {
			case k == len(responses)-1:
				c.conn.ExpectCompletion(id, verbs.WCSuccess)
				s.compare()
			case reads == 0:
				s.compare(request) // retransmitted after the NAK
			default:
				s.compare()
			}
		}
	}, "responses to the device on connection %d, READ responses: %d, NAK: %v, ECN %d", i, reads, nak, *fields[0].IP.TClass&3)
}

// drawCNPDatagram draws a datagram with random ECN bits from one of several senders. If no receive
// is posted, the device drops it and need not send a CNP.
func drawCNPDatagram(s *cnpDialogue, r *rand.Rand) cnpStep {
	source, from, receive := rig.Pick[uint32](r, udPeerQPN, 0x123456, 7), s.port.Peers[r.IntN(min(2, len(s.port.Peers)))], !chance(r, 4)
	fields, to := senderFields(r, ib.Packet{}), r.IntN(len(s.port.Local))
	return step(func(s *cnpDialogue) {
		if s.ud == nil {
			return
		}
		id := s.nextID
		s.nextID++
		if receive {
			s.port.PostRecv(s.ud.QP, id, s.ud.LocalMem.SGE(0, 64))
		}
		s.sendMarked(s.ud.Conn, s.ud.datagram(Data(16)).WithDETH(udQKey, source).Via(from, s.port.Local[to]).Or(fields), source, receive)
		if receive {
			s.port.ExpectRecv(id, ib.GRHLen+16)
		}
		s.compare()
	}, "a datagram of queue pair %#x at %v, ECN %d, with a receive: %v", source, from, *fields.IP.TClass&3, receive)
}

// cnpInvalid are changes of a marked packet, with a random x, that make the device drop it without
// a CNP. The last two are for connections only.
var cnpInvalid = []struct {
	name   string
	change func(s *cnpDialogue, p ib.Packet, x uint32) ib.Packet
}{
	{"a wrong ICRC", func(_ *cnpDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.ChooseICRC(func(c uint32) uint32 { return c ^ 1<<(x%32) })
	}},
	{"another P_Key", func(_ *cnpDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.WithPKey([]uint16{0x0000, 0x8000, 0xfffe, 0x9001}[x%4])
	}},
	{"the number of no queue pair", func(_ *cnpDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.To([]uint32{0, 0xfffff0, 0xffffff}[x%3])
	}},
	{"a transport version that is not 0", func(_ *cnpDialogue, p ib.Packet, x uint32) ib.Packet { return p.WithTVer(uint8(1 + x%15)) }},
	{"an opcode of another service", func(_ *cnpDialogue, p ib.Packet, _ uint32) ib.Packet {
		return p.WithOpcode(p.Opcode() ^ 0x60)
	}},
	{"another UDP port", func(_ *cnpDialogue, p ib.Packet, _ uint32) ib.Packet { return p.WithDstPort(ib.Port - 1) }},
	{"the address of another peer", func(s *cnpDialogue, p ib.Packet, _ uint32) ib.Packet {
		if p.IP.Src == s.port.PeerAddr(0) {
			return p.From(s.port.PeerAddr(1))
		}
		return p.From(s.port.PeerAddr(0))
	}},
	{"another address of the device", func(s *cnpDialogue, p ib.Packet, _ uint32) ib.Packet {
		return p.Via(p.IP.Src, s.port.Local[len(s.port.Local)-1])
	}},
}

// drawCNPInvalid draws a marked packet that the device must drop.
func drawCNPInvalid(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, f, x := r.IntN(len(s.conns)), rig.Pick(r, cnpInvalid...), r.Uint32()
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		packets, _ := c.request(cnpWrite, 8)
		c.received-- // a dropped packet does not count
		c.messages--
		pkt := packets[0].CE().Or(ib.Packet{}.To(uint32(c.conn.QP.QPN())).Via(c.conn.peerAddr(), s.port.deviceAddr).WithPKey(cmp.Or(s.port.Checker.PKeys[uint32(c.conn.Attr.DestQPN)], s.port.Checker.PKey)))
		s.port.SendPacket(f.change(s, pkt, x))
		s.compare()
	}, "a marked WRITE on connection %d with %s (%d)", i, f.name, x)
}

// drawCNPInvalidDatagram draws a marked datagram that the device must drop: one third has another
// Q_Key, the others a change of cnpInvalid.
func drawCNPInvalidDatagram(_ *cnpDialogue, r *rand.Rand) cnpStep {
	f, x, key := rig.Pick(r, cnpInvalid[:len(cnpInvalid)-2]...), r.Uint32(), chance(r, 3)
	return step(func(s *cnpDialogue) {
		if s.ud == nil {
			return
		}
		pkt := s.ud.datagram(Data(16)).CE().Via(s.port.Peer, s.port.deviceAddr)
		if key {
			pkt = pkt.WithDETH(udQKey^1<<(x%32), udPeerQPN)
		} else {
			pkt = f.change(s, pkt, x)
		}
		s.port.SendPacket(pkt)
		s.compare()
	}, "a marked datagram with another Q_Key: %v, else with %s (%d)", key, f.name, x)
}

// drawCNPWait draws a pause after which the device must answer the next marked packet by a CNP.
func drawCNPWait(_ *cnpDialogue, _ *rand.Rand) cnpStep {
	return step(func(s *cnpDialogue) {
		s.port.Sleep(maxCNPInterval + time.Millisecond)
		s.compare()
	}, "a pause that is longer than the interval of CNPs")
}

// drawCNPToDevice draws a CNP for a queue pair of the device, with a random PSN and content. The
// device must not respond to it, nor change the expected PSN.
func drawCNPToDevice(s *cnpDialogue, r *rand.Rand) cnpStep {
	i, ahead, fill, ecn := r.IntN(len(s.conns)), rig.Pick(r, 0, 1, 1, -1, r.IntN(1<<23)), byte(r.Uint32()), uint8(r.IntN(3))
	return step(func(s *cnpDialogue) {
		c := s.conns[i]
		c.conn.Send(ib.CNP().WithPSN(c.conn.PeerPSN(c.received + ahead)).WithPayload(bytes.Repeat([]byte{fill}, 16)).WithTClass(ecn))
		s.compare()
	}, "a CNP for connection %d with the expected PSN %+d and bytes %#02x", i, ahead, fill)
}

type (
	rateMix  = dialogueMix[*rateDialogue]
	rateStep = dialogueStep[*rateDialogue]
)

// rateDialogue is a dialogue with queue pairs that send bursts.
type rateDialogue struct {
	port  *Port
	flows []*rateFlow
	full  time.Duration // duration of a burst at the full rate, measured at the start
}

// rateQuick is used if a burst at the full rate is shorter: the simulator spends no time per bit.
const rateQuick = time.Microsecond

// rateFlow is a queue pair of the dialogue.
type rateFlow struct {
	flow *flow
	// full: the queue pair sends at its full rate. It is false from a CNP on, until a burst is
	// fast.
	full bool
}

// openRates makes queue pairs of all services that the device has, with one peer. RC has two, of
// which the second sends READ responses.
func openRates(p *Port) *rateDialogue {
	s := &rateDialogue{port: p}
	for i, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeXRCSend} {
		if p.Caps.Has(capOf[kind]) {
			s.flows = append(s.flows, &rateFlow{p.newFlowOf(kind, verbs.QPN(peerQPN+i), verbs.MTU1024), true})
		}
	}
	s.flows[1].flow.reads = true
	s.full = s.flows[0].flow.burst()
	return s
}

// capOf are the capabilities that the types of queue pairs need.
var capOf = map[verbs.QPType]verbs.Caps{
	verbs.QPTypeRC: verbs.CapRC, verbs.QPTypeUC: verbs.CapUC, verbs.QPTypeUD: verbs.CapUD, verbs.QPTypeXRCSend: verbs.CapXRC,
}

// Close frees the objects of the dialogue.
func (s *rateDialogue) Close() {
	for _, f := range s.flows {
		s.port.closeConn(f.flow.conn)
		s.port.Must("memory that can be deregistered", f.flow.source.Close())
		if f.flow.ah != nil {
			s.port.Must("an address handle that can be destroyed", f.flow.ah.Close())
		}
	}
}

// rateCNPs are CNPs that arrive before and while a queue pair sends.
type rateCNPs struct {
	pkt   ib.Packet
	many  bool // 20 before the burst and others during it; else one before it
	valid bool // the device must send at a lower rate
}

// drawRateCNPs draws CNPs for a queue pair, half of them with random reserved fields. In more than
// half of the steps this queue pair sends the burst, else any one of them.
func drawRateCNPs(s *rateDialogue, r *rand.Rand) rateStep {
	cnps, text := rateCNPs{ib.CNP(), chance(r, 2), true}, "CNPs"
	if chance(r, 2) {
		cnp := ib.CNP().WithPSN(ib.PSN(r.Uint32() & 0xffffff)).WithPayload(bytes.Repeat([]byte{byte(r.Uint32())}, 16)).WithTClass(uint8(r.IntN(256)) &^ 3)
		cnp.BTH.SE, cnp.BTH.MigReq, cnp.BTH.BECN, cnp.BTH.FECN = new(chance(r, 2)), new(chance(r, 2)), new(chance(r, 2)), new(chance(r, 2))
		cnps.pkt, text = cnp.WithReserved(uint8(r.Uint32()&63), uint8(r.Uint32()&127)), "CNPs with reserved fields that are not 0"
	}
	if chance(r, 3) {
		cnps.pkt = cnps.pkt.WithPKey(s.port.pkey(0) &^ pkeyFullMember) // that of a limited member
	}
	to, sends := r.IntN(len(s.flows)), r.IntN(len(s.flows))
	if chance(r, 2) {
		sends = to
	}
	return step(func(s *rateDialogue) { s.burst(sends, s.flows[to], cnps) }, "queue pair %d sends while %s for queue pair %d arrive, many: %v", sends, text, to, cnps.many)
}

// rateInvalid are packets, with a random x, that must not change the rate of a queue pair.
var rateInvalid = []struct {
	name   string
	packet func(f *rateFlow, x int) ib.Packet
}{
	{"CNPs with a wrong ICRC", func(*rateFlow, int) ib.Packet { return ib.CNP().BadICRC() }},
	{"CNPs with another P_Key", func(_ *rateFlow, x int) ib.Packet { return ib.CNP().WithPKey([]uint16{0x8001, 0xfffe, 0x8000}[x%3]) }},
	{"CNPs with a transport version that is not 0", func(_ *rateFlow, x int) ib.Packet { return ib.CNP().WithTVer(uint8(1 + x%15)) }},
	{"CNPs with the number of no queue pair", func(*rateFlow, int) ib.Packet { return ib.CNP().To(0xabcdef) }},
	{"packets with another opcode", func(_ *rateFlow, x int) ib.Packet {
		return ib.CNP().WithOpcode(0x80 + ib.Opcode([]int{0, 2, 3, 0x1f}[x%4]))
	}},
	{"CNPs that are too short", func(_ *rateFlow, x int) ib.Packet { return ib.CNP().WithPayload(make([]byte, []int{0, 4, 12}[x%3])) }},
	{"CNPs to another UDP port", func(*rateFlow, int) ib.Packet { return ib.CNP().WithDstPort(ib.Port + 1) }},
	{"CNPs to another address of the device", func(f *rateFlow, _ int) ib.Packet {
		return ib.CNP().Via(f.flow.conn.Peer, f.flow.conn.Local[len(f.flow.conn.Local)-1])
	}},
	{"CNPs from the address of another peer", func(f *rateFlow, _ int) ib.Packet { return ib.CNP().From(f.flow.conn.PeerAddr(1)) }},
	{"responses with BECN and FECN", func(f *rateFlow, x int) ib.Packet {
		p := []ib.Packet{f.flow.conn.peerAck(-1, 0), ib.ReadResponseOnly(f.flow.conn.DevicePSN(-1), 0, Data(8))}[x%2]
		p.BTH.BECN, p.BTH.FECN = new(true), new(true)
		return p.On(f.flow.service)
	}},
}

// drawRateInvalid draws packets that must not change the rate of a queue pair. A UD queue pair has
// no peer: CNPs with other addresses may reduce its rate.
func drawRateInvalid(s *rateDialogue, r *rand.Rand) rateStep {
	k, i, x, many := rig.Pick(r, rateInvalid...), r.IntN(len(s.flows)), r.IntN(1000), chance(r, 2)
	return step(func(s *rateDialogue) {
		f := s.flows[i]
		pkt := k.packet(f, x)
		if hasAddress := pkt.IP.Src.IsValid() || pkt.IP.Dst.IsValid(); hasAddress && f.flow.service == ib.UD {
			f.full = false
		}
		s.burst(i, f, rateCNPs{pkt, many, false})
	}, "queue pair %d sends while %s arrive (%d), many: %v", i, k.name, x, many)
}

// drawRateBurst draws a burst of a queue pair without CNPs.
func drawRateBurst(s *rateDialogue, r *rand.Rand) rateStep {
	i := r.IntN(len(s.flows))
	return step(func(s *rateDialogue) { s.burst(i, nil, rateCNPs{}) }, "queue pair %d sends", i)
}

// slow returns the duration of a burst at half the full rate.
func (s *rateDialogue) slow() time.Duration { return 2 * max(s.full, rateQuick) }

// burst has the i-th queue pair send a burst while CNPs arrive for queue pair to, unless to is nil.
// It checks the rate, or finds out whether it is full again. In real time it does not check: other
// work of this host changes the rate.
func (s *rateDialogue) burst(i int, to *rateFlow, cnps rateCNPs) {
	send := func() {}
	if to != nil {
		if cnps.valid {
			to.full = false
		}
		if cnps.many {
			send = func() { to.flow.conn.Send(cnps.pkt) }
			to.flow.conn.sendCNPs(cnps.pkt, 20)
		} else {
			to.flow.conn.sendCNPs(cnps.pkt, 1)
		}
	}
	f := s.flows[i]
	took := f.flow.burstOnce(send)
	s.port.Note("the burst of queue pair %d takes %v", i, took)
	s.port.Sync()
	s.port.expectNoPackets()
	s.port.ExpectNoCompletion()
	reduced := to == f && cnps.valid
	switch {
	case reduced && s.port.Virtual:
		s.port.Check(took >= s.slow(), fmt.Sprintf("queue pair %d at half its rate or less: %v or more for %d packets", i, s.slow(), flowPackets), "%v", took)
	case f.full && s.port.Virtual:
		s.port.Check(took < s.slow(), fmt.Sprintf("queue pair %d at its full rate: less than %v for %d packets", i, s.slow(), flowPackets), "%v", took)
	case !reduced && took <= s.slow():
		f.full = true
	}
}

// drawRateRecovery draws bursts of a queue pair until its rate is full again, or for recoveryTime.
func drawRateRecovery(s *rateDialogue, r *rand.Rand) rateStep {
	i := r.IntN(len(s.flows))
	return step(func(s *rateDialogue) { s.awaitFullRate(i) }, "a pause, until queue pair %d sends at its full rate", i)
}

// recoveryTime is longer than any device needs to return to the full rate.
const recoveryTime = 5 * time.Second

// awaitFullRate has a queue pair send bursts at growing intervals until its rate is full again. It
// returns false if the intervals reach recoveryTime.
func (s *rateDialogue) awaitFullRate(i int) bool {
	f := s.flows[i]
	for wait := maxCNPInterval; !f.full && wait < recoveryTime; wait *= 2 {
		s.port.Sleep(wait)
		s.burst(i, nil, rateCNPs{})
	}
	return f.full
}

// drawRateRecovered draws bursts of a queue pair until its rate is full again, or for recoveryTime.
// If the rate is not full then, it fails the case, but in virtual time only.
func drawRateRecovered(s *rateDialogue, r *rand.Rand) rateStep {
	i := r.IntN(len(s.flows))
	return step(func(s *rateDialogue) {
		if full := s.awaitFullRate(i); s.port.Virtual {
			s.port.Check(full, fmt.Sprintf("queue pair %d at its full rate", i), "a lower rate for %v", recoveryTime)
		}
	}, "queue pair %d sends at its full rate again", i)
}
