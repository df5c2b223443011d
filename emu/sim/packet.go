package sim

import (
	"cmp"
	"errors"
	"hash/crc32"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
)

// packet is a datagram in flight. Packets and their buffers are pooled.
type packet struct {
	link.Datagram
	inUse    bool
	size     int // IPBytes
	from, to *Port
	dir      *linkDir // that it crosses
	epoch    uint32   // of the cable when sent: a link that goes down loses its packets
	arrival  entryOrder
	next     *packet // that arrives after it

	overtakenBy int // packets, on a cable that sprays
}

// pool keeps elements for reuse.
type pool[T any] struct {
	free []*T
	made int // elements ever made
}

// get returns an element of the pool, or a new one.
func (p *pool[T]) get() *T {
	k := len(p.free)
	if k == 0 {
		p.made++
		return new(T)
	}
	e := p.free[k-1]
	p.free = p.free[:k-1]
	return e
}

// put returns an element to the pool.
func (p *pool[T]) put(e *T) { p.free = append(p.free, e) }

// newPacket returns a packet of the pool with a copy of a datagram.
func (n *Net) newPacket(d *link.Datagram, from, to *Port) *packet {
	pk := n.packets.get()
	buf := append(pk.Payload[:0], d.Payload...)
	pk.Datagram = *d
	pk.Payload = buf
	pk.size = pk.IPBytes()
	pk.inUse, pk.from, pk.to, pk.overtakenBy = true, from, to, 0
	return pk
}

// releasePacket returns a packet to the pool.
func (n *Net) releasePacket(pk *packet) {
	if !pk.inUse {
		panic("sim: packet released twice")
	}
	pk.inUse = false
	n.packets.put(pk)
}

// normalize makes addresses canonical and fills in the header fields that the sender left empty.
func (p *Port) normalize(pk *packet) {
	dst := pk.Dst.Addr()
	if dst.Is4In6() || dst.Zone() != "" {
		dst = canonical(dst)
		pk.Dst = netip.AddrPortFrom(dst, pk.Dst.Port())
	}
	src := pk.Src.Addr()
	switch {
	case !src.IsValid():
		pk.Src = netip.AddrPortFrom(p.addrOfFamily(dst), pk.Src.Port())
	case src.Is4In6() || src.Zone() != "":
		pk.Src = netip.AddrPortFrom(canonical(src), pk.Src.Port())
	}
	if pk.HopLimit == 0 {
		pk.HopLimit = defaultHopLimit
	}
	// The ID is left to the network, which sets 0, or there is none: only IPv4 headers have an ID.
	if pk.IPID >= link.IPIDUnknown || !dst.Is4() {
		pk.IPID = 0
	}
}

const defaultHopLimit = 64

// addrOfFamily returns the port's first address of the family of a, or the unspecified address.
func (p *Port) addrOfFamily(a netip.Addr) netip.Addr {
	for _, own := range p.cfg.Addrs {
		if own.Is4() == a.Is4() {
			return own
		}
	}
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// drop counts, reports and releases a packet that is dropped at the start or end of d.
func (d *linkDir) drop(pk *packet, counter *uint64, cause string) {
	*counter++
	d.net.reportDrop(d.place, cause, &pk.Datagram)
	d.net.releasePacket(pk)
}

// reportDrop adds a drop to the trace and shows it to the DropTap, the observer of drops, if any.
func (n *Net) reportDrop(at, cause string, d *link.Datagram) {
	n.tracePacket(at, cause, d)
	if n.dropTap != nil {
		n.dropTap(n.w.now, at, cause, d)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tracePacket adds a line about d to the trace.
func (n *Net) tracePacket(at, action string, d *link.Datagram) {
	if !n.w.Tracing() {
		return
	}
	n.w.Tracef("%s %s %v>%v tc=%d hl=%d id=%d len=%d crc=%x", at, action, d.Src, d.Dst,
		d.TClass, d.HopLimit, d.IPID, len(d.Payload), crc32.Checksum(d.Payload, castagnoli))
}

// Defaults of LinkConfig.
const (
	DefaultMTU          = 1500
	DefaultTxQueueBytes = 256 << 10
	DefaultQueueBytes   = 64 << 20
	DefaultRxQueueBytes = 64 << 20
)

// PortConfig configures a port of a Net.
type PortConfig struct {
	// Name is unique in its Net; traces, schedules and random number generators use it. The default
	// is "port" and a number.
	Name string
	// Switch is the switch of the port, in a Net with several.
	Switch *Switch
	// Addrs are the IP addresses of the port; at least one.
	Addrs []netip.Addr
	Link  LinkConfig
	NIC   NICCosts
	// Placement is the order in which the writes of the NIC to memory become visible.
	Placement Placement
	// Up impairs packets that the port sends, Down those that it receives. Both
	// apply at the far end of the link: dropped packets have used its
	// bandwidth.
	Up, Down impair.Config
}

// LinkConfig configures a cable. Both directions are the same.
type LinkConfig struct {
	// RateBps is the bandwidth; 0 means unlimited.
	RateBps uint64
	// Latency is the propagation delay of the cable. A packet through a switch
	// crosses two cables.
	Latency time.Duration
	// MTU is the largest IP packet; larger packets are dropped and counted.
	MTU int
	// OverheadBytes is the framing per IP packet; 38 for Ethernet with
	// preamble, FCS and inter-frame gap.
	OverheadBytes int
	// TxQueueBytes is the size of the transmit queue. Send returns early if it
	// is full. One packet always fits.
	TxQueueBytes int
	// QueueBytes is the size of the switch's egress queue towards the port;
	// packets that do not fit are dropped and counted.
	QueueBytes int
	// RxQueueBytes is the size of the receive queue; packets that do not fit
	// are dropped and counted.
	RxQueueBytes int
	// Spray is how many later packets may overtake a packet on the cable, as they do if switches
	// choose the path of each packet (adaptive routing). World.Choose decides. 0 keeps the order.
	Spray int
	// ECN configures marking in the egress queue of the switch.
	ECN ECNConfig
}

// ECNConfig configures RED-style ECN marking by queue length: no packet up to
// MinBytes, every packet above MaxBytes, and in between with a probability that
// grows linearly to MaxPPM. MinBytes == MaxBytes is a step threshold. The zero
// value disables marking.
type ECNConfig struct {
	MinBytes, MaxBytes int
	MaxPPM             uint32
}

// withDefaults returns c with defaults for zero fields.
func (c LinkConfig) withDefaults() LinkConfig {
	c.MTU = cmp.Or(c.MTU, DefaultMTU)
	c.TxQueueBytes = cmp.Or(c.TxQueueBytes, DefaultTxQueueBytes)
	c.QueueBytes = cmp.Or(c.QueueBytes, DefaultQueueBytes)
	c.RxQueueBytes = cmp.Or(c.RxQueueBytes, DefaultRxQueueBytes)
	return c
}

// validate returns an error for values out of range.
func (c *LinkConfig) validate() error {
	var errs problems
	errs.check(c.MTU >= 68 && c.MTU <= 65535, "MTU %d: must be between 68 and 65535", c.MTU)
	errs.check(c.Latency >= 0, "Latency %v is negative", c.Latency)
	errs.check(c.OverheadBytes >= 0, "OverheadBytes %d is negative", c.OverheadBytes)
	errs.check(c.TxQueueBytes >= 0, "TxQueueBytes %d is negative", c.TxQueueBytes)
	errs.check(c.QueueBytes >= 0, "QueueBytes %d is negative", c.QueueBytes)
	errs.check(c.RxQueueBytes >= 0, "RxQueueBytes %d is negative", c.RxQueueBytes)
	errs.check(c.Spray >= 0, "Spray %d is negative", c.Spray)
	errs.check(c.ECN.MinBytes >= 0, "ECN.MinBytes %d is negative", c.ECN.MinBytes)
	errs.check(c.ECN.MaxBytes >= c.ECN.MinBytes,
		"ECN.MaxBytes %d is less than ECN.MinBytes %d", c.ECN.MaxBytes, c.ECN.MinBytes)
	errs.check(c.ECN.MaxPPM <= impair.PPM,
		"ECN.MaxPPM %d is more than %d, which is every packet", c.ECN.MaxPPM, impair.PPM)
	return errors.Join(errs...)
}
