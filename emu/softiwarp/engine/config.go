package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// Config describes a NIC. The zero value has sensible defaults.
type Config struct {
	GUID uint64
	// FirstQPN is the number of the first QP; they count up from there.
	FirstQPN uint32
	Limits   nic.Limits
	// MPA is what all connections have in common: CRCs, markers, revisions, the
	// peer-to-peer model, timeouts, how much is queued. What belongs to a single
	// one is filled in for each: depths, private data, segment size, counters and
	// defects.
	MPA mpa.Config
	// KeySecret makes the keys of memory unpredictable for those who do not know it. If
	// it is zero, keys count up: a device that peers can reach needs one.
	KeySecret [16]byte
	// CloseTimeout is how long a connection that is being closed may take before
	// it is broken; 0 means 5 s, less than 0 for ever.
	CloseTimeout time.Duration
	// Nudge is how long a connection's initiator that has sent something waits for
	// the peer's first FPDU before it sends an RDMA Write of no octets, and some
	// more after twice the time each; 0 is never. soft-iWARP of Linux needs it: it
	// may overlook what comes first until more comes. It is off unless asked for:
	// to other peers it means nothing, but immediate data that is sent alone, right
	// behind it, would be taken for that of the Write.
	Nudge time.Duration

	Defects Defects
}

const (
	defaultFirstQPN     = 0x11
	defaultCloseTimeout = 5 * time.Second
	maxQPN              = 1<<24 - 1 // as verbs count them
)

// ErrConfig is what errors.Is finds in every complaint about a Config.
var ErrConfig = errors.New("bad NIC configuration")

// withDefaults fills in what was left out and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	if c.FirstQPN == 0 {
		c.FirstQPN = defaultFirstQPN
	}
	if c.CloseTimeout == 0 {
		c.CloseTimeout = defaultCloseTimeout
	}
	if c.Nudge < 0 {
		return c, fmt.Errorf("%w: Nudge %v: it is a time, or 0 for never", ErrConfig, c.Nudge)
	}
	c.Limits = c.Limits.OrDefault()
	if err := c.Limits.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if last := int(c.FirstQPN) + c.Limits.QPs - 1; last > maxQPN {
		return c, fmt.Errorf("%w: %d QPs from number %#x on end at %#x, beyond 24 bits", ErrConfig, c.Limits.QPs, c.FirstQPN, last)
	}
	c.MPA.Defects = c.Defects.MPA
	c.MPA.MaxIRD = uint16(c.Limits.RdAtomic)
	if err := c.MPA.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}
