// Package socketns opens sockets in the network namespace in which a link was opened, for
// udplink and tcplink.
package socketns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const current = "/proc/thread-self/ns/net"

// Current opens the network namespace of the calling thread.
func Current() (*os.File, error) { return os.Open(current) }

// Do runs fn in the network namespace ns: on the caller's thread if it is there, which needs
// no privilege, else on a new thread that enters it.
func Do(ns *os.File, fn func() error) error {
	runtime.LockOSThread()
	here, err := isCurrent(ns)
	if err == nil && here {
		err = fn()
	}
	runtime.UnlockOSThread()
	if err != nil || here {
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace of the link: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// isCurrent reports whether the calling thread is in the network namespace ns.
func isCurrent(ns *os.File) (bool, error) {
	var thread, link unix.Stat_t
	if err := unix.Stat(current, &thread); err != nil {
		return false, os.NewSyscallError("stat "+current, err)
	}
	if err := unix.Fstat(int(ns.Fd()), &link); err != nil {
		return false, os.NewSyscallError("stat the network namespace of the link", err)
	}
	return thread.Dev == link.Dev && thread.Ino == link.Ino, nil
}
