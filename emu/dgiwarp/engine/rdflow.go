package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// receiveRD passes an RD packet to the reliable layer. It refuses a packet for a QP that does not
// exist or cannot receive, and drops data with a wrong key. A QP in ERR receives no data, but still
// acknowledgements.
func (n *NIC) receiveRD(now mono.Time, d *link.Datagram, k *wire.Packet) {
	src := netip.AddrPortFrom(d.Src.Addr().Unmap(), d.Src.Port())
	q := n.find(k.DstQP)
	data := k.Kind == wire.KindRD && k.Flags.Has(wire.FlagData)
	switch {
	case q == nil || !q.Reliable:
		n.Count.DropQPN++
		n.rd.Refuse(src, k, wire.ReasonNoQP)
		return
	case !q.mayReceive() && (data || q.state < verbs.QPStateRTR):
		n.Count.DropState++
		n.rd.Refuse(src, k, wire.ReasonState)
		return
	case data && k.Key != q.attr.QKey:
		n.Count.DropKey++
		return
	}
	k.DstQP = q.QPN // 0 in the packet means the only QP
	n.rd.Input(now, src, k, d.ECNBits() == link.CE)
	if data {
		n.lastSource = sourceOf(d, k.SrcQP)
	}
	n.handleRDEvents(now)
}

// handleRDEvents handles all events of the reliable layer (rd): flows of peers that begin, fail or
// end, received segments and acknowledgements. A segment that finds no receive is deferred.
func (n *NIC) handleRDEvents(now mono.Time) {
	for e, ok := n.rd.Next(); ok; e, ok = n.rd.Next() {
		p := n.peerOf(e.Peer)
		if p.qp == nil {
			continue // the QP of the peer was destroyed
		}
		switch e.Kind {
		case rd.EventBegins:
			p.flowBegins()
		case rd.EventSegment:
			if p.receive(e.Segment) {
				n.rd.Accept(now)
			} else {
				n.rd.Defer()
				p.qp.awaitReceives()
			}
		case rd.EventAcked:
			p.acked(e.Acked)
		case rd.EventFailed:
			p.flowFailed(flowStatus(e.Err))
		case rd.EventGone:
			p.endStreams()
		}
		p.retry(now) // any of these may be what requests waited for
		p.queueOutput()
	}
}

// flowBegins opens the responder stream for a new flow, and sets the path to the peer if unset.
func (p *peer) flowBegins() {
	if p.responder == nil {
		p.responder = &peerStream{peer: p}
	}
	h := p.responder
	h.fail(verbs.WCWRFlushErr) // a partly received message will not continue
	h.stream.Open(&p.qp.Endpoint, h, p.qp.nic.streamOptions())
	if !p.path.dst.IsValid() {
		n := p.qp.nic
		dst := p.rd.Key.RemoteAddr
		p.path = path{src: netip.AddrPortFrom(n.gids.sourceFor(dst.Addr()), n.cfg.Port), dst: dst, hopLimit: DefaultHopLimit}
	}
}

// receive passes a segment to the stream that it is for: a response to the requester, a request to
// the responder, an error message to the stream that failed. An invalid segment is for the
// responder, too, which answers with an error message. It returns false if the segment needs a
// receive and none is posted.
func (p *peer) receive(segment []byte) bool {
	h := p.responder
	var d ddp.Header
	body, err := d.Parse(segment)
	if err == nil {
		switch c := &d.Control; {
		case c.Opcode == ddp.OpReadResponse || c.Opcode == ddp.OpAtomicResponse:
			h = p.requester
		case c.Opcode == ddp.OpTerminate:
			h = p.terminatedStream(body)
		case needsReceive(&d) && h != nil && h.stream.Live() && p.qp.receivesLeft() == 0:
			return false
		}
	}
	p.deliver(h, segment)
	return true
}

// deliver passes a segment to stream h, or drops it if h is not open.
func (p *peer) deliver(h *peerStream, segment []byte) {
	q := p.qp
	if h == nil || !h.stream.Opened() {
		q.nic.Count.DropSegment++ // a response without a request, or to a request of a failed flow
		return
	}
	h.setSource(q.nic.lastSource)
	h.stream.Input(segment)
}

// needsReceive reports whether a segment is the first of a message that consumes a receive.
func needsReceive(d *ddp.Header) bool {
	return !d.Control.Tagged && d.Untagged.QN == ddp.QueueSend && d.Untagged.MO == 0
}

// setSource sets the source of the current segment to s, the source of the last packet. If s is of
// another peer, the segment had arrived earlier and was stored: its source is assumed to be that of
// the previous segment, or else the address of the peer.
func (h *peerStream) setSource(s source) {
	k := &h.peer.rd.Key
	if s.src != k.RemoteAddr || s.qp != k.RemoteQP {
		if h.from.src.IsValid() {
			return
		}
		s.src, s.qp = k.RemoteAddr, k.RemoteQP
	}
	h.from = s
}

// terminatedStream returns the stream that an error message is about: the responder if it
// contains a response, else the requester.
func (p *peer) terminatedStream(body []byte) *peerStream {
	var t ddp.Terminate
	if _, err := t.ParseWithOrder(body, ddp.OrderRFC); err == nil && t.HasDDP {
		if op := t.DDP.Control.Opcode; op == ddp.OpReadResponse || op == ddp.OpAtomicResponse {
			return p.responder
		}
	}
	return p.requester
}

// acked handles an acknowledgement of the oldest count segments: it passes to each of the two
// streams how many of these segments the stream had sent.
func (p *peer) acked(count int) {
	ofRequester, ofResponder := 0, 0
	for range count {
		if p.origin.pop() {
			ofResponder++
		} else {
			ofRequester++
		}
	}
	if ofRequester > 0 {
		p.requester.stream.Accepted(ofRequester)
	}
	if ofResponder > 0 {
		p.responder.stream.Accepted(ofResponder)
	}
}

// flowFailed resets the streams of a failed flow to the peer. The oldest request fails with status.
func (p *peer) flowFailed(status verbs.WCStatus) {
	p.origin = origins{}
	if p.requester != nil {
		p.requester.fail(status)
	}
	if h := p.responder; h != nil && !h.stream.Idle() {
		// Responses are lost: the peer's requests must fail.
		h.fail(verbs.WCWRFlushErr)
		p.rd.RefuseFlow()
	}
}

// endStreams ends both streams of a peer that the reliable layer has removed. The oldest request to
// the peer completes with WCRetryExcErr, and the others are flushed.
func (p *peer) endStreams() {
	if p.requester != nil {
		p.requester.fail(verbs.WCRetryExcErr)
	}
	p.flushWaiting()
	if p.responder != nil {
		p.responder.fail(verbs.WCWRFlushErr)
	}
}

// fillFlows resumes peers that waited for receives, as far as receives are posted, and passes
// segments of all peers to the reliable layer.
func (n *NIC) fillFlows(now mono.Time) {
	for range n.awaitingReceives.Len() {
		q, _ := n.awaitingReceives.Pop()
		q.peersWait = false
		if !q.mayReceive() {
			continue
		}
		resumed, more := 0, true
		if left := q.receivesLeft() - q.reservedReceives; left > 0 { // for each of them, a peer that waits can be resumed
			resumed, more = n.rd.Resume(q.QPN, left)
		}
		if q.reservedReceives += resumed; more {
			q.awaitReceives()
		}
	}
	n.handleRDEvents(now)
	for range n.withOutput.Len() { // peers without room are queued again
		p, _ := n.withOutput.Pop()
		p.queued = false
		if !p.rd.Gone() && p.qp != nil && n.qps.At(p.qp.QPN) == p.qp {
			p.outputSegments(now)
		}
	}
}

// awaitReceives queues the QP for fillFlows, which checks for new receives.
func (q *QP) awaitReceives() {
	if !q.peersWait {
		q.peersWait = true
		q.nic.awaitingReceives.Push(q)
	}
}

// PeersAwaitReceives reports whether an RD QP had no receive for a Send of a peer. The engine
// may then have packets to send after a receive is posted.
func (n *NIC) PeersAwaitReceives() bool { return n.awaitingReceives.Len() > 0 }

// outputSegments passes segments of the requester and the responder stream of a peer to the
// reliable flow to the peer, alternately, until neither stream can send more or the flow has no
// room. It records in p.origin which stream each segment is from.
func (p *peer) outputSegments(now mono.Time) {
	n := p.qp.nic
	byResponder := false
	for idle := 0; idle < 2; byResponder = !byResponder {
		h := p.requester
		if byResponder {
			h = p.responder
		}
		if h == nil || h.stream.WaitsForPeer() {
			idle++
			continue
		}
		if p.rd.Epoch() == 0 {
			// There is no flow to the peer yet: Peer starts one, also for responses.
			if rp, err := n.rd.Peer(now, p.rd.Key, p.qp.attr.QKey, p.rd.TheirKey()); err != nil || rp != p.rd {
				return // there are too many peers, or the layer has removed p.rd
			}
		}
		if p.rd.Room() == 0 || !h.stream.Output(n.rd.MaxSegment(), &n.segment) {
			idle++
			continue
		}
		idle = 0
		p.origin.push(byResponder)
		p.rd.Send(now, n.segment.Header, n.segment.Payload)
	}
	isFull := p.rd.Room() == 0
	p.rd.SetMore(isFull)
	if isFull && p.rd.Waiting() == 0 {
		p.queueOutput() // other peers use all the room: try again later
	}
}

// addressRD sets the addresses and payload of an RD datagram, and marks data as ECN-capable. It
// uses the path of the last request posted to the peer, if that has the same destination, else the
// default path to out.Dst.
func (n *NIC) addressRD(d *link.Datagram, out *rd.Packet) {
	used := path{dst: out.Dst, hopLimit: DefaultHopLimit}
	if out.Peer != nil {
		if p, ok := out.Peer.Owner.(*peer); ok && p.path.dst == out.Dst {
			used = p.path
		}
	}
	if !used.src.IsValid() {
		used.src = netip.AddrPortFrom(n.gids.sourceFor(out.Dst.Addr()), n.cfg.Port)
	}
	used.address(d)
	if out.Data {
		d.TClass |= link.ECT0
	}
	d.Payload = out.Payload
}
