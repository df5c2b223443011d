package udplink

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// recvMeta is the address and the control data of a received message.
type recvMeta struct {
	src, dst  netip.AddrPort
	flowLabel uint32
	segment   int // length of all datagrams but the last
	tclass    uint8
	hopLimit  uint8
}

// split splits a message, which GRO may have made of several datagrams, from off on into ds until
// ds is full. It returns their number, and the offset after them. An empty message is one datagram.
func (m *recvMeta) split(ds []link.Datagram, message []byte, off int) (n, end int) {
	d := link.Datagram{
		Src: m.src, Dst: m.dst, TClass: m.tclass, HopLimit: m.hopLimit, IPID: link.IPIDUnknown, FlowLabel: m.flowLabel,
	}
	for n < len(ds) {
		end = min(off+m.segment, len(message))
		ds[n] = d
		ds[n].Payload = message[off:end:end]
		n++
		if off = end; off == len(message) {
			break
		}
	}
	return n, off
}

// parse decodes the address and the control messages of message i, of size bytes, into r.meta.
// Without a control message of GRO, the message is one segment.
func (r *receiver) parse(i, size int) {
	m := &r.meta
	m.src, m.dst = getSockaddr(&r.names[i]), r.dst
	m.flowLabel, m.tclass, m.hopLimit = 0, 0, 0
	m.segment = max(1, size)
	c := r.controls[i].b[:r.headers[i].hdr.Controllen]
	for len(c) >= cmsgHeader+minData {
		head := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
		n := (int(head.Len) + cmsgAlign - 1) &^ (cmsgAlign - 1)
		if n < cmsgHeader+minData || n > len(c) {
			break
		}
		m.parseControl(head, c[cmsgHeader:n])
		c = c[n:]
	}
}

// parseControl decodes one control message, whose data is padded to at least a word.
func (m *recvMeta) parseControl(head *unix.Cmsghdr, data []byte) {
	value := binary.NativeEndian.Uint32(data)
	switch uint64(head.Level)<<32 | uint64(head.Type) {
	case unix.IPPROTO_IPV6<<32 | unix.IPV6_HOPLIMIT, unix.IPPROTO_IP<<32 | unix.IP_TTL:
		m.hopLimit = uint8(value)
	case unix.IPPROTO_IP<<32 | unix.IP_TOS: // the only one of a byte
		m.tclass = data[0]
	case unix.IPPROTO_IPV6<<32 | ipv6FlowInfo:
		info := binary.BigEndian.Uint32(data)
		m.tclass, m.flowLabel = uint8(info>>20), info&link.FlowLabelMask
	case unix.SOL_UDP<<32 | unix.UDP_GRO:
		if value > 0 {
			m.segment = int(value)
		}
	case unix.IPPROTO_IPV6<<32 | unix.IPV6_PKTINFO:
		if len(data) >= unix.SizeofInet6Pktinfo {
			m.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(data)), m.dst.Port())
		}
	case unix.IPPROTO_IP<<32 | unix.IP_PKTINFO: // struct in_pktinfo: ifindex, spec_dst, addr
		if len(data) >= unix.SizeofInet4Pktinfo {
			m.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[8:])), m.dst.Port())
		}
	}
}
