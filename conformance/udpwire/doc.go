// Package udpwire is a [conformance.Wire] of ordinary UDP sockets, for hosts where packet
// sockets are not permitted: the other end of a RoCE device's link, at IP addresses of
// this host.
//
// It sends a packet only if the kernel would send it bit for bit, and returns an error
// that wraps conformance.ErrBenchCannot for others. Of a received packet a socket reports
// the payload, addresses, ports, hop limit, traffic class and flow label. The wire invents
// the other header fields, which [Limitations] lists; cases must not judge them.
//
// The package does not know RoCE. The caller may supply the identification of a received
// IPv4 packet (Config.LookupIPv4ID).
//
// Open needs Linux and the permission to bind the port. A Wire is safe for concurrent
// use; Close ends its goroutines.
package udpwire

import (
	"net/netip"
	"time"
)

// Config describes a wire. Interface, Port, Addrs and Device are required.
type Config struct {
	// Interface is the network interface at this end of the link. It has Addrs.
	Interface string
	// Port is the UDP port of the wire.
	Port uint16
	// Addrs are the wire's IP addresses, which the kernel has on that interface.
	Addrs []netip.Addr
	// Device are the IP addresses of the device, the only unicast destinations.
	Device []netip.Addr
	// LookupIPv4ID, if not nil, returns the identification and DF of a received IPv4
	// packet. If it does not know them they are 0 and true.
	LookupIPv4ID func(packet []byte) (id uint16, df, ok bool)
	// InNamespace, if not nil, calls a function in the network namespace of the
	// interface. The wire also creates sockets after Open.
	InNamespace func(func() error) error
	// Epoch is time 0 of received frames; the time of Open if zero.
	Epoch time.Time
}

// Limitations lists, for readers, the fields of packets that a UDP socket cannot report or cannot set.
func Limitations() []string {
	return []string{
		"Ethernet: addresses, tags and padding of frames",
		"IPv4: identification, flags, fragments (the kernel reassembles them), options, header checksum; none can be set",
		"IPv6: extension headers; the flow label is seen, and sent as 0",
		"lengths of IP and UDP that do not fit the packet: neither seen nor set",
		"UDP checksums: not reported; the kernel drops packets with a wrong checksum, and never sends one",
		"packets to other addresses, and to UDP ports other than the protocol's",
		"the ICRC of packets over IPv4: it covers fields that are not reported, and is accepted if it matches any identification and DF",
		"IP and UDP headers in captures: the fields named here are filled in with made-up values",
	}
}
