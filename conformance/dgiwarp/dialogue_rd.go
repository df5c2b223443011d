package dgiwarp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// rdDialogue is a dialogue with a reliable queue pair: scripted peers have flows to it and from
// it, whose packets are lost, repeated and reordered.
type rdDialogue struct {
	*host
	mix     []choice[*rdDialogue]
	q       *deviceQP
	model   model.DGRD
	memory  dialogueMemory
	buffers recvBuffers
	peers   []*rdPeer
	// source and sink are the memory of the application's requests.
	source, sink *rig.Memory
	sinkWant     []byte
	expected     []udCompletion
	// reservedReceives is the number of receives that packets on their way will take.
	reservedReceives int
	// stepsAck says that steps acknowledge the device's packets; else the peers acknowledge all.
	stepsAck bool
}

// rdPeer is a scripted peer, with the models of its flow to the device and of that from it.
type rdPeer struct {
	*peer
	in    *model.DGFlow
	state model.DGPeer
	// packets are those of the peer's flow; index 0 has sequence number base.
	packets []*rdPacket
	base    uint32
	// states are the correct Acks of the packets since the last Ack.
	states []ackState
	// sendMSN and readMSN are the next MSNs of the queues 0 and 1.
	sendMSN, readMSN uint32
	out              rdOutgoing
}

// rdPacket is a data packet of a peer.
type rdPacket struct {
	segment   iwarp.Segment
	sent      bool
	delivered bool // to DDP
}

// ackState is the correct content of an Ack that the device sends after a packet of the peer.
type ackState struct {
	next      uint32
	kept      []uint32 // packets after a gap, which the SACK acknowledges
	timestamp uint32   // of the packet
	verdict   model.DGVerdict
	marked    bool // the packet was CE-marked
	busy      bool // the window is 0, because there is no receive
	optional  bool // the device may send no Ack
	sentAt    time.Duration
}

// Opening a dialogue.
const (
	rdMemory = 4 << 10
	rdPeers  = 3
	rdLeast  = 64 // shortest receive, without the address area
)

// openRD returns a function that opens a dialogue, random steps whose effects on the device are
// compared with a model: it opens flows between a queue pair and scripted peers. stepsAck says that
// steps acknowledge the packets of the device; else the peers acknowledge all.
func openRD(stepsAck bool, mix []choice[*rdDialogue]) func(*rig.Rig) rig.DialogueSession[dgStep[*rdDialogue]] {
	return func(r *rig.Rig) rig.DialogueSession[dgStep[*rdDialogue]] {
		d := &rdDialogue{host: &host{Rig: r}, mix: mix, stepsAck: stepsAck}
		d.beginDialogue()
		d.q = d.newQP(setup{memLen: rdMemory})
		d.q.localMem = d.Memory(udRecvMemory, verbs.AccessLocalWrite)
		d.source, d.sink = d.Memory(rdMemory, verbs.AccessLocalWrite), d.Memory(rdMemory, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		d.buffers = recvBuffers{q: d.q, want: d.memory.add(d.q.localMem), posted: make(map[uint64][]part)}
		target := &model.DGRegion{STag: uint32(d.q.targetMem.RKey()), Addr: d.q.targetMem.Addr(), Access: allAccess, Buf: d.memory.add(d.q.targetMem)}
		d.memory.add(d.source)
		d.sinkWant = d.memory.add(d.sink)
		d.model = model.DGRD{QPN: uint32(d.q.qp.QPN()), Memory: model.DGMemory{target}}
		for k := range rdPeers {
			d.peers = append(d.peers, d.newRDPeer(k))
		}
		return d
	}
}

// newRDPeer creates scripted peer k, establishes a flow (a sequence of RD packets) in each
// direction, and sets the models of both. It drops the packets that have arrived so far.
func (d *rdDialogue) newRDPeer(k int) *rdPeer {
	p := &rdPeer{peer: d.q.peer(k)}
	p.incarnation += uint32(d.Rand.IntN(1<<16)) << 8 // random but for the low octet, k+1
	p.openFlow(zeroLengthWrite())
	p.beginFlow()
	p.establishDeviceFlow()
	p.out = newRDOutgoing(p)
	d.drainArrived()
	return p
}

// beginFlow resets the models to the flow that the peer has just opened with one packet. Reads of
// the device, which belong to its own flow, stay.
func (p *rdPeer) beginFlow() {
	p.in, p.base, p.packets, p.states = model.NewDGFlow(p.toDeviceFlow.epoch, 1), 1, nil, nil
	p.state = model.DGPeer{Source: model.DGSource{Host: p.route.from, QPN: p.qpn}, Reads: p.state.Reads}
	p.sendMSN, p.readMSN = 1, 1
}

func (d *rdDialogue) Draw(r *rand.Rand) dgStep[*rdDialogue] { return drawStep(d.mix, r) }

// Play runs a step and compares the device with the models. Then it forgets the delivered packets
// of each peer, except the last keptForRepeats.
func (d *rdDialogue) Play(s dgStep[*rdDialogue]) {
	s.run(d)
	d.compare()
	for _, p := range d.peers {
		for len(p.packets) > 0 && int32(p.base-p.in.Next) < -keptForRepeats {
			p.packets, p.base = p.packets[1:], p.base+1
		}
	}
}

// Close destroys the queue pairs and deregisters their memory.
func (d *rdDialogue) Close() {
	if d.syncQP != nil {
		d.Must("a queue pair that can be destroyed", d.syncQP.p.qp.Close())
	}
	d.Must("a queue pair that can be destroyed", d.q.qp.Close())
	for _, m := range d.memory.regions {
		d.Must("a region that can be deregistered", m.Close())
	}
}

// add appends packets to the peer's flow, which steps send. The models need every field of a
// segment, so that it is encoded and parsed.
func (p *rdPeer) add(segments ...iwarp.Segment) {
	for _, s := range segments {
		p.packets = append(p.packets, &rdPacket{segment: iwarp.ParseSegment(s.Append(nil))})
	}
}

// rdOptions are how a packet is sent.
type rdOptions struct{ ackNow, marked bool }

// transmit sends packet i of the peer's flow to the device, and delivers it to the model. It
// appends the Ack that is then correct to p.states.
func (d *rdDialogue) transmit(p *rdPeer, i int, o rdOptions) {
	pkt := p.packets[i]
	seq := p.base + uint32(i)
	timestamp := d.Rand.Uint32()
	out := p.dataPacket(seq, pkt.segment).Timestamp(timestamp)
	if o.ackNow {
		out = out.AckNow()
	}
	route := p.route
	if o.marked {
		route.tclass = 3 // CE
	}
	at := d.Now()
	d.sendOctets(route, out.Over(p.path()).Append(nil))
	pkt.sent = true
	ready, verdict := p.in.Receive(seq, pkt.segment)
	for k, s := range ready {
		d.deliver(p, s)
		p.packets[i+k].delivered = true
	}
	p.states = append(p.states, ackState{
		next: p.in.Next, kept: p.in.Kept(), timestamp: timestamp, verdict: verdict, marked: o.marked,
		optional: verdict == model.DGBeyondWindow, sentAt: at,
	})
}

// deliver executes a segment in the model, and expects the completions and responses of the model.
// A receive that the segment takes is no longer reserved.
func (d *rdDialogue) deliver(p *rdPeer, s iwarp.Segment) {
	before := len(d.model.Receives)
	e := d.model.Deliver(&p.state, s)
	d.reservedReceives -= before - len(d.model.Receives)
	for _, c := range e.Completions {
		d.expected = append(d.expected, udCompletion{DGCompletion: c, to: d.Local[0]})
	}
	p.out.responses = append(p.out.responses, e.Responses...)
}

// compare fails the case unless the packets, completions, memory, state and events of the device
// after a step are those that the models permit.
func (d *rdDialogue) compare() {
	d.collect()
	for _, p := range d.peers {
		d.compareEnd(p)
	}
	sends, receives := d.takeCompletions()
	d.compareReceives(receives[d.q.qp.QPN()])
	d.compareRequests(sends[d.q.qp.QPN()])
	d.acceptOpenReceives()
	d.memory.compare(d.Rig)
	d.ExpectState(d.q.qp, verbs.QPStateRTS)
	d.ExpectNoEvent()
}

// collect receives the packets of the device and compares each with the model. It waits for those
// that must still come, since the device paces its packets, and in real time all may be late. It
// ends before giveUpTimeout, when the device gives up unacknowledged packets.
func (d *rdDialogue) collect() {
	const tolerance = 10 * time.Microsecond
	for _, a := range d.drain(ackDelay + roundTrip + tolerance) {
		d.comparePacket(a)
	}
	for until := d.Now() + min(d.ResponseTimeout(), giveUpTimeout/2); d.Now() < until && slices.ContainsFunc(d.peers, (*rdPeer).awaits); {
		if a, ok := d.nextPacket(until - d.Now()); ok {
			d.comparePacket(a)
		}
	}
}

// awaits reports whether the device must still send the peer an Ack or data.
func (p *rdPeer) awaits() bool {
	n := len(p.states)
	return n > 0 && !p.states[n-1].optional || p.out.awaits()
}

// comparePacket compares a packet of the device with what the model of its peer permits.
func (d *rdDialogue) comparePacket(a arrival) {
	i := slices.IndexFunc(d.peers, func(p *rdPeer) bool { return p.qpn == iwarp.Val(a.Header.DestQP) })
	d.Check(i >= 0, "packets to the peers", "%v", a.Packet)
	p := d.peers[i]
	want := iwarp.PacketOf(iwarp.KindRD).WithKey(p.key)
	want.Header.Reserved, want.Header.FlagsReserved, want.Header.Version = new(uint16(0)), new(uint8(0)), new(uint8(1))
	d.checkPacket(p.fromDevice(want), a)
	d.checkRoute(p.peer, a)
	if a.Ack != nil {
		d.compareAck(p, a)
	}
	if a.Data != nil {
		d.compareData(p, a)
	}
}

// compareAck fails the case unless an Ack is correct after one of the packets that the peer has
// sent since the last Ack, or repeats the last Ack. p.states has the correct Acks.
func (d *rdDialogue) compareAck(p *rdPeer, a arrival) {
	d.Check(*a.Ack.Epoch == p.in.Epoch, fmt.Sprintf("an Ack of epoch %#x", p.in.Epoch), "%#x", *a.Ack.Epoch)
	for i := len(p.states) - 1; i >= 0; i-- {
		if p.states[i].matches(a) {
			d.compareAckOf(p, i, a)
			p.states = p.states[i:]
			p.states[0].optional, p.states[0].verdict = true, acknowledged
			return
		}
	}
	if len(p.states) == 0 {
		d.Fail("no Ack", "%v", a.Packet)
	}
	s := p.states[len(p.states)-1]
	want := iwarp.RDAck(p.in.Epoch, s.next).SACK(iwarp.SACKOf(s.next, s.kept...)...)
	d.Fail(fmt.Sprintf("%v (busy: %t)", want, s.busy), "%v", a.Packet)
}

// acknowledged is the verdict of a state that an Ack has reported.
const acknowledged model.DGVerdict = -1

// matches reports whether an Ack has the next sequence number, the SACK and the window of this
// state: a window of 0 if the device is busy, that is has no receive for the next packet.
func (s *ackState) matches(a arrival) bool {
	if *a.Ack.Next != s.next || (*a.Ack.Window == 0) != s.busy || *a.Ack.Window > flowWindow {
		return false
	}
	for seq := s.next; seq != s.next+flowWindow; seq++ {
		if a.Ack.Arrived(seq) != slices.Contains(s.kept, seq) {
			return false
		}
	}
	return true
}

// compareAckOf checks the echoed timestamp, the flags and, in virtual time, the delay of an Ack
// that matches p.states[i]: an Ack of a packet out of order must not be delayed. An Ack without
// data must not repeat an earlier one, unless its window is 0.
func (d *rdDialogue) compareAckOf(p *rdPeer, i int, a arrival) {
	s := p.states[i]
	if s.verdict == acknowledged {
		d.Check(a.Data != nil || s.busy || !d.Virtual, "no second Ack for the same packets", "%v", a.Packet)
		return
	}
	marked, repeats := false, false
	for _, earlier := range p.states[:i+1] {
		if earlier.verdict != acknowledged {
			marked, repeats = marked || earlier.marked, repeats || earlier.verdict == model.DGDuplicate
		}
	}
	// The Ack echoes the timestamp of the packet that triggered it: the first packet since the last
	// Ack, or the one out of order.
	trigger := s
	if s.verdict == model.DGInOrder || s.verdict == model.DGClosesGap {
		first := slices.IndexFunc(p.states, func(x ackState) bool { return x.verdict != acknowledged })
		trigger = p.states[first]
	}
	d.checkPacket(iwarp.RDAck(p.in.Epoch, s.next).Echo(trigger.timestamp).EditHeader(func(h *iwarp.PacketHeader) {
		h.Marked, h.Repeats = &marked, &repeats
	}), a)
	if d.Virtual {
		limit := ackDelay
		if s.verdict != model.DGInOrder {
			limit = ackDelay / 2 // too short for a delayed Ack
		}
		d.Check(a.At-trigger.sentAt <= limit+roundTrip, fmt.Sprintf("an Ack within %v", limit), "after %v", a.At-trigger.sentAt)
	}
}

// compareEnd fails the case unless the device has sent the last Ack, and all other packets due.
func (d *rdDialogue) compareEnd(p *rdPeer) {
	if n := len(p.states); n > 0 && !p.states[n-1].optional {
		d.Fail(fmt.Sprintf("an Ack of the packets before %d", p.states[n-1].next), "none")
	}
	p.out.compareEnd(d, p)
}

// keptForRepeats is how many delivered packets a peer keeps to send them again.
const keptForRepeats = 8

// compareReceives compares the completions of receives. It accepts any error of a receive that may
// fail. For immediate data the specification leaves open the length, the opcode, and all flags
// except WCWithImm.
func (d *rdDialogue) compareReceives(got []verbs.WC) {
	var want []verbs.WC
	for i, c := range d.expected {
		if c.mayFail {
			if i < len(got) && got[i].Status != verbs.WCSuccess {
				c.WC.Status = got[i].Status // any error
			}
		} else if c.WC.Flags&verbs.WCWithImm != 0 && i < len(got) {
			c.WC.ByteLen, c.WC.Opcode = got[i].ByteLen, got[i].Opcode
			c.WC.Flags |= got[i].Flags & verbs.WCWithGRH // the device may set this flag
			c.WC.Flags &= got[i].Flags | verbs.WCWithImm // and leave out others
		}
		want = append(want, c.WC)
	}
	d.checkCompletions(want, got)
	for _, c := range d.expected {
		area := d.buffers.grhArea(c.Receive)
		if c.WC.Opcode == verbs.WCOpRecv && !c.mayFail {
			d.checkGRHArea(area, c.Source.Host, c.to)
		}
		if c.mayFail {
			d.buffers.acceptContents(c.Receive)
		}
	}
	d.expected = nil
}

// acceptOpenReceives accepts the present contents of the receives of incomplete Sends: the
// specification leaves open when the segments of a Send are placed.
func (d *rdDialogue) acceptOpenReceives() {
	for _, p := range d.peers {
		if p.state.Open != nil {
			d.buffers.acceptContents(*p.state.Open)
		}
	}
}

// acceptContents makes the present contents of a receive the expected ones.
func (b *recvBuffers) acceptContents(r model.DGReceive) {
	for i, p := range b.posted[r.ID] {
		copy(r.Parts[i], b.q.localMem.Buf[p.off:][:p.n])
	}
}
