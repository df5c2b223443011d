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

// errLinux is the error of every function of the package on this system.
var errLinux = fmt.Errorf("user-space switch: %w: it needs Linux", errors.ErrUnsupported)

// New checks cfg and returns an error: the switch needs Linux.
func New(cfg Config) (*Switch, error) {
	if _, err := cfg.withDefaults(); err != nil {
		return nil, err
	}
	return nil, errLinux
}

func (*Switch) Now() time.Duration                            { return 0 }
func (*Switch) Run(context.Context) error                     { return errLinux }
func Run(context.Context, ...*Switch) error                   { return errLinux }
func (*Switch) SetHandler(int, Direction, FrameHandler) error { return errLinux }
func (*Switch) SetPort(int, bool) error                       { return errLinux }
func (*Switch) WhileQuiesced(fn func())                       { fn() }
func (*Switch) Stats() Stats                                  { return Stats{} }
func (*Switch) Close() error                                  { return errLinux }
func DisableGSO(string) error                                 { return errLinux }
func SupportsUDPGSO() bool                                    { return false }
