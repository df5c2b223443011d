package wire

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// lossyWire drops, duplicates and delays some packets, in both directions.
type lossyWire struct {
	conformance.Wire
	mu      sync.Mutex
	r       *rand.Rand
	percent int
	late    [][]byte
}

func (w *lossyWire) Send(p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := w.r.IntN(100); {
	case n < w.percent:
		return nil
	case n < 2*w.percent:
		w.late = append(w.late, p)
		return nil
	case n < 3*w.percent:
		w.late = append(w.late, p)
	}
	err := w.Wire.Send(p)
	for _, p := range w.late {
		err = errors.Join(err, w.Wire.Send(p))
	}
	w.late = nil
	return err
}

func (w *lossyWire) Recv(timeout time.Duration) (conformance.Frame, error) {
	f, err := w.Wire.Recv(timeout)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.r.IntN(100) < w.percent {
		return f, verbs.ErrTimeout
	}
	return f, err
}

// tcpLink has the kernel's TCP at one end, and a TCPHost at the other.
type tcpLink struct {
	*testLink
	tcp *TCPHost
}

func newTCPLink(t *testing.T, ipv6 bool, percent int) *tcpLink {
	t.Helper()
	c := &tcpLink{testLink: openTestLink(t, 1500, false, EthernetConfig{Accept: func([]byte) bool { return true }})}
	addr := ours4
	if ipv6 {
		addr = ours6
	}
	c.tcp = NewTCPHost(TCPConfig{Wire: &lossyWire{Wire: c.wire, r: rand.New(rand.NewPCG(7, 7)), percent: percent}, Addr: addr, MTU: 1500})
	t.Cleanup(c.tcp.Close)
	return c
}

// listen makes the kernel listen, and handle connections.
func (c *tcpLink) listen(t *testing.T, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	var l *net.TCPListener
	must.Do(t, c.host.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", nil)
		return err
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			k, err := l.AcceptTCP()
			if err != nil {
				return
			}
			handle(k)
			k.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	addr := c.host.V4
	if c.tcp.cfg.Addr.Is6() {
		addr = c.host.V6
	}
	return netip.AddrPortFrom(addr, uint16(l.Addr().(*net.TCPAddr).Port))
}

func echo(k *net.TCPConn) { _, _ = io.Copy(k, k); _ = k.CloseWrite() }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// readAll reads until EOF, and returns the longest payload of a segment as well.
func readAll(t *testing.T, s conformance.Stream) (all []byte, longest int) {
	t.Helper()
	for {
		b, err := s.Read(timeout)
		if errors.Is(err, io.EOF) {
			return all, longest
		}
		must.Do(t, err)
		all, longest = append(all, b...), max(longest, len(b))
	}
}

// An echo returns the sent octets in spite of loss, duplication and delay, over IPv4 and
// IPv6, for any initial sequence number and MSS.
func TestEchoOverLossyLink(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name    string
		ipv6    bool
		percent int
		octets  int
		options conformance.TCPOptions
	}{
		{"plain", false, 0, 1 << 20, conformance.TCPOptions{}},
		{"IPv6", true, 0, 1 << 20, conformance.TCPOptions{}},
		{"wrap", false, 0, 1 << 20, conformance.TCPOptions{ISN: new(^uint32(0) - 5000)}},
		{"at the wrap", true, 0, 1 << 16, conformance.TCPOptions{ISN: new(^uint32(0))}},
		{"short segments", false, 0, 1 << 18, conformance.TCPOptions{MSS: 536}},
		{"loss", false, 5, 1 << 16, conformance.TCPOptions{}},
		{"loss and wrap", true, 10, 1 << 15, conformance.TCPOptions{ISN: new(^uint32(0) - 5000), MSS: 700}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newTCPLink(t, x.ipv6, x.percent)
			c.tcp.SetOptions(x.options)
			s, err := c.tcp.Dial(c.listen(t, echo), timeout)
			must.Do(t, err)
			sent := randomBytes(x.octets)
			written := make(chan error, 1)
			go func() {
				var err error
				for b := sent; len(b) > 0 && err == nil; b = b[min(len(b), 3000):] {
					err = s.Write(b[:min(len(b), 3000)])
				}
				written <- errors.Join(err, s.CloseWrite())
			}()
			got, longest := readAll(t, s)
			must.Do(t, <-written)
			if !bytes.Equal(got, sent) {
				t.Errorf("%d octets of %d, or wrong ones", len(got), len(sent))
			}
			if longest > s.MSS() || x.options.MSS > 0 && (s.MSS() != x.options.MSS || longest != x.options.MSS) {
				t.Errorf("segments of up to %d octets, with an MSS of %d", longest, s.MSS())
			}
		})
	}
}

// The kernel connects, sends and closes its side; then the host does the same.
func TestAcceptFromKernel(t *testing.T) {
	t.Parallel()
	for _, percent := range []int{0, 10} {
		c := newTCPLink(t, percent > 0, percent)
		l, err := c.tcp.Listen(7471)
		must.Do(t, err)
		if _, err := l.Accept(time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
			t.Error(err)
		}
		var k *net.TCPConn
		dialed := make(chan error, 1)
		go func() {
			dialed <- c.host.Do(func() (err error) {
				k, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.Addr()))
				return err
			})
		}()
		s, err := l.Accept(timeout)
		must.Do(t, err)
		must.Do(t, <-dialed)
		_, err = k.Write([]byte("hello"))
		must.Do(t, err)
		must.Do(t, k.CloseWrite())
		if got, _ := readAll(t, s); string(got) != "hello" {
			t.Errorf("%q", got)
		}
		must.Do(t, s.Write([]byte("reply"))) // half-closed
		must.Do(t, s.CloseWrite())
		if b, err := io.ReadAll(k); err != nil || string(b) != "reply" {
			t.Errorf("%q, %v", b, err)
		}
		must.Do(t, k.Close())
		must.Do(t, l.Close())
		err = c.host.Do(func() error { _, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.Addr())); return err })
		if err == nil {
			t.Error("dialing succeeds after the listener was closed")
		}
	}
}

func TestResetAndRefusedConnections(t *testing.T) {
	t.Parallel()
	c := newTCPLink(t, false, 0)
	received := make(chan error, 1)
	addr := c.listen(t, func(k *net.TCPConn) {
		_, err := io.ReadAll(k)
		received <- err
		_ = k.SetLinger(0)
	})
	s, err := c.tcp.Dial(addr, timeout)
	must.Do(t, err)
	must.Do(t, s.Reset())
	if err := <-received; err == nil {
		t.Error("the kernel does not report our reset")
	}
	s, err = c.tcp.Dial(addr, timeout)
	must.Do(t, err)
	must.Do(t, s.CloseWrite())
	<-received
	if _, err := s.Read(timeout); !errors.Is(err, conformance.ErrReset) {
		t.Errorf("the kernel's reset: %v", err)
	}
	if err := s.Write([]byte("x")); !errors.Is(err, conformance.ErrReset) {
		t.Errorf("writing after it: %v", err)
	}
	if _, err := c.tcp.Dial(netip.AddrPortFrom(c.host.V4, 1), timeout); !errors.Is(err, conformance.ErrReset) {
		t.Errorf("port without a listener: %v", err)
	}
	if _, err := c.tcp.Dial(netip.MustParseAddrPort("10.77.0.99:1"), 50*time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("address without a host: %v", err)
	}
	for until := time.Now().Add(timeout); c.tcp.connCount() > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if n := c.tcp.connCount(); n != 0 {
		t.Errorf("%d connections remain", n)
	}
}

// Unread octets do not exceed the receive window, and all are delivered later.
func TestReceiveWindowCloses(t *testing.T) {
	t.Parallel()
	c := newTCPLink(t, false, 0)
	sent := randomBytes(1 << 20)
	addr := c.listen(t, func(k *net.TCPConn) { _, _ = k.Write(sent) })
	s, err := c.tcp.Dial(addr, timeout)
	must.Do(t, err)
	time.Sleep(300 * time.Millisecond)
	c.tcp.mu.Lock()
	unread := s.(*tcpStream).c.rcv.unread
	c.tcp.mu.Unlock()
	if unread == 0 || unread > maxWindow {
		t.Errorf("%d octets are unread", unread)
	}
	if got, _ := readAll(t, s); !bytes.Equal(got, sent) {
		t.Errorf("%d octets of %d, or wrong ones", len(got), len(sent))
	}
}

// The host waits while the kernel's window is closed.
func TestSendWaitsForKernelWindow(t *testing.T) {
	t.Parallel()
	c := newTCPLink(t, true, 0)
	read := make(chan []byte, 1)
	addr := c.listen(t, func(k *net.TCPConn) {
		_ = k.SetReadBuffer(8192)
		time.Sleep(600 * time.Millisecond)
		b, _ := io.ReadAll(k)
		read <- b
	})
	s, err := c.tcp.Dial(addr, timeout)
	must.Do(t, err)
	sent := randomBytes(1 << 17)
	must.Do(t, s.Write(sent))
	must.Do(t, s.CloseWrite())
	if got := <-read; !bytes.Equal(got, sent) {
		t.Errorf("%d octets of %d, or wrong ones", len(got), len(sent))
	}
}

// The kernel reassembles held octets that are sent late, twice and overlapping.
func TestSendHeldControlsSegments(t *testing.T) {
	t.Parallel()
	c := newTCPLink(t, false, 0)
	received := make(chan []byte, 16)
	addr := c.listen(t, func(k *net.TCPConn) {
		for {
			b := make([]byte, 1000)
			n, err := k.Read(b)
			if err != nil {
				return
			}
			received <- b[:n]
		}
	})
	str, err := c.tcp.Dial(addr, timeout)
	must.Do(t, err)
	s := str.(conformance.RawStream)
	must.Do(t, s.Hold([]byte("0123456789")))
	if err := s.Hold([]byte("x")); err == nil {
		t.Error("a second Hold succeeds")
	}
	must.Do(t, s.Write([]byte("after")))
	must.Do(t, s.SendHeld(7, 10))
	must.Do(t, s.SendHeld(3, 8))
	must.Do(t, s.SendHeld(3, 8))
	select {
	case b := <-received:
		t.Errorf("%q was delivered before the octets ahead of it", b)
	case <-time.After(400 * time.Millisecond): // longer than a retransmission
	}
	must.Do(t, s.SendHeld(0, 5))
	if b := <-received; string(b) != "0123456789after" {
		t.Errorf("%q", b)
	}
	must.Do(t, s.SendHeld(2, 9)) // although acknowledged
	if s.SendHeld(0, 11) == nil || s.SendHeld(-1, 0) == nil || s.SendHeld(3, 3) == nil {
		t.Error("octets outside the held ones were sent")
	}
	must.Do(t, s.Write([]byte("on")))
	if b := <-received; string(b) != "on" {
		t.Errorf("%q", b)
	}
	if s.SendHeldFIN(0) == nil {
		t.Error("FIN sent before the written octets")
	}
	must.Do(t, s.Hold([]byte("the end")))
	must.Do(t, s.SendHeld(0, 3))
	must.Do(t, s.SendHeldFIN(3))
	got := ""
	for len(got) < 7 {
		got += string(<-received)
	}
	if got != "the end" {
		t.Errorf("%q", got)
	}
	if _, err := s.Read(timeout); !errors.Is(err, io.EOF) {
		t.Errorf("reading after the FIN: %v", err)
	}
}

// connCount returns the number of connections.
func (h *TCPHost) connCount() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ports := range maps.Values(h.conns) {
		n += len(ports)
	}
	return n
}
