//go:build !linux

package netns

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// errNotLinux is returned by every call.
var errNotLinux = fmt.Errorf("network namespaces are Linux's, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

// Available returns an error.
func Available() error { return errNotLinux }

// Probe reports that network namespaces are missing.
func Probe() []Capability {
	return []Capability{{
		Name: "namespaces", For: "hosts in network namespaces", State: No,
		Reason: "this is not Linux", Cure: "use the simulation, or Linux in a virtual machine",
	}}
}

// IsUnshared returns false.
func IsUnshared() bool { return false }

// Unshare fails.
func Unshare(*exec.Cmd) error { return errNotLinux }

// StartUnshared fails.
func StartUnshared(*exec.Cmd) error { return errNotLinux }

// NS is not available.
type NS struct{}

// New fails.
func New() (*NS, error) { return nil, errNotLinux }

// FD returns -1.
func (*NS) FD() int { return -1 }

// Do fails.
func (*NS) Do(func() error) error { return errNotLinux }

// Start fails.
func (*NS) Start(*exec.Cmd) error { return errNotLinux }

// Close does nothing.
func (*NS) Close() error { return nil }

// RDMALinkAdd fails.
func RDMALinkAdd(*NS, string, string, string) error { return errNotLinux }

// Fabric is not available.
type Fabric struct{}

// Host is a host of a fabric.
type Host struct {
	topology.Host
	NS *NS
}

// Build fails.
func Build(topology.Topology, Options) (*Fabric, error) { return nil, errNotLinux }

// Topology returns an empty topology.
func (*Fabric) Topology() topology.Topology { return topology.Topology{} }

// Host returns nil.
func (*Fabric) Host(string) *Host { return nil }

// Router returns nil.
func (*Fabric) Router(string) *NS { return nil }

// Core returns nil.
func (*Fabric) Core() *NS { return nil }

// UserCables returns nil.
func (*Fabric) UserCables() []UserCable { return nil }

// UserSwitches returns nil.
func (*Fabric) UserSwitches() map[string][]UserPort { return nil }

// SetLink fails.
func (*Fabric) SetLink(string, bool) error { return errNotLinux }

// SetRate fails.
func (*Fabric) SetRate(string, uint64) error { return errNotLinux }

// Netem fails.
func (*Fabric) Netem(string, NetemSpec) error { return errNotLinux }

// Stats fails.
func (*Fabric) Stats(string) (Stats, error) { return Stats{}, errNotLinux }

// Close does nothing.
func (*Fabric) Close() error { return nil }
