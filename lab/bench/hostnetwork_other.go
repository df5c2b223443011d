//go:build !linux

package bench

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/agent"
)

// hostNetwork has no functions on this system.
type hostNetwork struct{}

func (hostNetwork) open() error                    { return nil }
func (hostNetwork) close()                         {}
func (hostNetwork) describe(*agent.DeviceIdentity) {}

// SetLink is not supported.
func (h *LocalHost) SetLink(string, bool) error { return agent.ErrHostCannot }

// SetAddress is not supported.
func (h *LocalHost) SetAddress(string, netip.Prefix, bool) error { return agent.ErrHostCannot }

// Restart is not supported.
func (h *LocalHost) Restart(string) error { return agent.ErrHostCannot }

func kernelRelease() string { return "" }
