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

// OnDevice fails. It closes the client.
func OnDevice(client *agent.Client, _ string, _ DeviceOptions) (*Device, error) {
	return nil, errors.Join(errDeviceNotLinux, client.Close())
}

func (*Device) Err() error   { return errDeviceNotLinux }
func (*Device) Close() error { return nil }
func (*Device) WithBench(context.Context, conformance.BenchSpec, func(*conformance.Bench) error) error {
	return errDeviceNotLinux
}

// Namespaces needs Linux.
type Namespaces struct{}

var errNotLinux = errors.New("network namespaces need Linux: use the simulated bench")

func InNamespaces(*nics.Provider, NamespaceOptions) (*Namespaces, error) { return nil, errNotLinux }
func (*Namespaces) Close() error                                         { return nil }
func (*Namespaces) WithBench(context.Context, conformance.BenchSpec, func(*conformance.Bench) error) error {
	return errNotLinux
}

// hostNetwork has no functions on this system.
type hostNetwork struct{ agent.FixedHost }

func (hostNetwork) open() error                    { return nil }
func (hostNetwork) close()                         {}
func (hostNetwork) describe(*agent.DeviceIdentity) {}

func AvailableMemory() (uint64, error) { return 0, errors.ErrUnsupported }
