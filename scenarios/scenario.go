// Package scenarios defines the format of scenario files: a fabric, its impairments and faults, the
// workload of its ranks, and the expected result; or an experiment with published results. It contains the scenarios that ship with
// fabrictest, the JSON schema of the format, and the loader, whose errors have file, line and key.
//
// It does not run scenarios: package lab does, in simulation and in network namespaces. The
// package has no state; a Scenario may be read from several goroutines.
package scenarios

import (
	"fmt"
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

// Tier is where a scenario runs.
type Tier string

// The tiers.
const (
	Sim   Tier = "sim"   // one process, virtual time, reproducible for a seed
	NetNS Tier = "netns" // network namespaces, one process per host, real time
)

// DefaultLimit is the default of Scenario.Limit.
const DefaultLimit = time.Minute

// Scenario is the contents of a scenario file.
type Scenario struct {
	// Version is the version of the format: 1.
	Version int `yaml:"version" range:"1..1"`
	// Name is the name of the file, without .yaml.
	Name string `yaml:"name" pattern:"^[a-z0-9]+(-[a-z0-9]+)*$" hint:"use small letters, digits and single hyphens"`
	// Title is a short description for tables, on one line.
	Title string `yaml:"title" pattern:"^[^\\r\\n]{1,80}$" hint:"write one line of at most 80 characters"`
	// Description says what the scenario shows, and why its result is as expected.
	Description string `yaml:"description,omitempty"`
	// Tags are for choosing scenarios. Those with a meaning are standard (run by default),
	// quick (less than a second) and slow.
	Tags []string `yaml:"tags,omitempty" pattern:"^[a-z0-9]+(-[a-z0-9]+)*$" hint:"use small letters, digits and single hyphens"`
	// Tiers are where it may run: sim, netns; everywhere if left out.
	Tiers []Tier `yaml:"tiers,omitempty" enum:"sim netns"`
	// Seed is the random seed; that of the run if left out.
	Seed uint64 `yaml:"seed,omitempty"`
	// Fabric is the topology of the network; required, as is workload, without experiment.
	Fabric Fabric `yaml:"fabric,omitempty"`
	// NIC is the NIC of every host.
	NIC NIC `yaml:"nic,omitempty"`
	// Impair are random impairments of packets.
	Impair []Impairment `yaml:"impair,omitempty" most:"64"`
	// Events are actions on selected packets.
	Events []Event `yaml:"events,omitempty" most:"256"`
	// Faults are faults of the fabric and its hosts at given times.
	Faults []Fault `yaml:"faults,omitempty" most:"64"`
	// Workload is what the ranks do.
	Workload workload.Config `yaml:"workload,omitempty"`
	// Expect is the expected result.
	Expect Expect `yaml:"expect,omitempty"`
	// Experiment compares variants of a workload of the multi-rank runtime with published results,
	// instead of all sections above. It runs in simulation.
	Experiment *Experiment `yaml:"experiment,omitempty"`
	// Limit is how long the run may take, in the time of the tier, before it is ended and
	// fails as hung; a minute if left out. For an experiment it limits each variant at each x.
	Limit time.Duration `yaml:"limit,omitempty"`

	source source // positions of the keys in the file
}

// Fabric is the topology of the network. Hosts are called host0, host1 and so on, their
// NICs rdma0, rdma1 and so on, one per rail.
type Fabric struct {
	// Kind is pair (two hosts back to back), star (hosts around one switch) or
	// fat-tree (hosts on leaves, every leaf on every spine, routed).
	Kind Kind `yaml:"kind" enum:"pair star fat-tree"`
	// Hosts is the number of hosts; a pair has two.
	Hosts int `yaml:"hosts,omitempty" range:"2..1024"`
	// Rails is the number of NICs of a host, each on its own subnet; 1 if left out.
	Rails int `yaml:"rails,omitempty" range:"1..8"`
	// Leaves is the number of switches next to the hosts, in a fat tree.
	Leaves int `yaml:"leaves,omitempty" range:"1..64"`
	// Spines is the number of switches above the leaves, in a fat tree.
	Spines int `yaml:"spines,omitempty" range:"1..64"`
	// IPv4 uses IPv4 instead of IPv6.
	IPv4 bool `yaml:"ipv4,omitempty"`
	// Cable is what connects hosts in real time: veth (interfaces of network namespaces) or shm (rings
	// in shared memory, without namespaces); veth if left out.
	Cable CableKind `yaml:"cable,omitempty" enum:"veth shm"`
	// Link are the properties of every cable.
	Link Link `yaml:"link,omitempty"`
	// Links are exceptions, by the port at a host ("host1", "host1/rdma0", "host*"):
	// omitted values are those of link.
	Links map[string]Link `yaml:"links,omitempty"`
}

// CableKind is what connects hosts in real time.
type CableKind string

// The kinds of cables.
const (
	VethPair     CableKind = "veth" // interfaces of network namespaces
	SharedMemory CableKind = "shm"  // rings in shared memory
)

// String, Set and Type make a CableKind the value of a flag.
func (k *CableKind) String() string { return string(*k) }

// Set implements pflag.Value. It returns an error if text is not a kind of cable.
func (k *CableKind) Set(text string) error {
	if *k = CableKind(text); *k != VethPair && *k != SharedMemory {
		return fmt.Errorf("give %s or %s", VethPair, SharedMemory)
	}
	return nil
}

// Type is the name of the type in messages.
func (*CableKind) Type() string { return "cable" }

// Kind is a kind of topology.
type Kind string

// The kinds of topology.
const (
	Pair    Kind = "pair"     // two hosts back to back
	Star    Kind = "star"     // hosts around one switch
	FatTree Kind = "fat-tree" // hosts on leaves, every leaf on every spine, routed
)

// Link are the properties of a cable. The defaults depend on the tier: 100 Gb/s and 1 µs in
// simulation, as fast as the machine in namespaces.
type Link struct {
	// MTU is the largest IP packet; IPv6 needs 1280. 4200 if left out.
	MTU Bytes `yaml:"mtu,omitempty" range:"1280..65535"`
	// Rate is the bandwidth, in each direction.
	Rate Rate `yaml:"rate,omitempty"`
	// Latency is the propagation delay.
	Latency time.Duration `yaml:"latency,omitempty"`
	// Queue is the size of the switch queue before the cable; packets beyond it are lost.
	Queue Bytes `yaml:"queue,omitempty" range:"1..1073741824"`
	// ECN marks packets by the length of that queue.
	ECN ECN `yaml:"ecn,omitempty"`
}

// ECN marks packets by queue length, as RED does: none up to Min, all above Max, and a
// share growing to Share in between.
type ECN struct {
	// Min is the longest queue without marks.
	Min Bytes `yaml:"min" range:"0..1073741824"`
	// Max is the longest queue that does not mark everything.
	Max Bytes `yaml:"max" range:"1..1073741824"`
	// Share is the share of marked packets at a queue of max.
	Share Percent `yaml:"share"`
}

// NIC is the NIC of every host.
type NIC struct {
	// Provider is the emulated NIC; softroce if left out.
	Provider string `yaml:"provider,omitempty" enum:"softroce softiwarp dgiwarp"`
	// Defects are deliberate defects, as "fabrictest list defects" lists them.
	Defects []string `yaml:"defects,omitempty"`
	// On are the hosts with the defects; all if left out.
	On []string `yaml:"on,omitempty"`
	// Options are settings of the provider by name: icrc, rate_control and ack_unsignaled of softroce (all
	// true if left out); markers, client_server, siw_peer (all false) and crc (true) of softiwarp.
	Options map[string]bool `yaml:"options,omitempty"`
}
