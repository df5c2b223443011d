package udplink

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

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

// headerOf returns the header of d as a single datagram. Hop limit 0 stands for the socket's
// default, and only a link with a wildcard address sets the source.
func (s *sender) headerOf(d *link.Datagram) header {
	h := header{dst: d.Dst, flowLabel: d.FlowLabel, tclass: d.TClass, hopLimit: d.HopLimit}
	if h.hopLimit == s.hopLimit {
		h.hopLimit = 0
	}
	if s.wildcard {
		h.src = d.Src.Addr()
	}
	return h
}

// encode encodes h into the socket address and control messages of m. A traffic class or hop limit
// that is the socket's default needs no control message.
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

// mmsghdr is the kernel's struct mmsghdr: sendmmsg and recvmmsg take arrays of it.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// sockaddr has room for a socket address of either family.
type sockaddr = unix.RawSockaddrInet6

// putSockaddr encodes an address in sa, for IPv6 with its flow label and scope ID, and returns the
// length of the encoding.
func putSockaddr(sa *sockaddr, to netip.AddrPort, flowLabel uint32, scope int) uint32 {
	if to.Addr().Is4() {
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		*s4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: to.Addr().As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s4.Port))[:], to.Port())
		return unix.SizeofSockaddrInet4
	}
	*sa = sockaddr{Family: unix.AF_INET6, Addr: to.Addr().As16(), Scope_id: uint32(scope)}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:], to.Port())
	binary.BigEndian.PutUint32((*[4]byte)(unsafe.Pointer(&sa.Flowinfo))[:], flowLabel&link.FlowLabelMask)
	return unix.SizeofSockaddrInet6
}

// getSockaddr decodes a socket address.
func getSockaddr(sa *sockaddr) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), port)
}

// controlSpace has room for all control messages in use: segment size, traffic class, hop
// limit and packet info.
const controlSpace = 160

// Alignment of control messages: their data is padded to at least a word.
const (
	cmsgAlign = int(unsafe.Sizeof(uintptr(0)))
	minData   = cmsgAlign
	// cmsgHeader is the offset of the data of a control message.
	cmsgHeader = (unix.SizeofCmsghdr + cmsgAlign - 1) &^ (cmsgAlign - 1)
)

// control is an aligned buffer of control messages.
type control struct {
	_ [0]uint64
	b [controlSpace]byte
}

// add appends a control message at offset n. It returns the message's data, size bytes that are
// zero, and the offset after the message.
func (c *control) add(n, level, typ, size int) (data []byte, next int) {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c.b[n]))
	h.Level, h.Type = int32(level), int32(typ)
	h.SetLen(unix.CmsgLen(size))
	data = c.b[n+cmsgHeader:][:size]
	clear(data)
	return data, n + unix.CmsgSpace(size)
}

func (c *control) addInt(n, level, typ, value int) (next int) {
	data, next := c.add(n, level, typ, 4)
	binary.NativeEndian.PutUint32(data, uint32(value))
	return next
}
