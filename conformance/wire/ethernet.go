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
