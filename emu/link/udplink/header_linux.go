package udplink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// header is the address and the control data of a message. It is encoded again only when it
// changes, and consecutive datagrams with equal headers may share a GSO message.
type header struct {
	dst       netip.AddrPort
	src       netip.Addr // set only on a link bound to a wildcard address
	flowLabel uint32
	segment   uint16 // UDP_SEGMENT; 0 for a single datagram
	tclass    uint8
	hopLimit  uint8 // 0 for the socket's default
}

// headerOf returns the header of d as a single datagram.
func (s *sender) headerOf(d *link.Datagram) header {
	h := header{dst: d.Dst, flowLabel: d.FlowLabel, tclass: d.TClass, hopLimit: d.HopLimit}
	if h.hopLimit == s.hopLimit {
		h.hopLimit = 0
	}
	if s.wild {
		h.src = d.Src.Addr()
	}
	return h
}

// encode encodes h into the socket address and control messages of m.
func (s *sender) encode(m *message, h header) {
	m.header = h
	to := netip.AddrPortFrom(h.dst.Addr().Unmap().WithZone(""), h.dst.Port())
	m.addrLen = putSockaddr(&m.addr, to, h.flowLabel, scopeID(to.Addr(), s.ifi))
	level, tclass, hops := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	if s.v6 {
		level, tclass, hops = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
	}
	n := 0
	if h.segment != 0 {
		var data []byte
		data, n = m.control.add(n, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		binary.NativeEndian.PutUint16(data, h.segment)
	}
	if h.tclass != s.tclass {
		n = m.control.addInt(n, level, tclass, int(h.tclass))
	}
	if h.hopLimit != 0 {
		n = m.control.addInt(n, level, hops, int(h.hopLimit))
	}
	if src := h.src.Unmap(); src.IsValid() && !src.IsUnspecified() && src.Is6() == s.v6 {
		n = m.control.addSource(n, src)
	}
	m.controlLen = n
}

// addSource appends a control message with the source address for a wildcard socket.
func (c *control) addSource(n int, src netip.Addr) (next int) {
	if src.Is4() { // struct in_pktinfo: ifindex, spec_dst, addr
		data, next := c.add(n, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		ip := src.As4()
		copy(data[4:], ip[:])
		return next
	}
	data, next := c.add(n, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
	ip := src.As16() // struct in6_pktinfo: addr, ifindex
	copy(data, ip[:])
	return next
}
