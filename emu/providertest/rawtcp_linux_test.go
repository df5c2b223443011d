package providertest

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Plain TCP between the same two hosts, for comparison.

// rawPair returns two sockets that are connected to one another.
func (h *hosts) rawPair(block bool) (fds [2]int, err error) {
	var listener int
	if err = h.b.Do(func() (err error) {
		listener, err = rawSocket(h.b.Addr(h.v6, 0), true)
		return err
	}); err != nil {
		return fds, err
	}
	defer unix.Close(listener)
	sa, err := unix.Getsockname(listener)
	if err != nil {
		return fds, err
	}
	if err = h.a.Do(func() (err error) {
		fds[0], err = rawSocket(h.a.Addr(h.v6, 0), false)
		if err == nil {
			err = unix.Connect(fds[0], sa)
		}
		return err
	}); err != nil {
		return fds, err
	}
	if fds[1], _, err = unix.Accept(listener); err != nil {
		return fds, err
	}
	for _, fd := range fds {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fds, err
		}
		if err := unix.SetNonblock(fd, !block); err != nil {
			return fds, err
		}
	}
	return fds, nil
}

func rawSocket(at netip.AddrPort, listen bool) (int, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, sa); err == nil && listen {
		err = unix.Listen(fd, 1)
	}
	return fd, err
}

func rawMove(fd int, call uintptr, b []byte, block bool) (int, error) {
	for {
		var n uintptr
		var errno syscall.Errno
		if block {
			n, _, errno = syscall.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
		} else {
			n, _, errno = syscall.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
		}
		switch errno {
		case 0:
			return int(n), nil
		case unix.EAGAIN, unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// rawPingPong sends size bytes there and back and returns the median half round
// in µs.
func (h *hosts) rawPingPong(rounds, size int, block bool) (float64, error) {
	fds, err := h.rawPair(block)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	errs := make(chan error, 1)
	turn := func(fd int, b []byte, first uintptr) error {
		for _, call := range []uintptr{first, unix.SYS_SENDTO + unix.SYS_RECVFROM - first} {
			if n, err := rawMove(fd, call, b, block); err != nil || n != len(b) {
				return fmt.Errorf("moved %d: %w", n, err)
			}
		}
		return nil
	}
	go func() {
		b := make([]byte, size)
		for range rounds {
			if err := turn(fds[1], b, unix.SYS_RECVFROM); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	b, took := make([]byte, size), make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		if err := turn(fds[0], b, unix.SYS_SENDTO); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return float64(took[rounds/2].Nanoseconds()) / 2e3, <-errs
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rawStream sends for about d, with a copy and a CRC32c of everything on each
// side, and returns Gb/s.
func (h *hosts) rawStream(d time.Duration) (float64, error) {
	fds, err := h.rawPair(true)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fds[1])
	const chunk, message = 64 << 10, 1 << 20
	type result struct {
		bytes int
		sum   uint32
		err   error
	}
	done := make(chan result, 1)
	start := time.Now()
	go func() {
		var r result
		buf, dst := make([]byte, chunk), make([]byte, message)
		for {
			n, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(fds[1]), uintptr(unsafe.Pointer(&buf[0])), chunk, 0, 0, 0)
			if errno != 0 || n == 0 {
				if errno != 0 {
					r.err = errno
				}
				done <- r
				return
			}
			r.sum = crc32.Update(r.sum, castagnoli, buf[:n])
			at := r.bytes % message
			copy(dst[at:], buf[:n])
			r.bytes += int(n)
		}
	}()
	src, buf := make([]byte, message), make([]byte, chunk)
	sum, sent := uint32(0), 0
	for time.Since(start) < d {
		for at := 0; at < message; at += chunk {
			copy(buf, src[at:at+chunk])
			sum = crc32.Update(sum, castagnoli, buf)
			for left := buf; len(left) > 0; {
				n, _, errno := syscall.Syscall6(unix.SYS_SENDTO, uintptr(fds[0]), uintptr(unsafe.Pointer(&left[0])), uintptr(len(left)), 0, 0, 0)
				if errno != 0 {
					return 0, errno
				}
				left = left[n:]
				sent += int(n)
			}
		}
	}
	unix.Close(fds[0])
	r := <-done
	if r.err != nil || r.bytes != sent || r.sum != sum {
		return 0, fmt.Errorf("%d of %d bytes, sums %#x and %#x, %w", r.bytes, sent, r.sum, sum, r.err)
	}
	return float64(sent) * 8 / float64(time.Since(start).Nanoseconds()), nil
}
