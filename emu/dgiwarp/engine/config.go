package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// Config describes a NIC. All fields except GIDs and Secret have defaults.
type Config struct {
	// GIDs is the GID table of the port: its IP addresses.
	GIDs []verbs.GIDEntry
	// Secret must be unpredictable and new each time that the NIC starts. The epochs and
	// cookies of RD and the memory keys are derived from it.
	Secret [16]byte
	// Port is the UDP port of the NIC.
	Port uint16
	// LinkMTU is the largest IP packet that the link carries.
	LinkMTU int

	GUID uint64
	// FirstQPN is the number of the first QP; they count up from there.
	FirstQPN uint32
	Limits   nic.Limits
	// RD limits the state of the reliable layer. PeerSegments is at most wire.Window.
	RD     rd.Limits
	Timing rd.Timing

	// Messages limits the UD messages in reassembly, MessageTime the duration of a reassembly.
	// Records and RecordTime are the same for Write-Records.
	Messages, Records       int
	MessageTime, RecordTime time.Duration
	// ErrorRate limits the error messages sent per second, ErrorBurst those sent at once.
	ErrorRate, ErrorBurst int
	// Reads is the IRD and ORD of RD, for each peer.
	Reads uint16
	// Policy has the decisions about memory and completion queues in which devices differ.
	Policy nic.Policy
}

// MaxUDSend is the longest Send on UD.
const MaxUDSend = 1 << 16

// ErrConfig is wrapped by all errors about a Config.
var ErrConfig = errors.New("bad NIC configuration")

// withDefaults fills in defaults and validates the configuration. Messages and Records limit the UD
// messages and Write-Records in reassembly, Reads the outstanding READs of a peer.
func (c Config) withDefaults() (Config, error) {
	if len(c.GIDs) == 0 {
		return c, fmt.Errorf("%w: no GIDs: a NIC needs at least one IP address", ErrConfig)
	}
	c.Port = cmp.Or(c.Port, wire.Port)
	c.LinkMTU = cmp.Or(c.LinkMTU, 1500)
	c.FirstQPN = cmp.Or(c.FirstQPN, 0x11) // not 0: a packet to QP 0 is for the only QP of the port
	c.Messages, c.Records = cmp.Or(c.Messages, 64), cmp.Or(c.Records, 64)
	c.MessageTime, c.RecordTime = cmp.Or(c.MessageTime, 100*time.Millisecond), cmp.Or(c.RecordTime, 10*time.Millisecond)
	c.ErrorRate, c.ErrorBurst = cmp.Or(c.ErrorRate, 100), cmp.Or(c.ErrorBurst, 16)
	c.Reads = cmp.Or(c.Reads, 16)
	c.Limits = c.Limits.OrDefault()
	if err := c.Limits.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	switch {
	case c.safeDatagramPayload() < wire.MinPacket:
		return c, fmt.Errorf("%w: link MTU %d carries no packets of %d octets", ErrConfig, c.LinkMTU, wire.MinPacket)
	case c.Messages < 0 || c.Records < 0 || c.MessageTime < 0 || c.RecordTime < 0 || c.ErrorRate < 0 || c.ErrorBurst < 0:
		return c, fmt.Errorf("%w: a limit or a time is negative", ErrConfig)
	case c.RD.PeerSegments > wire.Window:
		return c, fmt.Errorf("%w: %d segments per peer exceed the window of %d", ErrConfig, c.RD.PeerSegments, wire.Window)
	}
	if last := int(c.FirstQPN) + c.Limits.QPs - 1; last >= int(wire.MulticastQP) {
		return c, fmt.Errorf("%w: %d QPs from number %#x on end at %#x, where multicast begins", ErrConfig, c.Limits.QPs, c.FirstQPN, last)
	}
	return c, nil
}

// MaxUDPayload returns the longest Send that fits into one UD packet of each IP version of the NIC.
func (n *NIC) MaxUDPayload() int {
	return n.cfg.safeDatagramPayload() - wire.UDOverhead - untaggedHeader
}

// safeDatagramPayload returns the length of the largest UDP payload that fits into one packet of
// each IP version of the NIC.
func (c *Config) safeDatagramPayload() int {
	has6 := slices.ContainsFunc(c.GIDs, func(g verbs.GIDEntry) bool { return g.GID.Addr().Is6() })
	return maxDatagramPayload(c.LinkMTU, !has6)
}

// ipv4 is the value of is4 for the IP version with the shorter header.
const ipv4 = true

// maxDatagramPayload returns the length of the largest UDP payload that fits into one IPv4 or IPv6
// packet of mtu octets.
func maxDatagramPayload(mtu int, is4 bool) int {
	head := link.IPv6HeaderLen
	if is4 {
		head = link.IPv4HeaderLen
	}
	return min(mtu, 1<<16-1) - head - link.UDPHeaderLen
}
