package dgiwarp

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// playRDReceives posts one to four receives, in so far as maxPosted octets permit.
func playRDReceives(d *rdDialogue, r *rand.Rand) {
	for range 1 + r.IntN(4) {
		posted := 0
		for _, x := range d.model.Receives {
			posted += x.Len()
		}
		n := grhAreaLen + rig.Pick(r, rdLeast, rdLeast+1, 200, 1000, 2000)
		if posted+n > maxPosted {
			return
		}
		d.model.Receives = append(d.model.Receives, d.buffers.post(n, rig.Pick(r, 0, 0, 20, 40, 41, r.IntN(n))))
	}
}

// rdMessageOf draws a message of a peer to the device, and returns its segments. It draws a Send or
// immediate data only if a receive is posted that no earlier message needs.
func (d *rdDialogue) rdMessageOf(r *rand.Rand, p *rdPeer) []iwarp.Segment {
	piece := 1 + r.IntN(400) // payload of a segment
	if d.reservedReceives < len(d.model.Receives) && r.IntN(2) == 0 {
		d.reservedReceives++
		p.sendMSN++
		msn := p.sendMSN - 1
		if r.IntN(4) == 0 {
			half := uint64(r.Uint32())
			value := half<<32 | half // the specification does not say which half the verbs show
			return []iwarp.Segment{rig.Pick(r, iwarp.Immediate(msn, value), iwarp.ImmediateSE(msn, value))}
		}
		n := rig.Pick(r, 0, 1, r.IntN(rdLeast), rdLeast)
		s := rig.Pick(r, iwarp.Send(msn, rig.Pattern(n, byte(msn))), iwarp.SendSE(msn, rig.Pattern(n, byte(msn))))
		return s.Segments(untaggedLen + min(piece, 1+r.IntN(rdLeast)))
	}
	switch r.IntN(4) {
	case 0:
		p.readMSN++
		n := rig.Pick(r, 0, 1, 8, r.IntN(rdReadable), d.maxSinglePacketRD()+1)
		at := rdWords + r.IntN(rdReadable-n+1)
		return []iwarp.Segment{iwarp.ReadRequest(p.readMSN-1, iwarp.At(peerSTag, peerTO+r.Uint64N(1<<30)), uint32(n), d.q.targetAddr(at))}
	case 1:
		if d.Caps.Has(verbs.CapAtomics) {
			p.readMSN++
			at := d.q.targetAddr(d.q.targetMem.WordOffset(r.IntN(4)))
			return []iwarp.Segment{rig.Pick(r, iwarp.FetchAdd(p.readMSN-1, r.Uint32(), at, r.Uint64()), iwarp.CompareSwap(p.readMSN-1, r.Uint32(), at, d.word(at), r.Uint64()))}
		}
	}
	n := rig.Pick(r, 0, 1, r.IntN(1000), 1400)
	return d.q.writeToTarget(d.writeOffset(r, n), rig.Pattern(n, byte(r.Uint32()))).Segments(taggedLen + max(piece, n/5+1))
}

// The target memory: words for atomics, octets that peers read, octets that they only write.
const (
	rdWords    = 64
	rdReadable = rdMemory/2 - rdWords
)

// writeOffset draws the offset of a Write of n octets in targetMem. A Write may overtake the
// response to an earlier read: while a read is pending, it goes to the upper half of targetMem,
// which no read uses.
func (d *rdDialogue) writeOffset(r *rand.Rand, n int) int {
	least := rdWords
	for _, p := range d.peers {
		reads := slices.ContainsFunc(p.packets, func(x *rdPacket) bool { return x.segment.Read != nil && !x.delivered })
		if reads || len(p.out.responses) > 0 || p.out.una != p.out.next { // a response may have to be sent again
			least = rdMemory / 2
		}
	}
	return rig.Pick(r, least, rdMemory-n, least+r.IntN(rdMemory-n-least+1))
}

// word returns the expected value of a word of memory.
func (d *rdDialogue) word(at iwarp.Addr) uint64 {
	b, _ := d.model.Memory.Check(at, 8, 0)
	return nativeWord(b)
}

// playInOrder adds messages to a peer's flow, and sends all unsent packets of the flow in order.
func playInOrder(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	for range 1 + r.IntN(3) {
		p.add(d.rdMessageOf(r, p)...)
	}
	d.sendUnsent(r, p, 0)
}

// sendUnsent sends the unsent packets of a peer in order, except those outside the window and a
// random share, lost percent of them.
func (d *rdDialogue) sendUnsent(r *rand.Rand, p *rdPeer, lost int) {
	for i, pkt := range p.packets {
		if !pkt.sent && p.inWindow(i) && r.IntN(100) >= lost {
			d.sendOne(p, i, rdOptions{ackNow: r.IntN(3) == 0, marked: r.IntN(8) == 0})
		}
	}
}

// inWindow reports whether the device takes packet i.
func (p *rdPeer) inWindow(i int) bool { return p.base+uint32(i)-p.in.Next < flowWindow }

// sendOne sends a packet and compares the reaction.
func (d *rdDialogue) sendOne(p *rdPeer, i int, o rdOptions) {
	d.transmit(p, i, o)
	d.compare()
}

// playBurst first sends the unsent packets of a peer, and then 2, 8 or 40 Writes, without comparing
// the device's reaction after each.
func playBurst(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	d.sendUnsent(r, p, 0)
	first := len(p.packets)
	for range rig.Pick(r, 2, 8, 40) {
		p.add(d.q.writeToTarget(d.writeOffset(r, 8), rig.Pattern(8, byte(r.Uint32()))))
	}
	for i := first; i < len(p.packets); i++ {
		d.transmit(p, i, rdOptions{})
	}
}

// playFarAhead adds many Writes to a peer's flow, and sends the last of them first: the Ack needs
// several words of SACK. Then it sends most of the others.
func playFarAhead(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	for range rig.Pick(r, 31, 32, 33, 64, 65, 100) {
		p.add(d.q.writeToTarget(d.writeOffset(r, 8), rig.Pattern(8, byte(r.Uint32()))))
	}
	last := len(p.packets) - 1
	for i := last - r.IntN(3); i <= last; i++ {
		if p.inWindow(i) {
			d.sendOne(p, i, rdOptions{ackNow: r.IntN(2) == 0})
		}
	}
	for i, pkt := range p.packets {
		if !pkt.sent && p.inWindow(i) && r.IntN(16) > 0 {
			d.transmit(p, i, rdOptions{})
		}
	}
}

// playLosses sends new messages, of which some packets are lost.
func playLosses(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	for range 1 + r.IntN(4) {
		p.add(d.rdMessageOf(r, p)...)
	}
	for i, pkt := range p.packets {
		if !pkt.sent && p.inWindow(i) && r.IntN(2) == 0 {
			d.sendOne(p, i, rdOptions{ackNow: r.IntN(2) == 0, marked: r.IntN(8) == 0})
		}
	}
}

// playReordered sends most of the unsent packets of a peer, in random order.
func playReordered(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	for _, i := range r.Perm(len(p.packets)) {
		if !p.packets[i].sent && p.inWindow(i) && r.IntN(3) > 0 {
			d.sendOne(p, i, rdOptions{ackNow: r.IntN(3) == 0})
		}
	}
}

// playRepeats sends packets again that the device has already received.
func playRepeats(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	for range 1 + r.IntN(3) {
		sent := slices.DeleteFunc(indices(p.packets), func(i int) bool { return !p.packets[i].sent || !p.has(i) })
		if len(sent) > 0 {
			d.sendOne(p, rig.Pick(r, sent...), rdOptions{ackNow: r.IntN(3) == 0})
		}
	}
}

// has reports whether the device has packet i.
func (p *rdPeer) has(i int) bool {
	seq := p.base + uint32(i)
	return int32(seq-p.in.Next) < 0 || slices.Contains(p.in.Kept(), seq)
}

// indices returns the indices of all elements.
func indices[T any](all []T) (is []int) {
	for i := range all {
		is = append(is, i)
	}
	return is
}

// playBeyond sends a packet beyond the receive window, which the device must drop. Whether it
// answers by an Ack is left open.
func playBeyond(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	seq := p.in.Next + flowWindow + uint32(rig.Pick(r, 0, 1, 1000, 1<<30))
	p.send(p.dataPacket(seq, d.q.writeToTarget(0, data(8))).AckNow())
	now := ackState{next: p.in.Next, kept: p.in.Kept()}
	d.syncDevice()
	d.pending = slices.DeleteFunc(d.pending, func(a arrival) bool { return a.Data == nil && a.Ack != nil && now.matches(a) })
}

// playRDDamaged sends an invalid data packet, which the device must drop without an answer.
func playRDDamaged(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	good := p.dataPacket(p.in.Next, d.q.writeToTarget(r.IntN(rdMemory-8), data(8))).AckNow()
	p.send(rig.Pick(r,
		good.BadCRC(), good.WithKey(d.q.key^1<<r.IntN(32)), good.Cut(headerLen+r.IntN(12)),
		good.EditHeader(func(h *iwarp.PacketHeader) { h.Version = new(uint8(2)) }),
		good.EditHeader(func(h *iwarp.PacketHeader) { h.Kind = new(iwarp.PacketKind(5)) }),
	))
}

// playBusy sends a Send once or twice while no receive is posted: the device must answer by Acks
// with window 0. Then receives are posted, and the device must send an Ack with a window, after
// which the peer sends the Send again.
func playBusy(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	d.sendUnsent(r, p, 0)
	if len(d.model.Receives) > 0 || p.state.Open != nil {
		return
	}
	p.sendMSN++
	p.add(iwarp.Send(p.sendMSN-1, data(r.IntN(rdLeast))))
	i := len(p.packets) - 1
	seq := p.base + uint32(i)
	for range 1 + r.IntN(2) {
		timestamp := d.Rand.Uint32()
		// The Ack must not be delayed, and echoes this packet, as for a packet out of order.
		p.states = append(p.states, ackState{next: p.in.Next, verdict: model.DGOutOfOrder, busy: true, timestamp: timestamp, sentAt: d.Now()})
		p.send(p.dataPacket(seq, p.packets[i].segment).Timestamp(timestamp).AckNow())
		d.compare()
	}
	d.reservedReceives++
	playRDReceives(d, r)
	for {
		a := d.mustNextPacket("an Ack with a window when a receive is posted")
		if *a.Header.DestQP == p.qpn && a.Data == nil && a.Ack != nil && *a.Ack.Window > 0 && *a.Ack.Next == p.in.Next {
			break
		}
		d.Check(a.Ack != nil && *a.Header.DestQP == p.qpn, "an Ack with a window when a receive is posted", "%v", a.Packet)
	}
	p.states = nil
	d.sendOne(p, i, rdOptions{ackNow: true})
}

// playUnknownFlow sends a data packet of another epoch: it is refused, or challenged if it starts
// a flow without a valid proof.
func playUnknownFlow(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	old := p.toDeviceFlow.epoch
	p.toDeviceFlow.epoch ^= 1 << r.IntN(32)
	pkt := p.dataPacket(uint32(r.IntN(3)), d.q.writeToTarget(0, data(8))).AckNow()
	d.pending = append(d.pending, d.drainArrived()...) // compare gets the packets sent before
	if r.IntN(2) == 0 {
		p.send(pkt)
		p.expectRefusal(iwarp.ReasonUnknownFlow)
	} else {
		p.send(p.withStart(rig.Pick(r, uint64(noProof), r.Uint64(), uint64(old)), pkt))
		a := p.expectChallenge()
		d.Check(*a.Challenge.Incarnation != 0, "an incarnation", "0")
	}
	p.toDeviceFlow.epoch = old
}

// playRestart starts a new flow of a peer, which replaces the old one: the device drops stored
// packets after a gap, and the receive of an incomplete Send fails. In some cases the peer leaves a
// Send incomplete just before. A peer with unanswered reads or atomics is not restarted.
func playRestart(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	if i := slices.IndexFunc(d.peers, func(p *rdPeer) bool { return p.state.Open != nil }); i >= 0 && r.IntN(2) == 0 {
		p = d.peers[i]
	}
	if p.unanswered() {
		return
	}
	if d.reservedReceives < len(d.model.Receives) && p.state.Open == nil && r.IntN(2) == 0 {
		d.reservedReceives++
		d.sendUnsent(r, p, 0)
		p.add(iwarp.Send(p.sendMSN, data(32)).Segments(untaggedLen + 16)...)
		d.sendOne(p, len(p.packets)-2, rdOptions{})
	}
	if p.state.Open != nil {
		c := udCompletion{mayFail: true}
		c.WC, c.Receive = verbs.WC{WRID: p.state.Open.ID, Status: verbs.WCWRFlushErr, QPN: d.q.qp.QPN()}, *p.state.Open
		d.expected = append(d.expected, c)
	}
	for i, pkt := range p.packets {
		takesReceive := !pkt.segment.IsTagged() && pkt.segment.Op().Queue() == 0 && *pkt.segment.DDP.MO == 0
		if takesReceive && !p.delivered(i) {
			d.reservedReceives-- // the packet is no longer sent
		}
	}
	p.openFlow(zeroLengthWrite())
	p.beginFlow()
}

// delivered reports whether the device has delivered packet i to DDP.
func (p *rdPeer) delivered(i int) bool { return p.packets[i].delivered }

// unanswered reports whether a read or atomic of either side has no response yet.
func (p *rdPeer) unanswered() bool {
	return len(p.out.responses) > 0 || slices.ContainsFunc(p.out.requests, func(r *rdRequest) bool { return r.read != nil })
}

// playRefusal refuses the device's flow: its requests fail. The next request starts a new flow.
func playRefusal(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	o := &p.out
	for _, other := range d.peers { // so that their retransmissions do not disturb the new flow
		for len(other.out.messages) > 0 || other.out.una != other.out.next {
			d.acknowledge(other, other.out.next)
			d.compare()
		}
	}
	if len(o.requests) < maxUncompleted {
		d.PostSend(d.q.qp, d.newRDRequest(r, p, rig.Pick(r, verbs.OpSend, verbs.OpRDMAWrite)))
		d.collect()
	}
	for seq := o.una; seq != o.next; seq++ {
		if o.sent[seq].request == nil {
			return // the document does not say what follows from lost responses
		}
	}
	if o.una == o.next || p.unanswered() {
		return
	}
	p.send(iwarp.Refusal(o.epoch, rig.Pick(r, iwarp.ReasonUnknownFlow, iwarp.ReasonNotReady, iwarp.ReasonNoQP)))
	d.syncDevice()
	sends, receives := d.takeCompletions()
	d.compareReceives(receives[d.q.qp.QPN()])
	for _, wc := range sends[d.q.qp.QPN()] {
		d.Check(len(o.requests) > 0 && wc.WRID == o.requests[0].wc.WRID && wc.Status != verbs.WCSuccess, "failures of the requests to the peer, in order", "%s", rig.Describe(&wc))
		o.requests = o.requests[1:]
	}
	d.Check(len(o.requests) == 0, "failures of all requests to the peer", "%d are missing", len(o.requests))
	d.drainArrived()
	id := o.nextID
	p.establishDeviceFlow()
	*o = newRDOutgoing(p)
	o.nextID = id
}

// playRDError sends an invalid segment: the device must report it by a Terminate, the last segment
// of its flow to the peer, and raise an event. The dialogue continues without this peer. So the
// step sends nothing invalid if there is no other peer, or if this one has messages or packets in
// flight.
func playRDError(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	d.sendUnsent(r, p, 0)
	if len(d.peers) == 1 || p.state.Open != nil || len(p.out.requests) > 0 || len(p.in.Kept()) > 0 || p.out.una != p.out.next {
		return
	}
	wrong := d.wrongSegment(r, p)
	p.send(p.dataPacket(p.in.Next, wrong.segment).AckNow())
	a := p.mustNextData(fmt.Sprintf("a Terminate for %v", wrong.causes))
	d.Check(*a.Data.Seq == p.out.next && causesMatch(a.Segment, wrong.segment, wrong.causes),
		fmt.Sprintf("a Terminate for %v about %v", wrong.causes, wrong.segment), "%v", a.Packet)
	p.send(iwarp.RDAck(p.out.epoch, p.out.next+1).Echo(*a.Data.Timestamp))
	for _, a := range d.drainArrived() { // in real time the device may have retransmitted the Terminate
		d.Check(a.Data == nil || !d.Virtual, "nothing after the error message", "%v", a.Packet)
	}
	d.checkEvents(map[verbs.QPN]int{d.q.qp.QPN(): 1})
	d.peers = slices.DeleteFunc(slices.Clone(d.peers), func(x *rdPeer) bool { return x == p })
}

// wrongSegment is a segment with the permitted causes of its error.
type wrongSegment struct {
	segment iwarp.Segment
	causes  []iwarp.Cause
}

// wrongSegment draws a segment that is invalid as the next of a peer's flow, with the permitted
// causes of its error.
func (d *rdDialogue) wrongSegment(r *rand.Rand, p *rdPeer) wrongSegment {
	write, send := d.q.writeToTarget(rdWords, data(8)), iwarp.Send(p.sendMSN, data(8))
	memory := func(s iwarp.Segment) wrongSegment {
		_, causes := d.model.Memory.Check(iwarp.At(*s.DDP.STag, *s.DDP.TO), len(s.Payload), verbs.AccessRemoteWrite)
		return wrongSegment{s, causes}
	}
	read := func(at iwarp.Addr, causes ...iwarp.Cause) wrongSegment {
		return wrongSegment{iwarp.ReadRequest(p.readMSN, iwarp.At(peerSTag, peerTO), 8, at), causes}
	}
	tooFar, version := []iwarp.Cause{iwarp.DDPUntaggedMSNRange}, []iwarp.Cause{iwarp.RDMAPInvalidVersion}
	all := []wrongSegment{
		memory(write.STag(unknownSTag)), memory(write.STag(*write.DDP.STag ^ 1)), memory(d.q.writeToTarget(rdMemory-7, data(8))),
		memory(d.q.writeToTarget(-1, data(8))), memory(d.q.writeToTarget(rdMemory, data(1))),
		{write.DV(2), []iwarp.Cause{iwarp.DDPTaggedInvalidVersion}},
		{write.RV(0), version},
		{iwarp.ReadRequest(p.readMSN+1, iwarp.At(peerSTag, peerTO), 8, d.q.targetAddr(0)), tooFar},
		read(iwarp.At(unknownSTag, 0), iwarp.RDMAPInvalidSTag), read(d.q.targetAddr(rdMemory-7), iwarp.RDMAPBounds),
		{iwarp.AtomicResponse(p.out.answerMSN, 1, 1), []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode, iwarp.DDPUntaggedNoBuffer, iwarp.DDPUntaggedInvalidQN, iwarp.DDPUntaggedMSNRange}},
	}
	if len(d.model.Receives) > 0 { // without a receive, such a segment may wait for one
		all = append(all,
			wrongSegment{send.DV(0), []iwarp.Cause{iwarp.DDPUntaggedInvalidVersion}}, wrongSegment{send.RV(2), version},
			wrongSegment{send.QN(9), []iwarp.Cause{iwarp.DDPUntaggedInvalidQN}},
			wrongSegment{send.MSN(p.sendMSN + 1), tooFar}, wrongSegment{send.MSN(p.sendMSN - 1), tooFar}, wrongSegment{iwarp.Immediate(p.sendMSN+1, 1), tooFar},
			wrongSegment{send.Opcode(12), []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode}},
		)
	}
	return rig.Pick(r, all...)
}
