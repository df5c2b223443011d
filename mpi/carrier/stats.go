package carrier

import (
	"github.com/fabrictest/fabrictest/mpi/regcache"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// MemoryKind is what communication memory is for.
type MemoryKind uint8

// The kinds of memory.
const (
	SendBuffers            MemoryKind = iota // packets on their way
	ConnReceiveBuffers                       // of connections that have their own
	SharedReceiveBuffers                     // that connections share
	DatagramReceiveBuffers                   // receives of datagrams
	RingBuffers                              // rings that peers write to, and their like here
	SharedSegments                           // in common with ranks of the same host
	memoryKinds
)

var memoryKindNames = [memoryKinds]string{"send buffers", "receives of connections", "shared receives", "receives of datagrams", "rings", "shared segments"}

func (m MemoryKind) String() string { return memoryKindNames[m] }

// MemoryUsage are those of each kind of memory, now and at most.
type MemoryUsage struct {
	Now [memoryKinds]int `json:"now"`
	Max [memoryKinds]int `json:"max"`
}

func (b *MemoryUsage) add(what MemoryKind, n int) {
	b.Now[what] += n
	b.Max[what] = max(b.Max[what], b.Now[what])
}

// Total is that of all kinds.
func (b *MemoryUsage) Total() (n int) {
	for _, k := range b.Now {
		n += k
	}
	return n
}

// Transport is one by which packets travel.
type Transport uint8

// The ways.
const (
	OverConnection Transport = iota
	OverRing
	OverDatagrams
	OverSharedMemory
	OverLoopback
	transports
)

var transportNames = [transports]string{"connection", "ring", "datagrams", "shared memory", "itself"}

func (w Transport) String() string { return transportNames[w] }

// Stats count what a carrier did.
type Stats struct {
	Packets [transports]uint64 `json:"packets"` // sent, by way
	// ByRail are bytes that each NIC was given to send or to bring.
	ByRail        [wire.MaxRails]uint64 `json:"by_rail"`
	Coalesced     uint64                `json:"bundled"`  // words that shared a packet with others
	Headerless    uint64                `json:"naked"`    // packets of data alone
	Gathered      uint64                `json:"gathered"` // of them, with data from where the program has it
	ZeroCopy      uint64                `json:"direct"`   // small puts and gets without a copy
	AckOnly       uint64                `json:"bare"`     // packets that only acknowledge or give credits
	Retransmitted uint64                `json:"resent"`
	Duplicates    uint64                `json:"repeated"` // packets that came again
	OutOfOrder    uint64                `json:"early"`    // that came before their turn
	Queued        uint64                `json:"waited"`   // that had to wait for room
	Discarded     uint64                `json:"foreign"`  // that made no sense

	Reads, Writes, Atomics  uint64
	ReadBytes, WrittenBytes uint64
	Pieces                  uint64 // of data that went in packets

	Connections        int    `json:"connections"` // now
	MaxConnections     int    `json:"max_connections"`
	ConnectionsOpened  uint64 `json:"connected"`
	ConnectionsClosed  uint64 `json:"given_back"`
	ConnectionsRefused uint64 `json:"refused"`       // by peers who had no room for them
	Rings              int    `json:"rings"`         // that peers write to
	LowWatermark       uint64 `json:"low_watermark"` // how often shared receives ran low
	RailsLost          int    `json:"rails_lost"`

	Memory        MemoryUsage    `json:"memory"`
	Registrations regcache.Stats `json:"registrations"`
	// Reuse is of small buffers, and ReusePays how many uses of them it takes to pay for
	// their registration, by size.
	Reuse           regcache.ReuseStats `json:"reuse"`
	ReuseThresholds regcache.Thresholds `json:"reuse_pays,omitempty"`
}

// Stats returns what was counted.
func (c *Carrier) Stats() Stats {
	s := c.stats
	s.Registrations = c.cache.Stats
	if c.frequent != nil {
		s.Reuse = c.frequent.Stats
	}
	return s
}
