// Package etherwire is a [conformance.Wire] on an Ethernet interface: the other end of the
// link of a device under test, which may be a NIC, or a kernel's or emulated device in a
// network namespace. It sends any packet, and receives every packet that the device sends.
//
// The wire is a station with its own MAC and IP addresses. The kernel at this end must
// not have these addresses: it would respond to packets for the scripted peer, probably
// with ICMP errors. The wire responds to ARP and neighbour discovery for them, and
// announces them when it is opened.
//
// It has no IP stack: it neither reassembles, nor verifies, nor responds to anything else.
// Recv must see frames as they are on the link. Switch off transmit offloads at the
// device's end of a virtual link and receive offloads at this end of a real one
// ([DisableOffloads]); Recv returns an error for frames that show an offload.
//
// Open needs Linux, and CAP_NET_RAW in the network namespace of the calling thread. A Wire
// is safe for concurrent use; Close ends its goroutine.
package etherwire

import (
	"net"
	"net/netip"
	"time"
)

// Config describes a wire. Interface, Device and Addrs are required.
type Config struct {
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
