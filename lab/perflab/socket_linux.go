package perflab

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawEndpoint says where a measurement of plain sockets opens a socket.
type RawEndpoint struct {
	// NetNS is the descriptor of the network namespace of the socket; 0 means the
	// process's own.
	NetNS int
	// Addr is the address to bind. Port 0 lets the kernel choose.
	Addr netip.AddrPort
	// CPU is the processor, counted from 1, on which the goroutine of the socket runs; 0
	// means any. Wake-ups between processors take three times as long as on one, so compare
	// only measurements that are bound alike.
	CPU int
}

// RawStreamConfig configures [RawTCPStream] and [RawUDPStream].
type RawStreamConfig struct {
	// Bytes is the size of a TCP message or of the payload of a UDP datagram. TCP messages
	// over 64 KiB are sent in chunks of 64 KiB; up to 16 shorter ones share a system call.
	Bytes int
	// CopyAndCRC adds the work of a device without hardware: the sender copies each message and
	// appends a CRC, the receiver checks it and copies the message to application memory.
	CopyAndCRC bool
	// Duration is how long the sender sends.
	Duration time.Duration
}

// RawPingPongConfig configures [RawTCPPingPong] and [RawUDPPingPong].
type RawPingPongConfig struct {
	Bytes  int // of a message
	Rounds int // round trips, rounded down to whole samples, at least one
	// Block makes both sides block in recv. Otherwise they spin on non-blocking
	// sockets.
	Block bool
}

const (
	// chunkMax is the maximum size of a TCP send, and burst the maximum number of
	// messages in it.
	chunkMax = 64 << 10
	burst    = 16
	// memoryBytes is the application memory of each side of a stream, used as a ring.
	memoryBytes = 1 << 20
	crcBytes    = 4
	// spinLimit is the number of polls before a side of a TCP stream sleeps to yield the CPU.
	spinLimit = 64
	// tripsPerSample is the number of round trips that are timed together, to hide
	// the cost of reading the clock.
	tripsPerSample = 50
	// ioTimeout is how long a side waits for the other.
	ioTimeout = 20 * time.Second
)

// socket is one end of a TCP connection, or a UDP socket.
type socket struct {
	fd int
	// peer is the destination of datagrams, Inet6 or Inet4; nil if the socket is connected.
	peer     *unix.RawSockaddrInet6
	peerSize uint32
}

func (s socket) close() { unix.Close(s.fd) }

// send sends b, or its first part, to the peer. It returns -1 if a non-blocking socket is full.
func (s socket) send(b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(s.peer)), uintptr(s.peerSize))
	return nonBlockingResult("send", n, errno)
}

// receive receives bytes. It returns 0 if a non-blocking socket has none, errClosed at stream end.
func (s socket) receive(b []byte) (int, error) {
	r, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), 0, 0, 0)
	n, err := nonBlockingResult("recv", r, errno)
	if n == 0 && err == nil {
		err = errClosed
	}
	return max(n, 0), err
}

var errClosed = errors.New("the other side has closed the connection")

// nonBlockingResult returns the result of the system call name: n, an error, or -1 without an error
// if the call would block or was interrupted.
func nonBlockingResult(name string, n uintptr, errno syscall.Errno) (int, error) {
	switch errno {
	case 0:
		return int(n), nil
	case unix.EAGAIN, unix.EINTR:
		return -1, nil
	}
	return 0, fmt.Errorf("%s: %w", name, errno)
}

// receiveBlocking receives bytes from a blocking socket. It returns errClosed at the end of the
// stream, and errNoReply after the socket's receive timeout.
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
			return 0, errNoReply
		default:
			return 0, fmt.Errorf("recv: %w", errno)
		}
	}
}

// connectTCP opens a TCP connection from a to b with TCP_NODELAY. block says whether its sockets
// block.
func connectTCP(a, b RawEndpoint, block bool) (client, server socket, err error) {
	listener, err := bind(unix.SOCK_STREAM, b)
	if err != nil {
		return client, server, err
	}
	defer listener.close()
	if err := unix.Listen(listener.fd, 1); err != nil {
		return client, server, fmt.Errorf("listen: %w", err)
	}
	listenAddr, err := unix.Getsockname(listener.fd)
	if err != nil {
		return client, server, fmt.Errorf("getsockname: %w", err)
	}
	if client, err = bind(unix.SOCK_STREAM, a); err != nil {
		return client, server, err
	}
	if err = unix.Connect(client.fd, listenAddr); err == nil {
		server.fd, _, err = unix.Accept4(listener.fd, unix.SOCK_CLOEXEC)
	}
	if err != nil {
		client.close()
		return client, server, fmt.Errorf("TCP from %v to %v: %w", a.Addr, b.Addr, err)
	}
	for _, s := range []socket{client, server} {
		err = errors.Join(err, s.setBlocking(block), s.setOption("TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	}
	if err != nil {
		client.close()
		server.close()
	}
	return client, server, err
}

// openUDPPair opens two UDP sockets that send to each other. block says whether they block.
func openUDPPair(a, b RawEndpoint, block bool) (sa, sb socket, err error) {
	if sa, err = openUDP(a, block); err != nil {
		return sa, sb, err
	}
	if sb, err = openUDP(b, block); err != nil {
		sa.close()
		return sa, sb, err
	}
	if err = errors.Join(sa.setPeer(sb), sb.setPeer(sa)); err != nil {
		sa.close()
		sb.close()
	}
	return sa, sb, err
}

// openUDP opens a UDP socket with a large receive queue, whose datagrams are not fragmented.
func openUDP(e RawEndpoint, block bool) (socket, error) {
	s, err := bind(unix.SOCK_DGRAM, e)
	if err != nil {
		return s, err
	}
	const queueBytes = 4 << 20
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queueBytes) != nil {
		err = s.setOption("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, queueBytes)
	}
	level, option, dontFragment := unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	if e.Addr.Addr().Is4() {
		level, option, dontFragment = unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	}
	if err = errors.Join(err, s.setOption("MTU_DISCOVER", level, option, dontFragment), s.setBlocking(block)); err != nil {
		s.close()
	}
	return s, err
}

// setPeer makes s send its datagrams to the address of peer. An IPv4 address uses only the first
// bytes of s.peer, as s.peerSize says.
func (s *socket) setPeer(peer socket) error {
	s.peer, s.peerSize = new(unix.RawSockaddrInet6), unix.SizeofSockaddrInet6
	_, _, errno := syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(peer.fd),
		uintptr(unsafe.Pointer(s.peer)), uintptr(unsafe.Pointer(&s.peerSize)))
	if errno != 0 {
		return fmt.Errorf("getsockname: %w", errno)
	}
	return nil
}

// setBlocking sets whether the socket blocks. A receive blocks for at most ioTimeout.
func (s socket) setBlocking(block bool) error {
	timeout := unix.NsecToTimeval(ioTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return fmt.Errorf("SO_RCVTIMEO: %w", err)
	}
	return unix.SetNonblock(s.fd, !block)
}

// setOption sets an option of setsockopt(2). name is used in errors.
func (s socket) setOption(name string, level, option, value int) error {
	if err := unix.SetsockoptInt(s.fd, level, option, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// bind opens a socket of a type such as SOCK_STREAM and binds it to the address of e.
func bind(socketType int, e RawEndpoint) (s socket, err error) {
	addr, port := e.Addr.Addr(), int(e.Addr.Port())
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: port, Addr: addr.As16()})
	if addr.Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: addr.As4()}
	}
	err = inNetNS(e.NetNS, func() (err error) {
		s.fd, err = unix.Socket(family, socketType|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err == nil {
		if err = unix.Bind(s.fd, sa); err != nil {
			s.close()
		}
	}
	if err != nil {
		err = fmt.Errorf("socket on %v: %w", e.Addr, err)
	}
	return s, err
}

// inNetNS calls f in network namespace ns, on a thread that is not reused. With ns 0 it calls f
// directly, in the namespace of the process.
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

// onNewThread calls f on a new thread, which ends with the goroutine because it stays locked.
func onNewThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// runOnCPUs runs first and second, each on a thread that is bound to its CPU, counted from 1; 0 is
// any. It returns when both have ended.
func runOnCPUs(cpus [2]int, first, second func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- onCPU(cpus[1], second) }()
	err := onCPU(cpus[0], first)
	return errors.Join(err, <-ended)
}

// fillPattern fills b with bytes that differ from their neighbours.
func fillPattern(b []byte) {
	for i := range b {
		b[i] = byte(i * 7)
	}
}

// wait sleeps until the socket is ready for events of poll(2), at most 10 ms.
func (s socket) wait(events int16) error {
	fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: events}}
	if _, err := unix.Poll(fds[:], 10); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}

// yield lets another thread use this processor. A goroutine that spins calls it, because its peer
// may need the same processor.
func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
