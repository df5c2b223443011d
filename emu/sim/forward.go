package sim

import (
	"math/rand/v2"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Handlers of a packet at the stages of its path; arg is the packet's id.
type (
	uplinkArrival       Net // the packet has crossed the sender's cable
	afterUpImpairment   Net // the packet has passed impairUp and is in the switch
	downlinkArrival     Net // the packet has crossed the receiver's cable
	afterDownImpairment Net // the packet has passed impairDown
	impairTimerHandler  impairment
)

func (h *uplinkArrival) HandleEvent(now mono.Time, arg uint64) {
	n := (*Net)(h)
	pk := n.packets[arg]
	from := pk.from
	if pk.epoch != from.epoch {
		n.drop(pk, from.cfg.Name, &from.txDrops.LinkDown, "lost-link")
		return
	}
	if from.impairUp != nil {
		from.impairUp.apply(pk)
		return
	}
	n.forward(pk)
}

func (h *afterUpImpairment) HandleEvent(_ mono.Time, arg uint64) {
	n := (*Net)(h)
	n.forward(n.packets[arg])
}

func (h *downlinkArrival) HandleEvent(now mono.Time, arg uint64) {
	n := (*Net)(h)
	pk := n.packets[arg]
	to := pk.to
	if pk.epoch != to.epoch {
		n.drop(pk, to.cfg.Name, &to.rxDrops.LinkDown, "lost-link")
		return
	}
	n.arrive(pk)
}

func (h *afterDownImpairment) HandleEvent(_ mono.Time, arg uint64) {
	n := (*Net)(h)
	n.deliver(n.packets[arg])
}

func (h *impairTimerHandler) HandleEvent(now mono.Time, _ uint64) {
	im := (*impairment)(h)
	im.out = im.pipe.HandleTimer(now, im.out[:0])
	im.emit(im.port, im.port)
}

// forward sends pk to its destination, or a copy to each receiver of a
// multicast or broadcast. The sender receives its own multicast if it has
// joined, as with IP_MULTICAST_LOOP.
func (n *Net) forward(pk *packet) {
	dst := pk.Dst.Addr()
	switch {
	case dst == limitedBroadcast:
		n.receivers = n.broadcastReceivers(n.receivers[:0], pk.from)
	case dst.IsMulticast():
		n.receivers = append(n.receivers[:0], n.groups[dst]...) // copied: a receiver may leave in its handler
	default:
		to := n.byAddr[dst]
		if to == nil {
			n.drop(pk, pk.from.cfg.Name, &pk.from.txDrops.NoRoute, "no-route")
			return
		}
		n.forwardTo(pk, to)
		return
	}
	if len(n.receivers) == 0 {
		n.drop(pk, pk.from.cfg.Name, &pk.from.txDrops.NoRoute, "no-member")
		return
	}
	for _, to := range n.receivers {
		n.forwardTo(n.newPacket(&pk.Datagram, pk.from, nil), to)
	}
	n.releasePacket(pk)
}

// forwardTo sends pk from the sender's switch to a port.
func (n *Net) forwardTo(pk *packet, to *Port) {
	pk.to = to
	to.stats.In.count(pk.IPBytes())
	switch {
	case !n.reachable(pk.from, to):
		n.drop(pk, to.cfg.Name, &to.rxDrops.Partitioned, "partitioned")
	case pk.from.sw != to.sw:
		n.route(pk, pk.from.sw)
	default:
		n.egress(pk, to)
	}
}

// egress queues pk in the switch towards its port. A cable has no switch: pk
// arrives at once.
func (n *Net) egress(pk *packet, to *Port) {
	drops, now, size := &to.rxDrops, n.w.now, pk.IPBytes()
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
	queued := to.downlink.backlog(now)
	if queued+size > to.cfg.Link.QueueBytes {
		n.drop(pk, to.cfg.Name, &drops.QueueFull, "queue-full")
		return
	}
	to.stats.QueueBytesMax = max(to.stats.QueueBytesMax, queued+size)
	if e := &to.cfg.Link.ECN; e.MaxBytes > 0 && queued > e.MinBytes && e.shouldMark(to.ecnRand, queued) && pk.markCE() {
		to.stats.Marked++
	}
	pk.epoch = to.epoch
	n.w.At(to.downlink.send(now, size), (*downlinkArrival)(n), uint64(pk.id))
}

// shouldMark decides whether to mark a packet that found a queue longer than
// MinBytes. It draws a random number for every packet, so that packets without
// ECT do not shift the marks of the others.
func (e *ECNConfig) shouldMark(red *rand.Rand, queued int) bool {
	draw := uint64(randBelow(red, impair.PPM))
	return queued > e.MaxBytes ||
		draw*uint64(e.MaxBytes-e.MinBytes) < uint64(e.MaxPPM)*uint64(queued-e.MinBytes)
}

// markCE sets CE if pk has an ECT codepoint.
func (pk *packet) markCE() bool {
	if ecn := pk.ECNBits(); ecn == link.NotECT || ecn == link.CE {
		return false
	}
	pk.TClass |= link.CE
	return true
}

// arrive handles pk at the end of the last cable.
func (n *Net) arrive(pk *packet) {
	if im := pk.to.impairDown; im != nil {
		im.apply(pk)
		return
	}
	n.deliver(pk)
}

// deliver puts a packet into the receive queue of its port, or drops it.
func (n *Net) deliver(pk *packet) {
	p := pk.to
	if p.closed {
		n.drop(pk, p.cfg.Name, &p.rxDrops.NoRoute, "closed")
		return
	}
	if p.rxQueueBytes+pk.IPBytes() > p.cfg.Link.RxQueueBytes {
		n.drop(pk, p.cfg.Name, &p.rxDrops.ReceiveFull, "receive-full")
		return
	}
	p.stats.Delivered++
	p.stats.DeliveredBytes += uint64(pk.IPBytes())
	if n.w.Tracing() {
		n.tracePacket(p.cfg.Name, "deliver", &pk.Datagram)
	}
	if n.tap != nil {
		n.tap(n.w.now, p, In, &pk.Datagram)
	}
	p.rxQueue.push(pk.id)
	p.rxQueueBytes += pk.IPBytes()
	if !p.frozen {
		p.readable.call(n.w.now)
	}
}

// limitedBroadcast is the IPv4 limited broadcast address (RFC 919). IPv6 hosts
// join the all-nodes group instead.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isGroup reports whether a is a multicast or broadcast address.
func isGroup(a netip.Addr) bool { return a.IsMulticast() || a == limitedBroadcast }

// broadcastReceivers appends the ports of the sender's broadcast domain, joined
// or not. The sender receives its own broadcast only if it has joined, as a
// host loops it back only to sockets bound to that address.
func (n *Net) broadcastReceivers(to []*Port, sender *Port) []*Port {
	for _, p := range n.ports {
		switch {
		case p.closed || !n.sameDomain(sender.sw, p.sw):
		case p != sender || p.joins[limitedBroadcast] > 0:
			to = append(to, p)
		}
	}
	return to
}

// sameDomain reports whether two switches are in one broadcast domain, without
// a router on the path.
func (n *Net) sameDomain(a, b *Switch) bool {
	if a == b {
		return true
	}
	if !n.routesValid {
		n.computeRoutes()
	}
	return a.domain == b.domain
}

// computeBroadcastDomains numbers the broadcast domains. Each router is a
// domain with its own ports.
func (n *Net) computeBroadcastDomains() {
	for _, s := range n.switches {
		s.domain = -1
	}
	for i, s := range n.switches {
		if s.domain < 0 {
			s.joinDomain(i)
		}
	}
}

// joinDomain adds s and the switches reachable without a router to a domain.
func (s *Switch) joinDomain(domain int) {
	s.domain = domain
	for _, w := range s.out {
		if !s.cfg.Routed && !w.to.cfg.Routed && w.to.domain < 0 {
			w.to.joinDomain(domain)
		}
	}
}
