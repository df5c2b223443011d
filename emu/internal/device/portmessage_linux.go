package device

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Messages are in the byte order of the machine.
var order = binary.NativeEndian

// parseLink returns the index and the flags of an interface from RTM_NEWLINK and RTM_DELLINK. ok is
// false if the message is truncated.
func parseLink(m *syscall.NetlinkMessage) (index int, flags uint32, ok bool) {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return 0, 0, false
	}
	const atIndex, atFlags = 4, 8 // of ifi_index and ifi_flags in struct ifinfomsg
	return int(int32(order.Uint32(m.Data[atIndex:]))), order.Uint32(m.Data[atFlags:]), true
}

// addrMessage is the content of RTM_NEWADDR and RTM_DELADDR.
type addrMessage struct {
	addr  netip.Addr
	bits  int
	index int
	// gone: the address was removed, or cannot be used.
	gone bool
}

// parseAddr parses RTM_NEWADDR and RTM_DELADDR. An address is gone if it was deleted, and also
// after duplicate address detection has failed, or while it runs, unless the kernel allows
// (optimistic) use in that time. ok is false for a bad message.
func parseAddr(msg *syscall.NetlinkMessage) (m addrMessage, ok bool) {
	if len(msg.Data) < unix.SizeofIfAddrmsg {
		return m, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(msg)
	if err != nil {
		return m, false
	}
	const atPrefixLen, atFlags, atIndex = 1, 2, 4 // in struct ifaddrmsg
	m.bits, m.index = int(msg.Data[atPrefixLen]), int(order.Uint32(msg.Data[atIndex:]))
	flags := uint32(msg.Data[atFlags])
	var local, addr netip.Addr
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			addr, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_FLAGS:
			if len(a.Value) == 4 {
				flags = order.Uint32(a.Value) // replaces the 8 flags of the header
			}
		}
	}
	// On a point-to-point link IFA_ADDRESS is the address of the peer.
	if m.addr = local; !local.IsValid() {
		m.addr = addr
	}
	if !m.addr.IsValid() || m.bits > m.addr.BitLen() {
		return m, false
	}
	tentative := flags&unix.IFA_F_TENTATIVE != 0 && flags&unix.IFA_F_OPTIMISTIC == 0
	m.gone = msg.Header.Type == unix.RTM_DELADDR || tentative || flags&unix.IFA_F_DADFAILED != 0
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
	order.PutUint32(b[4:], uint32(index)) // ifi_index
	return newRequest(unix.RTM_GETLINK, 0, seq, b)
}
