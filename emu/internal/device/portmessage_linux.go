package device

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Messages are in the byte order of the machine.
var order = binary.NativeEndian

// netlinkMessage is an rtnetlink message.
type netlinkMessage struct {
	typ, flags uint16
	seq        uint32
	payload    []byte
}

// align rounds up to a multiple of four, where headers and attributes start.
func align(n int) int { return (n + 3) &^ 3 }

// nextMessage parses the first netlink message of b. It reports false at the end or at an invalid
// message.
func nextMessage(b []byte) (m netlinkMessage, rest []byte, ok bool) {
	if len(b) < unix.SizeofNlMsghdr {
		return m, nil, false
	}
	length := int(order.Uint32(b))
	if length < unix.SizeofNlMsghdr || length > len(b) {
		return m, nil, false
	}
	m = netlinkMessage{typ: order.Uint16(b[4:]), flags: order.Uint16(b[6:]), seq: order.Uint32(b[8:]), payload: b[unix.SizeofNlMsghdr:length]}
	return m, b[min(align(length), len(b)):], true
}

// parseLink parses the payload of RTM_NEWLINK and RTM_DELLINK: the index and the flags of an
// interface.
func parseLink(b []byte) (index int, flags uint32, ok bool) {
	if len(b) < unix.SizeofIfInfomsg {
		return 0, 0, false
	}
	return int(int32(order.Uint32(b[4:]))), order.Uint32(b[8:]), true
}

// addrMessage is the payload of RTM_NEWADDR and RTM_DELADDR.
type addrMessage struct {
	addr  netip.Addr
	bits  int
	index int
	// gone: the address was removed, or cannot be used.
	gone bool
}

// parseAddr parses the payload of RTM_NEWADDR and RTM_DELADDR. An address is gone if it was
// deleted, and also while duplicate address detection runs or after it has failed.
func parseAddr(b []byte, deleted bool) (m addrMessage, ok bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return m, false
	}
	m.bits, m.index = int(b[1]), int(order.Uint32(b[4:]))
	flags := uint32(b[2])
	var local, addr netip.Addr
	for rest := b[unix.SizeofIfAddrmsg:]; len(rest) >= unix.SizeofRtAttr; {
		length := int(order.Uint16(rest))
		if length < unix.SizeofRtAttr || length > len(rest) {
			return m, false
		}
		value := rest[unix.SizeofRtAttr:length]
		switch order.Uint16(rest[2:]) {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(value)
		case unix.IFA_ADDRESS:
			addr, _ = netip.AddrFromSlice(value)
		case unix.IFA_FLAGS:
			if len(value) == 4 {
				flags = order.Uint32(value) // replaces the 8 flags of the header
			}
		}
		rest = rest[min(align(length), len(rest)):]
	}
	// On a point-to-point link IFA_ADDRESS is the address of the peer.
	if m.addr = local; !local.IsValid() {
		m.addr = addr
	}
	if !m.addr.IsValid() || m.bits > m.addr.BitLen() {
		return m, false
	}
	tentative := flags&unix.IFA_F_TENTATIVE != 0 && flags&unix.IFA_F_OPTIMISTIC == 0
	m.gone = deleted || tentative || flags&unix.IFA_F_DADFAILED != 0
	return m, true
}

// newRequest returns a request message. The reply has the same sequence number.
func newRequest(typ, flags uint16, seq uint32, payload []byte) []byte {
	b := make([]byte, 0, unix.SizeofNlMsghdr+len(payload))
	b = order.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(payload)))
	b = order.AppendUint16(b, typ)
	b = order.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = order.AppendUint32(b, seq)
	b = order.AppendUint32(b, 0) // port ID, which the kernel fills in
	return append(b, payload...)
}

// newAddrDump returns a request for all addresses of all interfaces.
func newAddrDump(seq uint32) []byte {
	return newRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP, seq, make([]byte, unix.SizeofIfAddrmsg))
}

// newLinkRequest returns a request for one interface.
func newLinkRequest(seq uint32, index int) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	order.PutUint32(b[4:], uint32(index))
	return newRequest(unix.RTM_GETLINK, 0, seq, b)
}
