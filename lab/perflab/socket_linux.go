package perflab

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
)

// socket is one end of a connection.
type socket struct{ fd int }

func (s socket) close() { unix.Close(s.fd) }

// send sends some of b, or nothing if the socket does not block and has no room.
func (s socket) send(b []byte) (int, error) {
	return s.call(unix.SYS_SENDTO, "send", b, unix.MSG_NOSIGNAL)
}

// receive receives some bytes, or none if the socket does not block and has none.
func (s socket) receive(b []byte) (int, error) {
	n, err := s.call(unix.SYS_RECVFROM, "recv", b, 0)
	if n == 0 && err == nil {
		err = errHungUp
	}
	return max(n, 0), err
}

var errHungUp = errors.New("the other side has closed the connection")

// call makes a system call that never keeps the processor for long. It returns
// -1 where it would block.
func (s socket) call(number uintptr, name string, b []byte, flags uintptr) (int, error) {
	n, _, errno := syscall.RawSyscall6(number, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EAGAIN, unix.EINTR:
		return -1, nil
	}
	return 0, fmt.Errorf("%s: %w", name, errno)
}

// sleep receives some bytes from a socket that blocks.
func (s socket) sleep(b []byte) (int, error) {
	for {
		n, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
		switch {
		case errno == 0 && n == 0:
			return 0, errHungUp
		case errno == 0:
			return int(n), nil
		case errno == unix.EINTR:
		case errno == unix.EAGAIN: // SO_RCVTIMEO
			return 0, fmt.Errorf("nothing came within %v", patience)
		default:
			return 0, fmt.Errorf("recv: %w", errno)
		}
	}
}

// connect opens a connection between two endpoints, without Nagle's delay.
func connect(a, b rawbench.Endpoint, block bool) (client, server socket, err error) {
	var listener, from int
	var at unix.Sockaddr
	if err = within(b.NetNS, func() error {
		listener, err = bind(b.Addr)
		if err == nil {
			err = unix.Listen(listener, 1)
		}
		if err == nil {
			at, err = unix.Getsockname(listener)
		}
		return err
	}); err != nil {
		return client, server, fmt.Errorf("TCP socket on %v: %w", b.Addr, err)
	}
	defer unix.Close(listener)
	if err = within(a.NetNS, func() error {
		if from, err = bind(a.Addr); err == nil {
			err = unix.Connect(from, at)
		}
		return err
	}); err != nil {
		return client, server, fmt.Errorf("TCP from %v to %v: %w", a.Addr, b.Addr, err)
	}
	client = socket{from}
	to, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		client.close()
		return client, server, fmt.Errorf("accept: %w", err)
	}
	server = socket{to}
	for _, s := range []socket{client, server} {
		if err := s.setUp(block); err != nil {
			client.close()
			server.close()
			return client, server, err
		}
	}
	return client, server, nil
}

func (s socket) setUp(block bool) error {
	if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return fmt.Errorf("SO_RCVTIMEO: %w", err)
	}
	return unix.SetNonblock(s.fd, !block)
}

// bind opens a socket on an address.
func bind(addr netip.AddrPort) (int, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()})
	if addr.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// within runs f in a network namespace, on a thread that dies with it; 0 is the
// process's own.
func within(ns int, f func() error) error {
	if ns == 0 {
		return f()
	}
	return apart(func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// onCPU runs f on a thread of its own, bound to the processor that cpu names,
// counted from 1; 0 is any.
func onCPU(cpu int, f func() error) error {
	return apart(func() error {
		if cpu > 0 {
			var set unix.CPUSet
			set.Set(cpu - 1)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return fmt.Errorf("bind to processor %d: %w", cpu-1, err)
			}
		}
		return f()
	})
}

// apart runs f on a thread that dies with it: the goroutine exits while still
// locked, so nobody else gets a thread that was moved.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// both runs the two sides, each on its processor, and returns when both ended.
// One that fails hangs up, which ends the other.
func both(a, b rawbench.Endpoint, client, server socket, first, second func() error) error {
	served := make(chan error, 1)
	go func() { served <- onCPU(b.CPU, func() error { return orHangUp(server, second) }) }()
	err := onCPU(a.CPU, func() error { return orHangUp(client, first) })
	return errors.Join(err, <-served)
}

func orHangUp(s socket, f func() error) error {
	err := f()
	if err != nil {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // the first error counts
	}
	return err
}

// wait sleeps until the socket is ready, or a little.
func (s socket) wait(events int16) error {
	fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: events}}
	if _, err := unix.Poll(fds[:], 10); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}
