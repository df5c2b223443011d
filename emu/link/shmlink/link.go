package shmlink

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// recvBatch is the largest number of datagrams that one Recv takes from a port, and recvBytes
	// the size of the buffer for their payloads, which fits in the cache of a processor.
	recvBatch = 64
	recvBytes = 128 << 10
	// publishBytes is the number of bytes that Send writes before it publishes them: the consumer
	// copies the first packets of a burst while Send writes the rest.
	publishBytes = 16 << 10
	// inPlaceBytes is the length from which payloads stay in the ring if AllowInPlace was called, and
	// heldShare the part of a ring, 1/heldShare, that they occupy until the next Recv.
	inPlaceBytes = 1024
	heldShare    = 4
	// noPort is the number of no port.
	noPort = -1
)

// Link is a link.PacketLink on a port of a cable. The package comment says which methods may be
// called concurrently.
type Link struct {
	memory   *mapping
	lock     *os.File // its lock marks the port as open
	closed   atomic.Bool
	mtu      int
	port     int
	local    netip.AddrPort
	isSwitch bool
	gateway  int // port of the switch that gets all datagrams; noPort without

	portOf  map[netip.Addr]int
	states  []sleepState // by port
	out     []producer   // by destination port
	in      []consumer   // by source port
	turn    int          // the port from which Recv takes first
	inPlace int          // length from which received payloads stay in the ring
	holds   bool         // some of those of the last Recv did
	buf     []byte       // payloads of the last Recv
	bufUsed int
	groups  map[netip.Addr]int

	lastDst  netip.Addr // destination of the last datagram sent, and its port
	lastPort int
	stats    Stats
}

var (
	_ link.Waiter      = (*Link)(nil)
	_ link.GroupLink   = (*Link)(nil)
	_ link.InPlaceLink = (*Link)(nil)
)

// MTU is the largest IP packet, headers included, that the link sends.
func (l *Link) MTU() int { return l.mtu }

// Features implements link.PacketLink: all fields are sent and seen.
func (l *Link) Features() link.Features {
	return link.Features{SeesIPID: true, SeesHeader: true, SetsIPID: true, SetsHeader: true}
}

// Stats returns the counters. It is not safe for concurrent use with Send and Recv.
func (l *Link) Stats() Stats { return l.stats }

// Counters returns the counters as those of a device. It is not safe for concurrent use with Send and
// Recv.
func (l *Link) Counters() []verbs.Counter {
	s := &l.stats
	return []verbs.Counter{
		{Name: "cable_sent", Value: s.SentDatagrams},
		{Name: "cable_received", Value: s.RecvDatagrams},
		{Name: "cable_sends_full", Value: s.SendFull},
		{Name: "cable_wakes", Value: s.Wakes},
		{Name: "cable_lost", Value: s.LostTooBig + s.LostUnreachable + s.LostPaused},
		{Name: "cable_unwanted", Value: s.RecvUnwanted},
		{Name: "cable_garbage", Value: s.Garbage},
	}
}

// Local returns the address and UDP port of the link; none for a switch.
func (l *Link) Local() netip.AddrPort { return l.local }

// Send implements link.PacketLink. It drops datagrams that exceed the MTU or have no receiver. At a
// full ring it stops, and the caller tries again later; but if the receiver has taken nothing for
// PauseLimit, Send drops datagrams to it.
func (l *Link) Send(now mono.Time, ds []link.Datagram) (taken int, err error) {
	if l.closed.Load() {
		return 0, link.ErrClosed
	}
	process.RaceSend() // the race detector does not see the memory of the cable
	last := noPort     // the port with unpublished records
	for ; taken < len(ds); taken++ {
		d := &ds[taken]
		if d.IPBytes() > l.mtu {
			l.stats.LostTooBig++
			continue
		}
		port := l.destination(d.Dst.Addr())
		switch {
		case port == allPorts:
			l.flood(d)
			continue
		case port == noPort:
			l.stats.LostUnreachable++
			continue
		case port != last && last != noPort:
			l.publish(last)
		}
		last = port
		p := &l.out[port]
		size := recordBytes(len(d.Payload))
		at, ok := p.place(size)
		if !ok {
			if p.paused(now) {
				l.stats.SendFull++
				break
			}
			l.stats.LostPaused++
			continue
		}
		l.append(p, at, size, d)
		if p.next-p.unpublished >= publishBytes {
			l.publish(port)
		}
	}
	if last != noPort {
		l.publish(last)
	}
	runtime.KeepAlive(l.memory)
	return taken, nil
}

// SendBuffer implements link.InPlaceLink. The memory is in the ring to the switch if the cable has
// one, else in that to the port of the last destination; it is nil before the first datagram, and
// after one to a group or to an unknown address.
func (l *Link) SendBuffer(n, maxLen int) []byte {
	port := l.lastPort
	if l.gateway != noPort {
		port = l.gateway
	}
	if port < 0 {
		return nil
	}
	return l.out[port].room(n, maxLen)
}

// AllowInPlace makes Recv return long payloads in the memory of the cable, without a copy. A process
// that writes where it should not may change them until the next Recv. So it is for callers that read
// each header once.
func (l *Link) AllowInPlace() { l.inPlace = inPlaceBytes }

// append writes a datagram to a ring, with the default hop limit and IPv4 identification.
func (l *Link) append(p *producer, at, size uint64, d *link.Datagram) {
	if d.HopLimit == 0 || d.IPID >= link.IPIDUnknown {
		c := *d
		if c.HopLimit == 0 {
			c.HopLimit = defaultHopLimit
		}
		c.IPID &= link.IPIDUnknown - 1
		d = &c
	}
	p.append(at, size, d)
	l.stats.SentDatagrams++
	l.stats.SentBytes += uint64(len(d.Payload))
}

// allPorts is the destination of datagrams to groups.
const allPorts = -2

// limitedBroadcast is 255.255.255.255.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// destination returns the port to which datagrams to an address go: the gateway if the cable has
// one, else the port with that address, allPorts for a group, or noPort.
func (l *Link) destination(dst netip.Addr) int {
	switch {
	case l.gateway != noPort:
		return l.gateway
	case dst == l.lastDst:
		return l.lastPort
	}
	addr := dst.Unmap().WithZone("")
	port, ok := l.portOf[addr]
	switch {
	case ok:
	case IsGroup(addr):
		port = allPorts
	default:
		port = noPort
	}
	l.lastDst, l.lastPort = dst, port
	return port
}

// IsGroup reports whether an address is that of a multicast group, or the limited broadcast.
func IsGroup(a netip.Addr) bool { return a.IsMulticast() || a == limitedBroadcast }

// flood sends a datagram to all ports that have room for it.
func (l *Link) flood(d *link.Datagram) {
	size := recordBytes(len(d.Payload))
	for i := range l.out {
		p := &l.out[i]
		at, ok := p.place(size)
		if !ok {
			l.stats.LostPaused++
			continue
		}
		l.append(p, at, size, d)
		l.publish(i)
	}
}

// SendTo sends a datagram to a port, whatever its destination is, and reports whether the link took
// it: false if the ring of the port is full. It is for a switch.
func (l *Link) SendTo(now mono.Time, port int, d *link.Datagram) bool {
	process.RaceSend()
	p := &l.out[port]
	size := recordBytes(len(d.Payload))
	at, ok := p.place(size)
	switch {
	case ok:
		l.append(p, at, size, d)
		l.publish(port)
	case p.paused(now):
		l.stats.SendFull++
		return false
	default:
		l.stats.LostPaused++
	}
	runtime.KeepAlive(l.memory)
	return true
}

// Ports returns the port of each address of the cable.
func (l *Link) Ports() map[netip.Addr]int { return maps.Clone(l.portOf) }

// publish makes the records for a port visible, and wakes its consumer if it sleeps.
func (l *Link) publish(port int) {
	l.out[port].publish()
	if l.states[port].wakeIfAsleep() {
		l.stats.Wakes++
	}
}

// Recv implements link.PacketLink. It takes the datagrams of one port after the other.
func (l *Link) Recv(_ mono.Time, ds []link.Datagram) (n int, err error) {
	if l.closed.Load() {
		return 0, link.ErrClosed
	}
	l.bufUsed = 0
	if l.holds {
		l.releaseHeld()
	}
	for range l.in {
		port := l.turn
		if l.turn++; l.turn == len(l.in) {
			l.turn = 0
		}
		c := &l.in[port]
		if !c.ready() {
			continue
		}
		if n = l.recvFrom(port, ds, n); c.held {
			l.holds = true
			c.hold()
		} else {
			c.release()
		}
	}
	if n > 0 {
		process.RaceReceived()
	}
	runtime.KeepAlive(l.memory)
	return n, nil
}

// releaseHeld releases the memory of the payloads that the last Recv returned.
func (l *Link) releaseHeld() {
	for i := range l.in {
		if l.in[i].held {
			l.in[i].release()
		}
	}
	l.holds = false
}

// recvFrom fills ds from index n on with datagrams of one port, and returns how many ds has then.
// It stops early if the buffer for payloads is full, or if payloads stay in the ring (held) and
// 1/heldShare of it has been read. An invalid record (garbage) makes it discard all that are in the
// ring.
func (l *Link) recvFrom(port int, ds []link.Datagram, n int) int {
	c := &l.in[port]
	heldLimit := c.next + uint64(len(c.data)/heldShare)
	for range recvBatch { // bounds the datagrams that are dropped, too
		if n == len(ds) || l.bufUsed+l.mtu > len(l.buf) || c.held && c.next >= heldLimit {
			return n
		}
		d := &ds[n]
		ok, garbage := c.take(d, l.buf[l.bufUsed:], l.inPlace)
		if garbage {
			l.stats.Garbage++
			c.skip()
		}
		if !ok {
			return n
		}
		if !l.wants(d) {
			l.stats.RecvUnwanted++
			continue
		}
		if l.isSwitch {
			d.Tag = uint32(port)
		}
		if len(d.Payload) < l.inPlace {
			l.bufUsed += int(recordBytes(len(d.Payload)))
		}
		l.stats.RecvDatagrams++
		l.stats.RecvBytes += uint64(len(d.Payload))
		n++
	}
	return n
}

// wants reports whether a datagram is for this link.
func (l *Link) wants(d *link.Datagram) bool {
	if d.Dst == l.local || l.isSwitch {
		return true
	}
	addr := d.Dst.Addr().Unmap()
	return d.Dst.Port() == l.local.Port() && (addr == l.local.Addr() || l.groups[addr] > 0)
}

// Join implements link.GroupLink. The group may be 255.255.255.255.
func (l *Link) Join(group netip.Addr) error {
	group = group.Unmap().WithZone("")
	switch {
	case l.closed.Load():
		return link.ErrClosed
	case !IsGroup(group):
		return fmt.Errorf("shmlink: join %v: not a multicast address", group)
	}
	if l.groups == nil {
		l.groups = make(map[netip.Addr]int)
	}
	l.groups[group]++
	return nil
}

// Leave implements link.GroupLink. The link leaves the group with the last Leave of as many Joins.
func (l *Link) Leave(group netip.Addr) error {
	group = group.Unmap().WithZone("")
	switch {
	case l.closed.Load():
		return link.ErrClosed
	case l.groups[group] == 0:
		return fmt.Errorf("shmlink: leave %v: %w", group, errNotJoined)
	}
	l.groups[group]--
	return nil
}

var errNotJoined = errors.New("not joined")

// WaitReadable implements link.Waiter.
func (l *Link) WaitReadable(d time.Duration) error {
	if l.closed.Load() {
		return link.ErrClosed
	}
	l.states[l.port].sleep(d, l.readable)
	runtime.KeepAlive(l.memory)
	return nil
}

// readable reports whether a ring has a record, or the link is closed.
func (l *Link) readable() bool {
	for i := range l.in {
		if !l.in[i].empty() {
			return true
		}
	}
	return l.closed.Load()
}

// Wake implements link.Waiter.
func (l *Link) Wake() {
	l.states[l.port].wake()
	runtime.KeepAlive(l.memory)
}
