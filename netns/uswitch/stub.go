//go:build !linux

package uswitch

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Switch cannot exist here: it needs Linux.
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

// SetPath fails.
func (*Switch) SetPath(int, Direction, Path) error { return errLinux }

// SetPort fails.
func (*Switch) SetPort(int, bool) error { return errLinux }

// Quiesced runs fn.
func (*Switch) Quiesced(fn func()) { fn() }

// Stats returns nothing.
func (*Switch) Stats() Stats { return Stats{} }

// Close fails.
func (*Switch) Close() error { return errLinux }

// CutInKernel fails.
func CutInKernel(string) error { return errLinux }

// SeesSuperPackets is false.
func SeesSuperPackets() bool { return false }
