package engine

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/dcqcn"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Config describes a NIC. The zero value of every field but GIDs means a
// sensible default.
type Config struct {
	// GIDs is the port's GID table. Entries of type RoCEv1 are listed but never
	// match a packet.
	GIDs []verbs.GIDEntry
	// PKeys is the port's partition table; {0xffff} by default.
	PKeys []uint16
	// LinkMTU is the largest IP packet that the link carries.
	LinkMTU int
	// Link says what the link can see and set.
	Link link.Features
	// ICRC says what is done about the invariant CRC.
	ICRC ICRCMode

	GUID uint64
	// FirstQPN is the number of the first QP; they count up from there.
	FirstQPN uint32
	// KeySecret makes the keys of memory unpredictable for those who do not know it. If
	// it is zero, keys count up.
	KeySecret [16]byte

	Limits Limits

	// WindowPackets is how many packets a requester keeps unacknowledged.
	WindowPackets int
	// AckHold is how long the ACK of a message that the program has answered may
	// wait for the peer's next message, to do for both; 0 means 100 µs, less than
	// 0 never to wait.
	AckHold time.Duration
	// UDOversizeError fails a datagram beyond the MTU with a local length
	// error. The specification has it vanish; devices and suites differ.
	UDOversizeError bool
	// Congestion configures ECN and DCQCN; the zero value of its Params, but for
	// CatchUp, means the published defaults for LineRateBps. CatchUp is the
	// driver's: how late it may wake.
	Congestion  dcqcn.Params
	CNPInterval time.Duration
	LineRateBps uint64

	// UCAwaitsAck has a send of UC complete when an acknowledgement comes, which
	// UC does not have: half of a defect whose other half is defect.Defects.UCLikeRC.
	UCAwaitsAck bool

	Defects Defects
}

// ICRCMode says how the invariant CRC is treated.
type ICRCMode uint8

const (
	// ICRCChecked computes it on every packet sent and checks it on every
	// packet received: fully where the link shows the IP identification,
	// otherwise up to that field's sixteen bits.
	ICRCChecked ICRCMode = iota
	// ICRCOffloaded neither computes nor checks it, as if the link did.
	ICRCOffloaded
)

// Limits bound every resource of a NIC. A field that is zero has its default.
type Limits struct {
	nic.Limits
	MADsQueue int // management datagrams that wait, in either direction
}

const defaultMADsQueue = 1 << 10

// orDefault fills in the limits that were left out.
func (l Limits) orDefault() Limits {
	return Limits{l.OrDefault(), cmp.Or(l.MADsQueue, defaultMADsQueue)}
}

// Validate refuses limits that nothing can keep.
func (l Limits) Validate() error {
	if l.MADsQueue < 0 {
		return errors.New("limit of MADsQueue is negative")
	}
	return l.Limits.Validate()
}

// Packets around a transport payload: IPv6, UDP, the longest headers, ICRC.
const encapsulation = 40 + 8 + wire.MaxHeaderLen + wire.ICRCLen

const (
	defaultLinkMTU     = 1500
	defaultFirstQPN    = 0x11
	defaultWindow      = 256
	defaultCNPInterval = 50 * time.Microsecond
	defaultLineRate    = 100_000_000_000
	gsiQPN             = 1
	gsiQKey            = 0x8001_0000
)

// ErrConfig is what errors.Is finds in every complaint about a Config.
var ErrConfig = errors.New("bad NIC configuration")

// withDefaults fills in what was left out and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	if len(c.GIDs) == 0 {
		return c, fmt.Errorf("%w: no GIDs: a NIC needs at least one IP address", ErrConfig)
	}
	if len(c.PKeys) == 0 {
		c.PKeys = []uint16{wire.DefaultPKey}
	}
	if c.LinkMTU == 0 {
		c.LinkMTU = defaultLinkMTU
	}
	if verbs.MTUFor(c.LinkMTU-encapsulation) == 0 {
		return c, fmt.Errorf("%w: link MTU %d carries not even 256 bytes of payload", ErrConfig, c.LinkMTU)
	}
	if c.FirstQPN == 0 {
		c.FirstQPN = defaultFirstQPN
	}
	c.Limits = c.Limits.orDefault()
	if err := c.Limits.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.WindowPackets == 0 {
		c.WindowPackets = defaultWindow
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
	if c.AckHold == 0 {
		c.AckHold = defaultAckHold
	}
	if c.CNPInterval == 0 {
		c.CNPInterval = defaultCNPInterval
	}
	if c.CNPInterval < 0 {
		return c, fmt.Errorf("%w: CNP interval %v is negative", ErrConfig, c.CNPInterval)
	}
	if c.LineRateBps == 0 {
		c.LineRateBps = defaultLineRate
	}
	if c.Congestion == (dcqcn.Params{CatchUp: c.Congestion.CatchUp}) {
		slack := c.Congestion.CatchUp
		c.Congestion = dcqcn.DefaultParams(c.LineRateBps)
		c.Congestion.CatchUp = slack
	}
	if err := c.Congestion.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}

// RoCEv2GIDs makes a GID table of IP addresses.
func RoCEv2GIDs(addrs ...netip.Addr) []verbs.GIDEntry {
	table := make([]verbs.GIDEntry, len(addrs))
	for i, a := range addrs {
		table[i] = verbs.GIDEntry{GID: verbs.GIDFrom(a), Index: i, Type: verbs.GIDTypeRoCEv2}
	}
	return table
}
