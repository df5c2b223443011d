package dgiwarp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// rdOutgoing is what the device sends to a peer: responses and requests, in its flow.
type rdOutgoing struct {
	epoch     uint32
	responses []model.DGResponse
	// messages are those of requests that were not sent yet; at is how much of the
	// first was sent, responseAt how much of the first response.
	messages       []*rdMessage
	at, responseAt int
	requests       []*rdRequest // not completed, in order
	// next is the next sequence number, and una the oldest that is not acknowledged.
	next, una uint32
	sent      map[uint32]*rdSent
	// latest is the last new packet of this step; nil if there is none.
	latest *arrival
	// sendMSN and readMSN are the next MSNs of the queues 0 and 1, answerMSN that of the peer's
	// Atomic Responses, which count with the flow of the requests.
	sendMSN, readMSN, answerMSN uint32
	nextID                      uint64
	clock                       *arrival
}

// rdMessage is a message of a request.
type rdMessage struct {
	request *rdRequest
	// header is the segment without payload.
	header  iwarp.Segment
	payload []byte
}

// rdRequest is a posted request.
type rdRequest struct {
	wc          verbs.WC
	left        int // packets that are not acknowledged, or not sent
	read        *model.DGRead
	sentRequest *iwarp.Segment // the Read or Atomic Request as it was sent
	unsignaled  bool
	// responseQueued says that the peer's response is in its flow.
	responseQueued bool
	allSent        bool // all packets were sent
}

// rdSent is a packet of the device.
type rdSent struct {
	segment []byte
	request *rdRequest
	at      time.Duration
	// sacked says that a SACK acknowledged it.
	sacked  bool
	acked   bool
	ackedAt time.Duration
}

// peerIDShift is the lowest bit of the peer's index in the work request ID of a request.
const peerIDShift = 20

// newRDOutgoing returns the state of a flow of the device that has been established by one Send.
func newRDOutgoing(p *rdPeer) rdOutgoing {
	next := p.fromDeviceFlow.next
	return rdOutgoing{
		epoch: p.fromDeviceFlow.epoch, next: next, una: next, sent: make(map[uint32]*rdSent),
		sendMSN: 2, readMSN: 1, answerMSN: 1, nextID: sendIDs + uint64(p.qpn-peerQPN)<<peerIDShift,
	}
}

// compareData compares a retransmission with the first transmission, and a new data packet, which
// must be in sequence and in the windows, with the messages that the device has to send.
func (d *rdDialogue) compareData(p *rdPeer, a arrival) {
	o := &p.out
	seq := *a.Data.Seq
	d.Check(*a.Data.Epoch == o.epoch, fmt.Sprintf("data of epoch %#x", o.epoch), "%#x: %v", *a.Data.Epoch, a.Packet)
	d.Check(a.Data.Start == nil, "no start flag in an acknowledged flow", "%v", a.Packet)
	o.checkClock(d, a)
	p.fromDeviceFlow.lastTimestamp = *a.Data.Timestamp
	if old := o.sent[seq]; old != nil {
		d.compareRetransmission(old, a)
		return
	}
	d.Check(seq == o.next, fmt.Sprintf("packet %d of the flow", o.next), "%v", a.Packet)
	d.Check(seq-o.una < flowWindow, fmt.Sprintf("at most %d packets in flight", flowWindow), "packet %d after %d", seq, o.una)
	acked := o.next - uint32(o.inFlight())
	window := firstWindow + acked // slow start adds at most one for each
	d.Check(o.inFlight() < int(window), fmt.Sprintf("at most %d packets in flight", window), "one more: %v", a.Packet)
	o.next++
	o.latest = &a
	o.sent[seq] = &rdSent{segment: a.Segment.Append(nil), at: a.At, request: d.matchData(p, a)}
}

// inFlight returns how many packets are acknowledged neither by an Ack nor by a SACK.
func (o *rdOutgoing) inFlight() (n int) {
	for seq := o.una; seq != o.next; seq++ {
		if !o.sent[seq].sacked {
			n++
		}
	}
	return n
}

// compareRetransmission fails the case unless a retransmission equals the first transmission and
// has ack-now. After an Ack a packet may be retransmitted for a round trip only.
func (d *rdDialogue) compareRetransmission(old *rdSent, a arrival) {
	if old.acked || old.sacked {
		d.Check(!d.Virtual || a.At < old.ackedAt+roundTrip, "no retransmission of an acknowledged packet", "%v", a.Packet)
		return
	}
	d.Check(slices.Equal(old.segment, a.Segment.Append(nil)), "a retransmission that equals the first transmission", "%v", a.Packet)
	d.Check(*a.Header.AckNow, "ack-now on a retransmission", "%v", a.Packet)
	old.at = a.At
}

// checkClock fails the case unless, in virtual time, the timestamps of two successive data packets
// differ by the microseconds between them.
func (o *rdOutgoing) checkClock(d *rdDialogue, a arrival) {
	if o.clock != nil && d.Virtual {
		took := a.At - o.clock.At
		counted := time.Duration(*a.Data.Timestamp-*o.clock.Data.Timestamp) * time.Microsecond
		const tolerance = 50 * time.Microsecond
		d.Check(counted-took < tolerance && took-counted < tolerance, fmt.Sprintf("a timestamp %v later", took), "%v later", counted)
	}
	o.clock = &a
}

// matchData fails the case unless a new packet continues the first response or the first message
// that the device has to send. It returns the request of the message; nil for a response.
func (d *rdDialogue) matchData(p *rdPeer, a arrival) *rdRequest {
	o := &p.out
	if len(o.responses) > 0 && o.matchResponse(a) {
		return nil
	}
	if len(o.messages) == 0 {
		want := "no data"
		if len(o.responses) > 0 {
			want = fmt.Sprintf("a response of %d octets", len(o.responses[0].Data))
		}
		d.Fail(want, "%v", a.Packet)
	}
	m := o.messages[0]
	want := m.segment(o.at, len(a.Segment.Payload))
	d.checkPacket(iwarp.AnyPacket().With(want), a)
	m.request.sentRequest = a.Segment
	m.request.left++
	if o.at += len(a.Segment.Payload); *want.DDP.Last {
		o.messages, o.at = o.messages[1:], 0
		m.request.allSent = len(o.messages) == 0 || o.messages[0].request != m.request
	}
	if r := m.request.read; r != nil && a.Segment.Read != nil {
		r.Base = *a.Segment.Read.SinkTO // the device chooses it
	}
	return m.request
}

// segment returns the expected segment of the message with n octets of payload, from offset at on.
func (m *rdMessage) segment(at, n int) iwarp.Segment {
	end := min(at+n, len(m.payload))
	if n == 0 {
		end = len(m.payload) // an empty segment is only correct for an empty message
	}
	s := m.header.WithPayload(m.payload[at:end]).Last(end == len(m.payload))
	if s.IsTagged() {
		return s.TO(*s.DDP.TO + uint64(at))
	}
	return s.MO(uint32(at))
}

// matchResponse reports whether a packet continues the first response; it removes a complete one.
func (o *rdOutgoing) matchResponse(a arrival) bool {
	r := o.responses[0]
	if r.Atomic != nil {
		var diff packet.Differences
		if r.Atomic.Diff(&diff, *a.Segment); len(diff) > 0 {
			return false
		}
		o.responses = o.responses[1:]
		return true
	}
	m := rdMessage{payload: r.Data, header: fullSegment(iwarp.ReadResponse(r.Sink.STag, r.Sink.TO, nil))}
	want := m.segment(o.responseAt, len(a.Segment.Payload))
	var diff packet.Differences
	if want.Diff(&diff, *a.Segment); len(diff) > 0 {
		return false
	}
	if o.responseAt += len(a.Segment.Payload); *want.DDP.Last {
		o.responses, o.responseAt = o.responses[1:], 0
	}
	return true
}

// fullSegment sets the fields of an expected segment that have only one correct value.
func fullSegment(s iwarp.Segment) iwarp.Segment {
	return s.Tagged(s.IsTagged()).DV(1).RV(1).DDPReserved(0).RDMAPReserved(0)
}

// compareEnd fails the case unless the device has sent all that its window permits, the last packet
// with ack-now. Unless steps acknowledge packets, the peer then acknowledges all.
func (o *rdOutgoing) compareEnd(d *rdDialogue, p *rdPeer) {
	if o.latest != nil && len(o.responses)+len(o.messages) == 0 {
		d.Check(*o.latest.Header.AckNow, "ack-now on the last packet", "%v", o.latest.Packet)
	}
	o.latest = nil
	if o.awaits() {
		d.Fail("packets of all responses and requests", "%d responses and %d messages are missing", len(o.responses), len(o.messages))
	}
	if !d.stepsAck {
		for range 8 { // Acks make the device send more; after eight, a later step goes on
			if o.una == o.next {
				break
			}
			d.acknowledge(p, o.next)
			d.collect()
		}
	}
}

// awaits reports whether the device must send a packet, which even the smallest window permits.
func (o *rdOutgoing) awaits() bool {
	return o.next-o.una < leastWindow && len(o.responses)+len(o.messages) > 0
}

// acknowledge sends and records an Ack of the device's packets before next and of those in sacked.
func (d *rdDialogue) acknowledge(p *rdPeer, next uint32, sacked ...uint32) {
	o := &p.out
	p.send(iwarp.RDAck(o.epoch, next).Echo(p.fromDeviceFlow.lastTimestamp).SACK(iwarp.SACKOf(next, sacked...)...))
	for ; int32(o.una-next) < 0; o.una++ {
		o.sent[o.una].ack(d.Now())
	}
	for _, seq := range sacked {
		if s := o.sent[seq]; !s.sacked {
			s.sacked, s.ackedAt = true, d.Now()
		}
	}
}

// ack records that a packet was acknowledged by the next sequence number of an Ack, not by a SACK.
func (s *rdSent) ack(now time.Duration) {
	if !s.sacked {
		s.ackedAt = now
	}
	if !s.acked && s.request != nil {
		s.request.left--
	}
	s.acked = true
}

// done reports whether a request must have completed, and whether it may have: the specification
// leaves open whether a SACK of its packets completes it. sent are the packets of the device.
func (r *rdRequest) done(sent map[uint32]*rdSent) (must, may bool) {
	if !r.allSent || r.read != nil && !r.read.Answered {
		return false, false
	}
	unknown := 0
	for _, s := range sent {
		if s.request == r && !s.acked && s.sacked {
			unknown++
		}
	}
	if r.read != nil {
		return r.left == 0, true // an answer may be taken as an Ack of its request
	}
	return r.left == 0, r.left == unknown
}

// compareRequests compares the completions of requests with those that must or may have come. They
// are in order for each peer, whose index is in the work request IDs.
func (d *rdDialogue) compareRequests(got []verbs.WC) {
	for _, p := range d.peers {
		o := &p.out
		mine := slices.DeleteFunc(slices.Clone(got), func(wc verbs.WC) bool { return (wc.WRID-sendIDs)>>peerIDShift != uint64(p.qpn-peerQPN) })
		for len(o.requests) > 0 {
			r := o.requests[0]
			must, may := r.done(o.sent)
			if !must && (!may || len(mine) == 0 || !r.unsignaled && mine[0].WRID != r.wc.WRID) {
				break // a later completion shows that an unsignaled request has completed
			}
			o.requests = o.requests[1:]
			if r.unsignaled {
				continue
			}
			d.checkCompletions([]verbs.WC{r.wc}, mine[:min(1, len(mine))])
			mine = mine[1:]
		}
		d.checkCompletions(nil, mine)
		p.state.Reads = slices.DeleteFunc(p.state.Reads, func(r *model.DGRead) bool {
			return r.Answered && !slices.ContainsFunc(o.requests, func(x *rdRequest) bool { return x.read == r })
		})
	}
}

// maxUncompleted is the most requests to a peer that are not completed.
const maxUncompleted = 8

// playRDRequests posts requests of random kinds to a peer: one, in virtual time up to three.
func playRDRequests(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	var wrs []verbs.SendWR
	for i := range 1 + r.IntN(3) {
		if len(p.out.requests) < maxUncompleted && (i == 0 || d.Virtual) {
			wrs = append(wrs, d.newRDRequest(r, p, rig.Pick(r, rdOperations...)))
		}
	}
	d.PostSend(d.q.qp, wrs...)
}

// playExchange sends a packet of a peer, in order or after a gap, just before the application posts
// a request to that peer: the packets of the request may carry the Ack.
func playExchange(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	if len(p.out.requests) >= maxUncompleted {
		return
	}
	p.add(d.q.writeToTarget(d.writeOffset(r, 8), data(8)))
	op := rig.Pick(r, verbs.OpSend, verbs.OpRDMAWrite)
	wr := d.newRDRequest(r, p, op)
	if i := slices.IndexFunc(p.packets, func(x *rdPacket) bool { return !x.sent }); p.inWindow(i) {
		d.transmit(p, i, rdOptions{ackNow: r.IntN(2) == 0})
	}
	d.PostSend(d.q.qp, wr)
}

// rdOperations are the operations of requests; a Send is twice as likely as the others.
var rdOperations = []verbs.WROpcode{
	verbs.OpSend, verbs.OpSend, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp,
}

// playManyRequests posts Writes of several packets to a peer until it has maxUncompleted requests.
func playManyRequests(d *rdDialogue, r *rand.Rand) {
	p := rig.Pick(r, d.peers...)
	var wrs []verbs.SendWR
	for len(p.out.requests) < maxUncompleted {
		wr := d.newRDRequest(r, p, verbs.OpRDMAWrite)
		wr.SGL = d.source.SGL(0, rdMemory)
		p.out.messages[len(p.out.messages)-1].payload = slices.Clone(d.source.Buf)
		wrs = append(wrs, wr)
	}
	d.PostSend(d.q.qp, wrs...)
}

// newRDRequest draws a request to a peer, with a length near the limits of a packet, and adds its
// messages to those that the device has to send.
func (d *rdDialogue) newRDRequest(r *rand.Rand, p *rdPeer, op verbs.WROpcode) verbs.SendWR {
	o := &p.out
	o.nextID++
	fits := d.maxSinglePacketRD()
	const ackBlock, sackWord = 16, 4
	withAck := fits - ackBlock - sackWord*r.IntN(3)
	n := rig.Pick(r, 0, 1, r.IntN(100), withAck, withAck+1, fits-1, fits, fits+1, 2*fits, r.IntN(rdMemory))
	wr := p.wr(o.nextID, op, 0, 0)
	req := &rdRequest{wc: verbs.WC{WRID: o.nextID, QPN: d.q.qp.QPN(), Opcode: verbs.WCOpSend}}
	off := r.IntN(rdMemory - n + 1)
	wr.SGL = d.source.SGL(off, n)
	payload := slices.Clone(d.source.Buf[off:][:n])
	wr.Remote.Addr += r.Uint64N(1 << 40)
	wr.InvalidateRKey, wr.Imm = verbs.RKey(r.Uint32()), r.Uint32()
	if r.IntN(3) == 0 {
		wr.Flags |= verbs.SendSolicited
	}
	if r.IntN(4) == 0 {
		wr.Flags &^= verbs.SendSignaled
		req.unsignaled = true
	}
	d.addMessages(p, req, &wr, payload)
	o.requests = append(o.requests, req)
	return wr
}

// maxSinglePacketRD returns the longest Send that fits into one packet of a flow.
func (h *host) maxSinglePacketRD() int {
	const dataBlock = 12
	return h.maxSinglePacketSend() - dataBlock
}

// addMessages adds the messages of a request to those that the device has to send.
func (d *rdDialogue) addMessages(p *rdPeer, req *rdRequest, wr *verbs.SendWR, payload []byte) {
	o := &p.out
	at := iwarp.At(uint32(wr.Remote.RKey), wr.Remote.Addr)
	add := func(s iwarp.Segment, payload []byte) {
		o.messages = append(o.messages, &rdMessage{request: req, header: fullSegment(s), payload: payload})
	}
	solicited := wr.Flags&verbs.SendSolicited != 0
	kind := func(plain, se iwarp.Opcode) iwarp.Opcode {
		if solicited {
			return se
		}
		return plain
	}
	switch wr.Opcode {
	case verbs.OpSend:
		add(iwarp.Send(o.sendMSN, nil).QN(0).Opcode(kind(iwarp.OpSend, iwarp.OpSendSE)), payload)
		o.sendMSN++
	case verbs.OpSendInv:
		s := iwarp.SendInvalidate(o.sendMSN, uint32(wr.InvalidateRKey), nil).QN(0)
		add(s.Opcode(kind(iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate)), payload)
		o.sendMSN++
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		req.wc.Opcode = verbs.WCOpRDMAWrite
		add(iwarp.Write(at.STag, at.TO, nil), payload)
		if wr.Opcode == verbs.OpRDMAWriteImm {
			add(iwarp.Op(kind(iwarp.OpImmediate, iwarp.OpImmediateSE)).MSN(o.sendMSN).QN(0), []byte{})
			o.sendMSN++
		}
	default:
		d.addRead(p, req, wr, add)
	}
}

// addRead calls add with the Read or Atomic Request of a request. The result goes to one of the 16
// slots of sink, for an atomic aligned to 8 octets. Lengths and operands are derived from the
// random Imm and InvalidateRKey of the request.
func (d *rdDialogue) addRead(p *rdPeer, req *rdRequest, wr *verbs.SendWR, add func(iwarp.Segment, []byte)) {
	o := &p.out
	const slots, maxRead = 16, 200
	slot := int((wr.WRID-sendIDs)%slots) * (rdMemory / slots)
	wr.Flags &^= verbs.SendSolicited
	n := 8
	if wr.Opcode == verbs.OpRDMARead {
		n = int(wr.Imm % (maxRead + 1))
	}
	if wr.Opcode != verbs.OpRDMARead {
		wr.Remote.Addr &^= 7
		slot += int(-d.sink.Addr() & 7)
	}
	wr.SGL = d.sink.SGL(slot, n)
	req.read = &model.DGRead{Sink: d.sinkWant[slot:][:n]}
	p.state.Reads = append(p.state.Reads, req.read)
	s := iwarp.Op(iwarp.OpReadRequest).MSN(o.readMSN).QN(1)
	req.wc.Opcode = verbs.WCOpRDMARead
	if wr.Opcode == verbs.OpRDMARead {
		s.Read = &iwarp.ReadRequestHeader{Size: new(uint32(n)), SrcSTag: new(uint32(wr.Remote.RKey)), SrcTO: &wr.Remote.Addr}
	} else {
		s = iwarp.Op(iwarp.OpAtomicRequest).MSN(o.readMSN).QN(1)
		h := &iwarp.AtomicRequestHeader{STag: new(uint32(wr.Remote.RKey)), TO: new(wr.Remote.Addr)}
		wr.Atomic = verbs.Atomic{CompareAdd: uint64(wr.Imm) << 20, Swap: uint64(wr.InvalidateRKey)}
		req.wc.Opcode, h.Operation, h.Data = verbs.WCOpFetchAdd, new(iwarp.AtomicFetchAdd), new(wr.Atomic.CompareAdd)
		if wr.Opcode == verbs.OpAtomicCmpAndSwp {
			req.wc.Opcode, h.Operation = verbs.WCOpCompSwap, new(iwarp.AtomicCompareSwap)
			h.Data, h.Compare = new(wr.Atomic.Swap), new(wr.Atomic.CompareAdd)
		}
		s.AtomicRequest = h
	}
	o.readMSN++
	add(s, []byte{})
}

// playAnswer adds the response to one read or atomic of the device to the flow of each peer, and
// sends the unsent packets of the flows, of which lossPercent are lost.
func playAnswer(d *rdDialogue, r *rand.Rand) {
	for _, p := range d.peers {
		for _, req := range p.out.requests {
			if req.read == nil || req.responseQueued || req.sentRequest == nil {
				continue
			}
			req.responseQueued = true
			if req.sentRequest.Read != nil {
				p.add(iwarp.ReadResponseTo(*req.sentRequest, data(len(req.read.Sink))).Segments(taggedLen + 1 + r.IntN(300))...)
			} else {
				p.add(iwarp.AtomicResponse(p.out.answerMSN, *req.sentRequest.AtomicRequest.ID, r.Uint64()))
				p.out.answerMSN++
			}
			break
		}
		const lossPercent = 20
		d.sendUnsent(r, p, lossPercent)
	}
}

// drawUnacked returns a peer, if possible one that has not acknowledged all packets.
func (d *rdDialogue) drawUnacked(r *rand.Rand) *rdPeer {
	unacked := slices.DeleteFunc(slices.Clone(d.peers), func(p *rdPeer) bool { return p.out.una == p.out.next })
	if len(unacked) == 0 {
		return rig.Pick(r, d.peers...)
	}
	return rig.Pick(r, unacked...)
}

// playAck acknowledges packets of the device: all, some, or some after a gap (SACK).
func playAck(d *rdDialogue, r *rand.Rand) {
	p := d.drawUnacked(r)
	o := &p.out
	n := o.next - o.una
	next := o.una + rig.Pick(r, n, n, uint32(r.IntN(int(n)+1)))
	for next != o.next && o.sent[next].sacked {
		next++
	}
	var sacked []uint32
	for seq := next + 1; int32(seq-o.next) < 0; seq++ {
		if o.sent[seq].sacked || r.IntN(3) == 0 {
			sacked = append(sacked, seq)
		}
	}
	d.acknowledge(p, next, sacked...)
}

// playFalseAck sends a packet that the device ignores: an Ack of packets that were never sent; an
// Ack, Refusal or Challenge of another epoch; or a malformed or misdirected Ack.
func playFalseAck(d *rdDialogue, r *rand.Rand) {
	p := d.drawUnacked(r)
	o := &p.out
	good := iwarp.RDAck(o.epoch, o.next).Echo(p.fromDeviceFlow.lastTimestamp).SACK()
	groups := [][]iwarp.Packet{{
		iwarp.RDAck(o.epoch, o.next+1).SACK(), iwarp.RDAck(o.epoch, o.next+rig.Pick[uint32](r, 2, 255, 1<<31, 1<<31-1)).SACK(),
		iwarp.RDAck(o.epoch, o.next).SACK(iwarp.SACKOf(o.next, o.next+1)...),
		iwarp.RDAck(o.epoch, o.una).SACK(iwarp.SACKOf(o.una, max(o.una+1, o.next)+uint32(r.IntN(200)))...),
	}, {
		iwarp.RDAck(o.epoch+1, o.next).SACK(), iwarp.RDAck(o.epoch^1<<31, o.next).SACK(),
		iwarp.Refusal(o.epoch^1, iwarp.ReasonUnknownFlow), iwarp.Challenge(o.epoch^1, p.incarnation, peerCookie),
	}, {
		good.BadCRC(), good.ToQP(uint32(d.q.qp.QPN()) ^ 0x800000), good.Trailing(0), good.SACK(make([]uint32, 9)...),
		good.Cut(headerLen + r.IntN(16)), good.SACK(0, 0).Cut(headerLen + 16 + r.IntN(8)),
		good.EditHeader(func(h *iwarp.PacketHeader) { h.Version = new(uint8(2)) }),
	}}
	p.send(rig.Pick(r, rig.Pick(r, groups...)...))
}

// playSilence lets time pass without Acks. After the largest retransmission timeout, the device
// must have retransmitted the leastWindow oldest packets: the congestion window is never smaller.
// Then the peers acknowledge all.
func playSilence(d *rdDialogue, r *rand.Rand) {
	before := make(map[*rdSent]time.Duration)
	for _, p := range d.peers {
		for seq, n := p.out.una, 0; seq != p.out.next && n < leastWindow; seq++ {
			if s := p.out.sent[seq]; !s.sacked {
				before[s] = s.at
				n++
			}
		}
	}
	wait := rig.Pick(r, 3*time.Millisecond, 50*time.Millisecond, maxTimeout+maxTimeout/10)
	for end := d.Now() + wait; d.Now() < end; {
		if a, ok := d.nextPacket(end - d.Now()); ok {
			d.comparePacket(a)
		}
	}
	for s, at := range before {
		d.Check(wait < maxTimeout || s.at > at, fmt.Sprintf("a retransmission of %v", iwarp.ParseSegment(s.segment)), "none in %v", wait)
	}
	for _, p := range d.peers {
		d.acknowledge(p, p.out.next)
	}
}

// The least congestion window, and the first, which grows by one with each acknowledged packet.
const (
	leastWindow = 4
	firstWindow = 16
)
