// Package udpwire is a [conformance.Wire] of ordinary UDP sockets, for a judge that may
// not open packet sockets: the other end of a RoCE device's cable as any program of this
// host could be it, at addresses that the host's kernel has.
//
// It sends what a socket can send, bit for bit, and refuses the rest with
// conformance.ErrCannot: a packet is sent only if the kernel makes exactly the one that
// was asked for. Of what comes, a socket shows the payload, both addresses and ports, the
// hop limit, the traffic class and the flow label; the rest of the headers is made up, and
// [Blind] says what that is. Whoever judges by such a packet must not look at it.
//
// It refuses to guess: nothing that could not be seen is reported as if it had been. It
// knows no RoCE; who does can tell it what the identification of an IPv4 packet must have
// been (Config.Identify).
//
// Opening takes no permission but that to bind the port, and Linux. A Wire may be used by
// many goroutines; its own end with Close.
package udpwire

import (
	"net/netip"
	"time"
)

// Config describes a wire. Interface, Port, Addrs and Device are needed.
type Config struct {
	// Interface is the network interface at our end of the cable, which has Addrs.
	Interface string
	// Port is the UDP port that we are at.
	Port uint16
	// Addrs are our IP addresses, which must be the kernel's on that interface.
	Addrs []netip.Addr
	// Device are the addresses of the device: a packet to another host would not reach
	// it.
	Device []netip.Addr
	// Identify, if not nil, is asked for identification and DF of an IPv4 packet that has
	// come, and that has 0 and true there now. Without an answer they stay.
	Identify func(packet []byte) (id uint16, df, ok bool)
	// Within, if not nil, calls a function in the network namespace of the interface:
	// sockets are also made long after opening.
	Within func(func() error) error
	// Epoch is time 0 of frames; that of opening if zero.
	Epoch time.Time
}

// Blind tells what such a wire neither shows nor sets, in words for people.
func Blind() []string {
	return []string{
		"Ethernet: addresses, tags and padding of frames",
		"IPv4: identification, flags, fragments (the kernel puts them together), options, header checksum; none can be set",
		"IPv6: extension headers; the flow label is seen, and sent as 0",
		"lengths of IP and UDP that do not fit the packet: neither seen nor set",
		"UDP checksums: whether there is one is not seen, what has a wrong one never comes, and none that is wrong can be sent",
		"packets to other addresses, and to other UDP ports than the protocol's: silence means that nothing came there",
		"the ICRC of packets over IPv4 covers what is not seen: it is right if it is so for any identification and either DF",
		"the captures' IP and UDP headers: what is named here is made up in them",
	}
}
