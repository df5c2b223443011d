// Package udplink is a link.PacketLink over a Linux UDP socket, without privileges. It
// batches system calls, uses GSO (UDP_SEGMENT) and GRO (UDP_GRO), and sets and reports
// the traffic class and hop limit of each datagram. softroce and dgiwarp use it. With
// CAP_NET_RAW it uses a packet socket for single datagrams, which is faster (Config.PacketRing).
//
// It does not retransmit, order or pace, and does not read payloads. Open and Join work in
// the network namespace that the caller's thread was in at Open.
//
// RoCEv2's ICRC covers the IPv4 identification. Linux sends identification 0 from a socket that is
// not connected and sets DF, and 0, 1, 2, … for the segments of a GSO super-packet, for which
// Config.PatchIPID corrects payloads. UDP sockets do not see received identifications.
//
// A Link is not safe for concurrent use, except that any goroutine may call Close and Wake,
// and one goroutine may be in WaitReadable while another one sends and receives. Send and
// Recv do not allocate.
package udplink

import (
	"net/netip"
	"runtime"
	"sync/atomic"
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
	// GRO receives several datagrams as one super-packet. Streams become several times faster,
	// single datagrams 0.2 µs slower. OffloadAuto enables it at the first burst.
	GRO Offload
	// RecvBufBytes and SendBufBytes are the sizes of the socket buffers; 0 means
	// DefaultBufBytes. Without privilege the kernel may grant less (net.core.rmem_max,
	// wmem_max); Info has the real sizes.
	RecvBufBytes, SendBufBytes int
	// BusyPollMicros is how long the kernel busy-polls the device queue before WaitReadable
	// sleeps (SO_BUSY_POLL; needs CAP_NET_ADMIN).
	BusyPollMicros int
	// SeparateSourcePort sends from another port than Local's. It saves about 0.2 µs per datagram:
	// a socket that only sends can be connected to one peer at a time, which saves route lookups.
	// Peers must not answer to the source port. It has no effect over IPv4, where a connected
	// socket numbers its packets, or with a wildcard address.
	SeparateSourcePort bool
	// Broadcast allows to send to 255.255.255.255, and to Join it. IPv4 only.
	Broadcast bool
	// TClass and HopLimit are the socket's defaults: datagrams that have both are sent
	// fastest. HopLimit 0 takes the kernel's default.
	TClass, HopLimit uint8
	// DropFragmentable drops received IPv4 packets that have options, were fragmented or
	// have DF clear, and IPv6 packets with extension headers other than that of a fragment, as
	// RoCEv2 demands.
	DropFragmentable bool
	// PacketRing sends single datagrams in Ethernet frames, with UDP checksum 0, and receives datagrams
	// without checksum, through a packet socket and memory shared with the kernel. It halves the time of a
	// single datagram, and needs CAP_NET_RAW, an interface of a veth pair, a unicast Local, and
	// DropFragmentable. Over IPv6 it drops fragmented datagrams with UDP checksum 0.
	PacketRing Offload
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
	// PacketRing says whether the link has a packet ring.
	PacketRing bool
	// GSO and GRO say whether the offloads are in use. GSO may be disabled later (see
	// Stats.GSODisabled), and GRO enabled.
	GSO, GRO bool
	// RecvBufBytes and SendBufBytes are the sizes that the kernel granted. It doubles the
	// requested sizes for its own bookkeeping.
	RecvBufBytes, SendBufBytes int
	// HopLimit is the hop limit of datagrams with HopLimit 0.
	HopLimit uint8
}

// Stats are the counters of a Link.
type Stats struct {
	// Datagrams and bytes of UDP payload that were sent and received.
	SentDatagrams, SentBytes uint64
	RecvDatagrams, RecvBytes uint64
	// System calls to send and to receive, and receive calls that returned nothing.
	SendCalls, RecvCalls, RecvEmptyCalls uint64
	// Datagrams that were sent as frames, and received from the packet ring. They count above, but
	// reading the ring takes no call.
	SentFrames, RecvFrames uint64
	// GSO super-packets sent and GRO super-packets received. Their datagrams count above.
	GSOPackets, GROPackets uint64
	// SendFull counts sends that failed for lack of room: EAGAIN, ENOBUFS, ENOMEM.
	SendFull uint64
	// GSORetries counts super-packets that were refused and sent again as single
	// datagrams. GSODisabled: the path does not support GSO (EIO).
	GSORetries  uint64
	GSODisabled bool
	// Datagrams that Send took and the kernel refused, by reason.
	LostTooBig      uint64 // larger than MTU or path MTU (EMSGSIZE)
	LostUnreachable uint64 // no route or neighbour (ENETUNREACH, EHOSTUNREACH, …)
	LostRefused     uint64 // no listener (ECONNREFUSED)
	LostDenied      uint64 // a filter or policy forbids it (EPERM, EACCES)
	LostOther       uint64 // other errors, the last of which is LastOtherError
	LastOtherError  error
	// RecvErrors counts receive calls that returned a pending socket error.
	RecvErrors uint64
	// RecvTruncated counts messages longer than any UDP datagram, which were dropped.
	RecvTruncated uint64
	// KernelDrops counts datagrams that the kernel dropped: the receive buffer or ring was full, or
	// a checksum was wrong.
	KernelDrops uint64
}

// Lost is the number of datagrams that Send took and the kernel refused.
func (s *Stats) Lost() uint64 {
	return s.LostTooBig + s.LostUnreachable + s.LostRefused + s.LostDenied + s.LostOther
}

// useCount keeps file descriptors open while they are in use. Otherwise a concurrent Close could
// free a descriptor just before a system call, which would use another file.
type useCount struct {
	state atomic.Int64 // number of users, plus closedBit after close
}

const closedBit = 1 << 32

// enter adds a user and returns true; the caller must call leave. After close it returns false.
func (u *useCount) enter() bool {
	if u.state.Add(1) < closedBit {
		return true
	}
	u.state.Add(-1)
	return false
}

func (u *useCount) leave() { u.state.Add(-1) }

// close lets no more users enter. It reports false if it was called before.
func (u *useCount) close() bool {
	for {
		s := u.state.Load()
		if s >= closedBit {
			return false
		}
		if u.state.CompareAndSwap(s, s+closedBit) {
			return true
		}
	}
}

// drain returns when all users have left, after close. Users stay for one system call that
// does not block, so it yields and does not sleep.
func (u *useCount) drain() {
	for u.state.Load() != closedBit {
		runtime.Gosched()
	}
}
