package sim

import (
	"hash/crc32"
	"net/netip"
	"strconv"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
)

// packet is a datagram under way. Packets are pooled with their buffers: the
// network allocates only while more are under way than ever before.
type packet struct {
	link.Datagram
	id       uint32
	inUse    bool
	epoch    uint32 // of the link it is on: a link that went down lost its packets
	from, to *Port
	way      *way // the trunk that it is on
}

func (n *Net) alloc(d *link.Datagram, from, to *Port) *packet {
	var pk *packet
	if k := len(n.free); k > 0 {
		pk = n.packets[n.free[k-1]]
		n.free = n.free[:k-1]
	} else {
		pk = &packet{id: uint32(len(n.packets))}
		n.packets = append(n.packets, pk)
	}
	buf := append(pk.Payload[:0], d.Payload...)
	pk.Datagram = *d
	pk.Payload = buf
	pk.inUse, pk.from, pk.to = true, from, to
	return pk
}

func (n *Net) release(pk *packet) {
	if !pk.inUse {
		panic("sim: packet released twice")
	}
	pk.inUse = false
	n.free = append(n.free, pk.id)
}

// normalize makes pk what it is on the wire: plain addresses, and the header
// fields that the sender left to the link.
func (p *Port) normalize(pk *packet) {
	dst := pk.Dst.Addr()
	if dst.Is4In6() || dst.Zone() != "" {
		dst = plain(dst)
		pk.Dst = netip.AddrPortFrom(dst, pk.Dst.Port())
	}
	src := pk.Src.Addr()
	switch {
	case !src.IsValid():
		pk.Src = netip.AddrPortFrom(p.addrLike(dst), pk.Src.Port())
	case src.Is4In6() || src.Zone() != "":
		pk.Src = netip.AddrPortFrom(plain(src), pk.Src.Port())
	}
	if pk.HopLimit == 0 {
		pk.HopLimit = defaultHopLimit
	}
	if pk.IPID >= link.IPIDUnknown || !dst.Is4() {
		pk.IPID = 0
	}
}

const defaultHopLimit = 64

// addrLike returns the port's first address of the same family as a, or an
// unspecified one: a datagram without a source is still a datagram.
func (p *Port) addrLike(a netip.Addr) netip.Addr {
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

// drop ends pk and counts it under the cause that counter stands for.
func (n *Net) drop(pk *packet, at string, counter *uint64, cause string) {
	*counter++
	n.dropped(at, cause, &pk.Datagram)
	n.release(pk)
}

// dropped tells the trace and the tap that d went no further.
func (n *Net) dropped(at, cause string, d *link.Datagram) {
	n.note(at, cause, d)
	if n.dropTap != nil {
		n.dropTap(n.w.now, at, cause, d)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// note adds a line about d at some place to the world's trace.
func (n *Net) note(at, what string, d *link.Datagram) {
	w := n.w
	if !w.Tracing() {
		return
	}
	b := append(append(append(w.traceStart(), at...), ' '), what...)
	b = d.Src.AppendTo(append(b, ' '))
	b = d.Dst.AppendTo(append(b, '>'))
	b = strconv.AppendUint(append(b, " tc="...), uint64(d.TClass), 10)
	b = strconv.AppendUint(append(b, " hl="...), uint64(d.HopLimit), 10)
	b = strconv.AppendUint(append(b, " id="...), uint64(d.IPID), 10)
	b = strconv.AppendInt(append(b, " len="...), int64(len(d.Payload)), 10)
	b = strconv.AppendUint(append(b, " crc="...), uint64(crc32.Checksum(d.Payload, castagnoli)), 16)
	w.traceLine(b)
}

// impairment is a Pipe in its place in the network: what comes out of it goes
// on to next.
type impairment struct {
	net   *Net
	name  string // of the place
	port  *Port  // nil on a trunk
	way   *way   // nil at a port
	pipe  *impair.Pipe
	next  Handler
	out   []impair.Outcome
	timer Timer
}

// newImpairment returns nil, which costs nothing, where cfg does nothing.
func (n *Net) newImpairment(place, dir string, cfg impair.Config, next Handler) (*impairment, error) {
	pipe, err := impair.NewPipe(cfg, n.cfg.Dissector, func(kind string) impair.Source {
		return n.w.Rand(n.stream(place, dir+"/"+kind))
	})
	if err != nil {
		return nil, &ImpairError{Port: place, Direction: dir, Err: err}
	}
	if pipe.Transparent() {
		return nil, nil
	}
	im := &impairment{net: n, name: place, pipe: pipe, next: next}
	im.timer.init(n.w, (*overdue)(im), 0)
	return im, nil
}

// at says which port an impairment belongs to.
func (im *impairment) at(p *Port) {
	if im != nil {
		im.port = p
	}
}

func (im *impairment) pipeOrNil() *impair.Pipe {
	if im == nil {
		return nil
	}
	return im.pipe
}

// pass puts pk through the pipe.
func (im *impairment) pass(pk *packet) {
	now := im.net.w.now
	im.out = im.pipe.Apply(now, &pk.Datagram, im.out[:0])
	if len(im.out) == 0 {
		im.net.dropped(im.name, "impaired", &pk.Datagram)
	}
	im.emit(pk.from, pk.to)
	im.net.release(pk)
}

// emit sends on what the pipe gave out, and sees to what it holds back.
func (im *impairment) emit(from, to *Port) {
	n := im.net
	for i := range im.out {
		o := &im.out[i]
		pk := n.alloc(&o.Datagram, from, to)
		pk.way = im.way
		if o.Delay > 0 {
			n.w.After(o.Delay, im.next, uint64(pk.id))
		} else {
			im.next.HandleEvent(n.w.now, uint64(pk.id))
		}
	}
	im.timer.Reset(im.pipe.NextTimer())
}
