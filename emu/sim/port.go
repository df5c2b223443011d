package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Port is a host's place in a Net: a link.PacketLink and a link.GroupLink.
type Port struct {
	net    *Net
	cfg    PortConfig
	sw     *Switch // nil where the Net has no more than one
	up     wire    // to the switch
	down   wire    // from the switch, with the switch's queue before it
	red    *rand.Rand
	closed bool

	isDown bool
	frozen bool
	epoch  uint32 // how often the link went down
	group  int    // of the partition

	impairUp, impairDown *impairment

	waiting      ring[uint32] // packets to be received
	waitingBytes int
	lent         []uint32 // packets given out by the last Recv
	joins        map[netip.Addr]int
	streams      []*Stream
	listening    []*Listener
	ephemeral    int         // port numbers given to dialers and listeners so far
	host         *StreamHost // nil until it is asked for

	readable, writable, linkChange, addrChange hook
	writableTimer                              Timer

	stats              Stats   // without drops
	upDrops, downDrops Drops   // of what it sent, and of what it was to receive
	refused            Traffic // lost before it was on the wire
}

var _ link.GroupLink = (*Port)(nil)

// TxQueueBytes is how much may wait in the port to be sent.
func (p *Port) TxQueueBytes() int { return p.cfg.Link.TxQueueBytes }

// Stats counts what happened at a port.
type Stats struct {
	Sent, SentBytes           uint64 // put on the wire; bytes are those of IP packets
	Delivered, DeliveredBytes uint64 // put in the receive queue
	Marked                    uint64 // by the switch's queue towards the port
	QueueBytesMax             int    // the longest that queue has been
	Drops                     Drops
	// DropsOut and DropsIn are their parts: of what the port sent, and of what it
	// was to receive.
	DropsOut, DropsIn Drops
	// Out and In are all that was to pass the cable either way, lost or not.
	Out, In Traffic
}

// Traffic counts packets.
type Traffic struct{ Packets, Bytes uint64 }

func (t *Traffic) count(bytes int) {
	t.Packets++
	t.Bytes += uint64(bytes)
}

// Drops counts lost packets by cause. NoRoute and Expired count at the sender.
// TooBig and LinkDown count at the port or the trunk whose cable it was; the rest
// at the receiver. What an impairment lost is in its own counters.
type Drops struct {
	NoRoute     uint64 // no port has the address, no port is in the group, it is closed, or no trunk leads there
	Expired     uint64 // the hop limit was used up
	TooBig      uint64 // larger than the MTU
	LinkDown    uint64 // the link was down, or went down on the way
	Partitioned uint64 // Partition or Block stood between
	QueueFull   uint64 // the switch's queue
	ReceiveFull uint64 // nobody called Recv
}

// Total returns the sum of all causes.
func (d Drops) Total() uint64 {
	return d.NoRoute + d.Expired + d.TooBig + d.LinkDown + d.Partitioned + d.QueueFull + d.ReceiveFull
}

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

// hook is a handler of the driver's, nil if there is none.
type hook struct {
	h   Handler
	arg uint64
}

func (k hook) call(now mono.Time) {
	if k.h != nil {
		k.h.HandleEvent(now, k.arg)
	}
}

// OnReadable runs h, in an event, whenever a packet has come to be received.
func (p *Port) OnReadable(h Handler, arg uint64) { p.readable = hook{h, arg} }

// OnWritable runs h when there is room again after Send reported that there was
// none.
func (p *Port) OnWritable(h Handler, arg uint64) { p.writable = hook{h, arg} }

// OnLinkChange runs h, in an event, when the link has gone down or come up; Up
// says which it is by then.
func (p *Port) OnLinkChange(h Handler, arg uint64) { p.linkChange = hook{h, arg} }

// OnAddrChange runs h, in an event, when the port has got an address or lost one;
// Addrs says which it has by then.
func (p *Port) OnAddrChange(h Handler, arg uint64) { p.addrChange = hook{h, arg} }

// Send implements link.PacketLink. now is the world's time in any case. A
// datagram without a source gets the port's address; one with a source that is
// not the port's is sent as it is.
func (p *Port) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	if p.closed {
		return 0, p.errClosed("Send")
	}
	n, now, l := p.net, p.net.w.now, &p.cfg.Link
	for i := range ds {
		d := &ds[i]
		size := d.IPBytes()
		if p.frozen {
			return i, nil
		}
		if queued := p.up.backlog(now); queued > 0 && queued+size > l.TxQueueBytes {
			p.writableTimer.Reset(p.up.nextDeparture())
			return i, nil
		}
		pk := n.alloc(d, p, nil)
		pk.Tag = 0
		p.normalize(pk)
		switch {
		case size > l.MTU:
			p.refused.count(size)
			n.drop(pk, p.cfg.Name, &p.upDrops.TooBig, "too-big")
			continue
		case p.isDown:
			p.refused.count(size)
			n.drop(pk, p.cfg.Name, &p.upDrops.LinkDown, "link-down")
			continue
		}
		pk.epoch = p.epoch
		p.stats.Sent++
		p.stats.SentBytes += uint64(size)
		if n.w.Tracing() {
			n.note(p.cfg.Name, "send", &pk.Datagram)
		}
		if n.tap != nil {
			n.w.tagged++
			pk.Tag = n.w.tagged
			n.tap(now, p, Out, &pk.Datagram)
		}
		n.w.At(p.up.send(now, size), (*endOfUplink)(n), uint64(pk.id))
	}
	return len(ds), nil
}

// becomesWritable is a Port as the handler of its writableTimer.
type becomesWritable Port

func (h *becomesWritable) HandleEvent(now mono.Time, _ uint64) { h.writable.call(now) }

// Recv implements link.PacketLink.
func (p *Port) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	if p.closed {
		return 0, p.errClosed("Recv")
	}
	p.reclaim()
	if p.frozen {
		return 0, nil
	}
	n := min(len(ds), p.waiting.len())
	for i := range ds[:n] {
		id := p.waiting.pop()
		pk := p.net.packets[id]
		p.waitingBytes -= pk.IPBytes()
		ds[i] = pk.Datagram
		p.lent = append(p.lent, id)
	}
	return n, nil
}

// reclaim takes back what the last Recv gave out.
func (p *Port) reclaim() {
	for _, id := range p.lent {
		p.net.release(p.net.packets[id])
	}
	p.lent = p.lent[:0]
}

// MTU implements link.PacketLink.
func (p *Port) MTU() int { return p.cfg.Link.MTU }

// Features implements link.PacketLink: a simulated port sees and sets everything.
func (p *Port) Features() link.Features {
	return link.Features{SeesIPID: true, SeesHeader: true, SetsIPID: true, SetsHeader: true, Deterministic: true}
}

// Close takes the port off the network: its addresses and groups are gone, its
// streams are aborted, and what is still on the way to it is lost.
func (p *Port) Close() error {
	if p.closed {
		return p.errClosed("Close")
	}
	p.closeStreams()
	p.closed = true
	if p.host != nil {
		p.host.closed = true
	}
	n := p.net
	for _, a := range p.cfg.Addrs {
		delete(n.byAddr, a)
	}
	for g := range p.joins { //layers:ordered each group loses one member
		n.removeMember(g, p)
	}
	p.joins = nil
	for p.waiting.len() > 0 {
		n.release(n.packets[p.waiting.pop()])
	}
	p.reclaim()
	p.writableTimer.Stop()
	return nil
}

func (p *Port) errClosed(call string) error {
	return fmt.Errorf("%s on port %s: %w", call, p.cfg.Name, link.ErrClosed)
}

// Join implements link.GroupLink. What is sent to 255.255.255.255 reaches every
// port but the sender's; joining it makes a port hear its own.
func (p *Port) Join(group netip.Addr) error {
	group = plain(group)
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

// Leave implements link.GroupLink.
func (p *Port) Leave(group netip.Addr) error {
	group = plain(group)
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

func (n *Net) removeMember(group netip.Addr, p *Port) {
	members := n.groups[group]
	if i := slices.Index(members, p); i >= 0 {
		members = slices.Delete(members, i, i+1)
	}
	if len(members) == 0 {
		delete(n.groups, group)
		return
	}
	n.groups[group] = members
}

// Name returns the port's name.
func (p *Port) Name() string { return p.cfg.Name }

// Addrs returns the port's addresses. The slice is the port's own, and stays as it
// is when they change.
func (p *Port) Addrs() []netip.Addr { return p.cfg.Addrs }

// Net returns the network that the port is on.
func (p *Port) Net() *Net { return p.net }

// Stats returns the port's counters.
func (p *Port) Stats() Stats {
	s := p.stats
	s.Out = Traffic{s.Sent + p.refused.Packets, s.SentBytes + p.refused.Bytes}
	s.Drops, s.DropsOut, s.DropsIn = p.upDrops.plus(p.downDrops), p.upDrops, p.downDrops
	return s
}

// Impairments returns the pipes that packets to the network and from it pass;
// nil where nothing is impaired.
func (p *Port) Impairments() (up, down *impair.Pipe) {
	return p.impairUp.pipeOrNil(), p.impairDown.pipeOrNil()
}
