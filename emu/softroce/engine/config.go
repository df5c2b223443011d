package engine

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Config describes a NIC. All fields except GIDs may be zero, which means the default.
type Config struct {
	// GIDs is the port's GID table. Entries of type RoCEv1 are listed but never
	// match a packet.
	GIDs []verbs.GIDEntry
	// PKeys is the port's partition table; {0xffff} by default.
	PKeys []uint16
	// LinkMTU is the largest IP packet that the link carries.
	LinkMTU int
	// Link lists the IP and UDP header fields that the link can read and set.
	Link link.Features
	// ICRC selects whether the NIC computes and checks the invariant CRC.
	ICRC ICRCMode

	GUID uint64
	// FirstQPN is the number of the first QP; numbers are assigned upwards.
	FirstQPN uint32
	// KeySecret makes L_Keys and R_Keys unpredictable. If it is zero, keys are
	// assigned in sequence.
	KeySecret [16]byte

	Limits Limits

	// WindowPackets is the maximum number of unacknowledged packets of a requester.
	WindowPackets int
	// AckDelay is the delay of the ACK of a message that the application has answered,
	// so that one ACK covers the peer's next message too. 0 means 100 µs; a negative
	// value disables the delay.
	AckDelay time.Duration
	// SparseAckReq saves ACKs of unsignaled WRITEs, whose completion is that of a later request: only four
	// of them in a send queue have AckReq. NICs have similar settings for the packets between ACK requests.
	SparseAckReq bool
	// UDOversizeError completes a UD send longer than the MTU with a local length error.
	// By the specification it is dropped silently; devices differ.
	UDOversizeError bool
	// Congestion configures DCQCN. If all fields except CatchUp are zero, they have the
	// published defaults for LineRateBps. CatchUp is how late the driver may call Tick.
	Congestion  CongestionParams
	CNPInterval time.Duration
	LineRateBps uint64

	// Policy has the decisions in which real devices differ.
	Policy Policy
}

// ICRCMode selects how the NIC treats the invariant CRC.
type ICRCMode uint8

const (
	// ICRCChecked computes the ICRC of every packet sent and checks it in every packet
	// received. If the link does not show the IP identification, the check accepts
	// any value of that field.
	ICRCChecked ICRCMode = iota
	// ICRCOffloaded leaves the ICRC to the link.
	ICRCOffloaded
)

// Limits are the resource limits of a NIC. Zero means the default.
type Limits struct {
	nic.Limits
	MADsQueue int // queued management datagrams, in each direction; also of queued CNPs
}

const defaultMADsQueue = 1 << 10

// Validate returns an error for negative or impossible limits.
func (l Limits) Validate() error {
	if l.MADsQueue < 0 {
		return errors.New("limit of MADsQueue is negative")
	}
	return l.Limits.Validate()
}

// encapsulation is the maximum overhead of a packet: IPv6, UDP, transport headers, ICRC.
const encapsulation = 40 + 8 + wire.MaxHeaderLen + wire.ICRCLen

const (
	defaultLinkMTU     = 1500
	defaultFirstQPN    = 0x11
	defaultWindow      = 256
	defaultAckDelay    = 100 * time.Microsecond
	defaultCNPInterval = 50 * time.Microsecond
	defaultLineRate    = 100_000_000_000
	gsiQPN             = 1
	gsiQKey            = 0x8001_0000
)

// ErrConfig is wrapped by all errors about a Config.
var ErrConfig = errors.New("bad NIC configuration")

// withDefaults replaces zero fields by defaults and validates the result. Congestion.CatchUp, how
// much time a late sender may make up for, can be set alone.
func (c Config) withDefaults() (Config, error) {
	if len(c.GIDs) == 0 {
		return c, fmt.Errorf("%w: no GIDs: a NIC needs at least one IP address", ErrConfig)
	}
	if len(c.PKeys) == 0 {
		c.PKeys = []uint16{wire.DefaultPKey}
	}
	c.LinkMTU = cmp.Or(c.LinkMTU, defaultLinkMTU)
	c.FirstQPN = cmp.Or(c.FirstQPN, defaultFirstQPN)
	c.Limits = Limits{c.Limits.OrDefault(), cmp.Or(c.Limits.MADsQueue, defaultMADsQueue)}
	c.WindowPackets = cmp.Or(c.WindowPackets, defaultWindow)
	c.AckDelay = cmp.Or(c.AckDelay, defaultAckDelay)
	c.CNPInterval = cmp.Or(c.CNPInterval, defaultCNPInterval)
	c.LineRateBps = cmp.Or(c.LineRateBps, defaultLineRate)
	if verbs.MTUFor(c.LinkMTU-encapsulation) == 0 {
		return c, fmt.Errorf("%w: link MTU %d carries not even 256 bytes of payload", ErrConfig, c.LinkMTU)
	}
	if err := c.Limits.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.WindowPackets < 0 || c.WindowPackets >= 1<<23 {
		return c, fmt.Errorf("%w: window of %d packets is not in 1..2^23-1", ErrConfig, c.WindowPackets)
	}
	if c.FirstQPN <= gsiQPN {
		return c, fmt.Errorf("%w: QP number %d is reserved, start at 2 or later", ErrConfig, c.FirstQPN)
	}
	if last := int(c.FirstQPN) + c.Limits.QPs - 1; last >= int(verbs.MulticastQPN) {
		return c, fmt.Errorf("%w: %d QPs from number %#x on end at %#x, beyond the 24 bits that packets have for them", ErrConfig, c.Limits.QPs, c.FirstQPN, last)
	}
	if c.CNPInterval < 0 {
		return c, fmt.Errorf("%w: CNP interval %v is negative", ErrConfig, c.CNPInterval)
	}
	if catchUp := c.Congestion.CatchUp; c.Congestion == (CongestionParams{CatchUp: catchUp}) { // all others are zero
		c.Congestion = defaultCongestionParams(c.LineRateBps)
		c.Congestion.CatchUp = catchUp
	}
	if err := c.Congestion.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}

// RoCEv2GIDs returns a GID table with one RoCEv2 entry per address.
func RoCEv2GIDs(addrs ...netip.Addr) []verbs.GIDEntry {
	table := make([]verbs.GIDEntry, len(addrs))
	for i, a := range addrs {
		table[i] = verbs.GIDEntry{GID: verbs.GIDFrom(a), Index: i, Type: verbs.GIDTypeRoCEv2}
	}
	return table
}

// gid returns the address of GID index i if it is a RoCEv2 GID.
func (c *Config) gid(i uint8) (netip.Addr, bool) {
	if int(i) >= len(c.GIDs) || c.GIDs[i].Type != verbs.GIDTypeRoCEv2 {
		return netip.Addr{}, false
	}
	return c.GIDs[i].GID.Addr(), true
}
