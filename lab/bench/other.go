//go:build !linux

package bench

import (
	"context"
	"errors"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// Device needs Linux.
type Device struct{ DeviceProperties }

var errDeviceNotLinux = errors.New("judging a device of another host needs the packet sockets of Linux")

// OnDevice fails.
func OnDevice(client *agent.Client, _ string, _ DeviceOptions) (*Device, error) {
	return nil, errors.Join(errDeviceNotLinux, client.Close())
}

// Err returns the error of OnDevice.
func (*Device) Err() error { return errDeviceNotLinux }

// WithBench implements conformance.Lab. It fails.
func (*Device) WithBench(context.Context, conformance.BenchSpec, func(*conformance.Bench) error) error {
	return errDeviceNotLinux
}

// Close does nothing.
func (*Device) Close() error { return nil }

// Namespaces needs Linux.
type Namespaces struct{}

var errNotLinux = errors.New("network namespaces need Linux: use the simulated bench")

// InNamespaces fails.
func InNamespaces(*nics.Provider, NamespaceOptions) (*Namespaces, error) { return nil, errNotLinux }

// WithBench implements conformance.Lab. It fails.
func (*Namespaces) WithBench(context.Context, conformance.BenchSpec, func(*conformance.Bench) error) error {
	return errNotLinux
}

// Close does nothing.
func (*Namespaces) Close() error { return nil }

// hostNetwork has no functions on this system.
type hostNetwork struct{ agent.FixedHost }

func (hostNetwork) open() error                    { return nil }
func (hostNetwork) close()                         {}
func (hostNetwork) describe(*agent.DeviceIdentity) {}

// AvailableMemory is not supported.
func AvailableMemory() (uint64, error) { return 0, errors.ErrUnsupported }
