package netns

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// DefaultMTU is the MTU of cables without one.
const DefaultMTU = 9000

// Options configure Build.
type Options struct {
	// UserCable selects the cables that a user-space switch connects: each half
	// ends in the core namespace. nil selects none.
	//
	// An unrouted switch with only user-space cables is not built. User space
	// must implement it, with the ports that UserSwitches lists.
	UserCable func(topology.Cable) bool
	// SegmentGSO makes the kernel segment GSO packets before it sends them into a user-space cable.
	// Packet sockets of kernels before 6.2 cannot receive UDP GSO packets.
	SegmentGSO bool
	// Netem allows netem for the latency of kernel cables. Without it a cable
	// with latency must be a user-space cable.
	Netem bool
}

// Host is a host of a fabric.
type Host struct {
	topology.Host
	NS *NS
}

// UserCable is a cable that user space must connect.
type UserCable struct {
	Cable topology.Cable
	// A and B are the interfaces in the core namespace. A frame sent at Cable.A
	// is received on A; a frame sent on A arrives at Cable.A.
	A, B string
}

// UserPort is a port of a switch that user space implements.
type UserPort struct {
	Device string        // in the core namespace
	Port   topology.Port // of the switch
	Far    topology.Port // the other end of the cable
	Cable  topology.Cable
}

// Stats are the kernel's counters of a port, as seen by the port.
type Stats struct {
	RxPackets, RxBytes, RxDropped uint64
	TxPackets, TxBytes, TxDropped uint64
	// QueueDropped counts drops of the qdisc of a rate limit or netem.
	QueueDropped uint64
}

// NetemSpec configures netem for the packets that a port sends. The zero value has no effect.
type NetemSpec struct {
	Delay, Jitter time.Duration
	LossPPM       uint32
	DuplicatePPM  uint32
	ReorderPPM    uint32 // sent without delay, ahead of delayed packets; needs Delay
	CorruptPPM    uint32
	LimitPackets  uint32 // queue limit; 10000 if 0
}

// State is the availability of a Capability.
type State string

// The states.
const (
	Yes State = "yes"
	No  State = "no"
	// Limited means available with restrictions, given in Reason.
	Limited State = "limited"
)

// Capability is a feature of the machine that fabrictest uses.
type Capability struct {
	Name   string `json:"name"` // user namespaces, netem, …
	For    string `json:"for"`  // what fabrictest uses it for
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	Cure   string `json:"cure,omitempty"` // how to get it
}

// UnavailableError reports why namespaces are unavailable and what to do.
type UnavailableError struct {
	Reason, Cure string
	Err          error // of the kernel
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("no network namespaces: %s (%v); %s", e.Reason, e.Err, e.Cure)
}

func (e *UnavailableError) Unwrap() error { return e.Err }
