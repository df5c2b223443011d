package netns

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// DefaultMTU is that of a cable that does not say.
const DefaultMTU = 9000

// Options are what a drawing does not say.
type Options struct {
	// UserCable picks the cables that are cut: each half ends in the core namespace,
	// where someone in user space must join them. nil cuts none.
	//
	// An unrouted switch with all of its cables cut is not made at all: its ports
	// are the halves at the other nodes, and it is for user space to be the
	// switch.
	UserCable func(topology.Cable) bool
	// SegmentGSO has the kernel cut super-packets before it sends them into a
	// spliced cable: those of the host at its end, and those that a bridge or a
	// router hands on from others. Kernels before 6.2 cannot show them uncut.
	SegmentGSO bool
	// Netem lets the kernel's netem give unspliced cables their latency. Without
	// it such a cable must be spliced.
	Netem bool
}

// UserCable is a cable that was cut.
type UserCable struct {
	Cable topology.Cable
	// A and B are the interfaces in the core namespace where the halves end: what
	// comes out of A was sent at Cable.A, and what is put into it arrives there.
	A, B string
}

// UserPort is a port of a switch that user space must be.
type UserPort struct {
	Device string        // in the core namespace
	Port   topology.Port // of the switch
	Far    topology.Port // the other end of the cable
	Cable  topology.Cable
}

// Stats are what the kernel counted at a port since it was made, from the port's
// own point of view: what it received came out of the cable.
type Stats struct {
	RxPackets, RxBytes, RxDropped uint64
	TxPackets, TxBytes, TxDropped uint64
	// QueueDropped is what did not fit into the queue of a rate limit, or was lost
	// by netem.
	QueueDropped uint64
}

// NetemSpec is what the kernel's netem does to the packets that a port sends.
// The zero value is nothing.
type NetemSpec struct {
	Delay, Jitter time.Duration
	LossPPM       uint32
	DuplicatePPM  uint32
	ReorderPPM    uint32 // are sent at once, ahead of those that are delayed; needs Delay
	CorruptPPM    uint32
	LimitPackets  uint32 // that can wait; 10000 if 0
}

// State is how far a machine can do something.
type State string

// The states.
const (
	Yes State = "yes"
	No  State = "no"
	// Limited is less than wished: it works, and Reason says what is lost.
	Limited State = "limited"
)

// Capability is something that a machine can do, or cannot.
type Capability struct {
	Name   string `json:"name"` // user namespaces, netem, …
	For    string `json:"for"`  // what fabrictest needs it for
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	Cure   string `json:"cure,omitempty"` // how to get it
}

// UnavailableError is why namespaces cannot be had, and what to do about it.
type UnavailableError struct {
	Reason, Cure string
	Err          error // what the kernel said
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("no network namespaces: %s (%v); %s", e.Reason, e.Err, e.Cure)
}

func (e *UnavailableError) Unwrap() error { return e.Err }
