package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// kernelStreams is the kernel's TCP, in the peer's namespace or that of the judge.
type kernelStreams struct {
	w *realWorld
	// inNamespace calls a function in the namespace for new sockets.
	inNamespace func(func() error) error
	from        netip.Addr

	mu   sync.Mutex
	open []io.Closer
}

// closeLater registers a socket that close closes at the end of the case.
func (n *kernelStreams) closeLater(c io.Closer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = append(n.open, c)
}

// close closes the sockets of the case. It resets connections.
func (n *kernelStreams) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.open {
		if s, ok := c.(*net.TCPConn); ok {
			_ = s.SetLinger(0)
		}
		_ = c.Close() // may be closed
	}
	n.open = nil
}

// Dial implements conformance.Streams. startWait records the wait until its result is called.
func (n *kernelStreams) Dial(to netip.AddrPort, timeout time.Duration) (conformance.Stream, error) {
	defer n.w.startWait("a stream to " + to.String())()
	ctx := n.w.ctx
	if timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.from, 0))}
	var c net.Conn
	err := n.inNamespace(func() (err error) {
		c, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial %v: %w", to, tcpError(err))
	}
	n.closeLater(c)
	return &kernelStream{n: n, c: c.(*net.TCPConn)}, nil
}

// Listen implements conformance.Streams.
func (n *kernelStreams) Listen(port uint16) (conformance.Listener, error) {
	var l *net.TCPListener
	err := n.inNamespace(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.from, port)))
		return err
	})
	if err != nil {
		return nil, err
	}
	n.closeLater(l)
	return &kernelListener{n, l}, nil
}

type kernelListener struct {
	streams  *kernelStreams
	listener *net.TCPListener
}

// Addr implements conformance.Listener.
func (l *kernelListener) Addr() netip.AddrPort { return plainAddr(l.listener.Addr()) }

// Close implements conformance.Listener.
func (l *kernelListener) Close() error { return l.listener.Close() }

// Accept implements conformance.Listener. startWait records the wait until its result is called.
func (l *kernelListener) Accept(timeout time.Duration) (conformance.Stream, error) {
	defer l.streams.w.startWait(fmt.Sprint("a stream to port ", l.Addr().Port()))()
	if err := l.listener.SetDeadline(deadline(timeout)); err != nil {
		return nil, err
	}
	c, err := l.listener.AcceptTCP()
	if err != nil {
		return nil, fmt.Errorf("accept on %v: %w", l.Addr(), tcpError(err))
	}
	l.streams.closeLater(c)
	return &kernelStream{n: l.streams, c: c}, nil
}

// deadline returns when a timeout expires: in a millisecond or later, so that data that has arrived
// is read. For a negative timeout, which never expires, it returns the zero time.
func deadline(timeout time.Duration) time.Time {
	if timeout < 0 {
		return time.Time{}
	}
	return time.Now().Add(max(timeout, time.Millisecond))
}

// kernelStream is a TCP connection of the peer.
type kernelStream struct {
	n   *kernelStreams
	c   *net.TCPConn
	buf [1 << 16]byte
}

// Local implements conformance.Stream.
func (s *kernelStream) Local() netip.AddrPort { return plainAddr(s.c.LocalAddr()) }

// Remote implements conformance.Stream.
func (s *kernelStream) Remote() netip.AddrPort { return plainAddr(s.c.RemoteAddr()) }

// MSS implements conformance.Stream.
func (s *kernelStream) MSS() (mss int) {
	raw, err := s.c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			mss = int(info.Snd_mss)
		}
	})
	return mss
}

// Write implements conformance.Stream. Go sets TCP_NODELAY, so TCP does not join b with later data.
func (s *kernelStream) Write(b []byte) error {
	defer s.n.w.startWait("room to write")()
	_, err := s.c.Write(b)
	return tcpError(err)
}

// Read implements conformance.Stream. startWait records the wait until its result is called.
func (s *kernelStream) Read(timeout time.Duration) ([]byte, error) {
	defer s.n.w.startWait("bytes from the device")()
	if err := s.c.SetReadDeadline(deadline(timeout)); err != nil {
		return nil, err
	}
	k, err := s.c.Read(s.buf[:])
	if k > 0 {
		return slices.Clone(s.buf[:k]), nil
	}
	return nil, tcpError(err)
}

// CloseWrite implements conformance.Stream.
func (s *kernelStream) CloseWrite() error { return tcpError(s.c.CloseWrite()) }

// Reset implements conformance.Stream.
func (s *kernelStream) Reset() error { return errors.Join(s.c.SetLinger(0), s.c.Close()) }

// plainAddr converts the address of a TCP socket. IPv4 addresses are not mapped to IPv6.
func plainAddr(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// tcpError wraps socket errors with conformance.ErrReset and verbs.ErrTimeout, for cases.
func tcpError(err error) error {
	var timeout net.Error
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w (%w)", conformance.ErrReset, err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w (%w)", verbs.ErrTimeout, err)
	}
	return err
}

// isTCPTo returns a predicate for IP packets that contain TCP and are sent to one of addrs.
func isTCPTo(addrs []netip.Addr) func([]byte) bool {
	return func(ip []byte) bool {
		h, _, err := packet.ParseIPHeader(ip)
		return err == nil && *h.Protocol == packet.ProtocolTCP && slices.Contains(addrs, h.Dst)
	}
}

// segmentWire is the wire of a user-space TCP, with the times of the case. It is
// read concurrently with the case.
type segmentWire struct {
	openWire
	w *realWorld
}

// Recv implements conformance.Wire. It converts the frame's time, which is relative to the epoch of
// the wire, to one relative to the start of the case.
func (x *segmentWire) Recv(timeout time.Duration) (conformance.Frame, error) {
	f, err := x.openWire.Recv(timeout)
	f.At -= x.w.epoch.Sub(x.Epoch())
	return f, err
}

// timestampsLen is the length of the TCP timestamps option, which most hosts use. The user-space
// TCP does not, and subtracts it from the MSS of a smaller MTU, to get payloads of the usual size.
const timestampsLen = 12

// openTCP opens a user-space TCP at a local address for the case, and records all packets. If
// pathMTU is smaller than the MTU of the link, it limits the MSS.
func (r *realTimeCase) openTCP(l openWire, record *conformance.Record, local netip.Addr, linkMTU, pathMTU int) conformance.RawTCP {
	l.Discard()
	w := r.world
	cfg := wire.TCPConfig{Wire: record.RecordWire(w, &segmentWire{l, w}), Addr: local, MTU: linkMTU, OnWait: w.startWait, Done: w.ctx.Done()}
	if pathMTU < linkMTU {
		const tcpHeaderLen = 20
		cfg.MSS = pathMTU - link.IPv4HeaderLen - tcpHeaderLen - timestampsLen
		if local.Is6() {
			cfg.MSS -= link.IPv6HeaderLen - link.IPv4HeaderLen
		}
	}
	r.tcpHost = wire.NewTCPHost(cfg)
	return record.RecordRawTCP(w, r.tcpHost)
}
