// Package topology describes fabrics on paper: hosts with their NICs, switches,
// and the cables between them, with names and addresses for all. It is a value
// and builds nothing: package netns makes namespaces of it, and a simulated
// world ports.
//
// Pair, Star and FatTree draw the usual shapes; anything else may be written by
// hand and held against Validate. What follows from a drawing is computed here
// too, so that every tier agrees on it: who shares a subnet (Segments), the ways
// between subnets (Routes), and hardware addresses (MAC).
//
// Nothing here is changed by its methods: a Topology may be read from many
// goroutines.
package topology

import (
	"net/netip"
	"time"
)

// Topology is a fabric on paper.
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

// NIC is a host's place on one rail of the fabric.
type NIC struct {
	Name string `json:"name"` // of the interface inside the host: rdma0, rdma1, …
	Rail int    `json:"rail"`
	// Addrs are the NIC's addresses with the prefix of its subnet: one of the
	// ULA range of IPv6, and one of IPv4.
	Addrs []netip.Prefix `json:"addrs"`
	// Gateways are the addresses of the routed switch that the NIC is cabled to,
	// one of each family; none where all of the rail is one subnet.
	Gateways []netip.Addr `json:"gateways,omitempty"`
}

// Switch joins cables: as one subnet, or as a router between the subnets of its
// cables.
type Switch struct {
	Name   string `json:"name"` // switch0, leaf0, spine0, …
	Rail   int    `json:"rail"`
	Routed bool   `json:"routed,omitempty"`
	// Tier is how far from the hosts the switch is: 1 next to them.
	Tier int `json:"tier"`
}

// Cable joins two ports.
type Cable struct {
	A    Port `json:"a"`
	B    Port `json:"b"`
	Link Link `json:"link"`
}

// Port is an end of a cable: a NIC of a host, or a numbered port of a switch.
type Port struct {
	Node string `json:"node"`
	// NIC is the interface's name where Node is a host.
	NIC string `json:"nic,omitempty"`
	// Num is the port's number where Node is a switch, from 0.
	Num int `json:"num,omitempty"`
	// Addrs are the port's own addresses where Node is a routed switch. Ports of
	// one switch that have the same are one subnet: the switch bridges them, and
	// has that address in it.
	Addrs []netip.Prefix `json:"addrs,omitempty"`
}

// Link is what a cable can do, the same both ways. The zero value of a field is
// what the tier has by default.
type Link struct {
	MTU        int           `json:"mtu,omitempty"` // largest IP packet
	RateBps    uint64        `json:"rate_bps,omitempty"`
	Latency    time.Duration `json:"latency,omitempty"`
	QueueBytes int           `json:"queue_bytes,omitempty"` // of the switch towards the cable
	ECN        ECN           `json:"ecn,omitzero"`
}

// ECN marks packets by the length of the queue that they meet: none up to
// MinBytes, all above MaxBytes, and a share growing to MaxPPM in between.
type ECN struct {
	MinBytes int    `json:"min_bytes,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
	MaxPPM   uint32 `json:"max_ppm,omitempty"`
}
