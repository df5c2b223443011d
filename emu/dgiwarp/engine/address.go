package engine

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// path is the addressing of outgoing packets.
type path struct {
	src, dst netip.AddrPort
	tclass   uint8
	hopLimit uint8
}

// DefaultHopLimit is the hop limit of packets whose address handle has none.
const DefaultHopLimit = 64

// address sets the IP and UDP header fields of a datagram.
func (p *path) address(d *link.Datagram) {
	d.Src, d.Dst, d.TClass, d.HopLimit = p.src, p.dst, p.tclass, p.hopLimit
	d.IPID, d.FlowLabel = link.IPIDUnknown, 0
}

// AH is an address handle.
type AH struct {
	Attr verbs.AHAttr
	pd   nic.PD
	path path
	gone bool
}

// CreateAH creates an address handle for attr and a destination UDP port; 0 means this NIC's port.
// The ECN bits of the traffic class are cleared, since addressRD alone decides which packets are
// ECN-capable.
func (n *NIC) CreateAH(pd nic.PD, attr verbs.AHAttr, port uint16) (*AH, error) {
	invalid := func(format string, args ...any) error {
		return nic.OpError("create_ah", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if n.ahs >= n.cfg.Limits.AHs {
		return nil, nic.OpError("create_ah", "", "%w: the limit of %d address handles is reached", verbs.ErrNoMemory, n.cfg.Limits.AHs)
	}
	if err := n.CheckPD("create_ah", pd); err != nil {
		return nil, err
	}
	src, ok := n.gids.at(attr.GRH.SGIDIndex)
	dst := attr.GRH.DGID.Addr()
	switch {
	case attr.Port != 1:
		return nil, invalid("port %d, there is only port 1", attr.Port)
	case !ok:
		return nil, invalid("GID index %d names no address", attr.GRH.SGIDIndex)
	case dst.Is4() != src.Is4():
		return nil, invalid("no route from %v to %v: different IP versions", src, dst)
	}
	a := &AH{Attr: attr, pd: pd, path: path{
		src: netip.AddrPortFrom(src, n.cfg.Port), dst: netip.AddrPortFrom(dst, cmp.Or(port, n.cfg.Port)),
		tclass: attr.GRH.TrafficClass &^ link.ECN, hopLimit: cmp.Or(attr.GRH.HopLimit, DefaultHopLimit),
	}}
	n.ahs++
	n.UsePD(pd, 1)
	return a, nil
}

// DestroyAH destroys an address handle.
func (n *NIC) DestroyAH(a *AH) {
	if !a.gone {
		a.gone = true
		n.ahs--
		n.UsePD(a.pd, -1)
	}
}

// source is the addressing of a received packet.
type source struct {
	src, dst netip.AddrPort
	qp       uint32
	tclass   uint8
	hopLimit uint8
}

// sourceOf returns the source of a datagram: its addresses, and the remote queue pair qp.
func sourceOf(d *link.Datagram, qp uint32) source {
	return source{
		src: netip.AddrPortFrom(d.Src.Addr().Unmap(), d.Src.Port()), dst: netip.AddrPortFrom(d.Dst.Addr().Unmap(), d.Dst.Port()),
		qp: qp, tclass: d.TClass, hopLimit: d.HopLimit,
	}
}

// replyPath returns the path back to the sender.
func (s *source) replyPath() path {
	return path{src: s.dst, dst: s.src, hopLimit: DefaultHopLimit, tclass: s.tclass &^ link.ECN}
}

// fillGRH builds the 40 octets that precede a message in its receive, as a GRH does: an IPv6
// header, or an IPv4 header in the last 20 octets, with the UDP source port in octets 2 and 3.
// length is that of the message; the length field of the header is at most that of the largest IPv4
// packet.
func (s *source) fillGRH(grh *[verbs.GRHLen]byte, length int) {
	const udp = 17
	*grh = [verbs.GRHLen]byte{}
	length = min(length+link.UDPHeaderLen, 1<<16-1-link.IPv4HeaderLen)
	src, dst := s.src.Addr(), s.dst.Addr()
	if !src.Is4() {
		b := grh[:]
		binary.BigEndian.PutUint32(b, 6<<28|uint32(s.tclass)<<20|uint32(s.src.Port()))
		binary.BigEndian.PutUint16(b[4:], uint16(length))
		b[6], b[7] = udp, s.hopLimit
		from, to := src.As16(), dst.As16()
		copy(b[8:], from[:])
		copy(b[24:], to[:])
		return
	}
	binary.BigEndian.PutUint16(grh[2:], s.src.Port())
	b := grh[verbs.GRHLen-link.IPv4HeaderLen:]
	from, to := src.As4(), dst.As4()
	words := [...]uint32{
		0x45<<24 | uint32(s.tclass)<<16 | uint32(link.IPv4HeaderLen+length),
		0x4000, // don't fragment
		uint32(s.hopLimit)<<24 | udp<<16,
		binary.BigEndian.Uint32(from[:]),
		binary.BigEndian.Uint32(to[:]),
	}
	words[2] |= checksum(&words)
	for i, w := range words {
		binary.BigEndian.PutUint32(b[4*i:], w)
	}
}

// SourcePort returns the UDP source port from area, which fillGRH built before a message.
func SourcePort(area []byte) uint16 { return binary.BigEndian.Uint16(area[2:]) }

// checksum returns the checksum of an IPv4 header whose checksum field is zero.
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

// gidTable holds the addresses of the NIC.
type gidTable struct {
	current []verbs.GIDEntry
	initial []verbs.GIDEntry
	changed bool // paths may use a removed address
}

// at returns the address of the entry with an index, and false if there is none.
func (t *gidTable) at(index uint8) (netip.Addr, bool) {
	for i := range t.current {
		if e := &t.current[i]; e.Index == int(index) && e.GID != (verbs.GID{}) {
			return e.GID.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// owns reports whether a is an address of the NIC.
func (t *gidTable) owns(a netip.Addr) bool {
	gid := verbs.GIDFrom(a.Unmap())
	return slices.ContainsFunc(t.current, func(e verbs.GIDEntry) bool { return e.GID == gid && gid != (verbs.GID{}) })
}

// sourceFor returns the local address for packets to dst: the first in the GID table with the same
// IP version. Without one, it returns one of the initial table, which the host may regain.
func (t *gidTable) sourceFor(dst netip.Addr) netip.Addr {
	for _, table := range [...][]verbs.GIDEntry{t.current, t.initial} {
		for i := range table {
			if g := table[i].GID; g.Addr().Is4() == dst.Is4() && g != (verbs.GID{}) {
				return g.Addr()
			}
		}
	}
	return netip.Addr{}
}
