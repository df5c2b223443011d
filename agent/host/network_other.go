//go:build !linux

package host

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/agent"
)

// network has no functions on this system.
type network struct{}

func (network) open() error                    { return nil }
func (network) close()                         {}
func (network) describe(*agent.DeviceIdentity) {}

// SetLink is not supported.
func (h *Host) SetLink(string, bool) error { return agent.ErrHostCannot }

// SetAddress is not supported.
func (h *Host) SetAddress(string, netip.Prefix, bool) error { return agent.ErrHostCannot }

// Restart is not supported.
func (h *Host) Restart(string) error { return agent.ErrHostCannot }

func kernelRelease() string { return "" }
