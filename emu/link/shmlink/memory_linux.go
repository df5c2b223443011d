package shmlink

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// createFile returns a memfd of a size that nobody can change: otherwise an access beyond the end of
// a file that another process truncated would kill this process.
func createFile(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("fabrictest-cable", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "cable")
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, os.NewSyscallError("fcntl", err)
	}
	return f, nil
}

// checkFile returns an error if a file could shrink: an access beyond its end would kill this
// process.
func checkFile(f *os.File) error {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return errNotCable
	}
	return nil
}

// lockPort marks a port as open, until the returned file is closed or this process has died. The
// lock belongs to a new open file, since inherited descriptors are the same open file.
func lockPort(f *os.File, port int) (*os.File, error) {
	own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(own.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(port), Len: 1})
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES):
		err = ErrInUse
	case err != nil:
		err = os.NewSyscallError("fcntl", err)
	default:
		return own, nil
	}
	own.Close()
	return nil, err
}

// Operations of futex(2), for a word in memory that processes share.
const (
	futexWait = 0
	futexWake = 1
)

// wait blocks while the word has the value, for at most d.
func wait(word *atomic.Uint32, value uint32, d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	// An error is an early return: the value has changed, or a signal arrived.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// wakeWaiter wakes the process that waits for the word to change.
func wakeWaiter(word *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1, 0, 0, 0)
}
