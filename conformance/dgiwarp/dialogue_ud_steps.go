package dgiwarp

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// drawEnd draws a queue pair and a peer that sends to it, and returns the index of the peer, too.
func (d *udDialogue) drawEnd(r *rand.Rand) (*udEnd, *peer, int) {
	e, k := rig.Pick(r, d.ends...), r.IntN(udSources)
	return e, e.sources[k], k
}

// msn returns the next MSN of a source.
func (d *udDialogue) msn(source int) uint32 {
	d.nextMSN[source]++
	return d.nextMSN[source] - 1
}

// room returns the length of the longest message that fits into the first receive. Without a
// receive any length will do: 64.
func (e *udEnd) room() int {
	if len(e.model.Receives) == 0 {
		return 64
	}
	return e.model.Receives[0].Len() - grhAreaLen
}

// messageLength draws the length of a message: at the limits of the receive and of a packet.
func (d *udDialogue) messageLength(r *rand.Rand, e *udEnd) int {
	room, fits := e.room(), d.maxSinglePacketSend()
	n := rig.Pick(r, 0, 1, room, room, room-1, room/2, fits, fits+1, r.IntN(room+1), r.IntN(room+1))
	return max(0, min(n, room))
}

// cut divides n octets at random into at most k pieces, and returns their offsets.
func cut(r *rand.Rand, n, k int) []model.DGRange {
	at := []int{0, n}
	for range k - 1 {
		at = append(at, r.IntN(n+1))
	}
	slices.Sort(at)
	at = slices.Compact(at)
	var all []model.DGRange
	for i := range len(at) - 1 {
		all = append(all, model.DGRange{From: at[i], To: at[i+1]})
	}
	if len(all) == 0 {
		all = []model.DGRange{{}}
	}
	return all
}

// overlap makes pieces of n octets begin earlier or end later, so that they overlap.
func overlap(r *rand.Rand, cuts []model.DGRange, n int) {
	for i := range cuts {
		cuts[i].From -= r.IntN(cuts[i].From + 1)
		if cuts[i].To < n {
			cuts[i].To += r.IntN(n - cuts[i].To)
		}
	}
}

// playMessage sends the packets of a new message in random order, some of them twice. It leaves a
// random share, later percent of them, to playMore.
func (d *udDialogue) playMessage(r *rand.Rand, m *udMessage, later int) {
	order := r.Perm(len(m.packets))
	m.unsent = order
	for range len(order) {
		if r.IntN(100) < later {
			continue
		}
		d.sendNext(m)
		if r.IntN(8) == 0 && d.open(m) {
			d.transmit(m.end, m.from, m.packets[rig.Pick(r, m.sent()...)])
		}
	}
	if len(m.unsent) > 0 {
		d.partial = append(d.partial, m)
	}
}

// sendNext sends the next unsent packet of a message, except that of a Write-Record which the
// device no longer assembles.
func (d *udDialogue) sendNext(m *udMessage) {
	i := m.unsent[0]
	m.unsent = m.unsent[1:]
	first := len(m.unsent)+1 == len(m.packets)
	if m.record && !first && !d.open(m) {
		return // the specification leaves open whether a late segment starts another record
	}
	d.transmit(m.end, m.from, m.packets[i])
}

// sent returns the packets that were sent.
func (m *udMessage) sent() (all []int) {
	for i := range m.packets {
		if !slices.Contains(m.unsent, i) {
			all = append(all, i)
		}
	}
	return all
}

// newSend returns a Send of n octets, or of a random length if n is negative, to a random queue
// pair, divided into this many pieces.
func (d *udDialogue) newSend(r *rand.Rand, n, pieces int) *udMessage {
	e, from, k := d.drawEnd(r)
	return d.newSendTo(r, e, &udMessage{end: e, from: from}, udPieces{d.msn(k), n, pieces})
}

// udPieces is the MSN and the length of a message, and the number of its pieces.
type udPieces struct {
	msn    uint32
	n      int
	pieces int
}

// newSendTo adds the packets of a Send to m. It draws the length if p.n is negative, and divides
// pieces further that do not fit into a packet. In some cases the pieces overlap.
func (d *udDialogue) newSendTo(r *rand.Rand, e *udEnd, m *udMessage, p udPieces) *udMessage {
	if p.n < 0 {
		p.n = d.messageLength(r, e)
	}
	message, op := rig.Pattern(p.n, byte(r.Uint32())), rig.Pick(r, iwarp.OpSend, iwarp.OpSend, iwarp.OpSendSE)
	fits := d.maxSinglePacketSend()
	packets := (p.n + fits - 1) / fits
	cuts := cut(r, p.n, max(p.pieces, packets))
	for i := 0; i < len(cuts); i++ { // a piece must fit into a packet
		if c := cuts[i]; c.To-c.From > fits {
			middle := c.From + fits
			cuts = slices.Insert(slices.Replace(cuts, i, i+1, model.DGRange{From: c.From, To: middle}), i+1, model.DGRange{From: middle, To: c.To})
		}
	}
	if len(cuts) > 1 && p.n > 16 && p.n < fits && r.IntN(4) == 0 { // a longer piece still fits
		overlap(r, cuts, p.n)
	}
	for _, c := range cuts {
		s := iwarp.Send(p.msn, message[c.From:c.To]).Opcode(op).MO(uint32(c.From)).Last(c.To == p.n)
		m.packets = append(m.packets, iwarp.UD(s))
	}
	return m
}

func playSend(d *udDialogue, r *rand.Rand) { d.playMessage(r, d.newSend(r, -1, 1), 0) }

func playSegments(d *udDialogue, r *rand.Rand) { d.playMessage(r, d.newSend(r, -1, 2+r.IntN(5)), 0) }

func playPartOfSend(d *udDialogue, r *rand.Rand) {
	d.playMessage(r, d.newSend(r, r.IntN(d.least+1), 2+r.IntN(5)), 50)
}

// playSameNumber sends messages of two sources with the same MSN, in alternate pieces.
func playSameNumber(d *udDialogue, r *rand.Rand) {
	e := rig.Pick(r, d.ends...)
	msn := slices.MaxFunc(d.nextMSN, func(a, b uint32) int { return int(int32(a - b)) }) // numbers wrap
	var all []*udMessage
	for k := range udSources {
		d.nextMSN[k] = msn + 1
		m := d.newSendTo(r, e, &udMessage{end: e, from: e.sources[k]}, udPieces{msn, min(d.least, 60), 3})
		m.unsent = r.Perm(len(m.packets))
		all = append(all, m)
	}
	for range 3 {
		for _, m := range all {
			if len(m.unsent) > 0 {
				d.sendNext(m)
			}
		}
	}
}

// playManyParts sends the first or the last pieces of many messages.
func playManyParts(d *udDialogue, r *rand.Rand) {
	for range 5 + r.IntN(40) {
		m := d.newSend(r, min(8+r.IntN(9), d.least), 2)
		m.unsent = r.Perm(len(m.packets))
		d.sendNext(m)
		if len(m.unsent) > 0 {
			d.partial = append(d.partial, m)
		}
	}
}

// playMore sends unsent packets of an incomplete message: all of them, or one. In some cases it
// first repeats a packet that was sent before.
func playMore(d *udDialogue, r *rand.Rand) {
	if len(d.partial) == 0 {
		return
	}
	m := rig.Pick(r, d.partial...)
	if r.IntN(4) == 0 {
		m = rig.Pick(r, d.partial[0], d.partial[len(d.partial)-1])
	}
	if sent := m.sent(); len(sent) > 0 && r.IntN(3) == 0 && d.open(m) {
		d.transmit(m.end, m.from, m.packets[rig.Pick(r, sent...)])
	}
	all := r.IntN(3) > 0
	for len(m.unsent) > 0 {
		if d.sendNext(m); !all {
			return
		}
	}
}

// open reports whether the device still assembles a message, according to the model. The
// specification leaves open whether a device recognizes packets of a message that has ended.
func (d *udDialogue) open(m *udMessage) bool {
	p := m.packets[0]
	if m.record {
		return m.end.model.HasRecord(model.DGSource{Host: m.from.route.from, QPN: m.from.qpn}, *p.Record.MSN)
	}
	return m.end.model.HasAssembly(model.DGSource{Host: m.from.route.from, QPN: m.from.qpn}, *p.Segment.DDP.MSN)
}

// playContradiction sends the packets of a message, one of which disagrees with earlier ones on the
// end or the opcode of the message.
func playContradiction(d *udDialogue, r *rand.Rand) {
	m := d.newSend(r, 48, 1)
	payload := m.packets[0].Segment.Payload
	piece := func(from, to int) iwarp.Packet {
		return m.packets[0].EditSegment(func(s iwarp.Segment) iwarp.Segment {
			return s.MO(uint32(from)).Last(to == len(payload)).WithPayload(payload[from:to])
		})
	}
	last := func(p iwarp.Packet, v bool) iwarp.Packet {
		return p.EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.Last(v) })
	}
	other := func(s iwarp.Segment) iwarp.Segment {
		if s.Op() == iwarp.OpSend {
			return s.Opcode(iwarp.OpSendSE)
		}
		return s.Opcode(iwarp.OpSend)
	}
	first, middle, end := piece(0, 16), piece(16, 32), piece(32, 48)
	packets := rig.Pick(r,
		[]iwarp.Packet{first, end, last(middle, true), middle},
		[]iwarp.Packet{end, first, middle.EditSegment(other), middle},
		[]iwarp.Packet{end, last(middle, true), first},
		[]iwarp.Packet{first, end, end.EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.MO(48) }), middle},
		[]iwarp.Packet{first, end, end.EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.MO(40).Last(false) }), middle},
	)
	for _, p := range packets {
		d.transmit(m.end, m.from, p)
	}
}

// postReceives returns a step that posts receives for messages of least to most octets, to which
// the length of the GRH area is added.
func postReceives(least, most int) func(*udDialogue, *rand.Rand) {
	return func(d *udDialogue, r *rand.Rand) {
		e := rig.Pick(r, d.ends...)
		if e.model.Failed {
			return
		}
		for range 1 + r.IntN(4) {
			posted := 0
			for _, x := range e.model.Receives {
				posted += x.Len()
			}
			n := grhAreaLen + rig.Pick(r, least, most, least+r.IntN(most-least+1), least+r.IntN(most-least+1))
			if posted+n > maxPosted {
				return
			}
			e.model.Receives = append(e.model.Receives, e.buffers.post(n, rig.Pick(r, 0, 0, 20, 40, 41, r.IntN(n))))
		}
	}
}

// playWrite sends the segments of a Write in random order, without some that count as lost.
func playWrite(d *udDialogue, r *rand.Rand) {
	e, from, _ := d.drawEnd(r)
	n := rig.Pick(r, 0, 1, 8, 100, 1000, 1400, 2000)
	off := rig.Pick(r, 0, udMemory-n, r.IntN(udMemory-n+1))
	for _, c := range d.shuffled(r, n, 1400) {
		message := rig.Pattern(c.To-c.From, byte(r.Uint32()))
		d.transmit(e, from, iwarp.UD(e.writeToTarget(off+c.From, message).Last(c.To == n)))
	}
}

// shuffled returns pieces of n octets in random order, without those longer than size and without
// some others, which count as lost.
func (d *udDialogue) shuffled(r *rand.Rand, n, size int) []model.DGRange {
	cuts := cut(r, n, rig.Pick(r, 1, 2, 5))
	r.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
	cuts = slices.DeleteFunc(cuts, func(c model.DGRange) bool { return c.To-c.From > size || r.IntN(8) == 0 })
	return cuts
}

// newRecord returns a Write-Record of n octets to a random queue pair, in this many pieces, which
// overlap in some cases.
func (d *udDialogue) newRecord(r *rand.Rand, n, pieces int) *udMessage {
	e, from, k := d.drawEnd(r)
	m := &udMessage{end: e, from: from, record: true}
	off, msn, imm := rig.Pick(r, 0, udMemory-n, r.IntN(udMemory-n+1)), d.msn(k), r.Uint32()
	message := rig.Pattern(n, byte(r.Uint32()))
	cuts := cut(r, n, pieces)
	if len(cuts) > 1 && r.IntN(4) == 0 {
		overlap(r, cuts, n)
	}
	for _, c := range cuts {
		p := iwarp.WriteRecord(msn, e.targetAddr(off+c.From), message[c.From:c.To], imm)
		p = p.EditRecord(func(h *iwarp.RecordHeader) { h.MO, h.Length = new(uint32(c.From)), new(uint32(n)) })
		m.packets = append(m.packets, p.EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.Last(c.To == n) }))
	}
	return m
}

func playRecord(d *udDialogue, r *rand.Rand) {
	d.playMessage(r, d.newRecord(r, rig.Pick(r, 0, 1, 16, 500, 1300), 1+r.IntN(7)), 0)
}

func playPartOfRecord(d *udDialogue, r *rand.Rand) {
	d.playMessage(r, d.newRecord(r, 200+r.IntN(1000), 4+r.IntN(9)), 50)
}

// playManyRecords sends parts of many Write-Records, or every other piece of one, whose record then
// has many ranges.
func playManyRecords(d *udDialogue, r *rand.Rand) {
	if r.IntN(2) == 0 {
		m := d.newRecord(r, 1200, 180)
		for _, i := range r.Perm(len(m.packets)) {
			if i%2 == 0 || r.IntN(6) == 0 {
				d.transmit(m.end, m.from, m.packets[i])
			}
		}
		return
	}
	for range 5 + r.IntN(40) {
		m := d.newRecord(r, 16, 2)
		d.transmit(m.end, m.from, m.packets[0])
	}
}

// playWrongRecord sends three segments of a Write-Record, of which the second disagrees with the
// first on the begin or the length of the message.
func playWrongRecord(d *udDialogue, r *rand.Rand) {
	m := d.newRecord(r, 96, 1)
	at, payload := *m.packets[0].Segment.DDP.TO, m.packets[0].Segment.Payload
	piece := func(from, to int) iwarp.Packet {
		p := m.packets[0].EditRecord(func(h *iwarp.RecordHeader) { h.MO = new(uint32(from)) })
		return p.EditSegment(func(s iwarp.Segment) iwarp.Segment {
			return s.TO(at + uint64(from)).Last(to == 96).WithPayload(payload[from:to])
		})
	}
	length := piece(32, 64).EditRecord(func(h *iwarp.RecordHeader) { h.Length = new(rig.Pick(r, uint32(95), 97, 64)) })
	shift := uint64(rig.Pick(r, 1, 32, -1, -32))
	otherTO := m.end.targetMem.Addr() + 100 + shift
	begin := piece(32, 64).EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.TO(otherTO) })
	if otherTO == at+32 {
		begin = length // by chance, this TO agrees with the first segment
	}
	for _, p := range []iwarp.Packet{piece(rig.Pick(r, 0, 16), 32), rig.Pick(r, length, begin), piece(64, 96)} {
		d.transmit(m.end, m.from, p)
	}
}

// playWait lets time pass.
func playWait(d *udDialogue, r *rand.Rand) {
	d.Sleep(rig.Pick(r, time.Millisecond, 5*time.Millisecond, 12*time.Millisecond, 50*time.Millisecond, 120*time.Millisecond))
}

// playDamaged sends an invalid packet, or one that only RD has, which the device must drop.
func playDamaged(d *udDialogue, r *rand.Rand) {
	e, from, k := d.drawEnd(r)
	good := iwarp.UD(rig.Pick(r, iwarp.Send(d.msn(k), data(8)), e.writeToTarget(r.IntN(udMemory-8), data(8))))
	header := func(edit func(*iwarp.PacketHeader)) iwarp.Packet { return good.EditHeader(edit) }
	d.transmit(e, from, rig.Pick(r,
		good.BadCRC(), good.WithKey(e.key^1<<r.IntN(32)), good.ToQP(uint32(e.qp.QPN())^0x800000), good.ToQP(0),
		good.ToQP(iwarp.GroupQP), good.Cut(r.IntN(headerLen)),
		header(func(h *iwarp.PacketHeader) { h.Version = new(uint8(r.IntN(15)+2) % 16) }), // any of 4 bits, except 1
		header(func(h *iwarp.PacketHeader) { h.Kind = new(rig.Pick(r, iwarp.PacketKind(0), 5, 15)) }),
		iwarp.Refusal(1, iwarp.ReasonUnknownFlow), iwarp.Challenge(1, 2, 3), iwarp.RDAck(1, 1),
	))
}

// playReserved sends a Send with random reserved bits in all headers, which the device ignores.
func playReserved(d *udDialogue, r *rand.Rand) {
	m := d.newSend(r, -1, 1)
	m.packets[0] = m.packets[0].EditHeader(func(h *iwarp.PacketHeader) {
		h.FlagsReserved, h.Reserved = new(uint8(r.IntN(4))), new(uint16(r.Uint32()))
	}).EditSegment(func(s iwarp.Segment) iwarp.Segment {
		return s.DDPReserved(uint8(r.IntN(16))).RDMAPReserved(uint8(r.IntN(4)))
	})
	d.playMessage(r, m, 0)
}

// playError sends an invalid segment, or a Write-Record with the same error, in some cases after a
// valid segment. It does nothing if the device might exceed its limit of error messages.
func playError(d *udDialogue, r *rand.Rand) {
	if d.errors >= maxDialogueErrors {
		return
	}
	e, from, k := d.drawEnd(r)
	send, write := iwarp.Send(d.msn(k), data(8)), e.writeToTarget(r.IntN(udMemory-8), data(8))
	n := 1 + r.IntN(16)
	sink := iwarp.At(peerSTag, peerTO)
	other := func(m *rig.Memory) iwarp.Segment { return writeTo(addrOf(m, r.IntN(len(m.Buf)-n)), data(n)) }
	wrong := rig.Pick(r,
		write.STag(unknownSTag), write.STag(*write.DDP.STag^1), write.STag(*write.DDP.STag^0x100),
		e.writeToTarget(udMemory-n+1, data(n)), e.writeToTarget(udMemory, data(n)), e.writeToTarget(-n, data(n)), e.writeToTarget(-1, data(n)),
		write.TO(^uint64(0)-uint64(r.IntN(7))), write.DV(2), write.DV(0), write.RV(0), write.RV(3), send.DV(0), send.DV(3), send.RV(0), send.RV(2),
		write.Opcode(iwarp.OpReadResponse), write.Opcode(iwarp.OpSend), write.Opcode(12),
		send.Opcode(12), send.Opcode(14), send.QN(1), send.QN(3), send.QN(9), send.QN(1<<31),
		send.MO(model.DGMaxSend-7), send.MO(model.DGMaxSend), send.MO(0xfffffff8), send.MO(0xffffffff),
		send.Opcode(iwarp.OpSendInvalidate).InvalidateSTag(uint32(e.targetMem.RKey())),
		send.Opcode(iwarp.OpSendSEInvalidate).InvalidateSTag(uint32(e.targetMem.RKey())),
		iwarp.ReadRequest(1, sink, 8, e.targetAddr(0)), iwarp.FetchAdd(1, 7, e.targetAddr(e.targetMem.WordOffset(0)), 1),
		other(e.readOnly), other(e.foreign), other(e.closed),
	)
	if r.IntN(3) == 0 { // behind a valid segment
		d.transmit(e, from, iwarp.UD(e.writeToTarget(r.IntN(udMemory-8), data(8)).Last(false)))
	}
	pkt := iwarp.UD(wrong)
	if wrong.Op() == iwarp.OpWrite && wrong.IsTagged() && r.IntN(4) == 0 { // a Write-Record in its place
		pkt = iwarp.WriteRecord(d.msn(k), iwarp.At(*wrong.DDP.STag, *wrong.DDP.TO), wrong.Payload, 1)
		pkt = pkt.EditSegment(func(s iwarp.Segment) iwarp.Segment {
			s.DDP.Version, s.RDMAP.Version = wrong.DDP.Version, wrong.RDMAP.Version
			return s
		})
	}
	d.transmit(e, from, pkt)
}

// playTooLong sends a message that is longer than the first receive.
func playTooLong(d *udDialogue, r *rand.Rand) {
	e, from, k := d.drawEnd(r)
	if d.errors >= maxDialogueErrors || len(e.model.Receives) == 0 {
		return
	}
	n := e.room() + rig.Pick(r, 1, 1, 100)
	d.playMessage(r, d.newSendTo(r, e, &udMessage{end: e, from: from}, udPieces{d.msn(k), n, 1}), 0)
}

// playErrorMessage sends the device an error message, which raises an event and changes no state,
// even if its key is wrong.
func playErrorMessage(d *udDialogue, r *rand.Rand) {
	e, from, _ := d.drawEnd(r)
	about := iwarp.Send(e.sender.msn-1, data(8))
	pkt := iwarp.UD(iwarp.Terminate(rig.Pick(r, iwarp.DDPUntaggedTooLong, iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidVersion)).About(about))
	if r.IntN(2) == 0 {
		pkt = pkt.WithKey(e.key + 1)
	}
	d.transmit(e, from, pkt)
}

// playGroup attaches a queue pair to a group, detaches it, or sends a valid or invalid packet to a
// group, whether it has members or not.
func playGroup(d *udDialogue, r *rand.Rand) {
	e, from, k := d.drawEnd(r)
	group := rig.Pick(r, groupA, groupB)
	switch member := slices.Contains(e.groups, group); {
	case r.IntN(4) > 0:
		s := rig.Pick(r, iwarp.Send(d.msn(k), data(r.IntN(60))), iwarp.SendSE(d.msn(k), data(r.IntN(60))), e.writeToTarget(r.IntN(udMemory-8), data(8)))
		pkt := iwarp.UD(s).ToQP(iwarp.GroupQP)
		if r.IntN(5) == 0 {
			wrong := rig.Pick(r, unknownKeyWrite(), iwarp.Send(1, nil).QN(9), iwarp.Send(1, nil).RV(2), iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, e.targetAddr(0)))
			pkt = rig.Pick(r, pkt.BadCRC(), pkt.WithKey(e.key+1), pkt.ToQP(uint32(e.qp.QPN())^0x800000), iwarp.UD(wrong).ToQP(iwarp.GroupQP))
		}
		d.transmitToGroup(group, from, pkt)
	case member:
		d.Must("a queue pair that can be detached", e.qp.DetachMulticast(verbs.GIDFrom(group)))
		e.groups = slices.DeleteFunc(e.groups, func(g netip.Addr) bool { return g == group })
	default:
		d.attachToGroup(group, e.deviceQP)
		e.groups = append(e.groups, group)
	}
}
