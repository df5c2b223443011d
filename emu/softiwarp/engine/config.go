package engine

import (
	"cmp"
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
	// MPA holds the settings of all connections: CRCs, markers, revisions, the peer-to-peer
	// model, timeouts, queue limits. Depths, private data, segment size, counters and the policy
	// are set for each connection.
	MPA mpa.Config
	// KeySecret makes memory keys unpredictable. If it is zero, keys count up; a device that
	// peers can reach needs a secret.
	KeySecret [16]byte
	// CloseTimeout limits the time that a connection spends in Closing; then it is aborted. 0
	// means 5 s, a negative value no limit.
	CloseTimeout time.Duration
	// EmptyWriteAfter is the time that an initiator waits for the peer's first FPDU before it sends
	// an RDMA Write of no octets, and a few more with exponential backoff. 0 disables it.
	// soft-iWARP of Linux needs it, since it may overlook the first FPDUs until more data arrives.
	// It is off by default: a peer would take immediate data that follows for that of the Write.
	EmptyWriteAfter time.Duration

	// Policy has the decisions in which real devices differ.
	Policy Policy
}

const maxQPN = 1<<24 - 1 // as verbs count them

// ErrConfig is wrapped by all errors about a Config.
var ErrConfig = errors.New("bad NIC configuration")

// withDefaults returns c with defaults filled in, or an error if c is invalid.
func (c Config) withDefaults() (Config, error) {
	c.FirstQPN = cmp.Or(c.FirstQPN, 0x11) // an arbitrary choice
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 5*time.Second)
	if c.EmptyWriteAfter < 0 {
		return c, fmt.Errorf("%w: EmptyWriteAfter is %v, want 0 or more", ErrConfig, c.EmptyWriteAfter)
	}
	c.Limits = c.Limits.OrDefault()
	if err := c.Limits.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if last := int(c.FirstQPN) + c.Limits.QPs - 1; last > maxQPN {
		return c, fmt.Errorf("%w: %d QPs from number %#x on end at %#x, beyond 24 bits", ErrConfig, c.Limits.QPs, c.FirstQPN, last)
	}
	c.MPA.Policy = c.Policy.MPA
	c.MPA.MaxIRD = uint16(c.Limits.RdAtomic)
	if err := c.MPA.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}
