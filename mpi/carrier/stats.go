package carrier

import (
	"github.com/fabrictest/fabrictest/mpi/regcache"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// MemoryKind is a kind of communication memory.
type MemoryKind uint8

// The kinds of communication memory.
const (
	SendBuffers            MemoryKind = iota // packets under way
	ConnReceiveBuffers                       // receives of connections without SRQ
	SharedReceiveBuffers                     // receives of SRQs
	DatagramReceiveBuffers                   // receives of datagrams
	RingBuffers                              // rings that peers write to
	SharedSegments                           // shared memory with ranks of the same host
	memoryKinds
)

var memoryKindNames = [memoryKinds]string{"send buffers", "receives of connections", "shared receives", "receives of datagrams", "rings", "shared segments"}

func (m MemoryKind) String() string { return memoryKindNames[m] }

// MemoryUsage is the current and the largest size of each kind of memory, in bytes.
type MemoryUsage struct {
	Now [memoryKinds]int `json:"now"`
	Max [memoryKinds]int `json:"max"`
}

func (b *MemoryUsage) add(kind MemoryKind, n int) {
	b.Now[kind] += n
	b.Max[kind] = max(b.Max[kind], b.Now[kind])
}

// Total is the current size of all kinds.
func (b *MemoryUsage) Total() (n int) {
	for _, k := range b.Now {
		n += k
	}
	return n
}

// Transport is how packets reach a peer.
type Transport uint8

// The transports.
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

// Stats are the counters of a carrier.
type Stats struct {
	Packets [transports]uint64 `json:"packets"` // sent, by Transport
	// ByRail counts bytes of packets and RDMA on each rail.
	ByRail        [wire.MaxRails]uint64 `json:"by_rail"`
	Coalesced     uint64                `json:"bundled"`  // messages that shared a packet
	Headerless    uint64                `json:"naked"`    // packets without prefix and header
	Gathered      uint64                `json:"gathered"` // packets whose data the NIC gathered from the program's buffer
	ZeroCopy      uint64                `json:"direct"`   // small puts and gets without bounce buffer
	AckOnly       uint64                `json:"bare"`     // packets with acknowledgements and credits only
	Retransmitted uint64                `json:"resent"`
	Duplicates    uint64                `json:"repeated"` // received packets that had arrived before
	OutOfOrder    uint64                `json:"early"`    // received packets
	Queued        uint64                `json:"waited"`   // messages that no transport had room for
	Discarded     uint64                `json:"foreign"`  // received packets that were malformed or not of a peer

	Reads, Writes, Atomics  uint64
	ReadBytes, WrittenBytes uint64
	Pieces                  uint64 // data packets of transfers without RDMA

	Connections        int    `json:"connections"` // current
	MaxConnections     int    `json:"max_connections"`
	ConnectionsOpened  uint64 `json:"connected"`
	ConnectionsClosed  uint64 `json:"given_back"`
	ConnectionsRefused uint64 `json:"refused"`       // by peers at their limit
	Rings              int    `json:"rings"`         // that peers write to
	LowWatermark       uint64 `json:"low_watermark"` // how often an SRQ reached it
	RailsLost          int    `json:"rails_lost"`

	Memory        MemoryUsage    `json:"memory"`
	Registrations regcache.Stats `json:"registrations"`
	// Reuse counts uses of small buffers. ReuseThresholds is how many uses of a size pay
	// for its registration.
	Reuse           regcache.ReuseStats `json:"reuse"`
	ReuseThresholds regcache.Thresholds `json:"reuse_pays,omitempty"`
}

// Stats returns the counters.
func (c *Carrier) Stats() Stats {
	s := c.stats
	s.Registrations = c.cache.Stats
	if c.frequent != nil {
		s.Reuse = c.frequent.Stats
	}
	return s
}
