package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// takeRD hands a packet of a flow to the reliable layer.
func (n *NIC) takeRD(now mono.Time, d *link.Datagram, k *wire.Packet) {
	src := netip.AddrPortFrom(d.Src.Addr().Unmap(), d.Src.Port())
	q := n.find(k.DstQP)
	data := k.Kind == wire.KindRD && k.Flags.Has(wire.FlagData)
	switch {
	case q == nil || !q.reliable:
		n.Count.DropQPN++
		n.rd.Refuse(src, k, wire.ReasonNoQP)
		return
	case !q.receives() && (data || q.state < verbs.QPStateRTR):
		n.Count.DropState++
		n.rd.Refuse(src, k, wire.ReasonState)
		return
	case data && k.Key != q.attr.QKey:
		n.Count.DropKey++
		return
	}
	k.DstQP = q.num // it may have been left out
	n.rd.Input(now, src, k, d.ECNBits() == link.CE)
	if data {
		n.arrived = sourceOf(d, k.SrcQP)
	}
	n.drain(now)
}

// drain deals with all that the reliable layer has to report.
func (n *NIC) drain(now mono.Time) {
	for e, ok := n.rd.Next(now); ok; e, ok = n.rd.Next(now) {
		p := n.peerOf(e.Peer)
		if p.qp == nil {
			continue // its QP went
		}
		switch e.Kind {
		case rd.EventBegins:
			p.begins()
		case rd.EventSegment:
			if p.take(e.Segment) {
				n.rd.Accept(now)
			} else {
				n.rd.Defer(now)
				p.qp.starve()
			}
		case rd.EventAcked:
			p.acked(e.Acked)
		case rd.EventFailed:
			p.flowFailed(failed(e.Err))
		case rd.EventGone:
			p.gone()
		}
		p.retry(now) // any of these may be what requests waited for
		p.speak()
	}
}

// begins opens the half that serves, for a flow that begins.
func (p *peer) begins() {
	if p.serve == nil {
		p.serve = &half{peer: p}
	}
	h := p.serve
	h.fail(verbs.WCWRFlushErr) // what had begun to arrive will not end
	h.stream.Open(&p.qp.endpoint, h, p.qp.nic.streamOptions())
	if !p.path.dst.IsValid() {
		n := p.qp.nic
		dst := p.rd.Key.Remote
		p.path = path{src: netip.AddrPortFrom(n.sourceAddr(dst.Addr()), n.cfg.Port), dst: dst, hopLimit: DefaultHopLimit}
	}
}

// take hands a segment to the half that it is for. It reports false if there is
// no receive for it.
func (p *peer) take(segment []byte) bool {
	h := p.serve
	var d ddp.Header
	body, err := d.Parse(segment)
	if err == nil {
		switch c := &d.Control; {
		case c.Opcode == ddp.OpReadResponse || c.Opcode == ddp.OpAtomicResponse:
			h = p.asks
		case c.Opcode == ddp.OpTerminate:
			h = p.accused(body)
		case begins(&d) && h != nil && h.stream.Live() && p.qp.receivesLeft() == 0:
			return false
		}
	}
	p.hand(h, segment)
	return true
}

// hand gives a segment to a half, if there is one.
func (p *peer) hand(h *half, segment []byte) {
	q := p.qp
	if h == nil || !h.stream.Opened() {
		q.nic.Count.DropSegment++ // an answer to nothing, or to what was in a flow that failed
		return
	}
	h.comesFrom(q.nic.arrived)
	h.stream.Input(segment)
}

// begins reports whether a segment is the first of a message that takes a receive.
func begins(d *ddp.Header) bool {
	return !d.Control.Tagged && d.Untagged.QN == ddp.QueueSend && d.Untagged.MO == 0
}

// comesFrom notes where a segment came from, given what is known of the packet
// that arrived last. A segment that was stored is taken to have come like the one
// before it.
func (h *half) comesFrom(s source) {
	k := &h.peer.rd.Key
	if s.src != k.Remote || s.qp != k.RemoteQP {
		if h.from.src.IsValid() {
			return
		}
		s.src, s.qp = k.Remote, k.RemoteQP
	}
	if s != h.from {
		h.from, h.filled = s, false
	}
}

// accused is the half that an error message is about: the one that serves if it
// shows an answer.
func (p *peer) accused(body []byte) *half {
	var t ddp.Terminate
	if _, err := t.ParseOrder(body, ddp.OrderRFC); err == nil && t.HasDDP {
		if op := t.DDP.Control.Opcode; op == ddp.OpReadResponse || op == ddp.OpAtomicResponse {
			return p.serve
		}
	}
	return p.asks
}

// acked tells the halves how many of their segments have arrived.
func (p *peer) acked(count int) {
	asks, serve := 0, 0
	for range count {
		if p.origin.pop() {
			serve++
		} else {
			asks++
		}
	}
	if asks > 0 {
		p.asks.stream.Taken(asks)
	}
	if serve > 0 {
		p.serve.stream.Taken(serve)
	}
}

// flowFailed ends what was under way to the peer.
func (p *peer) flowFailed(status verbs.WCStatus) {
	p.origin = origins{}
	if p.asks != nil {
		p.asks.fail(status)
	}
	if h := p.serve; h != nil && !h.stream.Quiet() {
		// Answers are lost: the peer must learn that what it asks comes to nothing.
		h.fail(verbs.WCWRFlushErr)
		p.rd.Deafen()
	}
}

// gone ends all that is left of a peer that has been silent for long.
func (p *peer) gone() {
	if p.asks != nil {
		p.asks.fail(verbs.WCRetryExcErr)
	}
	p.flushWaiting()
	if p.serve != nil {
		p.serve.fail(verbs.WCWRFlushErr)
	}
}

// feed gives the reliable layer segments of all peers that have some, and tells
// those on whom a QP could not spend a receive that it can now.
func (n *NIC) feed(now mono.Time) {
	for range n.starving.Len() {
		q, _ := n.starving.Pop()
		q.starving = false
		if q.receives() && n.resume(q) {
			q.starve()
		}
	}
	n.drain(now)
	for range n.speaking.Len() { // those that find no room come back for the next time
		p, _ := n.speaking.Pop()
		p.queued = false
		if !p.rd.Gone() && p.qp != nil && n.qps.At(p.qp.num) == p.qp {
			p.talk(now)
		}
	}
}

// resume tells peers that were told to wait to go on, as many as there are
// receives that nobody was told of yet. It reports whether there may be more.
func (n *NIC) resume(q *QP) (more bool) {
	left := q.receivesLeft() - q.promised
	if left <= 0 {
		return true
	}
	told, more := n.rd.Resume(q.num, left)
	q.promised += told
	return more
}

// starve has feed see whether the QP has receives again.
func (q *QP) starve() {
	if !q.starving {
		q.starving = true
		q.nic.starving.Push(q)
	}
}

// Starving reports whether a QP has told peers to wait for receives: then posting
// one may make packets leave.
func (n *NIC) Starving() bool { return n.starving.Len() > 0 }

// talk moves segments of a peer from its halves to the flow. They take turns.
func (p *peer) talk(now mono.Time) {
	n := p.qp.nic
	serve := false
	for idle := 0; idle < 2; serve = !serve {
		h := p.asks
		if serve {
			h = p.serve
		}
		if h == nil || h.stream.Stuck() {
			idle++
			continue
		}
		if p.rd.Epoch() == 0 {
			// Answers need a flow, too.
			if rp, err := n.rd.Peer(now, p.rd.Key, p.qp.attr.QKey, p.rd.TheirKey()); err != nil || rp != p.rd {
				return
			}
		}
		if p.rd.Room() == 0 || !h.stream.Output(n.rd.MaxSegment(), &n.segment) {
			idle++
			continue
		}
		idle = 0
		p.origin.push(serve)
		p.rd.Send(now, n.segment.Header, n.segment.Payload)
	}
	if p.rd.Room() == 0 && p.rd.Waiting() == 0 {
		p.speak() // others have all the room: ask again
	}
}

// addressRD completes a datagram of the reliable layer.
func (n *NIC) addressRD(d *link.Datagram, out *rd.Packet) {
	pa := path{dst: out.Dst, hopLimit: DefaultHopLimit}
	if out.Peer != nil {
		if p, ok := out.Peer.Owner.(*peer); ok && p.path.dst == out.Dst {
			pa = p.path
		}
	}
	if !pa.src.IsValid() {
		pa.src = netip.AddrPortFrom(n.sourceAddr(out.Dst.Addr()), n.cfg.Port)
	}
	pa.address(d)
	if out.Data {
		d.TClass |= link.ECT0
	}
	d.Payload = out.Payload
}
