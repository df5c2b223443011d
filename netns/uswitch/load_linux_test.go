package uswitch

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
)

// udpSocket is a blocking socket of a host.
type udpSocket struct {
	fd   int
	addr netip.AddrPort
}

func openUDP(tb testing.TB, do func(func() error) error, local netip.Addr) *udpSocket {
	tb.Helper()
	u := &udpSocket{}
	family, sa, level, opt, set := unix.AF_INET6, unix.Sockaddr(nil), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	if local.Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: local.As4()}
		level, opt, set = unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	} else {
		sa = &unix.SockaddrInet6{Addr: local.As16()}
	}
	must.Do(tb, do(func() (err error) {
		if u.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if unix.SetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) != nil {
			_ = unix.SetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
		}
		if err := unix.SetsockoptInt(u.fd, level, opt, set); err != nil {
			return err
		}
		return unix.Bind(u.fd, sa)
	}))
	tb.Cleanup(func() { unix.Close(u.fd) })
	name := must.Get(unix.Getsockname(u.fd))(tb)
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		u.addr = netip.AddrPortFrom(local, uint16(n.Port))
	case *unix.SockaddrInet6:
		u.addr = netip.AddrPortFrom(local, uint16(n.Port))
	}
	u.timeout(tb, testTimeout)
	return u
}

func (u *udpSocket) timeout(tb testing.TB, d time.Duration) {
	tv := unix.NsecToTimeval(d.Nanoseconds())
	must.Do(tb, unix.SetsockoptTimeval(u.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// send sends b, in datagrams of segment bytes if that is not 0 (UDP GSO).
func (u *udpSocket) send(to netip.AddrPort, b []byte, segment int) error {
	var control []byte
	if segment > 0 {
		control = make([]byte, unix.CmsgSpace(2))
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(segment))
	}
	return unix.Sendmsg(u.fd, b, control, sockaddr(to), 0)
}

// receive returns the next datagram, nil after the timeout.
func (u *udpSocket) receive() []byte {
	b := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(u.fd, b, 0)
		switch err {
		case nil:
			return b[:n]
		case unix.EINTR:
		default:
			return nil
		}
	}
}

// stream counts the datagrams of a load.
type stream struct {
	sent, received uint64 // datagrams
	bytes          uint64 // received
	elapsed        time.Duration
}

func (s stream) gbps() float64 { return float64(s.bytes) * 8 / float64(s.elapsed) }
func (s stream) kpps() float64 { return float64(s.received) * 1e6 / float64(s.elapsed) }

// load sends batches of datagrams of size bytes for a while, at most window bytes ahead of the
// receiver. Both block, to leave a CPU to the switch on machines with two.
func load(tb testing.TB, tx, rx *udpSocket, size, segments, window int, d time.Duration) stream {
	tb.Helper()
	must.Do(tb, unix.SetsockoptInt(rx.fd, unix.SOL_UDP, unix.UDP_GRO, 1))
	rx.timeout(tb, 50*time.Millisecond)
	var (
		mu      sync.Mutex
		moved   = sync.NewCond(&mu)
		res     stream
		arrived uint64 // last datagram received or given up
		ended   bool
		done    = make(chan struct{})
	)
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			n, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(rx.fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0, 0)
			mu.Lock()
			switch {
			case errno == 0 && n >= 8:
				count := (int(n) + size - 1) / size
				res.bytes += uint64(n)
				res.received += uint64(count)
				arrived = max(arrived, binary.BigEndian.Uint64(buf[(count-1)*size:]))
			case ended:
				mu.Unlock()
				return
			default:
				arrived = res.sent
			}
			moved.Signal()
			mu.Unlock()
		}
	}()
	buf := make([]byte, size*segments)
	segment := size
	if segments == 1 {
		segment = 0
	}
	start := time.Now()
	for seq := uint64(0); time.Since(start) < d; {
		mu.Lock()
		for (res.sent-arrived)*uint64(size) > uint64(window) {
			moved.Wait()
		}
		mu.Unlock()
		for i := range segments {
			seq++
			binary.BigEndian.PutUint64(buf[i*size:], seq)
		}
		must.Do(tb, tx.send(rx.addr, buf, segment))
		mu.Lock()
		res.sent = seq
		mu.Unlock()
	}
	res.elapsed = time.Since(start)
	mu.Lock()
	ended = true
	mu.Unlock()
	<-done
	return res
}
