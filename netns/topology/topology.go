// Package topology describes fabrics as data: hosts with their NICs, switches, and the cables
// between them, with names and addresses. It creates nothing: package netns builds namespaces from
// a Topology, and the simulation builds ports.
//
// Pair, Star and FatTree return common shapes; others can be written by hand and checked with
// Validate. The package also derives what all users must agree on: segments that share a subnet
// (Segments), routes between subnets (Routes), and MAC addresses (MAC).
//
// Methods do not modify a Topology; it is safe for concurrent reading.
package topology

import (
	"net/netip"
	"time"
)

// Topology is the description of a fabric.
type Topology struct {
	Hosts    []Host   `json:"hosts"`
	Switches []Switch `json:"switches,omitempty"`
	Cables   []Cable  `json:"cables"`
}

// Host is a machine with NICs.
type Host struct {
	Name string `json:"name"` // host0, host1, …
	NICs []NIC  `json:"nics"`
}

// NIC is a host's interface on one rail of the fabric.
type NIC struct {
	Name string `json:"name"` // of the interface inside the host: rdma0, rdma1, …
	Rail int    `json:"rail"`
	// Addrs are the NIC's addresses with the prefix of its subnet: an IPv6 ULA
	// and an IPv4 address.
	Addrs []netip.Prefix `json:"addrs"`
	// Gateways are the addresses of the routed switch of the NIC, one per
	// family; none if the rail is one subnet.
	Gateways []netip.Addr `json:"gateways,omitempty"`
}

// Switch is an Ethernet switch, or a router between the subnets of its cables.
type Switch struct {
	Name   string `json:"name"` // switch0, leaf0, spine0, …
	Rail   int    `json:"rail"`
	Routed bool   `json:"routed,omitempty"`
	// Tier is the distance from the hosts: 1 for leaf switches.
	Tier int `json:"tier"`
}

// Cable connects two ports.
type Cable struct {
	A    Port `json:"a"`
	B    Port `json:"b"`
	Link Link `json:"link"`
}

// Port is an end of a cable: a NIC of a host, or a numbered port of a switch.
type Port struct {
	Node string `json:"node"`
	// NIC is the interface name if Node is a host.
	NIC string `json:"nic,omitempty"`
	// Num is the port number if Node is a switch, from 0.
	Num int `json:"num,omitempty"`
	// Addrs are the port's addresses if Node is a routed switch. Ports of one
	// switch with the same addresses are one subnet: the switch bridges them
	// and has these addresses.
	Addrs []netip.Prefix `json:"addrs,omitempty"`
}

// Link configures a cable; both directions are the same. A zero field means the
// default of the tier.
type Link struct {
	MTU        int           `json:"mtu,omitempty"` // largest IP packet
	RateBps    uint64        `json:"rate_bps,omitempty"`
	Latency    time.Duration `json:"latency,omitempty"`
	QueueBytes int           `json:"queue_bytes,omitempty"` // of the switch towards the cable
	ECN        ECN           `json:"ecn,omitzero"`
}

// ECN configures marking by queue length: no packet up to MinBytes, all above
// MaxBytes, and in between with a probability that grows to MaxPPM.
type ECN struct {
	MinBytes int    `json:"min_bytes,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
	MaxPPM   uint32 `json:"max_ppm,omitempty"`
}
