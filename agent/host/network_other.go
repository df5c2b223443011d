//go:build !linux

package host

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/agent"
)

// network is none that we know how to change.
type network struct{}

func (network) open() error                    { return nil }
func (network) close()                         {}
func (network) describe(*agent.DeviceIdentity) {}

// SetLink cannot be done.
func (h *Host) SetLink(string, bool) error { return agent.ErrCannot }

// SetAddress cannot be done.
func (h *Host) SetAddress(string, netip.Prefix, bool) error { return agent.ErrCannot }

// Restart cannot be done.
func (h *Host) Restart(string) error { return agent.ErrCannot }

func kernelRelease() string { return "" }
