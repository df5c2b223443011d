//go:build !linux

package netns

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// errNotLinux is the error of every function of the package on this system.
var errNotLinux = fmt.Errorf("network namespaces are Linux's, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

func Available() error { return errNotLinux }

// Probe reports that this system has none of the features of the package.
func Probe() []Capability {
	return []Capability{{
		Name: "namespaces", For: "hosts in network namespaces", State: No,
		Reason: "this is not Linux", Cure: "use the simulation, or Linux in a virtual machine",
	}}
}

func IsUnshared() bool              { return false }
func Unshare(*exec.Cmd) error       { return errNotLinux }
func StartUnshared(*exec.Cmd) error { return errNotLinux }

// NS is not available.
type NS struct{}

func New() (*NS, error)                             { return nil, errNotLinux }
func (*NS) FD() int                                 { return -1 }
func (*NS) Do(func() error) error                   { return errNotLinux }
func (*NS) Start(*exec.Cmd) error                   { return errNotLinux }
func (*NS) Close() error                            { return nil }
func RDMALinkAdd(*NS, string, string, string) error { return errNotLinux }

// Fabric is not available.
type Fabric struct{}

func Build(topology.Topology, Options) (*Fabric, error) { return nil, errNotLinux }
func (*Fabric) Topology() topology.Topology             { return topology.Topology{} }
func (*Fabric) Host(string) *Host                       { return nil }
func (*Fabric) Core() *NS                               { return nil }
func (*Fabric) UserCables() []UserCable                 { return nil }
func (*Fabric) UserSwitches() map[string][]UserPort     { return nil }
func (*Fabric) SetLink(string, bool) error              { return errNotLinux }
func (*Fabric) SetRate(string, uint64) error            { return errNotLinux }
func (*Fabric) Netem(string, NetemSpec) error           { return errNotLinux }
func (*Fabric) Stats(string) (Stats, error)             { return Stats{}, errNotLinux }
func (*Fabric) Close() error                            { return nil }
