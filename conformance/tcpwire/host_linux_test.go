package tcpwire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/etherwire"
	"github.com/fabrictest/fabrictest/internal/nstest"
	"github.com/fabrictest/fabrictest/verbs"
)

const patience = 20 * time.Second

var (
	ours4 = netip.MustParseAddr("10.77.0.50")
	ours6 = netip.MustParseAddr("fd77::50")
)

// bad is a wire that loses, repeats and delays some packets, in both directions.
type bad struct {
	Wire
	mu      sync.Mutex
	r       *rand.Rand
	percent int
	late    [][]byte
}

func (w *bad) Send(p []byte) error {
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

func (w *bad) Recv(timeout time.Duration) (conformance.Frame, error) {
	f, err := w.Wire.Recv(timeout)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.r.IntN(100) < w.percent {
		return f, verbs.ErrTimeout
	}
	return f, err
}

// cable has a kernel's TCP at one end, and one by hand at the other.
type cable struct {
	kernel *nstest.Host
	host   *Host
	wire   *etherwire.Wire
}

func newCable(t *testing.T, six bool, percent int) *cable {
	t.Helper()
	c := &cable{}
	var far *nstest.Host
	c.kernel, far = nstest.Pair(t, 1500)
	var mac net.HardwareAddr
	must(t, c.kernel.Do(func() error {
		intf, err := net.InterfaceByName(nstest.Device)
		if err != nil {
			return err
		}
		mac = intf.HardwareAddr
		return etherwire.OffloadsOff(nstest.Device)
	}))
	must(t, far.Do(func() (err error) {
		c.wire, err = etherwire.Open(etherwire.Config{
			Interface: nstest.Device, Device: mac, Addrs: []netip.Addr{ours4, ours6}, Keep: func([]byte) bool { return true },
		})
		return err
	}))
	t.Cleanup(func() { must(t, c.wire.Close()) })
	addr := ours4
	if six {
		addr = ours6
	}
	c.host = New(Config{Wire: &bad{Wire: c.wire, r: rand.New(rand.NewPCG(7, 7)), percent: percent}, Addr: addr, MTU: 1500})
	t.Cleanup(c.host.Close)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve has the kernel listen, and handle a connection.
func (c *cable) serve(t *testing.T, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	var l *net.TCPListener
	must(t, c.kernel.Do(func() (err error) {
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
	at := c.kernel.V4
	if c.host.cfg.Addr.Is6() {
		at = c.kernel.V6
	}
	return netip.AddrPortFrom(at, uint16(l.Addr().(*net.TCPAddr).Port))
}

func echo(k *net.TCPConn) { _, _ = io.Copy(k, k); _ = k.CloseWrite() }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// readAll reads up to the end, and reports the longest that came at a time.
func readAll(t *testing.T, s conformance.Stream) (all []byte, longest int) {
	t.Helper()
	for {
		b, err := s.Read(patience)
		if errors.Is(err, io.EOF) {
			return all, longest
		}
		must(t, err)
		all, longest = append(all, b...), max(longest, len(b))
	}
}

// Whatever the network loses, repeats and delays, octets come as they were sent, in both
// directions, over both families, from any first sequence number and with any MSS.
func TestOctetsComeBack(t *testing.T) {
	for _, x := range []struct {
		name    string
		six     bool
		percent int
		octets  int
		shape   conformance.TCPShape
	}{
		{"plain", false, 0, 1 << 20, conformance.TCPShape{}},
		{"IPv6", true, 0, 1 << 20, conformance.TCPShape{}},
		{"wrap", false, 0, 1 << 20, conformance.TCPShape{First: new(^uint32(0) - 5000)}},
		{"at the wrap", true, 0, 1 << 16, conformance.TCPShape{First: new(^uint32(0))}},
		{"short segments", false, 0, 1 << 18, conformance.TCPShape{MSS: 536}},
		{"loss", false, 5, 1 << 16, conformance.TCPShape{}},
		{"loss and wrap", true, 10, 1 << 15, conformance.TCPShape{First: new(^uint32(0) - 5000), MSS: 700}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newCable(t, x.six, x.percent)
			c.host.Shape(x.shape)
			s, err := c.host.Dial(c.serve(t, echo), patience)
			must(t, err)
			sent := randomBytes(x.octets)
			said := make(chan error, 1)
			go func() {
				var err error
				for b := sent; len(b) > 0 && err == nil; b = b[min(len(b), 3000):] {
					err = s.Write(b[:min(len(b), 3000)])
				}
				said <- errors.Join(err, s.CloseWrite())
			}()
			got, longest := readAll(t, s)
			must(t, <-said)
			if !bytes.Equal(got, sent) {
				t.Errorf("%d octets of %d, or others", len(got), len(sent))
			}
			if longest > s.MSS() || x.shape.MSS > 0 && (s.MSS() != x.shape.MSS || longest != x.shape.MSS) {
				t.Errorf("segments of up to %d octets, with an MSS of %d", longest, s.MSS())
			}
		})
	}
}

// The kernel dials, says something and ends; so do we.
func TestTheKernelDials(t *testing.T) {
	for _, percent := range []int{0, 10} {
		c := newCable(t, percent > 0, percent)
		l, err := c.host.Listen(7471)
		must(t, err)
		if _, err := l.Accept(time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
			t.Error(err)
		}
		var k *net.TCPConn
		dialed := make(chan error, 1)
		go func() {
			dialed <- c.kernel.Do(func() (err error) {
				k, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.Addr()))
				return err
			})
		}()
		s, err := l.Accept(patience)
		must(t, err)
		must(t, <-dialed)
		_, err = k.Write([]byte("hello"))
		must(t, err)
		must(t, k.CloseWrite())
		if got, _ := readAll(t, s); string(got) != "hello" {
			t.Errorf("%q", got)
		}
		must(t, s.Write([]byte("and back"))) // its direction has ended, ours not
		must(t, s.CloseWrite())
		if b, err := io.ReadAll(k); err != nil || string(b) != "and back" {
			t.Errorf("%q, %v", b, err)
		}
		must(t, k.Close())
		must(t, l.Close())
		err = c.kernel.Do(func() error { _, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.Addr())); return err })
		if err == nil {
			t.Error("dialed where nobody listens any more")
		}
	}
}

func TestResets(t *testing.T) {
	c := newCable(t, false, 0)
	heard := make(chan error, 1)
	at := c.serve(t, func(k *net.TCPConn) {
		_, err := io.ReadAll(k)
		heard <- err
		_ = k.SetLinger(0)
	})
	s, err := c.host.Dial(at, patience)
	must(t, err)
	must(t, s.Reset())
	if err := <-heard; err == nil {
		t.Error("the kernel does not hear of our reset")
	}
	s, err = c.host.Dial(at, patience)
	must(t, err)
	must(t, s.CloseWrite())
	<-heard
	if _, err := s.Read(patience); !errors.Is(err, conformance.ErrReset) {
		t.Errorf("the kernel's reset: %v", err)
	}
	if err := s.Write([]byte("x")); !errors.Is(err, conformance.ErrReset) {
		t.Errorf("writing behind it: %v", err)
	}
	if _, err := c.host.Dial(netip.AddrPortFrom(c.kernel.V4, 1), patience); !errors.Is(err, conformance.ErrReset) {
		t.Errorf("nobody listens there: %v", err)
	}
	if _, err := c.host.Dial(netip.MustParseAddrPort("10.77.0.99:1"), 50*time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("nobody is there: %v", err)
	}
	for until := time.Now().Add(patience); c.host.open() > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if n := c.host.open(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// While nobody reads, no more comes than the window; then all of it.
func TestTheWindowCloses(t *testing.T) {
	c := newCable(t, false, 0)
	sent := randomBytes(1 << 20)
	at := c.serve(t, func(k *net.TCPConn) { _, _ = k.Write(sent) })
	s, err := c.host.Dial(at, patience)
	must(t, err)
	time.Sleep(300 * time.Millisecond)
	c.host.mu.Lock()
	unread := s.(*stream).c.unread
	c.host.mu.Unlock()
	if unread == 0 || unread > maxWindow {
		t.Errorf("%d octets have come unread", unread)
	}
	if got, _ := readAll(t, s); !bytes.Equal(got, sent) {
		t.Errorf("%d octets of %d, or others", len(got), len(sent))
	}
}

// And the other way round.
func TestTheKernelsWindowCloses(t *testing.T) {
	c := newCable(t, true, 0)
	read := make(chan []byte, 1)
	at := c.serve(t, func(k *net.TCPConn) {
		_ = k.SetReadBuffer(8192)
		time.Sleep(600 * time.Millisecond)
		b, _ := io.ReadAll(k)
		read <- b
	})
	s, err := c.host.Dial(at, patience)
	must(t, err)
	sent := randomBytes(1 << 17)
	must(t, s.Write(sent))
	must(t, s.CloseWrite())
	if got := <-read; !bytes.Equal(got, sent) {
		t.Errorf("%d octets of %d, or others", len(got), len(sent))
	}
}

// Segments go out as the case says: late, twice, overlapping, and the kernel puts them
// together.
func TestSegmentsAtWill(t *testing.T) {
	c := newCable(t, false, 0)
	heard := make(chan []byte, 16)
	at := c.serve(t, func(k *net.TCPConn) {
		for {
			b := make([]byte, 1000)
			n, err := k.Read(b)
			if err != nil {
				return
			}
			heard <- b[:n]
		}
	})
	str, err := c.host.Dial(at, patience)
	must(t, err)
	s := str.(conformance.Segmented)
	must(t, s.Hold([]byte("0123456789")))
	if err := s.Hold([]byte("x")); err == nil {
		t.Error("two are held")
	}
	must(t, s.Write([]byte("behind")))
	must(t, s.Release(7, 10))
	must(t, s.Release(3, 8))
	must(t, s.Release(3, 8))
	select {
	case b := <-heard:
		t.Errorf("%q before what comes first", b)
	case <-time.After(400 * time.Millisecond): // longer than it takes to repeat something
	}
	must(t, s.Release(0, 5))
	if b := <-heard; string(b) != "0123456789behind" {
		t.Errorf("%q", b)
	}
	must(t, s.Release(2, 9)) // once more, though it has arrived
	if s.Release(0, 11) == nil || s.Release(-1, 0) == nil || s.Release(3, 3) == nil {
		t.Error("released what is not held")
	}
	must(t, s.Write([]byte("on")))
	if b := <-heard; string(b) != "on" {
		t.Errorf("%q", b)
	}
	if s.ReleaseEnd(0) == nil {
		t.Error("ended before what was written")
	}
	must(t, s.Hold([]byte("and out")))
	must(t, s.Release(0, 3))
	must(t, s.ReleaseEnd(3))
	got := ""
	for len(got) < 7 {
		got += string(<-heard)
	}
	if got != "and out" {
		t.Errorf("%q", got)
	}
	if _, err := s.Read(patience); !errors.Is(err, io.EOF) {
		t.Errorf("the kernel ends its side with %v", err)
	}
}
