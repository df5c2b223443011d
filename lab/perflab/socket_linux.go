package perflab

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is one end of a TCP connection.
type socket struct{ fd int }

func (s socket) close() { unix.Close(s.fd) }

// send sends a part of b. It returns -1 if a non-blocking socket is full.
func (s socket) send(b []byte) (int, error) {
	return s.rawCall(unix.SYS_SENDTO, "send", b, unix.MSG_NOSIGNAL)
}

// receive receives bytes. It returns 0 if a non-blocking socket has none.
func (s socket) receive(b []byte) (int, error) {
	n, err := s.rawCall(unix.SYS_RECVFROM, "recv", b, 0)
	if n == 0 && err == nil {
		err = errClosed
	}
	return max(n, 0), err
}

var errClosed = errors.New("the other side has closed the connection")

// rawCall makes a non-blocking system call without the Go scheduler. It returns -1
// if it would block.
func (s socket) rawCall(number uintptr, name string, b []byte, flags uintptr) (int, error) {
	n, _, errno := syscall.RawSyscall6(number, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EAGAIN, unix.EINTR:
		return -1, nil
	}
	return 0, fmt.Errorf("%s: %w", name, errno)
}

// receiveBlocking receives bytes from a blocking socket.
func (s socket) receiveBlocking(b []byte) (int, error) {
	for {
		n, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
		switch {
		case errno == 0 && n == 0:
			return 0, errClosed
		case errno == 0:
			return int(n), nil
		case errno == unix.EINTR:
		case errno == unix.EAGAIN: // SO_RCVTIMEO
			return 0, fmt.Errorf("nothing received within %v", ioTimeout)
		default:
			return 0, fmt.Errorf("recv: %w", errno)
		}
	}
}

// connect opens a TCP connection from a to b with TCP_NODELAY. Its sockets are blocking or not.
func connect(a, b RawEndpoint, block bool) (client, server socket, err error) {
	var listener, from int
	var at unix.Sockaddr
	if err = inNetNS(b.NetNS, func() error {
		listener, err = bindTCP(b.Addr)
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
	if err = inNetNS(a.NetNS, func() error {
		if from, err = bindTCP(a.Addr); err == nil {
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
		if err := s.setOptions(block); err != nil {
			client.close()
			server.close()
			return client, server, err
		}
	}
	return client, server, nil
}

// setOptions sets TCP_NODELAY, a receive timeout of ioTimeout, and whether the socket blocks.
func (s socket) setOptions(block bool) error {
	if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	wait := unix.NsecToTimeval(ioTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return fmt.Errorf("SO_RCVTIMEO: %w", err)
	}
	return unix.SetNonblock(s.fd, !block)
}

// bind opens a socket, sets its options and binds it to an address.
func bind(typ int, addr netip.AddrPort, setOptions func(fd int) error) (int, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()})
	if addr.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err = setOptions(fd); err == nil {
		err = unix.Bind(fd, sa)
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// bindTCP opens a TCP socket on an address.
func bindTCP(addr netip.AddrPort) (int, error) {
	return bind(unix.SOCK_STREAM, addr, func(int) error { return nil })
}

// inNetNS calls f in a network namespace, on a thread that is not reused; 0 is the
// namespace of the process.
func inNetNS(ns int, f func() error) error {
	if ns == 0 {
		return f()
	}
	return onNewThread(func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// onCPU calls f on a new thread that is bound to a CPU, counted from 1; 0 is any.
func onCPU(cpu int, f func() error) error {
	return onNewThread(func() error {
		if cpu > 0 {
			var set unix.CPUSet
			set.Set(cpu - 1)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return fmt.Errorf("bind to CPU %d: %w", cpu-1, err)
			}
		}
		return f()
	})
}

// onNewThread calls f on a new thread, which ends with the goroutine because it
// stays locked.
func onNewThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// runBothSides runs runClient and runServer, each on the CPU of its endpoint, and returns when
// both have ended. A side that fails shuts its socket down, which ends the other.
func runBothSides(a, b RawEndpoint, client, server socket, runClient, runServer func() error) error {
	served := make(chan error, 1)
	go func() { served <- onCPU(b.CPU, func() error { return shutdownOnError(server, runServer) }) }()
	err := onCPU(a.CPU, func() error { return shutdownOnError(client, runClient) })
	return errors.Join(err, <-served)
}

// shutdownOnError runs f, and shuts the socket down if it fails, so that the other side ends too.
func shutdownOnError(s socket, f func() error) error {
	err := f()
	if err != nil {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // the first error counts
	}
	return err
}

// wait sleeps until the socket is ready for events of poll(2), at most 10 ms.
func (s socket) wait(events int16) error {
	fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: events}}
	if _, err := unix.Poll(fds[:], 10); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}
