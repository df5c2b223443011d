//go:build !linux

package bench

import "github.com/fabrictest/fabrictest/agent"

// hostNetwork has no functions on this system.
type hostNetwork struct{ agent.FixedHost }

func (hostNetwork) open() error                    { return nil }
func (hostNetwork) close()                         {}
func (hostNetwork) describe(*agent.DeviceIdentity) {}
