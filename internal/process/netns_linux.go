package process

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const currentNetNS = "/proc/thread-self/ns/net"

// OpenNetNS opens the network namespace of the calling thread.
func OpenNetNS() (*os.File, error) { return os.Open(currentNetNS) }

// InNetNS runs fn in the network namespace ns. If the caller's thread is in ns, it runs fn there,
// which needs no privilege; else it runs fn on a new thread that enters ns.
func InNetNS(ns *os.File, fn func() error) error {
	runtime.LockOSThread()
	here, err := isCurrentNetNS(ns)
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
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// isCurrentNetNS reports whether the calling thread is in the network namespace ns.
func isCurrentNetNS(ns *os.File) (bool, error) {
	var thread, other unix.Stat_t
	if err := unix.Stat(currentNetNS, &thread); err != nil {
		return false, os.NewSyscallError("stat "+currentNetNS, err)
	}
	if err := unix.Fstat(int(ns.Fd()), &other); err != nil {
		return false, os.NewSyscallError("stat a network namespace", err)
	}
	return thread.Dev == other.Dev && thread.Ino == other.Ino, nil
}
