package sim

import (
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// The places a packet passes, as handlers of the event that it gets there; arg
// is the packet's id.
type (
	endOfUplink   Net // it has crossed the sender's cable
	forwarding    Net // it is in the switch (or past the cable) and unimpaired by now
	endOfDownlink Net // it has crossed the receiver's cable
	delivery      Net // it is at the receiver and unimpaired by now
	overdue       impairment
)

func (h *endOfUplink) HandleEvent(now mono.Time, arg uint64) {
	n := (*Net)(h)
	pk := n.packets[arg]
	from := pk.from
	if pk.epoch != from.epoch {
		n.drop(pk, from.cfg.Name, &from.upDrops.LinkDown, "lost-link")
		return
	}
	if from.impairUp != nil {
		from.impairUp.pass(pk)
		return
	}
	n.forward(pk)
}

func (h *forwarding) HandleEvent(_ mono.Time, arg uint64) {
	n := (*Net)(h)
	n.forward(n.packets[arg])
}

func (h *endOfDownlink) HandleEvent(now mono.Time, arg uint64) {
	n := (*Net)(h)
	pk := n.packets[arg]
	to := pk.to
	if pk.epoch != to.epoch {
		n.drop(pk, to.cfg.Name, &to.downDrops.LinkDown, "lost-link")
		return
	}
	n.arrive(pk)
}

func (h *delivery) HandleEvent(_ mono.Time, arg uint64) {
	n := (*Net)(h)
	n.deliver(n.packets[arg])
}

func (h *overdue) HandleEvent(now mono.Time, _ uint64) {
	im := (*impairment)(h)
	im.out = im.pipe.HandleTimer(now, im.out[:0])
	im.emit(im.port, im.port)
}

// forward finds where pk goes and sends it there, or a copy to each member of a
// multicast group, or to everybody. The sender gets one too if it has joined, as a
// socket with multicast loopback (the default) does: a stack then runs the same on
// both.
func (n *Net) forward(pk *packet) {
	dst := pk.Dst.Addr()
	switch {
	case dst == limitedBroadcast:
		n.fanout = n.everybody(n.fanout[:0], pk.from)
	case dst.IsMulticast():
		n.fanout = append(n.fanout[:0], n.groups[dst]...) // a receiver may leave at once
	default:
		to := n.byAddr[dst]
		if to == nil {
			n.drop(pk, pk.from.cfg.Name, &pk.from.upDrops.NoRoute, "no-route")
			return
		}
		n.forwardTo(pk, to)
		return
	}
	if len(n.fanout) == 0 {
		n.drop(pk, pk.from.cfg.Name, &pk.from.upDrops.NoRoute, "no-member")
		return
	}
	for _, to := range n.fanout {
		n.forwardTo(n.alloc(&pk.Datagram, pk.from, nil), to)
	}
	n.release(pk)
}

// forwardTo sends pk, which is at the sender's switch, to a port.
func (n *Net) forwardTo(pk *packet, to *Port) {
	pk.to = to
	to.stats.In.count(pk.IPBytes())
	switch {
	case !n.reachable(pk.from, to):
		n.drop(pk, to.cfg.Name, &to.downDrops.Partitioned, "partitioned")
	case pk.from.sw != to.sw:
		n.route(pk, pk.from.sw)
	default:
		n.egress(pk, to)
	}
}

// egress queues pk in the switch towards a port of its own. A cable has no
// switch: its far end is the port.
func (n *Net) egress(pk *packet, to *Port) {
	drops, now, size := &to.downDrops, n.w.now, pk.IPBytes()
	switch {
	case to.isDown:
		n.drop(pk, to.cfg.Name, &drops.LinkDown, "link-down")
		return
	case size > to.cfg.Link.MTU:
		n.drop(pk, to.cfg.Name, &drops.TooBig, "too-big")
		return
	case n.cfg.Cable:
		n.arrive(pk)
		return
	}
	queued := to.down.backlog(now)
	if queued+size > to.cfg.Link.QueueBytes {
		n.drop(pk, to.cfg.Name, &drops.QueueFull, "queue-full")
		return
	}
	to.stats.QueueBytesMax = max(to.stats.QueueBytesMax, queued+size)
	if e := &to.cfg.Link.ECN; e.MaxBytes > 0 && queued > e.MinBytes && e.marks(to.red, queued) && pk.mark() {
		to.stats.Marked++
	}
	pk.epoch = to.epoch
	n.w.At(to.down.send(now, size), (*endOfDownlink)(n), uint64(pk.id))
}

// marks decides whether a packet that met so long a queue, longer than MinBytes,
// is to be marked. A number is drawn for every such packet, ECN-capable or not, so
// that traffic that is not does not shift the marks of traffic that is.
func (e *ECNConfig) marks(red *rand.Rand, queued int) bool {
	draw := uint64(below(red, impair.PPM))
	return queued > e.MaxBytes ||
		draw*uint64(e.MaxBytes-e.MinBytes) < uint64(e.MaxPPM)*uint64(queued-e.MinBytes)
}

// mark marks pk as having met congestion, if its transport can be told so.
func (pk *packet) mark() bool {
	if ecn := pk.ECNBits(); ecn == link.NotECT || ecn == link.CE {
		return false
	}
	pk.TClass |= link.CE
	return true
}

// arrive is what happens to pk at the end of the last cable.
func (n *Net) arrive(pk *packet) {
	if im := pk.to.impairDown; im != nil {
		im.pass(pk)
		return
	}
	n.deliver(pk)
}

func (n *Net) deliver(pk *packet) {
	p := pk.to
	if p.closed {
		n.drop(pk, p.cfg.Name, &p.downDrops.NoRoute, "closed")
		return
	}
	if p.waitingBytes+pk.IPBytes() > p.cfg.Link.RxQueueBytes {
		n.drop(pk, p.cfg.Name, &p.downDrops.ReceiveFull, "receive-full")
		return
	}
	p.stats.Delivered++
	p.stats.DeliveredBytes += uint64(pk.IPBytes())
	if n.w.Tracing() {
		n.note(p.cfg.Name, "deliver", &pk.Datagram)
	}
	if n.tap != nil {
		n.tap(n.w.now, p, In, &pk.Datagram)
	}
	p.waiting.push(pk.id)
	p.waitingBytes += pk.IPBytes()
	if !p.frozen {
		p.readable.call(n.w.now)
	}
}
