//go:build !linux

package bench

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Device cannot be had.
type Device struct{}

var errDeviceNotLinux = errors.New("a device of another host is judged from Linux, whose packet sockets that takes")

// OnDevice fails.
func OnDevice(client *agent.Client, _ string, _ DeviceOptions) (*Device, error) {
	return nil, errors.Join(errDeviceNotLinux, client.Close())
}

// Streams is false.
func (*Device) Streams() bool { return false }

// Wire is none.
func (*Device) Wire() DeviceWire { return "" }

// Identity is empty.
func (*Device) Identity() agent.DeviceIdentity { return agent.DeviceIdentity{} }

// Attr is empty.
func (*Device) Attr() verbs.DeviceAttr { return verbs.DeviceAttr{} }

// MTU is 0.
func (*Device) MTU() int { return 0 }

// Addresses are none.
func (*Device) Addresses() (device, judge []netip.Addr) { return nil, nil }

// Gone says why.
func (*Device) Gone() error { return errDeviceNotLinux }

// Try fails.
func (*Device) Try(context.Context, conformance.Job, func(*conformance.Bench) error) error {
	return errDeviceNotLinux
}

// Close does nothing.
func (*Device) Close() error { return nil }
