package sim

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Port attaches a host to a Net. It is a link.PacketLink and a link.GroupLink.
type Port struct {
	net *Net
	cfg PortConfig
	sw  *Switch // nil if the Net has only the default switch
	carrier
	uplink    linkDir // to the switch
	downlink  linkDir // from the switch, with its egress queue
	closed    bool
	frozen    bool
	partition int // group set by Net.Partition
	nic       portNIC
	lastPeer  peer

	receiveQueue
	joins map[netip.Addr]int
	portStreams

	portCallbacks
	writableTimer Timer
}

// receiveQueue has the packets that have arrived at a port.
type receiveQueue struct {
	rxQueue      nic.FIFO[*packet]
	rxQueueBytes int
	lentPackets  []*packet // returned by the last Recv
}

// portStreams are the streams of a port.
type portStreams struct {
	streams       []*Stream
	listeners     []*Listener
	ephemeralUsed int         // ephemeral ports allocated so far
	host          *StreamHost // nil until first used
}

// portCallbacks are called after changes of a port.
type portCallbacks struct{ readable, writable, linkChange, addrChange callback }

var _ link.GroupLink = (*Port)(nil)

// Stats are the counters of a port, or of one direction of a trunk.
type Stats struct {
	Sent, SentBytes           uint64 // put on the wire; bytes of IP packets
	Delivered, DeliveredBytes uint64 // put in the receive queue
	Marked                    uint64 // with ECN CE by the egress queue towards the port
	QueueBytesMax             int    // maximum length of that queue
	Drops                     Drops
	// DropsOut counts drops of packets that the port sent, DropsIn of packets
	// that it was to receive. Drops is their sum.
	DropsOut, DropsIn Drops
	// Out and In count all packets of each direction, dropped or not.
	Out, In Traffic
}

// Traffic counts packets.
type Traffic struct{ Packets, Bytes uint64 }

func (t *Traffic) count(bytes int) {
	t.Packets++
	t.Bytes += uint64(bytes)
}

// Drops counts dropped packets by cause. NoRoute and Expired count at the
// sender, TooBig and LinkDown at the port or trunk of the link, the rest at the
// receiver. Packets that an impairment drops are counted by its Pipe.
type Drops struct {
	NoRoute     uint64 // unknown address, empty group, closed port, or no trunk to its switch
	Expired     uint64 // hop limit exceeded
	TooBig      uint64 // larger than the MTU
	LinkDown    uint64 // the link was down, or went down while the packet was on it
	Partitioned uint64 // by Partition
	QueueFull   uint64 // egress queue of the switch
	ReceiveFull uint64 // receive queue of the port
}

// Total returns the sum of all causes.
func (d Drops) Total() uint64 {
	return d.NoRoute + d.Expired + d.TooBig + d.LinkDown + d.Partitioned + d.QueueFull + d.ReceiveFull
}

// plus returns the sums by cause.
func (d Drops) plus(e Drops) Drops {
	d.NoRoute += e.NoRoute
	d.Expired += e.Expired
	d.TooBig += e.TooBig
	d.LinkDown += e.LinkDown
	d.Partitioned += e.Partitioned
	d.QueueFull += e.QueueFull
	d.ReceiveFull += e.ReceiveFull
	return d
}

// callback is a Handler and its argument; a nil h is not called. It is also the Handler of a timer.
type callback struct {
	h   Handler
	arg uint64
}

func (k *callback) HandleEvent(now mono.Time, _ uint64) { k.call(now) }

// call runs the handler now, if there is one.
func (k callback) call(now mono.Time) {
	if k.h != nil {
		k.h.HandleEvent(now, k.arg)
	}
}

// schedule schedules the call for now, in an event of its own.
func (k callback) schedule(w *World) {
	if k.h != nil {
		w.At(w.now, k.h, k.arg)
	}
}

// OnReadable runs h, in an event, when a packet has entered the receive queue.
func (p *Port) OnReadable(h Handler, arg uint64) { p.readable = callback{h, arg} }

// OnWritable runs h when the transmit queue has room again after Send found it full.
func (p *Port) OnWritable(h Handler, arg uint64) { p.writable = callback{h, arg} }

// OnLinkChange runs h, in an event, after the link went down or came up; see Up.
func (p *Port) OnLinkChange(h Handler, arg uint64) { p.linkChange = callback{h, arg} }

// OnAddrChange runs h, in an event, after an address was added or removed; see Addrs.
func (p *Port) OnAddrChange(h Handler, arg uint64) { p.addrChange = callback{h, arg} }

// Send implements link.PacketLink. It uses the world's time instead of its argument. A datagram
// without a source address gets the port's; other source addresses are not checked. It stops at a
// datagram for which the queue has no room, and sends nothing while the port is frozen.
func (p *Port) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	if p.closed {
		return 0, p.errClosed("Send")
	}
	n, now, up := p.net, p.net.w.now, &p.uplink
	for i := range ds {
		d := &ds[i]
		size := d.IPBytes()
		if p.frozen {
			return i, nil
		}
		// An empty queue takes a packet of any size.
		onWire := up.backlog(now)
		if queued := onWire + p.nic.sendingBytes; queued > 0 && queued+size > p.cfg.Link.TxQueueBytes {
			if onWire > 0 {
				p.writableTimer.Reset(up.departures.First().at) // when the next packet leaves
			}
			p.nic.sendBlocked = onWire == 0 // a packet that leaves the NIC then sets the timer
			return i, nil
		}
		pk := n.newPacket(d, p, nil)
		pk.Tag = 0 // identifies the packet in captures: set below if there is a tap
		p.normalize(pk)
		p.processSend(pk)
	}
	return len(ds), nil
}

// transmit puts pk on the uplink, or drops it if it exceeds the MTU or the port is down.
func (p *Port) transmit(pk *packet) {
	n, up, size := p.net, &p.uplink, pk.size
	up.stats.Out.count(size)
	switch {
	case size > p.cfg.Link.MTU:
		up.drop(pk, &up.stats.Drops.TooBig, "too-big")
		return
	case p.isDown:
		up.drop(pk, &up.stats.Drops.LinkDown, "link-down")
		return
	}
	up.stats.Sent++
	up.stats.SentBytes += uint64(size)
	n.tracePacket(p.cfg.Name, "send", &pk.Datagram)
	if n.tap != nil {
		n.w.lastTag++
		pk.Tag = n.w.lastTag
		n.tap(n.w.now, p, Out, &pk.Datagram)
	}
	up.putOnWire(pk)
}

// Recv implements link.PacketLink. The payloads are valid until the next call.
func (p *Port) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	if p.closed {
		return 0, p.errClosed("Recv")
	}
	p.releaseLent()
	if p.frozen {
		return 0, nil
	}
	n := min(len(ds), p.rxQueue.Len())
	for i := range ds[:n] {
		pk, _ := p.rxQueue.Pop()
		p.rxQueueBytes -= pk.size
		ds[i] = pk.Datagram
		p.lentPackets = append(p.lentPackets, pk)
	}
	return n, nil
}

// releaseLent releases the packets returned by the last Recv.
func (p *Port) releaseLent() {
	for _, pk := range p.lentPackets {
		p.net.releasePacket(pk)
	}
	p.lentPackets = p.lentPackets[:0]
}

// MTU implements link.PacketLink.
func (p *Port) MTU() int { return p.cfg.Link.MTU }

// Features implements link.PacketLink: a simulated port sees and sets all header fields.
func (p *Port) Features() link.Features {
	return link.Features{SeesIPID: true, SeesHeader: true, SetsIPID: true, SetsHeader: true, Deterministic: true}
}

// Close detaches the port: it loses its addresses and groups, its streams are
// aborted, and packets on their way to it are dropped.
func (p *Port) Close() error {
	if p.closed {
		return p.errClosed("Close")
	}
	for len(p.streams) > 0 {
		_ = p.streams[len(p.streams)-1].Abort(p.net.w.now) // removes it from the list
	}
	for len(p.listeners) > 0 {
		_ = p.listeners[0].Close() // removes it from the list, too
	}
	p.closed = true
	if p.host != nil {
		p.host.closed = true
	}
	n := p.net
	for _, a := range p.cfg.Addrs {
		delete(n.byAddr, a)
	}
	n.addrChanges++
	for g := range p.joins { //layers:ordered in any order, each group loses one member
		n.removeMember(g, p)
	}
	p.joins = nil
	for pk, ok := p.rxQueue.Pop(); ok; pk, ok = p.rxQueue.Pop() {
		n.releasePacket(pk)
	}
	p.releaseLent()
	p.writableTimer.Stop()
	return nil
}

// errClosed returns the error of a call on a closed port.
func (p *Port) errClosed(call string) error {
	return fmt.Errorf("%s on port %s: %w", call, p.cfg.Name, link.ErrClosed)
}

// Join implements link.GroupLink. Packets to 255.255.255.255 reach every port
// but the sender without a join; a port that joins also receives its own.
func (p *Port) Join(group netip.Addr) error {
	group = canonical(group)
	if p.closed {
		return p.errClosed("Join")
	}
	if !isGroup(group) {
		return fmt.Errorf("port %s: join %v: not a multicast address", p.cfg.Name, group)
	}
	if p.joins == nil {
		p.joins = make(map[netip.Addr]int)
	}
	if p.joins[group]++; p.joins[group] == 1 {
		p.net.groups[group] = append(p.net.groups[group], p)
	}
	return nil
}

// Leave implements link.GroupLink. The port leaves the group with the last Leave of as many Joins.
func (p *Port) Leave(group netip.Addr) error {
	group = canonical(group)
	if p.closed {
		return p.errClosed("Leave")
	}
	if p.joins[group] == 0 {
		return fmt.Errorf("port %s: leave %v: not joined", p.cfg.Name, group)
	}
	if p.joins[group]--; p.joins[group] == 0 {
		delete(p.joins, group)
		p.net.removeMember(group, p)
	}
	return nil
}

// removeMember removes p from the members of a multicast group.
func (n *Net) removeMember(group netip.Addr, p *Port) {
	members := remove(n.groups[group], p)
	if len(members) == 0 {
		delete(n.groups, group)
		return
	}
	n.groups[group] = members
}

// Name returns the port's name.
func (p *Port) Name() string { return p.cfg.Name }

// Addrs returns the port's addresses. The slice is not modified when they change.
func (p *Port) Addrs() []netip.Addr { return p.cfg.Addrs }

// Net returns the port's network.
func (p *Port) Net() *Net { return p.net }

// Stats returns the counters of packets sent on the port's uplink and received on its downlink.
func (p *Port) Stats() Stats {
	up, down := &p.uplink.stats, &p.downlink.stats
	s := *down
	s.Sent, s.SentBytes, s.Out = up.Sent, up.SentBytes, up.Out
	s.Drops, s.DropsOut, s.DropsIn = up.Drops.plus(down.Drops), up.Drops, down.Drops
	return s
}

// Impairments returns the pipes of sent (up) and received (down) packets; nil
// if there is no impairment.
func (p *Port) Impairments() (up, down *impair.Pipe) {
	return p.uplink.pipe(), p.downlink.pipe()
}
