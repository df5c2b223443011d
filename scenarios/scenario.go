// Package scenarios is what to run, as files that people write: a fabric, what
// happens to it, what its ranks do, and what must come of it. It holds the
// scenarios that ship with fabrictest, the schema of their format, and the
// loader, which names the file, the line and the key of whatever is wrong.
//
// A Scenario says nothing of how it is run: the same value runs in simulation
// and in network namespaces (package lab).
package scenarios

import (
	"time"

	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// FormatVersion is the version of the file format.
const FormatVersion = 1

// Tier is a way of running a scenario.
type Tier string

// The tiers.
const (
	Sim   Tier = "sim"   // one process, virtual time, the same bytes for the same seed
	NetNS Tier = "netns" // network namespaces, one process a host, real time
)

// Scenario is one file.
type Scenario struct {
	Version     int             `yaml:"version"`
	Name        string          `yaml:"name"` // that of the file, without .yaml
	Title       string          `yaml:"title"`
	Description string          `yaml:"description,omitempty"`
	Tags        []string        `yaml:"tags,omitempty"`
	Tiers       []Tier          `yaml:"tiers,omitempty"` // all if empty
	Seed        uint64          `yaml:"seed,omitempty"`
	Fabric      Fabric          `yaml:"fabric"`
	NIC         NIC             `yaml:"nic,omitempty"`
	Impair      []Impairment    `yaml:"impair,omitempty"`
	Events      []Event         `yaml:"events,omitempty"`
	Faults      []Fault         `yaml:"faults,omitempty"`
	Workload    workload.Config `yaml:"workload"`
	Expect      Expect          `yaml:"expect,omitempty"`
	// Limit is how long the run may take, in the tier's own time, before it is
	// ended and called hung.
	Limit time.Duration `yaml:"limit,omitempty"`

	source source // where each key stands in the file
}

// Fabric is the shape of the network.
type Fabric struct {
	Kind   Kind `yaml:"kind"`
	Hosts  int  `yaml:"hosts,omitempty"`
	Rails  int  `yaml:"rails,omitempty"`  // NICs a host, each on a subnet of its own; 1 by default
	Leaves int  `yaml:"leaves,omitempty"` // switches next to the hosts, in a fat tree
	Spines int  `yaml:"spines,omitempty"`
	IPv4   bool `yaml:"ipv4,omitempty"` // traffic over IPv4 instead of IPv6
	// Link is every cable; Links are exceptions, by the port at a host.
	Link  Link            `yaml:"link,omitempty"`
	Links map[string]Link `yaml:"links,omitempty"` // "host1", "host1/rdma0", "host*"
}

// Kind is a shape of fabric.
type Kind string

// The kinds of fabric.
const (
	Pair    Kind = "pair"     // two hosts back to back
	Star    Kind = "star"     // hosts around one switch
	FatTree Kind = "fat-tree" // hosts on leaves, every leaf on every spine, routed
)

// Link is what a cable can do. What is left out is the tier's default: 100 Gb/s
// and 1 µs in simulation, as fast as the machine in namespaces.
type Link struct {
	MTU     Bytes         `yaml:"mtu,omitempty"`
	Rate    Rate          `yaml:"rate,omitempty"`
	Latency time.Duration `yaml:"latency,omitempty"`
	Queue   Bytes         `yaml:"queue,omitempty"` // of the switch towards the cable
	ECN     ECN           `yaml:"ecn,omitempty"`
}

// ECN marks packets by the length of the queue that they meet.
type ECN struct {
	Min   Bytes   `yaml:"min"`
	Max   Bytes   `yaml:"max"`
	Share Percent `yaml:"share"` // of the packets that meet a queue of Max
}

// NIC is what every host has.
type NIC struct {
	Provider string `yaml:"provider,omitempty"` // softroce
	// Quirks are defects on purpose, as "fabrictest quirks" lists them; on every
	// host, or on those that On names.
	Quirks []string `yaml:"quirks,omitempty"`
	On     []string `yaml:"on,omitempty"`
	// ICRC may be "offloaded": neither computed nor checked.
	ICRC string `yaml:"icrc,omitempty"`
	// RateControl turns DCQCN off with "off".
	RateControl string `yaml:"rate_control,omitempty"`
}

// Where picks directions of cables at hosts: On lists hosts ("host1"), ports
// ("host1/rdma0") or patterns ("host*"); all if empty. Way is which way packets
// go: "out" of the host, "in" to it, or "both".
type Where struct {
	On  []string `yaml:"on,omitempty"`
	Way string   `yaml:"way,omitempty"`
}

// Impairment is what happens to packets by chance, for a span of time.
type Impairment struct {
	Where `yaml:",inline"`

	From  time.Duration `yaml:"from,omitempty"`
	Until time.Duration `yaml:"until,omitempty"` // 0: for ever

	Loss           Percent       `yaml:"loss,omitempty"`
	Burst          Burst         `yaml:"burst,omitempty"`
	Duplicate      Percent       `yaml:"duplicate,omitempty"`
	DuplicateDelay time.Duration `yaml:"duplicate_delay,omitempty"`
	Reorder        Percent       `yaml:"reorder,omitempty"`
	ReorderDelay   time.Duration `yaml:"reorder_delay,omitempty"`
	Delay          time.Duration `yaml:"delay,omitempty"`
	Jitter         time.Duration `yaml:"jitter,omitempty"`
	KeepOrder      bool          `yaml:"keep_order,omitempty"`
	Corrupt        Percent       `yaml:"corrupt,omitempty"`
	Truncate       Percent       `yaml:"truncate,omitempty"`
	Mark           Percent       `yaml:"mark,omitempty"`
	Rate           Rate          `yaml:"rate,omitempty"`
	Queue          Bytes         `yaml:"queue,omitempty"`
}

// Burst is loss in runs, after Gilbert and Elliott: before each packet the
// channel may change between a good and a bad state.
type Burst struct {
	ToBad  Percent `yaml:"to_bad"`
	ToGood Percent `yaml:"to_good"`
	Loss   Percent `yaml:"loss"` // while bad
}

// Event does one exact thing to one exact packet.
type Event struct {
	Where `yaml:",inline"`

	QP   *uint32 `yaml:"qp,omitempty"`  // destination queue pair
	PSN  *uint32 `yaml:"psn,omitempty"` // excludes Nth
	Nth  uint64  `yaml:"nth,omitempty"` // of the packets this way, 1 for the first
	Time int     `yaml:"time,omitempty"`

	Do    string        `yaml:"do"` // drop, duplicate, delay, reorder, corrupt_bit, truncate, set_ecn, set_field
	Count int           `yaml:"count,omitempty"`
	Delay time.Duration `yaml:"delay,omitempty"`
	Bit   int           `yaml:"bit,omitempty"`
	Bytes Bytes         `yaml:"bytes,omitempty"`
	ECN   uint8         `yaml:"ecn,omitempty"`
	Field string        `yaml:"field,omitempty"`
	Value uint64        `yaml:"value,omitempty"`
}

// Fault is something that is done to the fabric at a time.
type Fault struct {
	At  time.Duration `yaml:"at"`
	Do  Deed          `yaml:"do"`
	On  []string      `yaml:"on,omitempty"`  // as in Where
	For time.Duration `yaml:"for,omitempty"` // undone after it; 0: not undone
	// Times repeats the fault, with Every from one beginning to the next.
	Times int           `yaml:"times,omitempty"`
	Every time.Duration `yaml:"every,omitempty"`
	// Groups are what a partition keeps apart.
	Groups [][]string `yaml:"groups,omitempty"`
	// Set is what packets meet from then on, in place of the impairments before.
	Set *Impairment `yaml:"set,omitempty"`
}

// Deed is what a fault does.
type Deed string

// The deeds.
const (
	Down      Deed = "down"      // the link of a port
	Partition Deed = "partition" // Groups cannot reach each other
	SetImpair Deed = "impair"    // Set replaces what packets meet
	Kill      Deed = "kill"      // the host's process, at once
	Freeze    Deed = "freeze"    // the host's process stands still
	QPError   Deed = "qp-error"  // the rank's queue pairs are moved to Error
)

// Expect is what must come of it. What is left out is not looked at, except
// that nothing may arrive damaged and no program may fail.
type Expect struct {
	// Delivered is "exactly-once" (the default on reliable services),
	// "at-most-once", or "any".
	Delivered string `yaml:"delivered,omitempty"`
	// Memory is "identical" (the default): all memory that was written holds what
	// the requests in order make.
	Memory string `yaml:"memory,omitempty"`
	// Errors are the completion errors that must occur, and the only ones that
	// may, by rank pattern: {"host0": ["retry exceeded"]}.
	Errors map[string][]string `yaml:"errors,omitempty"`
	// Killed are the hosts that do not live to the end.
	Killed []string `yaml:"killed,omitempty"`

	Retransmits Range         `yaml:"retransmits,omitempty"` // packets sent again, all ranks together
	Reconnects  Range         `yaml:"reconnects,omitempty"`
	Marked      Range         `yaml:"marked,omitempty"` // packets marked with congestion
	Lost        Range         `yaml:"lost,omitempty"`   // packets lost in the fabric
	MaxTime     time.Duration `yaml:"max_time,omitempty"`
	MaxMemory   Bytes         `yaml:"max_memory,omitempty"` // resident, of any rank's process
	// Recovery is how long after the end of each fault traffic may take to flow
	// again.
	Recovery time.Duration `yaml:"recovery,omitempty"`
}

// Range bounds a count on both sides; nil is no bound.
type Range struct {
	Min *uint64 `yaml:"min,omitempty"`
	Max *uint64 `yaml:"max,omitempty"`
}

// Percent is a probability in parts per million, written as "0.1%".
type Percent uint32

// Bytes is a size, written as 4096, "4KiB" or "2MiB".
type Bytes int64

// Rate is in bits a second, written as "25Gbit" or "100Mbit".
type Rate uint64

// source says where the keys of a file stand.
type source struct {
	file  string
	lines map[string]int // by path: "impair[0].loss"
}
