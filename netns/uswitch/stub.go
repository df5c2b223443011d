//go:build !linux

package uswitch

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Switch needs Linux.
type Switch struct{}

var errLinux = fmt.Errorf("user-space switch: %w: it needs Linux", errors.ErrUnsupported)

// New fails.
func New(cfg Config) (*Switch, error) {
	if _, err := cfg.withDefaults(); err != nil {
		return nil, err
	}
	return nil, errLinux
}

// Now returns 0.
func (*Switch) Now() time.Duration { return 0 }

// Run fails.
func (*Switch) Run(context.Context) error { return errLinux }

// Run fails.
func Run(context.Context, ...*Switch) error { return errLinux }

// SetHandler fails.
func (*Switch) SetHandler(int, Direction, FrameHandler) error { return errLinux }

// SetPort fails.
func (*Switch) SetPort(int, bool) error { return errLinux }

// WhileQuiesced runs fn.
func (*Switch) WhileQuiesced(fn func()) { fn() }

// Stats returns nothing.
func (*Switch) Stats() Stats { return Stats{} }

// Close fails.
func (*Switch) Close() error { return errLinux }

// DisableGSO fails.
func DisableGSO(string) error { return errLinux }

// SupportsUDPGSO returns false.
func SupportsUDPGSO() bool { return false }
