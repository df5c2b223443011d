package kernel

import (
	"errors"
	"fmt"
	"net"
	"os/exec"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/netns"
)

// place is the network namespace that holds the bridge and the tap devices of a lab.
type place interface {
	// Do runs fn in the namespace. Start starts a process in it, which is killed when this
	// process ends.
	Do(fn func() error) error
	Start(cmd *exec.Cmd) error
	// Close kills the started processes and removes the namespace.
	Close() error
}

// newPlace creates a network namespace with the bridge and tap devices of c.
func newPlace(c Config) (place, error) { return newNamespace(c) }

// here is the network namespace of this process.
type here struct{}

// layHere creates the bridge and tap devices of c in the namespace of this process.
func layHere(c Config) (place, error) {
	if !netns.IsUnshared() {
		return nil, errors.New("a wire is laid in an enclosure of this process, and not in the machine's own network")
	}
	bare, err := Bare()
	switch {
	case err != nil:
		return nil, err
	case !bare:
		return nil, errors.New("a wire is laid where nothing else is, and this network namespace has interfaces")
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("interface lo: %w", err)
	}
	return here{}, lay(c)
}

// Bare reports whether this process is in an enclosure in whose network namespace there
// is nothing yet: UpHere brings guests up there.
func Bare() (bool, error) {
	if !netns.IsUnshared() {
		return false, nil
	}
	all, err := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return false, nil // those that are down, tunnels mostly, kernels make by themselves
		}
	}
	return err == nil, err
}

// Do implements place.
func (here) Do(fn func() error) error { return fn() }

// Start implements place. A process of an enclosure ends with it, without being told.
func (here) Start(cmd *exec.Cmd) error { return cmd.Start() }

// Close implements place. The kernel removes the namespace when this process ends.
func (here) Close() error { return nil }
