// Package etherwire is a [conformance.Wire] on an Ethernet interface: the other end
// of the cable of a device, which may be a NIC of its own, a kernel's or an
// emulated one in a network namespace. It sends any bits and sees whatever the
// device sends.
//
// It is a host of its own there, with an Ethernet address and IP addresses that the
// kernel at this end need not have, and should not: a kernel would answer what is
// meant for the judge, with an ICMP error most likely. Whoever asks by ARP or
// neighbour discovery where these addresses are is told by this package, and all are
// told when a wire is opened.
//
// It refuses to be a stack: nothing is reassembled, checked or answered else. And it
// shows frames only as they were on the wire. Offloads at the sending end of a
// virtual cable, and receive offloads at this end of a real one, make others of
// them, and must be switched off ([OffloadsOff]): Recv says so when it meets the
// traces of one.
//
// Opening takes CAP_NET_RAW in the network namespace of the calling thread, and
// Linux. A Wire may be used by many goroutines; its own goroutine ends with Close.
package etherwire

import (
	"net"
	"net/netip"
	"time"
)

// Config describes a wire. Interface, Device and one of Addrs are needed.
type Config struct {
	// Interface is the network interface at our end of the cable. It must be up.
	Interface string
	// MAC is our Ethernet address; nil for that of the interface.
	MAC net.HardwareAddr
	// Device is that of the device: where packets go, whatever IP address they name,
	// but for those to groups.
	Device net.HardwareAddr
	// Addrs are our IP addresses.
	Addrs []netip.Addr
	// Claims, if not nil, says which addresses besides Addrs are to be answered for,
	// so that packets to them are seen and not held back by the device's host for
	// want of a neighbour. Only the device's own cable may be at the interface then.
	Claims func(netip.Addr) bool
	// Keep says which of the device's IP packets Recv returns; nil for those of UDP,
	// fragments included, which leaves out what its host has to say.
	Keep func(packet []byte) bool
	// Epoch is time 0 of frames; that of opening if zero.
	Epoch time.Time
}
