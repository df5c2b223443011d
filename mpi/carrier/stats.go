package carrier

import (
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Transport is how packets reach a peer.
type Transport uint8

// The transports.
const (
	OverConnection Transport = iota
	OverRing
	OverDatagrams
	OverSharedMemory
	OverLoopback
	OverMulticast
	transports
)

var transportNames = [transports]string{"connection", "ring", "datagrams", "shared memory", "itself", "multicast"}

func (w Transport) String() string { return transportNames[w] }

// Stats are the counters of a carrier.
type Stats struct {
	PacketStats
	TransferStats
	ConnStats
	memory.Stats
}

// PacketStats counts packets.
type PacketStats struct {
	Packets [transports]uint64 `json:"packets"` // sent, by Transport
	// ByRail counts bytes of packets and RDMA on each rail.
	ByRail            [wire.MaxRails]uint64 `json:"by_rail"`
	Coalesced         uint64                `json:"coalesced"`  // messages that shared a packet
	Headerless        uint64                `json:"headerless"` // packets without prefix and header
	Gathered          uint64                `json:"gathered"`   // packets whose data the NIC gathered from the program's buffer
	AckOnly           uint64                `json:"ack_only"`   // packets with acknowledgements and credits only
	Retransmitted     uint64                `json:"retransmitted"`
	MulticastRequests uint64                `json:"multicast_requests"` // of multicast packets that have not arrived
	// MulticastResent counts multicast packets that were sent again, to a member that has not received them.
	MulticastResent uint64 `json:"multicast_resent"`
	Duplicates      uint64 `json:"duplicates"`   // received packets that had arrived before
	OutOfOrder      uint64 `json:"out_of_order"` // received packets
	Queued          uint64 `json:"queued"`       // messages that no transport had room for
	Discarded       uint64 `json:"discarded"`    // received packets that were malformed or not of a peer
}

// TransferStats counts one-sided transfers.
type TransferStats struct {
	Reads, Writes, Atomics  uint64
	ReadBytes, WrittenBytes uint64
	Pieces                  uint64 // data packets of transfers without RDMA
}

// ConnStats counts connections and rings.
type ConnStats struct {
	Connections        int    `json:"connections"` // current
	MaxConnections     int    `json:"max_connections"`
	ConnectionsOpened  uint64 `json:"connections_opened"`
	ConnectionsClosed  uint64 `json:"connections_closed"`
	ConnectionsRefused uint64 `json:"connections_refused"` // by peers at their limit
	Rings              int    `json:"rings"`               // that peers write to
	LowWatermark       uint64 `json:"low_watermark"`       // how often an SRQ reached it
	RailsLost          int    `json:"rails_lost"`
}

// Stats returns the counters of the carrier and of its registered memory.
func (c *Carrier) Stats() Stats {
	s := c.stats
	s.Stats = c.mem.Stats()
	return s
}
