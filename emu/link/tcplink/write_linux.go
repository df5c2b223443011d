package tcplink

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/process"
)

// rawWriteBytes is the longest write that uses RawSyscall. A RawSyscall saves the runtime's
// bookkeeping for calls that may block, but the runtime cannot preempt the goroutine during it.
const rawWriteBytes = 16 << 10

// Write implements link.StreamLink.
func (s *Stream) Write(_ mono.Time, b []byte) (int, error) {
	s.net.mu.Lock()
	k, err := s.write(b, 0) // no flags
	s.net.mu.Unlock()
	return k, err
}

// Writev implements link.StreamLink. Without buffers, and if more is false, it sends a segment that
// the kernel has held back since an earlier Writev with more set.
func (s *Stream) Writev(_ mono.Time, bufs [][]byte, more bool) (int, error) {
	flags := 0
	if more {
		flags = unix.MSG_MORE
	}
	s.net.mu.Lock()
	var k int
	var err error
	switch len(bufs) {
	case 0:
		err = s.uncork(more)
	case 1:
		k, err = s.write(bufs[0], flags)
	default:
		k, err = s.writev(bufs, flags)
	}
	s.net.mu.Unlock()
	return k, err
}

// writeError returns why the stream cannot be written to; nil if it can.
func (s *Stream) writeError() error {
	switch {
	case s.err != nil:
		return s.err
	case s.writeClosed:
		return link.ErrWriteClosed
	}
	return nil
}

// write sends one buffer with flags of send(2), and returns how many bytes the kernel accepted.
// Since the socket does not block, a short write uses RawSyscall6, without the runtime's
// bookkeeping.
func (s *Stream) write(b []byte, flags int) (int, error) {
	if s.err != nil || s.writeClosed {
		return 0, s.writeError()
	}
	var n uintptr
	var errno unix.Errno
	process.RaceSend() // for the race detector, which does not see raw system calls
	if allFlags := uintptr(flags | unix.MSG_NOSIGNAL); len(b) <= rawWriteBytes {
		n, _, errno = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), allFlags, 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), allFlags, 0, 0)
	}
	return s.handleWrite(int(n), len(b), flags, errno)
}

// writev sends several buffers with flags of send(2), up to maxVectors of them, and returns how
// many bytes the kernel accepted. Like write, it uses RawSyscall if they are short.
func (s *Stream) writev(bufs [][]byte, flags int) (int, error) {
	if s.err != nil || s.writeClosed {
		return 0, s.writeError()
	}
	vecs, total := s.net.iovecs[:0], 0
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if len(vecs) == maxVectors {
			break // the rest is not written
		}
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		vecs = append(vecs, v)
		total += len(b)
	}
	s.net.iovecs = vecs[:0]
	if total == 0 {
		return 0, nil
	}
	msg := unix.Msghdr{Iov: unsafe.SliceData(vecs)}
	msg.SetIovlen(len(vecs))
	var n uintptr
	var errno unix.Errno
	process.RaceSend() // for the race detector, which does not see raw system calls
	if allFlags := uintptr(flags | unix.MSG_NOSIGNAL); total <= rawWriteBytes {
		n, _, errno = syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&msg)), allFlags)
	} else {
		n, _, errno = syscall.Syscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&msg)), allFlags)
	}
	clear(vecs) // keep no references to the caller's memory
	return s.handleWrite(int(n), total, flags, errno)
}

// maxVectors is UIO_MAXIOV of Linux.
const maxVectors = 1024

// handleWrite handles the result of a send: the kernel accepted n of total bytes, or returned
// errno. It returns the results for Write.
func (s *Stream) handleWrite(n, total, flags int, errno unix.Errno) (int, error) {
	stats := &s.net.stats
	stats.WriteCalls++
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR:
		n = 0
	default:
		s.err = s.socketError(errno)
		return 0, s.err
	}
	stats.WrittenBytes += uint64(n)
	if s.sendBufFull = n < total; s.sendBufFull {
		stats.WriteFull++
	}
	s.corked = flags&unix.MSG_MORE != 0
	return n, nil
}

// uncork sends an incomplete segment that the kernel holds back because of MSG_MORE, unless the
// caller says that more data follows. It returns the stream's error.
func (s *Stream) uncork(more bool) error {
	if more || !s.corked || s.writeError() != nil {
		return s.err
	}
	s.corked = false
	// Setting TCP_NODELAY again makes the kernel send it.
	if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		s.err = s.socketError(errnoOf(err))
	}
	return s.err
}
