package carrier

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// Design selects the transports to peers on other hosts.
type Design string

const (
	// SendRecv has a connection per peer with receive buffers and credits of its own.
	SendRecv Design = "sendrecv"
	// SRQ has a connection per peer, and a shared receive queue.
	SRQ Design = "srq"
	// RingSendRecv is SendRecv with RDMA-written rings from the busiest peers.
	RingSendRecv Design = "ring-sendrecv"
	// RingSRQ is SRQ with such rings.
	RingSRQ Design = "ring-srq"
	// UD has unreliable datagrams only.
	UD Design = "ud"
	// Hybrid has datagrams, and connections to the busiest peers.
	Hybrid Design = "hybrid"
)

// Designs returns all designs.
func Designs() []Design { return []Design{SendRecv, SRQ, RingSendRecv, RingSRQ, UD, Hybrid} }

func (d Design) hasRings() bool       { return d == RingSendRecv || d == RingSRQ }
func (d Design) hasSRQ() bool         { return d == SRQ || d == RingSRQ || d == Hybrid }
func (d Design) hasConnections() bool { return d != UD }
func (d Design) hasDatagrams() bool   { return d == UD || d == Hybrid }

// Config configures a carrier. Zero fields have defaults.
type Config struct {
	Design Design `json:"design,omitempty"`
	// PacketSize is the size of the largest packet, headers included.
	PacketSize int `json:"packet,omitempty"`
	// Receives is the number of receives of a connection without SRQ, and of the peer's credits.
	Receives int `json:"receives,omitempty"`
	// SharedReceives is the number of receives of the SRQ. They are posted in batches, or
	// at once when LowWatermark or fewer are left.
	SharedReceives int `json:"shared_receives,omitempty"`
	LowWatermark   int `json:"low_watermark,omitempty"`
	// Datagrams configures the acknowledgement of unreliable datagrams.
	Datagrams Datagrams `json:"datagrams"`
	// Ring configures the rings of designs that have them.
	Ring Ring `json:"ring"`
	HybridLimits
	// IdleTimeout closes an idle connection after this time; 0, or with several rails: never.
	IdleTimeout time.Duration `json:"idle,omitempty"`
	// Reuse configures the detection of small buffers that are used often.
	Reuse memory.Reuse `json:"reuse"`
	// NoCoalescing sends every message in a packet of its own.
	NoCoalescing bool `json:"no_bundles,omitempty"`
	// NoRDMA sends all data in packets, as if NICs had neither RDMA nor atomics. Rings need them.
	NoRDMA bool `json:"no_rdma,omitempty"`
	// NoSharedMemory makes ranks of one host use their NICs.
	NoSharedMemory bool `json:"no_segments,omitempty"`
	// StripeThreshold is the smallest transfer that is striped over rails.
	StripeThreshold int `json:"stripe_from,omitempty"`
	// CacheBytes limits the unused memory in the registration cache; negative: none.
	CacheBytes int `json:"cache_bytes,omitempty"`
	Waiting
}

// HybridLimits limits the connections of Hybrid.
type HybridLimits struct {
	// HybridAfter is the number of packets to a peer after which Hybrid connects to it, and
	// HybridPeers the largest number of connected peers.
	HybridAfter int `json:"hybrid_after,omitempty"`
	HybridPeers int `json:"hybrid_peers,omitempty"`
}

// Waiting configures how long the rank waits for peers, and how.
type Waiting struct {
	// Spin is how long Wait busy-polls in real time before it blocks; negative: never. It
	// trades CPU time for latency.
	Spin time.Duration `json:"spin,omitempty"`
	// PollBackoff sets the interval at which Wait polls rings and shared memory, which do
	// not wake it: the time waited so far divided by PollBackoff.
	PollBackoff int `json:"attention,omitempty"`
	// KeepaliveIdle is the idle time before a liveness probe of a peer that the rank waits for.
	KeepaliveIdle time.Duration `json:"silence,omitempty"`
	// PeerTimeout is how long a peer may leave packets and probes unanswered where its NIC
	// does not answer them. A peer answers whenever its program communicates.
	PeerTimeout time.Duration `json:"patience,omitempty"`
	// AckTimeout is the time after which a NIC retransmits on a connection, rounded up to 4.096 µs times a power of
	// two. After eight of them without an acknowledgement it reports the connection as failed.
	AckTimeout time.Duration `json:"ack_timeout,omitempty"`
}

// Datagrams configures acknowledgement and retransmission of unreliable datagrams.
type Datagrams struct {
	Receives int `json:"receives,omitempty"`
	// Window is the largest number of unacknowledged packets to a peer.
	Window int `json:"window,omitempty"`
	// AckEvery is the number of received packets after which an acknowledgement is sent.
	// AckDelay is how long a smaller number waits for a packet to carry it.
	AckEvery int           `json:"ack_every,omitempty"`
	AckDelay time.Duration `json:"ack_delay,omitempty"`
	// Timeout is the first retransmission timeout. It doubles each time up to a second.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Ring configures rings: slots in the receiver's memory that a peer writes packets to with RDMA.
type Ring struct {
	Slots int `json:"slots,omitempty"`
	// SlotSize is the size of a slot; larger packets use the connection.
	SlotSize int `json:"slot,omitempty"`
	// After is the number of packets from a peer after which it is offered a ring, and
	// Peers the largest number of rings.
	After int `json:"after,omitempty"`
	Peers int `json:"peers,omitempty"`
}

// setDefaults replaces zero settings by defaults. Ring.After and HybridAfter are the packets after
// which a peer gets a ring or a connection, Ring.Peers and HybridPeers the most peers that get one.
func (c *Config) setDefaults() {
	c.Design = cmp.Or(c.Design, RingSRQ)
	c.PacketSize = cmp.Or(c.PacketSize, defaultPacket)
	c.Receives = cmp.Or(c.Receives, 32)
	c.SharedReceives = cmp.Or(c.SharedReceives, 256)
	c.LowWatermark = cmp.Or(c.LowWatermark, c.SharedReceives/4)
	d := &c.Datagrams
	d.Receives = cmp.Or(d.Receives, 256)
	d.Window = cmp.Or(d.Window, 128)
	d.AckEvery = cmp.Or(d.AckEvery, 50)
	d.AckDelay = cmp.Or(d.AckDelay, time.Millisecond)
	d.Timeout = cmp.Or(d.Timeout, 20*time.Millisecond)
	r := &c.Ring
	r.Slots = cmp.Or(r.Slots, 32)
	r.SlotSize = cmp.Or(r.SlotSize, 2<<10)
	r.After = cmp.Or(r.After, 16)
	r.Peers = cmp.Or(r.Peers, 16)
	c.HybridAfter = cmp.Or(c.HybridAfter, 64)
	c.HybridPeers = cmp.Or(c.HybridPeers, 16)
	c.StripeThreshold = cmp.Or(c.StripeThreshold, 64<<10)
	c.CacheBytes = cmp.Or(c.CacheBytes, 64<<20)
	c.Spin = cmp.Or(c.Spin, 200*time.Microsecond)
	c.PollBackoff = cmp.Or(c.PollBackoff, 8)
	c.KeepaliveIdle = cmp.Or(c.KeepaliveIdle, 500*time.Millisecond)
	c.PeerTimeout = cmp.Or(c.PeerTimeout, 30*time.Second)
	c.AckTimeout = cmp.Or(c.AckTimeout, transport.DefaultAckTimeout)
}

// defaultPacket holds 16 KiB of data, the default eager limit, and the longest header.
const defaultPacket = 16<<10 + minPacket

// minPacket holds the longest header and some data.
const minPacket = 256

// costedPollBackoff is the default of PollBackoff where times are those of a platform: the interval
// must not be a part of them.
const costedPollBackoff = 128

// maxPollBackoff makes the first poll interval a nanosecond.
const maxPollBackoff = int(minIdle / time.Nanosecond)

// check returns an error if a setting is invalid.
func (c *Config) check() error {
	switch {
	case !slices.Contains(Designs(), c.Design):
		return fmt.Errorf("unknown design %q: want one of %v", c.Design, Designs())
	case c.PacketSize < minPacket || c.Ring.SlotSize < minPacket || c.PacketSize%8 != 0 || c.Ring.SlotSize%8 != 0:
		return fmt.Errorf("packets of %d bytes and slots of %d: both must be a multiple of 8 and at least %d", c.PacketSize, c.Ring.SlotSize, minPacket)
	case c.NoRDMA && c.Design.hasRings():
		return fmt.Errorf("design %s needs RDMA for its rings: use %s or %s without", c.Design, SendRecv, SRQ)
	case c.Receives < minReceives:
		return fmt.Errorf("%d receives a connection: at least %d are needed", c.Receives, minReceives)
	case c.LowWatermark >= c.SharedReceives:
		return fmt.Errorf("the low watermark %d must be below the %d shared receives", c.LowWatermark, c.SharedReceives)
	case c.PollBackoff < 1 || c.PollBackoff > maxPollBackoff:
		return fmt.Errorf("poll backoff %d: want 1 to %d", c.PollBackoff, maxPollBackoff)
	case c.Datagrams.Window < 1 || c.Datagrams.AckEvery < 1:
		return fmt.Errorf("datagrams: window and acknowledgements must be positive: %+v", c.Datagrams)
	}
	return nil
}

// restrictTo adapts the design (which transports are used) to the capabilities of the NICs: those
// with reliable datagrams, or without connections, use UD. It returns an error if the design needs
// datagrams that the NICs lack.
func (c *Config) restrictTo(caps verbs.Caps) error {
	switch {
	case caps.Has(verbs.CapRD), caps.Has(verbs.CapUD) && !caps.Has(verbs.CapRC): // all peers share one queue pair, whatever the design
		c.Design = UD
	case c.Design.hasDatagrams() && !caps.Has(verbs.CapUD):
		return fmt.Errorf("design %s: %w: the NIC has no datagrams", c.Design, verbs.ErrNotSupported)
	}
	return nil
}
