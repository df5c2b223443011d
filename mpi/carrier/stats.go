package carrier

import (
	"github.com/fabrictest/fabrictest/mpi/regcache"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Memory is what communication memory is for.
type Memory uint8

// The kinds of memory.
const (
	SendBuffers     Memory = iota // packets on their way
	OwnReceives                   // of connections that have their own
	SharedBuffers                 // that connections share
	DatagramBuffers               // receives of datagrams
	RingBuffers                   // rings that peers write to, and their like here
	SharedSegments                // in common with ranks of the same host
	memories
)

var memoryNames = [memories]string{"send buffers", "receives of connections", "shared receives", "receives of datagrams", "rings", "shared segments"}

func (m Memory) String() string { return memoryNames[m] }

// Bytes are those of each kind of memory, now and at most.
type Bytes struct {
	Now [memories]int `json:"now"`
	Max [memories]int `json:"max"`
}

func (b *Bytes) add(what Memory, n int) {
	b.Now[what] += n
	b.Max[what] = max(b.Max[what], b.Now[what])
}

// Total is that of all kinds.
func (b *Bytes) Total() (n int) {
	for _, k := range b.Now {
		n += k
	}
	return n
}

// Way is one by which packets travel.
type Way uint8

// The ways.
const (
	ByConnection Way = iota
	ByRing
	ByDatagram
	ByMemory
	ByItself
	ways
)

var wayNames = [ways]string{"connection", "ring", "datagrams", "shared memory", "itself"}

func (w Way) String() string { return wayNames[w] }

// Stats count what a carrier did.
type Stats struct {
	Packets [ways]uint64 `json:"packets"` // sent, by way
	// ByRail are bytes that each NIC was given to send or to bring.
	ByRail   [wire.MaxRails]uint64 `json:"by_rail"`
	Bundled  uint64                `json:"bundled"`  // words that shared a packet with others
	Naked    uint64                `json:"naked"`    // packets of data alone
	Gathered uint64                `json:"gathered"` // of them, with data from where the program has it
	Direct   uint64                `json:"direct"`   // small puts and gets without a copy
	Bare     uint64                `json:"bare"`     // packets that only acknowledge or give credits
	Resent   uint64                `json:"resent"`
	Repeated uint64                `json:"repeated"` // packets that came again
	Early    uint64                `json:"early"`    // that came before their turn
	Waited   uint64                `json:"waited"`   // that had to wait for room
	Foreign  uint64                `json:"foreign"`  // that made no sense

	Reads, Writes, Atomics  uint64
	ReadBytes, WrittenBytes uint64
	Pieces                  uint64 // of data that went in packets

	Connections    int    `json:"connections"` // now
	MaxConnections int    `json:"max_connections"`
	Connected      uint64 `json:"connected"`
	GivenBack      uint64 `json:"given_back"`
	Refused        uint64 `json:"refused"`       // by peers who had no room for them
	Rings          int    `json:"rings"`         // that peers write to
	LowWatermark   uint64 `json:"low_watermark"` // how often shared receives ran low
	RailsLost      int    `json:"rails_lost"`

	Memory        Bytes          `json:"memory"`
	Registrations regcache.Stats `json:"registrations"`
	// Reuse is of small buffers, and ReusePays how many uses of them it takes to pay for
	// their registration, by size.
	Reuse     regcache.ReuseStats `json:"reuse"`
	ReusePays regcache.Thresholds `json:"reuse_pays,omitempty"`
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
