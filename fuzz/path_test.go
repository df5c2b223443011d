package fuzz_test

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// path carries the datagrams of two devices. A program decides about each packet.
type path struct {
	world *sim.World
	prog  *program
	// hostile permits operations of an attacker: packets with a valid checksum that no device sent.
	hostile bool
	// seal sets the correct checksum of a packet. It may return a longer one.
	seal func(d *link.Datagram) []byte
	// values are numbers that an attacker puts into packets: keys, addresses, QP numbers.
	values []uint64
	// aim changes the address of a packet that accesses memory.
	aim     func(d *link.Datagram, key uint32, at uint64)
	regions []region

	gates [2]*gate
	skip  int             // packets to forward unchanged
	lose  int             // packets to lose
	seen  []link.Datagram // recent packets, for replays
	count int             // of packets, without ignored ones
	// ignored reports whether a packet is the device's own, such as a MAD, which has other timers.
	ignored func(payload []byte) bool
}

// region is a registered memory region.
type region struct {
	key     uint32
	at, end uint64
}

// gate is a device's end of the path.
type gate struct {
	*sim.Port
	path *path
	held *link.Datagram // forwarded after the next packet
}

func (p *path) gate(i int, port *sim.Port) *gate {
	p.gates[i] = &gate{Port: port, path: p}
	return p.gates[i]
}

// Send applies the program to packets.
func (g *gate) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	for i := range ds {
		d := ds[i]
		d.Payload = bytes.Clone(d.Payload)
		g.path.handle(g, &d)
	}
	return len(ds), nil
}

// forward sends a packet. It is lost if the port is full.
func (g *gate) forward(d *link.Datagram) {
	_, _ = g.Port.Send(g.path.world.Now(), []link.Datagram{*d})
}

func (g *gate) forwardLater(after time.Duration, d link.Datagram) {
	g.path.world.AfterFunc(after, func() { g.forward(&d) })
}

// Operations on a packet, by the low four bits of an octet of the program. The high bits are the
// number of packets to forward unchanged before. Operations of an attacker are last.
const (
	pathForward = iota
	pathDrop
	pathDuplicate
	pathDuplicateLater
	pathSwap
	pathDelay
	pathFlip // a bit, so that the checksum is wrong
	pathTruncate
	pathMark
	pathLoseRun
	pathNetworkOps // the number of the operations above

	pathForge       = iota - 1 // flip bits, with a valid checksum
	pathPut                    // insert a known value, with a valid checksum
	pathReplay                 // send an older packet again, changed, with a valid checksum
	pathInject                 // send any bytes with a valid checksum
	pathSpoofSource            // send a copy from another address
	pathReflect                // send a copy back to the sender
	pathOps
)

// handle applies the next operation of the program to a packet.
func (p *path) handle(g *gate, d *link.Datagram) {
	if p.ignored == nil || !p.ignored(d.Payload) {
		p.count++
	}
	if d.Src == (netip.AddrPort{}) { // ICRCs cover it: the port would fill it in
		d.Src = netip.AddrPortFrom(g.Addrs()[0], d.Dst.Port())
	}
	p.remember(d)
	switch {
	case p.lose > 0:
		p.lose--
	case p.skip > 0:
		p.skip--
		g.forward(d)
	default:
		op := p.prog.octet()
		p.skip = int(op >> 4)
		kinds := pathNetworkOps
		if p.hostile {
			kinds = pathOps
		}
		p.apply(g, int(op&15)%kinds, d)
	}
	if h := g.held; h != nil && d != h {
		g.held = nil
		g.forward(h)
	}
}

func (p *path) remember(d *link.Datagram) {
	if len(p.seen) == 16 {
		p.seen = slices.Delete(p.seen, 0, 1)
	}
	again := *d
	again.Payload = bytes.Clone(d.Payload)
	p.seen = append(p.seen, again)
}

func (p *path) apply(g *gate, op int, d *link.Datagram) {
	switch op {
	case pathDrop:
	case pathDuplicate:
		g.forward(d)
		g.forward(d)
	case pathDuplicateLater:
		g.forward(d)
		g.forwardLater(p.prog.pause(), *d)
	case pathSwap:
		if g.held == nil {
			g.held = d
			// There may be no next packet.
			p.world.AfterFunc(time.Millisecond, func() {
				if g.held == d {
					g.held = nil
					g.forward(d)
				}
			})
			return
		}
		g.forward(d)
	case pathDelay:
		g.forwardLater(p.prog.pause(), *d)
	case pathFlip:
		at := p.prog.word()
		if n := len(d.Payload); n > 0 {
			d.Payload[at/8%n] ^= 1 << (at & 7)
		}
		g.forward(d)
	case pathTruncate:
		d.Payload = d.Payload[:len(d.Payload)*int(p.prog.octet())/256]
		g.forward(d)
	case pathMark:
		if d.ECNBits() != link.NotECT {
			d.TClass |= link.CE
		}
		g.forward(d)
	case pathLoseRun:
		p.lose = int(p.prog.octet()) & 7
	case pathForward:
		g.forward(d)
	default:
		p.attack(g, op, d)
	}
}

// attack applies an operation of an attacker.
func (p *path) attack(g *gate, op int, d *link.Datagram) {
	other := p.gates[0]
	if g == other {
		other = p.gates[1]
	}
	switch op {
	case pathForge:
		p.forge(d)
		g.forward(d)
	case pathPut:
		p.putValue(d)
		g.forward(d)
	case pathReplay:
		g.forward(d)
		old := p.seen[int(p.prog.octet())%len(p.seen)]
		old.Payload = bytes.Clone(old.Payload)
		for n := p.prog.octet() & 3; n > 0; n-- {
			p.putValue(&old)
		}
		g.forward(&old)
	case pathInject:
		g.forward(d)
		raw := *d
		raw.Payload = bytes.Clone(p.prog.take(p.prog.word() & 0x3ff))
		raw.Payload = p.seal(&raw)
		g.forward(&raw)
	case pathSpoofSource:
		g.forward(d)
		forged := *d
		forged.Src = netip.AddrPortFrom(g.Addrs()[0].Next().Next(), d.Src.Port())
		forged.Payload = bytes.Clone(d.Payload)
		forged.Payload = p.seal(&forged)
		g.forward(&forged)
	case pathReflect:
		g.forward(d)
		back := *d
		back.Src, back.Dst = d.Dst, d.Src
		back.Payload = bytes.Clone(d.Payload)
		back.Payload = p.seal(&back)
		other.forward(&back)
	}
}

// forge flips some bits, mostly of the headers.
func (p *path) forge(d *link.Datagram) {
	for n := p.prog.octet()&3 + 1; n > 0; n-- {
		at := p.prog.word()
		reach := len(d.Payload)
		if at&0x8000 == 0 {
			reach = min(reach, 48)
		}
		if reach > 0 {
			d.Payload[at&0x7fff/8%reach] ^= 1 << (at & 7)
		}
	}
	d.Payload = p.seal(d)
}

// putValue writes a known value, or one near it, into the headers; or the key and an address of a
// region.
func (p *path) putValue(d *link.Datagram) {
	at, which, near := int(p.prog.octet()), p.prog.octet(), int8(p.prog.octet())
	if at >= 0xa0 {
		r := p.regions[int(which)%len(p.regions)]
		place := r.at + uint64(near)
		if near < 0 {
			place = r.end + uint64(int64(near))
		}
		p.aim(d, r.key, place)
		d.Payload = p.seal(d)
		return
	}
	size := []int{1, 2, 3, 4, 8}[at>>5%8%5]
	v := p.values[int(which)%len(p.values)] + uint64(int64(near))
	if at = at & 31 * 2; at+size > len(d.Payload) {
		return
	}
	for i := range size {
		d.Payload[at+i] = byte(v >> (8 * (size - 1 - i)))
	}
	d.Payload = p.seal(d)
}
