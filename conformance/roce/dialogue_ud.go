package roce

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var udDialogueCases = conformance.Group{Needs: verbs.CapUD | verbs.CapRC, Labels: labelUD}.Cases(slices.Concat(
	udFamilyDialogueCases(4), udFamilyDialogueCases(6), []conformance.Case{{
		ID: "dialogue/ud/dropped", Cite: ibta("", "ud/2", "ud/6", "ud/7", "bth/op/3", "bth/pkey/1", "bth/qpn/2", "pkt/udp/1", "pkt/addr/5", "icrc/2", "bth/pad/3"),
		Title:   "UD queue pairs drop invalid datagrams between valid ones like the reference model",
		Sends:   "datagrams, of which some have a wrong key, opcode, version, length, address or checksum, or fit no receive",
		Expects: "after each step the completions, the memory and the counts of wrong Q_Keys and P_Keys of the model, and no packet",
		Defects: []string{"KeysIgnored", "UDLongConsumes", "KeyViolationsUncounted", "UnknownOpFatal"}, Run: udMix{
			{4, drawUDReceive}, {3, drawUDDatagram}, {6, drawUDFault}, {1, drawUDBurst}, {1, drawUDKey}, {1, drawUDPartition},
		}.body(8, 30, openUDShort),
	}, {
		ID: "dialogue/ud/states", Cite: ibta("", "bth/state/1", "bth/state/3", "qp/4", "qp/5", "qp/6", "qp/7", "qp/8"),
		Title:   "UD queue pairs receive in RESET, INIT, RTR, RTS and ERR like the reference model",
		Sends:   "datagrams to queue pairs that the application moves between states",
		Expects: "after each step the packets, completions, memory and attributes of the model",
		Defects: []string{"BuffersBeforeRTR", "ErrCompletesRecvs", "ResetKeepsQueues", "RecvNeedsReady"}, Run: udMix{
			{4, drawUDReceive}, {6, drawUDFitting}, {1, drawUDFault}, {1, drawUDKey}, {7, drawUDState},
		}.body(10, 40, openUD),
	}, {
		ID: "dialogue/ud/send-states", Cite: ibta("C10-96", "qp/3", "err/2", "sqd/1", "sqd/4", "sqd/5", "qp/8"),
		Title:   "UD queue pairs send in each state like the reference model",
		Sends:   "datagrams to queue pairs that the application moves between all states, SQD and SQE among them, and that send datagrams",
		Expects: "after each step the packets, completions, memory and attributes of the model",
		Defects: []string{"SQDNoResume", "LocalErrFlushesAll", "NoFlushInError", "EarlySendSwallowed"}, Run: udMix{
			{2, drawUDReceive}, {2, drawUDFitting}, {5, drawUDSendState}, {3, drawUDState}, {1, drawUDKey}, {6, drawUDSends},
		}.body(8, 36, openUD),
	}, {
		ID: "dialogue/ud/sends", Cite: ibta("C10-93.1.1", "ud/5", "ud/9", "bth/ackreq/2", "bth/se/1", "bth/pkey/5", "cq/1"),
		Title:   "UD queue pairs send random datagrams like the reference model",
		Sends:   "a few datagrams, while the application sends, to its own queue pairs too",
		Expects: "the packets of the model with all their fields, its completions and memory",
		Defects: []string{"UDOversizeCut", "ByteOrderWrong", "UnreliableAckReq"}, Run: udMix{
			{2, drawUDReceive}, {1, drawUDFitting}, {1, drawUDKey}, {1, drawUDPartition}, {8, drawUDSends}, {2, drawUDOversize}, {3, drawUDLoopback},
		}.body(8, 30, openUD),
	}}))

// udFamilyDialogueCases returns the cases over IPv4 or IPv6, by family.
func udFamilyDialogueCases(family int) []conformance.Case {
	return []conformance.Case{{
		ID: fmt.Sprintf("dialogue/ud/received-over-ipv%d", family), Cite: annexA17("A17.4.5.1, A17.4.5.2", "ud/1", "ud/8", "ud/9", "ud/10", "ud/15", "bth/pkey/2"),
		Setup:   conformance.Setup{Family: family},
		Title:   fmt.Sprintf("UD queue pairs receive random datagrams over IPv%d like the reference model", family),
		Sends:   "datagrams of all sizes with and without immediate data and SE, of several senders, in bursts and one by one",
		Expects: "after each step the completions and memory of the model, the header area included, and no packet",
		Defects: []string{"AreaMissing", "SparseCompletions", "UDPSNChecked", "PKeyExact"}, Run: udMix{
			{5, drawUDReceive}, {5, drawUDFitting}, {3, drawUDBurst}, {1, drawUDKey}, {1, drawUDPartition},
		}.body(6, 30, openUD),
	}, {
		ID: fmt.Sprintf("dialogue/ud/paths-over-ipv%d", family), Cite: annexA17("CA17-4, CA17-9, CA17-11, CA17-12", "pkt/ip/3", "pkt/ip/4", "pkt/ip/8", "pkt/ip/9", "ud/3"),
		Setup:   conformance.Setup{Family: family, TwoAddresses: true},
		Title:   fmt.Sprintf("Datagrams over IPv%d have the Q_Keys, addresses, traffic class and hop limit of their requests", family),
		Sends:   "datagrams to both addresses of the device, while the application sends with address handles of all kinds",
		Expects: "the packets, completions and memory of the model",
		Defects: []string{"PrivilegedQKey", "FixedHopLimit", "PrimaryAddressUsed"}, Run: udMix{
			{2, drawUDReceive}, {2, drawUDFitting}, {8, drawUDPaths},
		}.body(4, 30, openUD),
	}}
}

var multicastDialogueCases = conformance.Group{Needs: verbs.CapUD | verbs.CapRC | verbs.CapMulticast, Labels: labelUD}.Cases(slices.Concat(
	multicastDialogueCase(4), multicastDialogueCase(6)))

// multicastDialogueCase returns the case about groups of IPv4 or IPv6, by family.
func multicastDialogueCase(family int) []conformance.Case {
	return []conformance.Case{{
		ID: fmt.Sprintf("dialogue/multicast/groups-of-ipv%d", family), Cite: ibta("", "ud/13", "ud/14", "ud/2", "bth/qpn/2", "bth/pkey/1"),
		Setup:   conformance.Setup{Family: family},
		Title:   fmt.Sprintf("UD queue pairs join and leave groups of IPv%d, and receive their datagrams, like the reference model", family),
		Sends:   "datagrams to groups and to single queue pairs, which join and leave groups, send to them, change their keys and states",
		Expects: "after each step the completions and memory of the model: one copy for each member with a receive that fits",
		Defects: []string{"MulticastOneCopy", "InUseDestroyed", "UDLongConsumes", "GroupPKeyOfFirst"}, Run: udMix{
			{6, drawUDReceive}, {1, drawUDDatagram}, {6, drawUDGroupDatagram}, {2, drawUDWholeGroup}, {4, drawUDJoin}, {2, drawUDLeave}, {1, drawUDKey}, {1, drawUDState}, {2, drawUDGroupSend},
		}.body(5, 36, openUD),
	}}
}

type (
	udMix  = dialogueMix[*udDialogue]
	udStep = dialogueStep[*udDialogue]
)

// udDialogue is a dialogue with the UD queue pairs of a port.
type udDialogue struct {
	port    *Port
	m       *model.UDPort
	qps     []verbs.QP                     // in the order of m.QPs
	waiting map[verbs.QP][]model.UDRequest // requests that were posted in SQD
	mem     *rig.Memory                    // buffers of receives
	source  *rig.Memory                    // payload of sends
	free    []model.UDSpan                 // buffers that no receive uses
	used    map[uint64]model.UDSpan        // buffers of receives, by ID
	groups  []netip.Addr                   // multicast groups
	paths   map[verbs.AHAttr]verbs.AH
	mtu     int
	ids     uint64         // ID of the next request or receive
	before  verbs.PortAttr // when the dialogue began
	pkeys   []uint16       // the P_Key table of the port
	// shortReceives: some receives are shorter than the header area.
	shortReceives bool
}

const (
	udQueuePairs  = 3
	udMaxReceives = 12 // of a queue pair
	// Numbers and length of buffers: short ones, and those for a datagram of the MTU.
	udShortParts = 24
	udShortLen   = ib.GRHLen + 300
	udLongParts  = 3
)

// openUDShort makes queue pairs in RTS for a dialogue in which some receives are shorter than the
// header area.
func openUDShort(p *Port) *udDialogue {
	s := openUD(p)
	s.shortReceives = true
	return s
}

// pickUD returns the index of a random queue pair. The first is more frequent, so that several
// steps concern the same queue pair.
func pickUD(r *rand.Rand) int { return rig.Pick(r, 0, 0, 1, 2) }

// openUD makes queue pairs in RTS. The last has another Q_Key than the others.
func openUD(p *Port) *udDialogue {
	s := &udDialogue{
		port: p, mtu: p.QueryPort().ActiveMTU.Bytes(), waiting: make(map[verbs.QP][]model.UDRequest), used: make(map[uint64]model.UDSpan),
		paths: make(map[verbs.AHAttr]verbs.AH), ids: 1, before: p.QueryPort(), pkeys: p.pkeyTable(),
	}
	p.Checker.AnyPKey = true // the model checks them
	long := ib.GRHLen + s.mtu
	s.mem, s.source = p.Memory(udShortParts*udShortLen+udLongParts*long, verbs.AccessLocalWrite), p.Memory(s.mtu+64, verbs.AccessLocalWrite)
	for i := range udShortParts {
		s.free = append(s.free, model.UDSpan{Off: i * udShortLen, Len: udShortLen})
	}
	for i := range udLongParts {
		s.free = append(s.free, model.UDSpan{Off: udShortParts*udShortLen + i*long, Len: long})
	}
	for _, n := range []byte{1, 2, 3} {
		s.groups = append(s.groups, multicastGroup(p.deviceAddr, n))
	}
	if p.deviceAddr.Is4() { // a group with the MAC address of the first one
		s.groups = append(s.groups, netip.AddrFrom4([4]byte{239, 77 + 128, 0, 1}))
	}
	s.m = &model.UDPort{Addrs: p.Local, Mem: slices.Clone(s.mem.Buf), HeadersUnseen: p.UDPSockets}
	for i := range udQueuePairs {
		qp := p.CreateQP(verbs.QPInit{
			Type: verbs.QPTypeUD, PD: p.PD, SendCQ: p.CQ, RecvCQ: p.CQ,
			Caps: verbs.QPCaps{MaxSendWR: 32, MaxRecvWR: udMaxReceives, MaxSendSGE: 2, MaxRecvSGE: 2},
		})
		q := &model.UDQueuePair{QPN: qp.QPN(), QKey: udQKey + uint32(i/2), PKey: s.pkeys[0], PSN: ib.PSN(0xfffff0 + i), Groups: make(map[netip.Addr]bool)}
		s.qps, s.m.QPs = append(s.qps, qp), append(s.m.QPs, q)
		for q.State != verbs.QPStateRTS {
			s.advance(i)
		}
	}
	return s
}

// Close frees the objects of the dialogue.
func (s *udDialogue) Close() {
	for i, q := range s.m.QPs {
		for g := range q.Groups {
			_ = s.qps[i].DetachMulticast(verbs.GIDFrom(g))
		}
		s.port.Must("a queue pair that can be destroyed", s.qps[i].Close())
	}
	for _, ah := range s.paths {
		s.port.Must("an address handle that can be destroyed", ah.Close())
	}
	s.port.Must("memory that can be deregistered", s.mem.Close())
	s.port.Must("memory that can be deregistered", s.source.Close())
}

// compare fails the case unless the device has these completions, the memory of the model, and has
// sent nothing.
func (s *udDialogue) compare(want []verbs.WC) {
	s.port.compareCompletions(want)
	s.port.expectNoPackets()
	for _, wc := range want {
		s.release(wc.WRID)
	}
	s.port.compareMemory(s.mem, s.m.Mem, s.m.Undefined)
	s.port.ExpectUntouched(s.source)
	s.m.Undefined = nil
	s.port.expectEvents()
}

// release makes the buffer of a receive free again. It ignores IDs of send requests.
func (s *udDialogue) release(id uint64) {
	if part, ok := s.used[id]; ok {
		s.free = append(s.free, part)
		delete(s.used, id)
	}
}

// drawUDReceive draws one or two receives of a queue pair, with one or two SGEs. Their length is
// that of the header area and up to 300 bytes or the MTU; some are shorter than the area if
// shortReceives.
func drawUDReceive(s *udDialogue, r *rand.Rand) udStep {
	i, count := pickUD(r), 1+r.IntN(2)
	n := ib.GRHLen + rig.Pick(r, 0, 1, 3, 4, 17, 60, 64, 255, 256, 300)
	switch {
	case s.shortReceives && chance(r, 12):
		n = rig.Pick(r, 1, 20, ib.GRHLen-1)
	case chance(r, 6):
		n = ib.GRHLen + s.mtu
	}
	split := 0
	if chance(r, 3) && n > 1 {
		split = min(n-1, rig.Pick(r, 1, 13, 20, 30, 39, 40, 41, 57))
	}
	return step(func(s *udDialogue) {
		for range count {
			s.postReceive(i, n, split)
		}
	}, "%d receives of %d bytes for queue pair %d, split at %d", count, n, i, split)
}

// postReceive posts a receive of n bytes to the i-th queue pair. If split is not 0, it has two
// SGEs, of which the first has split bytes. In RESET the device must refuse it, and in ERR flush
// it.
func (s *udDialogue) postReceive(i, n, split int) {
	q, qp := s.m.QPs[i], s.qps[i]
	at := slices.IndexFunc(s.free, func(p model.UDSpan) bool { return p.Len >= n })
	if at < 0 || len(q.Receives) == udMaxReceives {
		return
	}
	part, r := s.free[at], model.UDReceive{ID: s.ids, Pieces: []model.UDSpan{{Off: s.free[at].Off, Len: n}}}
	if split > 0 {
		r.Pieces = []model.UDSpan{{Off: part.Off + n - split, Len: split}, {Off: part.Off, Len: n - split}}
	}
	s.ids++
	var sgl []verbs.SGE
	for _, p := range r.Pieces {
		sgl = append(sgl, s.mem.SGE(p.Off, p.Len))
	}
	if q.State == verbs.QPStateReset {
		_, err := qp.PostRecv([]verbs.RecvWR{{WRID: r.ID, SGL: sgl}})
		s.port.MustFail("a receive in RESET", err, nil)
		return
	}
	s.port.PostRecv(qp, r.ID, sgl...)
	if q.State == verbs.QPStateErr {
		s.compare([]verbs.WC{{WRID: r.ID, Status: verbs.WCWRFlushErr, QPN: q.QPN}})
		return
	}
	s.free = slices.Delete(s.free, at, at+1)
	s.used[r.ID] = part
	q.Receives = append(q.Receives, r)
}

// udDatagram is a datagram to a queue pair.
type udDatagram struct {
	to    int // index of the queue pair
	size  udSize
	addr  int // index of the device's address
	group int // index of the multicast group, or -1
	// limited: the sender is a limited member of the partition.
	limited bool
	pkt     ib.Packet
	text    string                                 // description
	fault   func(*udDialogue, ib.Packet) ib.Packet // makes it invalid; nil for none
}

// udSize is the length of a payload: n bytes or, if relative, n bytes more than the next receive
// has room for.
type udSize struct {
	relative bool
	n        int
	capped   bool // not longer than the next receive has room for
}

// drawUDSize draws a length. Most datagrams fit a receive.
func drawUDSize(s *udDialogue, r *rand.Rand) udSize {
	switch r.IntN(8) {
	case 0:
		return udSize{n: rig.Pick(r, 0, 1, 2, 3, 4, 5)}
	case 1:
		return udSize{n: rig.Pick(r, 255, 256, 257, 300, s.mtu-1, s.mtu)}
	case 2:
		return udSize{relative: true, n: rig.Pick(r, 1, 2, 4, 100)}
	}
	return udSize{relative: true, n: rig.Pick(r, 0, 0, 0, -1, -2, -3, -5, -40)}
}

// bytes returns the length of the payload of a datagram to the i-th queue pair.
func (z udSize) bytes(s *udDialogue, i int) int {
	room, n := 17, z.n // 17 is an arbitrary length if no receive is posted
	if rs := s.m.QPs[i].Receives; len(rs) > 0 {
		room = rs[0].Len() - ib.GRHLen
	}
	if z.relative {
		n = min(s.mtu, max(0, room+z.n))
	}
	if z.capped {
		n = max(0, min(n, room))
	}
	return n
}

// String describes the size, for the record of a dialogue.
func (z udSize) String() string {
	switch {
	case !z.relative:
		return fmt.Sprintf("%d bytes", z.n)
	case z.n == 0:
		return "as many bytes as fit the receive"
	}
	return fmt.Sprintf("as many bytes as fit the receive %+d", z.n)
}

// newUDDatagram draws a valid datagram to a queue pair, not to a group.
func newUDDatagram(s *udDialogue, r *rand.Rand) udDatagram {
	d := udDatagram{to: pickUD(r), size: drawUDSize(s, r), addr: r.IntN(len(s.port.Local)), group: -1}
	source := rig.Pick(r, udPeerQPN, uint32(s.qps[d.to].QPN()), 1, 0xfffffe, r.Uint32()&0xffffff)
	p := ib.Datagram(ib.PSN(r.Uint32()&0xffffff), 0, source, nil).From(s.port.Peers[r.IntN(min(2, len(s.port.Peers)))])
	if chance(r, 2) {
		p = p.WithOpcode(ib.OpUDSendOnlyImm).WithImm(r.Uint32())
	}
	p.BTH.SE, p.BTH.AckReq, p.BTH.MigReq = new(chance(r, 2)), new(chance(r, 4)), new(chance(r, 2))
	d.limited = chance(r, 3)
	if chance(r, 4) {
		p = p.WithReserved(uint8(r.Uint32()&63), uint8(r.Uint32()&127))
	}
	p = p.WithTClass(uint8(r.Uint32()) &^ 3).WithHopLimit(uint8(1 + r.IntN(255))).WithSrcPort(uint16(0xc000 + r.IntN(0x4000)))
	if s.port.deviceAddr.Is6() {
		p.IP.FlowLabel = new(r.Uint32() & 0xfffff)
	} else if !s.port.UDPSockets {
		p.IP.ID = new(r.Uint32() & 0xffff)
	}
	if chance(r, 4) {
		p = p.WithUDPChecksum()
	}
	d.pkt = p
	d.text = fmt.Sprintf("%v from queue pair %#x to queue pair %d with %v", p.Opcode(), source, d.to, d.size)
	return d
}

// send sends a datagram, and returns the completions that it causes.
func (s *udDialogue) send(d udDatagram) []verbs.WC {
	q := s.m.QPs[d.to]
	pkt := d.pkt.WithPayload(rig.Pattern(d.size.bytes(s, d.to), byte(s.ids))).To(uint32(q.QPN))
	pkt = pkt.WithDETH(q.QKey, *d.pkt.DETH.SrcQP).Via(pkt.IP.Src, s.port.Local[min(d.addr, len(s.port.Local)-1)]).WithPKey(q.PKey | pkeyFullMember)
	if d.limited && d.fault == nil {
		pkt = pkt.WithPKey(q.PKey &^ pkeyFullMember)
	}
	if d.group >= 0 {
		pkt = pkt.To(uint32(verbs.MulticastQPN)).Via(pkt.IP.Src, s.groups[d.group%len(s.groups)])
	}
	if d.fault != nil {
		pkt = d.fault(s, pkt)
		if d.group >= 0 { // members with another P_Key may count it for their P_Key or for the fault
			s.m.BadPKeys.Max += udQueuePairs
		}
	}
	s.ids++
	want := s.m.Receive(pkt.Build())
	s.port.SendPacket(pkt)
	return want
}

// sendAll sends datagrams, and compares the completions, memory and counters with the model.
func (s *udDialogue) sendAll(all ...udDatagram) {
	var want []verbs.WC
	for _, d := range all {
		want = append(want, s.send(d)...)
	}
	s.compare(want)
	now := s.port.QueryPort()
	s.compareCount("Q_Key violations", s.m.QKeyViolations, now.QKeyViolations-s.before.QKeyViolations)
	s.compareCount("bad P_Keys", s.m.BadPKeys, now.BadPKeys-s.before.BadPKeys)
}

// compareCount fails the case unless a counter of the port is within the limits of the model.
func (s *udDialogue) compareCount(name string, want model.UDCount, got uint32) {
	s.port.Check(want.Min <= got && got <= want.Max, fmt.Sprintf("%d to %d %s", want.Min, want.Max, name), "%d", got)
}

// drawUDDatagram draws a valid datagram, which may be too long for its receive.
func drawUDDatagram(s *udDialogue, r *rand.Rand) udStep {
	d := newUDDatagram(s, r)
	return step(func(s *udDialogue) { s.sendAll(d) }, "%s", d.text)
}

// drawUDFitting draws a datagram that is not too long for its receive.
func drawUDFitting(s *udDialogue, r *rand.Rand) udStep {
	d := newUDDatagram(s, r)
	d.size.capped = true
	return step(func(s *udDialogue) { s.sendAll(d) }, "%s", d.text)
}

// drawUDBurst draws two to six datagrams that are sent without waiting for the device. None is too
// long for its receive.
func drawUDBurst(s *udDialogue, r *rand.Rand) udStep {
	all, text := make([]udDatagram, 2+r.IntN(5)), ""
	for i := range all {
		all[i] = newUDDatagram(s, r)
		all[i].size.capped = true
		text += ", " + all[i].text
	}
	return step(func(s *udDialogue) { s.sendAll(all...) }, "at once %s", text[2:])
}

// udFaults are changes of a datagram, with a random x, that make a queue pair drop it.
var udFaults = []struct {
	name   string
	change func(*udDialogue, ib.Packet, uint32) ib.Packet
}{
	{"another Q_Key", func(_ *udDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.WithDETH(*p.DETH.QKey^1<<(x%32), *p.DETH.SrcQP)
	}},
	{"the Q_Key of another queue pair, 0 or that of QP 1", func(s *udDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.WithDETH([]uint32{0, ib.GSIQKey, s.m.QPs[0].QKey, s.m.QPs[2].QKey}[x%4], *p.DETH.SrcQP)
	}},
	{"another P_Key", func(_ *udDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.WithPKey([]uint16{0x0000, 0x8000, 0xfffe, 0x7ffe, 0xbfff, 0x8001, 0xffff, 0x8002}[x%8])
	}},
	{"an opcode of another service or a reserved one", func(_ *udDialogue, p ib.Packet, x uint32) ib.Packet {
		op := []ib.Opcode{0x04, 0x05, 0x24, 0x25, 0x44, 0xa4, 0xc4, 0xe4, 0x60, 0x62, 0x63, 0x66, 0x6a, 0x71, 0x77, 0x7f}[x%16]
		p.Imm = nil
		return p.WithOpcode(op)
	}},
	{"a transport version that is not 0", func(_ *udDialogue, p ib.Packet, x uint32) ib.Packet { return p.WithTVer(uint8(1 + x%15)) }},
	{"a wrong ICRC", func(_ *udDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.ChooseICRC(func(c uint32) uint32 { return c ^ 1<<(x%32) })
	}},
	{"an unknown QPN", func(s *udDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.To([]uint32{0, 0xfffff0, 0xabcdef, uint32(s.qps[0].QPN()) ^ 1<<23}[x%4])
	}},
	{"the multicast QPN at an address of the device", func(_ *udDialogue, p ib.Packet, _ uint32) ib.Packet {
		return p.To(uint32(verbs.MulticastQPN))
	}},
	{"another UDP port", func(_ *udDialogue, p ib.Packet, _ uint32) ib.Packet { return p.WithDstPort(ib.Port + 1) }},
	{"no payload but pad bytes", func(_ *udDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.WithPayload(nil).WithPadCnt(uint8(1 + x%3))
	}},
	{"a part of the DETH only", func(_ *udDialogue, p ib.Packet, x uint32) ib.Packet {
		return p.WithBody(make([]byte, 4*(x%2))).WithPadCnt(0)
	}},
}

// drawUDFault draws a datagram with one of udFaults.
func drawUDFault(s *udDialogue, r *rand.Rand) udStep {
	d, f, x := newUDDatagram(s, r), rig.Pick(r, udFaults...), r.Uint32()
	d.fault = func(s *udDialogue, p ib.Packet) ib.Packet { return f.change(s, p, x) }
	return step(func(s *udDialogue) { s.sendAll(d) }, "%s, with %s (%d)", d.text, f.name, x)
}

// drawUDGroupDatagram draws a datagram to a group, with the Q_Key and P_Key of one queue pair. One
// of six has one of udFaults.
func drawUDGroupDatagram(s *udDialogue, r *rand.Rand) udStep {
	d := newUDDatagram(s, r)
	d.group = rig.Pick(r, 0, 0, 1, 1, 2, 3)
	text := ""
	if chance(r, 6) {
		f, x := rig.Pick(r, udFaults...), r.Uint32()
		d.fault = func(s *udDialogue, p ib.Packet) ib.Packet { return f.change(s, p, x) }
		text = fmt.Sprintf(", with %s (%d)", f.name, x)
	}
	return step(func(s *udDialogue) { s.sendAll(d) }, "%s, to group %d%s", d.text, d.group, text)
}

// drawUDJoin draws a queue pair that joins a group. If it is a member already, the device may
// refuse that, and must deliver one copy in any case.
func drawUDJoin(s *udDialogue, r *rand.Rand) udStep {
	i, g := pickUD(r), rig.Pick(r, 0, 0, 1, 1, 2, 3)
	return step(func(s *udDialogue) { s.join(i, g) }, "queue pair %d joins group %d", i, g)
}

// join attaches the i-th queue pair to a group. The device must then refuse to destroy it.
func (s *udDialogue) join(i, g int) {
	q, group := s.m.QPs[i], s.groups[g%len(s.groups)]
	err := s.qps[i].AttachMulticast(verbs.GIDFrom(group))
	if !q.Groups[group] {
		s.port.Must("a queue pair that joins a group", err)
	}
	q.Groups[group] = true
	s.port.MustFail("destroying a queue pair in a group", s.qps[i].Close(), nil)
}

// drawUDWholeGroup draws a datagram to a group, after the first two queue pairs have joined it and
// have a receive. They have the same Q_Key, and the same P_Key or different ones.
func drawUDWholeGroup(s *udDialogue, r *rand.Rand) udStep {
	d, g, keys := newUDDatagram(s, r), r.IntN(len(s.groups)), [2]int{r.IntN(2), r.IntN(2)}
	d.to, d.group, d.size = 0, g, udSize{n: rig.Pick(r, 0, 1, 64, 300)}
	return step(func(s *udDialogue) {
		for i, index := range keys {
			s.m.QPs[i].QKey = udQKey
			s.toPartition(i, index)
			s.join(i, g)
			s.postReceive(i, udShortLen, 0)
		}
		s.sendAll(d)
	}, "%s, to group %d, of which queue pairs with P_Keys %v are members", d.text, g, keys)
}

// drawUDLeave draws a queue pair that leaves a group. One that joined it twice may have to leave it
// twice.
func drawUDLeave(s *udDialogue, r *rand.Rand) udStep {
	i, g := pickUD(r), rig.Pick(r, 0, 0, 1, 1, 2, 3)
	return step(func(s *udDialogue) {
		q, group := s.m.QPs[i], s.groups[g%len(s.groups)]
		err := s.qps[i].DetachMulticast(verbs.GIDFrom(group))
		if q.Groups[group] {
			s.port.Must("a queue pair that leaves a group", err)
		}
		for range 20 { // as long as the queue pair has joined more often
			if err := s.qps[i].DetachMulticast(verbs.GIDFrom(group)); err != nil {
				break
			}
		}
		delete(q.Groups, group)
	}, "queue pair %d leaves group %d", i, g)
}

// drawUDKey draws another Q_Key of a queue pair. The device may refuse a privileged one.
func drawUDKey(_ *udDialogue, r *rand.Rand) udStep {
	i, key := pickUD(r), rig.Pick[uint32](r, udQKey, udQKey, udQKey+1, 0, 0x7fffffff, 0x80000005)
	return step(func(s *udDialogue) {
		q := s.m.QPs[i]
		if !slices.Contains([]verbs.QPState{verbs.QPStateInit, verbs.QPStateRTS, verbs.QPStateSQD}, q.State) {
			return
		}
		err := s.qps[i].Modify(verbs.QPAttr{State: q.State, QKey: key}, verbs.QPAttrState|verbs.QPAttrQKey)
		if err == nil {
			q.QKey = key
		} else {
			privileged := key>>31 == 1
			s.port.Check(privileged, fmt.Sprintf("Q_Key %#x", key), "%v", err)
		}
		s.compareAttr(i)
	}, "Q_Key %#x for queue pair %d", key, i)
}

// drawUDPartition draws a queue pair that is set up again with another P_Key of the port's table.
func drawUDPartition(_ *udDialogue, r *rand.Rand) udStep {
	i, index := pickUD(r), rig.Pick(r, 0, 0, 0, 1, 2)
	return step(func(s *udDialogue) { s.toPartition(i, index) }, "queue pair %d with P_Key index %d", i, index)
}

// toPartition moves the i-th queue pair to RESET and back to RTS, with the P_Key at this index of
// the table, unless that entry is empty.
func (s *udDialogue) toPartition(i, index int) {
	q := s.m.QPs[i]
	s.toState(i, verbs.QPStateReset)
	if index %= len(s.pkeys); s.pkeys[index]&^pkeyFullMember != 0 {
		q.PKey, q.PKeyIndex = s.pkeys[index], uint16(index)
	}
	s.toState(i, verbs.QPStateRTS)
}
