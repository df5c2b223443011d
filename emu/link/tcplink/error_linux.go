package tcplink

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// kernelError wraps the error of a system call with the matching error of package link.
func kernelError(call string, err error) error {
	var meaning error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EADDRINUSE):
		meaning = link.ErrAddrInUse
	case errors.Is(err, unix.EADDRNOTAVAIL) && call == "connect":
		meaning = link.ErrAddrInUse // no local port is free
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH),
		errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EHOSTDOWN):
		meaning = link.ErrUnreachable
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		meaning = link.ErrLimit
	default:
		return os.NewSyscallError(call, err)
	}
	return fmt.Errorf("%w: %w", meaning, os.NewSyscallError(call, err))
}

// socketError returns the error of a stream whose socket has failed: ErrRefused or
// ErrUnreachable before it was connected, else ErrReset.
func (s *Stream) socketError(errno unix.Errno) error {
	meaning := link.ErrReset
	if !s.connected {
		switch errno {
		case unix.ECONNREFUSED:
			meaning = link.ErrRefused
		case unix.ETIMEDOUT, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN:
			meaning = link.ErrUnreachable
		}
	}
	return fmt.Errorf("tcplink: %v to %v: %w: %w", s.local, s.remote, meaning, errno)
}

func errnoOf(err error) (errno unix.Errno) {
	errors.As(err, &errno)
	return errno
}
