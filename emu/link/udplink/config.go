package udplink

import (
	"fmt"
	"net/netip"
)

// Offload says whether a kernel offload is to be used.
type Offload uint8

// OffloadAuto uses the offload where the kernel has it and it is safe.
// OffloadOn makes Open fail where it is not. OffloadOff never uses it.
const (
	OffloadAuto Offload = iota
	OffloadOn
	OffloadOff
)

func (o Offload) String() string {
	switch o {
	case OffloadAuto:
		return "auto"
	case OffloadOn:
		return "on"
	case OffloadOff:
		return "off"
	}
	return fmt.Sprintf("Offload(%d)", uint8(o))
}

// DefaultBufBytes is what Open asks of the kernel for each socket buffer when
// Config names no size.
const DefaultBufBytes = 4 << 20

// Config says how to open a Link. Only Local is required.
type Config struct {
	// Local is the address and port to bind; RoCEv2's port is 4791. Port 0 lets
	// the kernel choose. A link-local IPv6 address needs no zone unless two
	// interfaces own it. Datagrams carry no zones: they mean Local's interface.
	Local netip.AddrPort
	// MTU is the largest IP packet, headers included, that the link sends.
	// 0 takes that of the interface that owns Local.
	MTU int
	// GSO lets the kernel cut what Send joins. Over IPv4 it needs PatchIPID, and it
	// excludes NoChecksum: the kernel refuses to cut without a checksum.
	GSO Offload
	// GRO lets the kernel hand over joined datagrams. It makes streams several
	// times faster and each single datagram some 0.2 µs slower, for the kernel
	// then looks at memory that another processor wrote. So OffloadAuto waits
	// for the first burst.
	GRO Offload
	// RecvBufBytes and SendBufBytes are the socket's buffers; 0 means
	// DefaultBufBytes. The kernel may grant less to an ordinary user
	// (net.core.rmem_max, wmem_max): Info says what was got.
	RecvBufBytes, SendBufBytes int
	// BusyPollMicros, if not 0, makes the kernel spin on the device's queue for
	// so long before a WaitReadable sleeps (SO_BUSY_POLL; needs CAP_NET_ADMIN).
	BusyPollMicros int
	// SeparateSourcePort makes the link send from a port of its own, which nobody answers
	// to, and not from Local's. A socket that sends only may be connected, and the
	// kernel then need not look up the way of every datagram: some 0.2 µs. It is
	// done for one peer at a time, and has no effect over IPv4, where a connected
	// socket numbers its packets, or with a wildcard address.
	SeparateSourcePort bool
	// Broadcast allows to send to 255.255.255.255, and to receive what others send
	// there after a Join of that address. IPv4 only.
	Broadcast bool
	// TClass is the traffic class that most datagrams will have, and HopLimit
	// what Datagram.HopLimit 0 stands for; 0 takes the kernel's. They are the
	// socket's defaults: a datagram that has both is sent fastest.
	TClass, HopLimit uint8
	// DropFragmentable keeps IPv4 packets away that have options, came in fragments or do
	// not forbid them, as RoCEv2 demands. Over IPv6 it does nothing.
	DropFragmentable bool
	// NoChecksum sends UDP checksum 0.
	NoChecksum bool
	// PatchIPID changes a payload made for IPv4 identification 0 into one for id, and
	// back if called again with the same id: an exclusive-or of what id adds to
	// the ICRC. Send calls it, before the system call, for each datagram that
	// will leave with another identification than 0, and a second time if the
	// datagram did not leave that way after all. A taken datagram's payload
	// keeps the change, and its IPID is set to id.
	PatchIPID func(payload []byte, id uint16)
}

// Info is what an open Link works with.
type Info struct {
	Local netip.AddrPort
	// Source is where datagrams are sent from; Local unless Config.SeparateSourcePort.
	Source netip.AddrPort
	// Interface is the name of the interface that owns Local; empty for a
	// wildcard address or where no interface lists it.
	Interface string
	MTU       int
	// GSO and GRO say whether the offloads are in use now. While the link is
	// used GSO may go off (see Stats.GSODisabled) and GRO on.
	GSO, GRO bool
	// RecvBufBytes and SendBufBytes are what the kernel granted. It doubles what
	// is asked for, as room for its own bookkeeping.
	RecvBufBytes, SendBufBytes int
	// HopLimit is what a datagram with HopLimit 0 is sent with.
	HopLimit uint8
}
