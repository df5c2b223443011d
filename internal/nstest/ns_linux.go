package nstest

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NS is a network namespace held by a descriptor.
type NS struct{ f *os.File }

// New makes a namespace whose loopback interface is up.
func New() (*NS, error) {
	var ns *NS
	err := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare a network namespace: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		ns = &NS{f: f}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil && ns != nil {
		ns.f.Close()
	}
	return ns, err
}

// FD is the descriptor that holds the namespace.
func (ns *NS) FD() int { return int(ns.f.Fd()) }

// Close lets go of the namespace. It vanishes when its last socket does.
func (ns *NS) Close() error { return ns.f.Close() }

// Do runs fn inside the namespace. Goroutines that fn starts run outside it:
// open sockets in fn, hand them out, and use them anywhere.
func (ns *NS) Do(fn func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(ns.FD(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return fn()
	})
}

// onOwnThread runs fn on a thread that dies with it: the goroutine exits while
// still locked, so the runtime cannot hand a moved thread to anyone else.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}
