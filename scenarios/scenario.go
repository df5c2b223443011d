// Package scenarios is what to run, as files that people write: a fabric, what
// happens to it, what its ranks do, and what must come of it. It holds the
// scenarios that ship with fabrictest, the schema of their format, and the
// loader, which names the file, the line and the key of whatever is wrong.
//
// A Scenario says nothing of how it is run: the same value runs in simulation
// and in network namespaces (package lab). The package opens nothing but the
// files it is given and keeps no state; a Scenario that nobody changes may be
// used from several goroutines.
package scenarios

import (
	"time"

	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// The comments on the fields below are the descriptions in schema.json, which is
// made from these types. Tags say what the loader and the schema check alike:
//
//	yaml     the key; required unless omitempty
//	enum     the words that may be given
//	range    the least and the largest number
//	most     how many entries a list has
//	pattern  what a string looks like, with hint to say so in words
//	unit     that an int is written as a size ("4KiB")

// FormatVersion is the version of the file format.
const FormatVersion = 1

// Tier is a way of running a scenario.
type Tier string

// The tiers.
const (
	Sim   Tier = "sim"   // one process, virtual time, the same bytes for the same seed
	NetNS Tier = "netns" // network namespaces, one process a host, real time
)

// Tiers lists the tiers.
func Tiers() []Tier { return []Tier{Sim, NetNS} }

// DefaultLimit is how long a run may take if the scenario does not say.
const DefaultLimit = time.Minute

// Scenario is one file.
type Scenario struct {
	// Version is that of the format: 1.
	Version int `yaml:"version" range:"1..1"`
	// Name is that of the file, without .yaml.
	Name string `yaml:"name" pattern:"^[a-z0-9]+(-[a-z0-9]+)*$" hint:"use small letters, digits and single hyphens"`
	// Title is what a table shows, on one line.
	Title string `yaml:"title" pattern:"^[^\\r\\n]{1,80}$" hint:"write one line of at most 80 characters"`
	// Description says what the scenario shows, and why it must come out that way.
	Description string `yaml:"description,omitempty"`
	// Tags are for choosing scenarios. Those with a meaning are standard (run by
	// default), quick (over in less than a second) and slow.
	Tags []string `yaml:"tags,omitempty" pattern:"^[a-z0-9]+(-[a-z0-9]+)*$" hint:"use small letters, digits and single hyphens"`
	// Tiers are where it may run: sim, netns; everywhere if left out.
	Tiers []Tier `yaml:"tiers,omitempty" enum:"sim netns"`
	// Seed fixes what is left to chance; that of the run is used if left out.
	Seed uint64 `yaml:"seed,omitempty"`
	// Fabric is the shape of the network.
	Fabric Fabric `yaml:"fabric"`
	// NIC is what every host has.
	NIC NIC `yaml:"nic,omitempty"`
	// Impair is what happens to packets by chance.
	Impair []Impairment `yaml:"impair,omitempty" most:"64"`
	// Events are exact things done to exact packets.
	Events []Event `yaml:"events,omitempty" most:"256"`
	// Faults are done to the fabric and its hosts, at times.
	Faults []Fault `yaml:"faults,omitempty" most:"64"`
	// Workload is what the ranks do.
	Workload workload.Config `yaml:"workload"`
	// Expect is what must come of it.
	Expect Expect `yaml:"expect,omitempty"`
	// Limit is how long the run may take, in the tier's own time, before it is
	// ended and called hung; a minute if left out.
	Limit time.Duration `yaml:"limit,omitempty"`

	source source // where each key stands in the file
}

// Fabric is the shape of the network. Hosts are called host0, host1 and so on,
// their NICs rdma0, rdma1 and so on, one a rail.
type Fabric struct {
	// Kind is pair (two hosts back to back), star (hosts around one switch) or
	// fat-tree (hosts on leaves, every leaf on every spine, routed).
	Kind Kind `yaml:"kind" enum:"pair star fat-tree"`
	// Hosts is how many there are; a pair has two.
	Hosts int `yaml:"hosts,omitempty" range:"2..1024"`
	// Rails is the number of NICs a host has, each on a subnet of its own; 1 if left out.
	Rails int `yaml:"rails,omitempty" range:"1..8"`
	// Leaves is the number of switches next to the hosts, in a fat tree.
	Leaves int `yaml:"leaves,omitempty" range:"1..64"`
	// Spines is the number of switches above the leaves, in a fat tree.
	Spines int `yaml:"spines,omitempty" range:"1..64"`
	// IPv4 has traffic go over IPv4 instead of IPv6.
	IPv4 bool `yaml:"ipv4,omitempty"`
	// Link is every cable.
	Link Link `yaml:"link,omitempty"`
	// Links are exceptions, by the port at a host ("host1", "host1/rdma0",
	// "host*"): what one leaves out is as in link.
	Links map[string]Link `yaml:"links,omitempty"`
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
	// MTU is the largest IP packet that passes; IPv6 needs 1280. 4200 if left out.
	MTU Bytes `yaml:"mtu,omitempty" range:"1280..65535"`
	// Rate is the bandwidth, each way.
	Rate Rate `yaml:"rate,omitempty"`
	// Latency is how long a packet is on the cable.
	Latency time.Duration `yaml:"latency,omitempty"`
	// Queue is how much waits in the switch for the cable before packets are lost.
	Queue Bytes `yaml:"queue,omitempty" range:"1..1073741824"`
	// ECN marks packets by the length of that queue.
	ECN ECN `yaml:"ecn,omitempty"`
}

// ECN marks packets by the length of the queue that they meet: none up to Min,
// all above Max, and a share growing to Share in between.
type ECN struct {
	// Min is the longest queue that marks nothing.
	Min Bytes `yaml:"min" range:"0..1073741824"`
	// Max is the longest queue that does not mark everything.
	Max Bytes `yaml:"max" range:"1..1073741824"`
	// Share is that of the packets which are marked at a queue of max.
	Share Percent `yaml:"share"`
}

// NIC is what every host has.
type NIC struct {
	// Provider is the emulated NIC: softroce (if left out), softiwarp, or dgiwarp.
	Provider string `yaml:"provider,omitempty" enum:"softroce softiwarp dgiwarp"`
	// Quirks are defects on purpose, as "fabrictest quirks" lists them.
	Quirks []string `yaml:"quirks,omitempty"`
	// On are the hosts that have the quirks; all if left out.
	On []string `yaml:"on,omitempty"`
	// Markers asks peers for markers in the stream, which iWARP has.
	Markers bool `yaml:"markers,omitempty"`
	// ICRC may be offloaded: neither computed nor checked.
	ICRC string `yaml:"icrc,omitempty" enum:"checked offloaded"`
	// RateControl is how senders react to congestion marks; off is not at all.
	RateControl string `yaml:"rate_control,omitempty" enum:"dcqcn off"`
}
