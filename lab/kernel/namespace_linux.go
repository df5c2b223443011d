package kernel

import (
	"errors"
	"fmt"
	"net"
	"os/exec"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/netns"
)

// netNamespace is the network namespace with the bridge and tap devices of a lab.
type netNamespace interface {
	// Do runs fn in the namespace. Start starts a process in it, which is killed when this
	// process ends.
	Do(fn func() error) error
	Start(cmd *exec.Cmd) error
	// Close kills the started processes and removes the namespace.
	Close() error
}

// newLabNamespace creates a network namespace with the bridge and tap devices of c.
func newLabNamespace(c Config) (netNamespace, error) { return newNamespace(c) }

// currentNamespace is the network namespace of this process.
type currentNamespace struct{}

// useCurrentNamespace creates the bridge and tap devices of c in the namespace of
// this process.
func useCurrentNamespace(c Config) (netNamespace, error) {
	if !netns.IsUnshared() {
		return nil, errors.New("this process is not in a namespace of netns.StartUnshared: the bridge would be in the machine's network")
	}
	empty, err := IsEmptyNamespace()
	switch {
	case err != nil:
		return nil, err
	case !empty:
		return nil, errors.New("this network namespace has interfaces, and must be empty")
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("interface lo: %w", err)
	}
	return currentNamespace{}, createLinks(c)
}

// IsEmptyNamespace reports whether this process is in a namespace of
// netns.StartUnshared without interfaces, as UpInCurrentNamespace needs it.
func IsEmptyNamespace() (bool, error) {
	if !netns.IsUnshared() {
		return false, nil
	}
	all, err := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return false, nil // kernels create tunnels, which are down
		}
	}
	return err == nil, err
}

// Do implements place.
func (currentNamespace) Do(fn func() error) error { return fn() }

// Start implements netNamespace. The process ends with the PID namespace.
func (currentNamespace) Start(cmd *exec.Cmd) error { return cmd.Start() }

// Close implements place. The kernel removes the namespace when this process ends.
func (currentNamespace) Close() error { return nil }
