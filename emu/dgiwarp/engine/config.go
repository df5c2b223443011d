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

// Config describes a NIC. The zero value of every field but GIDs and Secret means
// a sensible default.
type Config struct {
	// GIDs is the port's GID table: the IP addresses that it has.
	GIDs []verbs.GIDEntry
	// Secret must differ each time that a host starts anew, and nobody may guess
	// it. Epochs and cookies of RD are made of it, and the keys of memory.
	Secret [16]byte
	// Port is the UDP port that the NIC sends from and is reached at.
	Port uint16
	// LinkMTU is the largest IP packet that the link carries.
	LinkMTU int

	GUID uint64
	// FirstQPN is the number of the first QP; they count up from there.
	FirstQPN uint32
	Limits   nic.Limits
	// RD bounds what the reliable layer keeps: PeerSegments by wire.Window at most.
	RD     rd.Limits
	Timing rd.Timing

	// Messages is how many messages of several packets may be in the course of
	// being put together on UD, and MessageTime how long that may take; Records and
	// RecordTime are the same for Write-Records.
	Messages, Records       int
	MessageTime, RecordTime time.Duration
	// ErrorRate is how many error messages may be sent a second, ErrorBurst at once.
	ErrorRate, ErrorBurst int
	// Reads is how many reads and atomics to one peer may be under way on RD, and
	// how many of one peer are taken.
	Reads uint16
	// Defects make the NIC misbehave on purpose.
	Defects Defects
}

const (
	defaultLinkMTU     = 1500
	defaultFirstQPN    = 0x11
	defaultMessages    = 64
	defaultMessageTime = 100 * time.Millisecond
	defaultRecordTime  = 10 * time.Millisecond
	defaultErrorRate   = 100
	defaultErrorBurst  = 16
	defaultReads       = 16

	// MaxUDSend is the longest Send on UD.
	MaxUDSend = 1 << 16
	// maxMessage is the longest message of DDP.
	maxMessage = 1<<32 - 1
)

// ErrConfig is what errors.Is finds in every complaint about a Config.
var ErrConfig = errors.New("bad NIC configuration")

func (c Config) withDefaults() (Config, error) {
	if len(c.GIDs) == 0 {
		return c, fmt.Errorf("%w: no GIDs: a NIC needs at least one IP address", ErrConfig)
	}
	c.Port = cmp.Or(c.Port, wire.Port)
	c.LinkMTU = cmp.Or(c.LinkMTU, defaultLinkMTU)
	c.FirstQPN = cmp.Or(c.FirstQPN, defaultFirstQPN)
	c.Messages, c.Records = cmp.Or(c.Messages, defaultMessages), cmp.Or(c.Records, defaultMessages)
	c.MessageTime, c.RecordTime = cmp.Or(c.MessageTime, defaultMessageTime), cmp.Or(c.RecordTime, defaultRecordTime)
	c.ErrorRate, c.ErrorBurst = cmp.Or(c.ErrorRate, defaultErrorRate), cmp.Or(c.ErrorBurst, defaultErrorBurst)
	c.Reads = cmp.Or(c.Reads, defaultReads)
	c.Limits = c.Limits.OrDefault()
	if err := c.Limits.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	switch {
	case c.surePacket() < wire.MinPacket:
		return c, fmt.Errorf("%w: link MTU %d carries no packets of %d octets", ErrConfig, c.LinkMTU, wire.MinPacket)
	case c.Messages < 0 || c.Records < 0 || c.MessageTime < 0 || c.RecordTime < 0 || c.ErrorRate < 0 || c.ErrorBurst < 0:
		return c, fmt.Errorf("%w: a limit or a time is negative", ErrConfig)
	case c.RD.PeerSegments > wire.Window:
		return c, fmt.Errorf("%w: %d segments to a peer, of which %d may be under way", ErrConfig, c.RD.PeerSegments, wire.Window)
	}
	if last := int(c.FirstQPN) + c.Limits.QPs - 1; last >= int(wire.MulticastQP) {
		return c, fmt.Errorf("%w: %d QPs from number %#x on end at %#x, where multicast begins", ErrConfig, c.Limits.QPs, c.FirstQPN, last)
	}
	return c, nil
}

// MaxUDPayload is how much of a Send fits into one packet of UD, over each IP version
// that the NIC has.
func (n *NIC) MaxUDPayload() int { return n.cfg.surePacket() - wire.UDOverhead - untaggedHeader }

// surePacket is the largest payload of UDP that fits whichever address of the NIC's
// it is sent from.
func (c *Config) surePacket() int {
	has6 := slices.ContainsFunc(c.GIDs, func(g verbs.GIDEntry) bool { return g.GID.Addr().Is6() })
	return maxPacket(c.LinkMTU, !has6)
}

// maxPacket is the largest payload of UDP that a link carries in one IP packet.
func maxPacket(mtu int, is4 bool) int {
	head := link.IPv6HeaderLen
	if is4 {
		head = link.IPv4HeaderLen
	}
	return min(mtu, 1<<16-1) - head - link.UDPHeaderLen
}
