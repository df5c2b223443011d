package udplink

import (
	"fmt"
	"net/netip"
)

// Offload says whether to use a kernel offload.
type Offload uint8

// OffloadAuto uses the offload if it is available. OffloadOn makes Open fail if it is not.
// OffloadOff does not use it.
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

// DefaultBufBytes is the size of the socket buffers if Config does not set it.
const DefaultBufBytes = 4 << 20

// Config configures a Link. Only Local is required.
type Config struct {
	// Local is the address and port to bind. The kernel chooses a port if it is 0. A
	// link-local IPv6 address needs a zone only if two interfaces own it. Addresses of
	// datagrams have no zone.
	Local netip.AddrPort
	// MTU is the largest IP packet, headers included, that the link sends.
	// 0 takes that of the interface that owns Local.
	MTU int
	// GSO sends several datagrams as one super-packet that the kernel segments. It excludes
	// NoChecksum, and needs PatchIPID over IPv4.
	GSO Offload
	// GRO receives several datagrams as one super-packet. Streams become several times
	// faster, single datagrams about 0.2 µs slower. OffloadAuto enables it at the first
	// burst.
	GRO Offload
	// RecvBufBytes and SendBufBytes are the sizes of the socket buffers; 0 means
	// DefaultBufBytes. Without privilege the kernel may grant less (net.core.rmem_max,
	// wmem_max); Info has the real sizes.
	RecvBufBytes, SendBufBytes int
	// BusyPollMicros is how long the kernel busy-polls the device queue before WaitReadable
	// sleeps (SO_BUSY_POLL; needs CAP_NET_ADMIN).
	BusyPollMicros int
	// SeparateSourcePort sends from another port than Local's. It saves about 0.2 µs per
	// datagram: a socket that only sends can be connected, to one peer at a time, so that
	// the kernel need not look up routes. Peers must not answer to the source port. It has
	// no effect over IPv4, where a connected socket numbers its packets, or with a wildcard
	// address.
	SeparateSourcePort bool
	// Broadcast allows to send to 255.255.255.255, and to Join it. IPv4 only.
	Broadcast bool
	// TClass and HopLimit are the socket's defaults: datagrams that have both are sent
	// fastest. HopLimit 0 takes the kernel's default.
	TClass, HopLimit uint8
	// DropFragmentable drops received IPv4 packets that have options, were fragmented or
	// have DF clear, as RoCEv2 demands. It has no effect over IPv6.
	DropFragmentable bool
	// NoChecksum sends UDP checksum 0.
	NoChecksum bool
	// PatchIPID changes a payload for IPv4 identification 0 into one for id, and back if
	// called again with the same id: RoCEv2 XORs the effect of id on the ICRC. Send calls it
	// for each datagram that is sent with another identification than 0, and again if that
	// fails. A sent datagram keeps the change, and its IPID is set to id.
	PatchIPID func(payload []byte, id uint16)
}

// Info are the settings in use by a Link.
type Info struct {
	Local netip.AddrPort
	// Source is the source address of sent datagrams: Local unless
	// Config.SeparateSourcePort is set.
	Source netip.AddrPort
	// Interface is the name of the interface that owns Local; empty if it is not known.
	Interface string
	MTU       int
	// GSO and GRO say whether the offloads are in use. GSO may be disabled later (see
	// Stats.GSODisabled), and GRO enabled.
	GSO, GRO bool
	// RecvBufBytes and SendBufBytes are the sizes that the kernel granted. It doubles the
	// requested sizes for its own bookkeeping.
	RecvBufBytes, SendBufBytes int
	// HopLimit is the hop limit of datagrams with HopLimit 0.
	HopLimit uint8
}
