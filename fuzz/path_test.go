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

// path is the way between two devices that send datagrams: a program decides
// packet by packet, of both directions, what becomes of it.
type path struct {
	world *sim.World
	prog  *program
	// hostile says that the program may do what a network does not: make packets that
	// the receiver has to believe.
	hostile bool
	// seal makes the checksum of a packet right, whatever else is in it. It may return
	// a longer one.
	seal func(d *link.Datagram) []byte
	// values are numbers that a hostile one puts into packets: keys, addresses, QP
	// numbers.
	values []uint64
	// aim makes a packet that reaches for memory reach for another place, if it is one.
	aim     func(d *link.Datagram, key uint32, at uint64)
	regions []region

	gates [2]*gate
	skip  int             // packets to leave alone
	lose  int             // packets to lose
	seen  []link.Datagram // what passed lately, for replays
	count int             // of packets that the queue pairs of programs sent
	// aside reports whether a packet is of the devices' own, whose timers are not the
	// programs'.
	aside func(payload []byte) bool
}

// region is memory that somebody has registered.
type region struct {
	key     uint32
	at, end uint64
}

// gate is a device's end of the path: its port, with the path behind it.
type gate struct {
	*sim.Port
	path *path
	held *link.Datagram // until the next one has passed
}

func (p *path) gate(i int, port *sim.Port) *gate {
	p.gates[i] = &gate{Port: port, path: p}
	return p.gates[i]
}

// Send lets the program have the packets first.
func (g *gate) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	for i := range ds {
		d := ds[i]
		d.Payload = bytes.Clone(d.Payload)
		g.path.pass(g, &d)
	}
	return len(ds), nil
}

// put has a packet go on. It is lost where the port is full, as in any network.
func (g *gate) put(d *link.Datagram) {
	_, _ = g.Port.Send(g.path.world.Now(), []link.Datagram{*d})
}

func (g *gate) later(after time.Duration, d link.Datagram) {
	g.path.world.AfterFunc(after, func() { g.put(&d) })
}

// What an octet of the program asks for, in its low four bits; its high ones are
// how many packets to leave alone before. What only a hostile one does comes last.
const (
	pathLeave = iota
	pathDrop
	pathTwice
	pathTwiceLater
	pathSwap
	pathDelay
	pathFlip // a bit, so that the checksum is wrong
	pathCut
	pathMark
	pathLoseRun
	pathHonest // how many of them there are

	pathForge    = iota - 1 // bits flipped, and sealed again
	pathPut                 // a known value put somewhere, and sealed again
	pathReplay              // an older packet again, changed and sealed
	pathInject              // anything, sealed
	pathStranger            // the packet comes from somebody else besides
	pathReflect             // it goes back to who sent it besides
	pathAll
)

// pass decides what becomes of a packet.
func (p *path) pass(g *gate, d *link.Datagram) {
	if p.aside == nil || !p.aside(d.Payload) {
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
		g.put(d)
	default:
		op := p.prog.octet()
		p.skip = int(op >> 4)
		kinds := pathHonest
		if p.hostile {
			kinds = pathAll
		}
		p.do(g, int(op&15)%kinds, d)
	}
	if h := g.held; h != nil && d != h {
		g.held = nil
		g.put(h)
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

func (p *path) do(g *gate, op int, d *link.Datagram) {
	switch op {
	case pathDrop:
	case pathTwice:
		g.put(d)
		g.put(d)
	case pathTwiceLater:
		g.put(d)
		g.later(p.prog.pause(), *d)
	case pathSwap:
		if g.held == nil {
			g.held = d
			// Nobody may come behind it.
			p.world.AfterFunc(time.Millisecond, func() {
				if g.held == d {
					g.held = nil
					g.put(d)
				}
			})
			return
		}
		g.put(d)
	case pathDelay:
		g.later(p.prog.pause(), *d)
	case pathFlip:
		at := p.prog.word()
		if n := len(d.Payload); n > 0 {
			d.Payload[at/8%n] ^= 1 << (at & 7)
		}
		g.put(d)
	case pathCut:
		d.Payload = d.Payload[:len(d.Payload)*int(p.prog.octet())/256]
		g.put(d)
	case pathMark:
		if d.ECNBits() != link.NotECT {
			d.TClass |= link.CE
		}
		g.put(d)
	case pathLoseRun:
		p.lose = int(p.prog.octet()) & 7
	case pathLeave:
		g.put(d)
	default:
		p.harm(g, op, d)
	}
}

// harm does what only somebody does who wants to.
func (p *path) harm(g *gate, op int, d *link.Datagram) {
	other := p.gates[0]
	if g == other {
		other = p.gates[1]
	}
	switch op {
	case pathForge:
		p.forge(d)
		g.put(d)
	case pathPut:
		p.putValue(d)
		g.put(d)
	case pathReplay:
		g.put(d)
		old := p.seen[int(p.prog.octet())%len(p.seen)]
		old.Payload = bytes.Clone(old.Payload)
		for n := p.prog.octet() & 3; n > 0; n-- {
			p.putValue(&old)
		}
		g.put(&old)
	case pathInject:
		g.put(d)
		raw := *d
		raw.Payload = bytes.Clone(p.prog.take(p.prog.word() & 0x3ff))
		raw.Payload = p.seal(&raw)
		g.put(&raw)
	case pathStranger:
		g.put(d)
		alien := *d
		alien.Src = netip.AddrPortFrom(g.Addrs()[0].Next().Next(), d.Src.Port())
		alien.Payload = bytes.Clone(d.Payload)
		alien.Payload = p.seal(&alien)
		g.put(&alien)
	case pathReflect:
		g.put(d)
		back := *d
		back.Src, back.Dst = d.Dst, d.Src
		back.Payload = bytes.Clone(d.Payload)
		back.Payload = p.seal(&back)
		other.put(&back)
	}
}

// forge flips a few bits, most often of the headers.
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

// putValue puts a known value, or one near it, somewhere into the headers; or both
// the key and a place of a region.
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
