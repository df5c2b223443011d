package carrier

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Design is which ways a rank uses to its peers.
type Design string

// The designs.
const (
	// SendRecv: a connection a peer, each with receives of its own, and credits.
	SendRecv Design = "sendrecv"
	// SRQ: a connection a peer, and receives that all of them share.
	SRQ Design = "srq"
	// RingSendRecv and RingSRQ are these, with a ring in the memory of peers that one
	// talks with often.
	RingSendRecv Design = "ring-sendrecv"
	RingSRQ      Design = "ring-srq"
	// UD: datagrams only.
	UD Design = "ud"
	// Hybrid: datagrams, and connections to the peers that one talks with most.
	Hybrid Design = "hybrid"
)

// Designs lists them.
func Designs() []Design { return []Design{SendRecv, SRQ, RingSendRecv, RingSRQ, UD, Hybrid} }

func (d Design) rings() bool    { return d == RingSendRecv || d == RingSRQ }
func (d Design) shares() bool   { return d == SRQ || d == RingSRQ || d == Hybrid }
func (d Design) connects() bool { return d != UD }

// Config is how a carrier works. What is zero has a default.
type Config struct {
	Design Design `json:"design,omitempty"`
	// PacketSize is the size of the largest packet, with what is around an eager message.
	PacketSize int `json:"packet,omitempty"`
	// Receives are those of each connection that has its own; also the credits that its
	// peer has.
	Receives int `json:"receives,omitempty"`
	// SharedReceives are those that connections share, posted again in batches; if no more
	// than LowWatermark are left they have run low, and are so at once.
	SharedReceives int `json:"shared_receives,omitempty"`
	LowWatermark   int `json:"low_watermark,omitempty"`
	// Datagrams is how datagrams are made reliable where the NIC does not.
	Datagrams Datagrams `json:"datagrams"`
	// Ring is for designs with rings.
	Ring Ring `json:"ring"`
	// HybridAfter is after how many packets to a peer Hybrid connects to it, and
	// HybridPeers to how many at most.
	HybridAfter int `json:"hybrid_after,omitempty"`
	HybridPeers int `json:"hybrid_peers,omitempty"`
	// IdleTimeout is how long a connection must not have been used to be given back; never if
	// 0, or with several rails.
	IdleTimeout time.Duration `json:"idle,omitempty"`
	// Reuse is for small buffers that are used often.
	Reuse Reuse `json:"reuse"`
	// NoCoalescing has every word leave by itself, and at once.
	NoCoalescing bool `json:"no_bundles,omitempty"`
	// NoSharedMemory has ranks of one host talk as those of different ones do.
	NoSharedMemory bool `json:"no_segments,omitempty"`
	// StripeThreshold is from which size on data is divided among rails.
	StripeThreshold int `json:"stripe_from,omitempty"`
	// CacheBytes is how much memory stays registered that nothing uses at the moment;
	// none below 0.
	CacheBytes int `json:"cache_bytes,omitempty"`
	// Spin is for how long a rank that waits looks again and again, in real time, before
	// it lets itself be woken. It costs a processor, and saves the time that waking takes.
	// Below 0 it never does.
	Spin time.Duration `json:"spin,omitempty"`
	// PollBackoff is how often a rank that waits looks for what wakes nobody, as data in a
	// ring: again when one of so many parts of what it has waited has passed. With few
	// it may learn of something that much late; a simulated world has an event for each.
	PollBackoff int `json:"attention,omitempty"`
	// KeepaliveIdle is after how much of it a peer that one waits for is asked whether it is
	// still there.
	KeepaliveIdle time.Duration `json:"silence,omitempty"`
	// PeerTimeout is how long a peer may take to answer that its NIC does not answer for.
	// It answers when its program communicates, or at once if it does so in the
	// background.
	PeerTimeout time.Duration `json:"patience,omitempty"`
}

// Datagrams is how unreliable datagrams become reliable.
type Datagrams struct {
	Receives int `json:"receives,omitempty"`
	// Window is how many packets to a peer may be without acknowledgement.
	Window int `json:"window,omitempty"`
	// AckEvery is for how many packets one is sent, and AckDelay how long it waits for
	// as many, or for something that it can travel with.
	AckEvery int           `json:"ack_every,omitempty"`
	AckDelay time.Duration `json:"ack_delay,omitempty"`
	// Timeout is after which a packet is sent again, doubled each time up to a second.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Ring is the fast way into a peer's memory.
type Ring struct {
	Slots int `json:"slots,omitempty"`
	// SlotSize is the size of one, and so of the largest packet that goes that way.
	SlotSize int `json:"slot,omitempty"`
	// After is after how many packets from a peer it is offered a ring, and Peers to
	// how many at most.
	After int `json:"after,omitempty"`
	Peers int `json:"peers,omitempty"`
}

func (c *Config) setDefaults() {
	c.Design = cmp.Or(c.Design, RingSRQ)
	c.PacketSize = cmp.Or(c.PacketSize, 8<<10)
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
}

// minPacket has room for the longest header and some data.
const minPacket = 256

// maxPollBackoff has a rank look every nanosecond at first.
const maxPollBackoff = int(firstWait / time.Nanosecond)

func (c *Config) check() error {
	known := false
	names := make([]string, 0, len(Designs()))
	for _, d := range Designs() {
		known = known || c.Design == d
		names = append(names, string(d))
	}
	switch {
	case !known:
		return fmt.Errorf("no design %q: there are %s", c.Design, strings.Join(names, ", "))
	case c.PacketSize < minPacket || c.Ring.SlotSize < minPacket || c.PacketSize%8 != 0 || c.Ring.SlotSize%8 != 0:
		return fmt.Errorf("packets of %d bytes and slots of %d: either must be a multiple of 8 and at least %d", c.PacketSize, c.Ring.SlotSize, minPacket)
	case c.Receives < minReceives:
		return fmt.Errorf("%d receives a connection: at least %d are needed", c.Receives, minReceives)
	case c.LowWatermark >= c.SharedReceives:
		return fmt.Errorf("the low watermark %d must be below the %d shared receives", c.LowWatermark, c.SharedReceives)
	case c.PollBackoff < 1 || c.PollBackoff > maxPollBackoff:
		return fmt.Errorf("attention of %d: there are 1 to %d", c.PollBackoff, maxPollBackoff)
	case c.Datagrams.Window < 1 || c.Datagrams.AckEvery < 1:
		return fmt.Errorf("datagrams: window and acknowledgements must be positive: %+v", c.Datagrams)
	}
	return nil
}

// fit has a configuration keep to what the NICs can do.
func (c *Config) fit(caps verbs.Caps) error {
	switch {
	case caps.Has(verbs.CapRD), caps.Has(verbs.CapUD) && !caps.Has(verbs.CapRC): // one queue pair reaches all peers, and makes no difference between designs
		c.Design = UD
	case c.Design == UD && !caps.Has(verbs.CapUD):
		return fmt.Errorf("design %s: %w: the NIC has no datagrams", c.Design, verbs.ErrNotSupported)
	case c.Design == Hybrid && !caps.Has(verbs.CapUD):
		return fmt.Errorf("design %s: %w: the NIC has no datagrams", c.Design, verbs.ErrNotSupported)
	}
	return nil
}
