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

// Device needs Linux.
type Device struct{}

var errDeviceNotLinux = errors.New("judging a device of another host needs the packet sockets of Linux")

// OnDevice fails.
func OnDevice(client *agent.Client, _ string, _ DeviceOptions) (*Device, error) {
	return nil, errors.Join(errDeviceNotLinux, client.Close())
}

// Streams returns false.
func (*Device) Streams() bool { return false }

// Wire returns an empty string.
func (*Device) Wire() DeviceWire { return "" }

// Identity returns a zero value.
func (*Device) Identity() agent.DeviceIdentity { return agent.DeviceIdentity{} }

// Attr returns a zero value.
func (*Device) Attr() verbs.DeviceAttr { return verbs.DeviceAttr{} }

// MTU returns 0.
func (*Device) MTU() int { return 0 }

// Addresses returns no addresses.
func (*Device) Addresses() (device, judge []netip.Addr) { return nil, nil }

// Err returns the error of OnDevice.
func (*Device) Err() error { return errDeviceNotLinux }

// Try fails.
func (*Device) WithBench(context.Context, conformance.BenchSpec, func(*conformance.Bench) error) error {
	return errDeviceNotLinux
}

// Close does nothing.
func (*Device) Close() error { return nil }
