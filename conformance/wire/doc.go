// Package wire has implementations of [conformance.Wire] on a host: the other end of the
// link of a device under test, which may be a NIC, or a kernel's or emulated device in a
// network namespace. Labs open them; cases use them through the interface.
//
//   - [Ethernet] is a packet socket. It sends any packet, and receives every packet that the
//     device sends.
//   - [UDP] is a set of ordinary UDP sockets, for hosts where packet sockets are not
//     permitted. It does not see and cannot set all fields; see [UDPLimitations].
//
// Both need Linux, and are safe for concurrent use; Close ends their goroutines. [TCPHost] is
// the TCP of a scripted peer on a wire, for cases that control its segments.
package wire

import (
	"net"
	"net/netip"
	"time"
)

// EthernetConfig describes an [Ethernet] wire. Interface, Device and Addrs are required.
type EthernetConfig struct {
	// Interface is the network interface at this end of the link. It must be up.
	Interface string
	// MAC is the wire's Ethernet address; nil for that of the interface.
	MAC net.HardwareAddr
	// Device is the device's Ethernet address, the destination of all unicast packets
	// whatever their IP address.
	Device net.HardwareAddr
	// Addrs are the wire's IP addresses.
	Addrs []netip.Addr
	// AnswersFor, if not nil, selects further addresses for which the wire responds to
	// ARP and neighbour discovery, which makes the device's host send packets to them.
	// The interface must then be linked to the device only.
	AnswersFor func(netip.Addr) bool
	// Accept selects the IP packets that Recv returns; nil for UDP with fragments, which
	// excludes other traffic of the device's host.
	Accept func(packet []byte) bool
	// Epoch is time 0 of received frames; the time of Open if zero.
	Epoch time.Time
}

// UDPConfig describes a [UDP] wire. Interface, Port, Addrs and Device are required.
type UDPConfig struct {
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

// UDPLimitations describes the fields of packets that a UDP socket cannot report or cannot set.
func UDPLimitations() []string {
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
