package engine

import (
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// path is where packets go, and what their IP header says.
type path struct {
	src, dst netip.AddrPort
	tclass   uint8
	hopLimit uint8
}

// DefaultHopLimit is that of packets whose address names none.
const DefaultHopLimit = 64

// address fills in the header of a datagram.
func (p *path) address(d *link.Datagram) {
	d.Src, d.Dst, d.TClass, d.HopLimit = p.src, p.dst, p.tclass, p.hopLimit
	d.IPID, d.FlowLabel = link.IPIDUnknown, 0
}

// is4 reports whether the path is one of IPv4.
func (p *path) is4() bool { return p.dst.Addr().Is4() }

// AH is an address handle.
type AH struct {
	Attr verbs.AHAttr
	pd   nic.PD
	path path
	gone bool
}

// CreateAH makes an address handle: attr, and the UDP port to send to, 0 for that
// of this NIC.
func (n *NIC) CreateAH(pd nic.PD, attr verbs.AHAttr, port uint16) (*AH, error) {
	invalid := func(format string, args ...any) error {
		return nic.OpError("create_ah", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if n.ahs >= n.cfg.Limits.AHs {
		return nil, nic.OpError("create_ah", "", "%w: %d handles", verbs.ErrNoMemory, n.ahs)
	}
	if err := n.CheckPD("create_ah", pd); err != nil {
		return nil, err
	}
	src, ok := n.gid(attr.GRH.SGIDIndex)
	dst := attr.GRH.DGID.Addr()
	switch {
	case attr.Port != 1:
		return nil, invalid("port %d, there is only port 1", attr.Port)
	case !ok:
		return nil, invalid("GID index %d names no address", attr.GRH.SGIDIndex)
	case dst.Is4() != src.Is4():
		return nil, invalid("no route from %v to %v: different IP versions", src, dst)
	}
	if port == 0 {
		port = n.cfg.Port
	}
	a := &AH{Attr: attr, pd: pd, path: path{
		src: netip.AddrPortFrom(src, n.cfg.Port), dst: netip.AddrPortFrom(dst, port),
		tclass: attr.GRH.TrafficClass &^ link.ECN, hopLimit: attr.GRH.HopLimit,
	}}
	if a.path.hopLimit == 0 {
		a.path.hopLimit = DefaultHopLimit
	}
	n.ahs++
	n.UsePD(pd, 1)
	return a, nil
}

// DestroyAH removes an address handle.
func (n *NIC) DestroyAH(a *AH) {
	if !a.gone {
		a.gone = true
		n.ahs--
		n.UsePD(a.pd, -1)
	}
}

// source is where a packet came from, as its receiver is told.
type source struct {
	src, dst netip.AddrPort
	qp       uint32
	tclass   uint8
	hopLimit uint8
}

func sourceOf(d *link.Datagram, qp uint32) source {
	return source{
		src: netip.AddrPortFrom(d.Src.Addr().Unmap(), d.Src.Port()), dst: netip.AddrPortFrom(d.Dst.Addr().Unmap(), d.Dst.Port()),
		qp: qp, tclass: d.TClass, hopLimit: d.HopLimit,
	}
}

// back is the way to where a packet came from.
func (s *source) back() path {
	return path{src: s.dst, dst: s.src, hopLimit: DefaultHopLimit, tclass: s.tclass &^ link.ECN}
}

// fill builds the address area of a receive: the IP header of a message of length
// octets, IPv6 as a whole, IPv4 in the second half, and in octets 2 and 3 the UDP
// source port.
func (s *source) fill(area *[verbs.GRHLen]byte, length int) {
	const udp = 17
	*area = [verbs.GRHLen]byte{}
	length = min(length+link.UDPHeaderLen, 1<<16-1-link.IPv4HeaderLen)
	src, dst := s.src.Addr(), s.dst.Addr()
	if !src.Is4() {
		b := area[:]
		binary.BigEndian.PutUint32(b, 6<<28|uint32(s.tclass)<<20|uint32(s.src.Port()))
		binary.BigEndian.PutUint16(b[4:], uint16(length))
		b[6], b[7] = udp, s.hopLimit
		from, to := src.As16(), dst.As16()
		copy(b[8:], from[:])
		copy(b[24:], to[:])
		return
	}
	binary.BigEndian.PutUint16(area[2:], s.src.Port())
	b := area[verbs.GRHLen-link.IPv4HeaderLen:]
	from, to := src.As4(), dst.As4()
	words := [...]uint32{
		0x45<<24 | uint32(s.tclass)<<16 | uint32(link.IPv4HeaderLen+length),
		0x4000, // not to be fragmented
		uint32(s.hopLimit)<<24 | udp<<16,
		binary.BigEndian.Uint32(from[:]),
		binary.BigEndian.Uint32(to[:]),
	}
	words[2] |= checksum(&words)
	for i, w := range words {
		binary.BigEndian.PutUint32(b[4*i:], w)
	}
}

// SourcePort is the UDP port in the address area of a receive.
func SourcePort(area []byte) uint16 { return binary.BigEndian.Uint16(area[2:]) }

// checksum is that of an IPv4 header, whose own field for it is zero.
func checksum(words *[link.IPv4HeaderLen / 4]uint32) uint32 {
	var sum uint32
	for _, w := range words {
		sum += w>>16 + w&0xffff
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^sum & 0xffff
}

// sourceAddr is the address of this side that a peer is spoken to from. While all of
// its family are gone it is one that may come back.
func (n *NIC) sourceAddr(dst netip.Addr) netip.Addr {
	for _, table := range [...][]verbs.GIDEntry{n.cfg.GIDs, n.home} {
		for i := range table {
			if g := table[i].GID; g.Addr().Is4() == dst.Is4() && g != (verbs.GID{}) {
				return g.Addr()
			}
		}
	}
	return netip.Addr{}
}
