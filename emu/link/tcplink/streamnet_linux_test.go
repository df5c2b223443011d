package tcplink

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

var families = []struct {
	name string
	addr netip.Addr
}{
	{"IPv4", netip.MustParseAddr("127.0.0.1")},
	{"IPv6", netip.MustParseAddr("::1")},
}

func openNet(tb testing.TB, cfg Config) *Net {
	tb.Helper()
	n := must.Get(Open(cfg))(tb)
	tb.Cleanup(func() { n.Close() })
	return n
}

func TestStreamNet(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			linktest.TestStreamNet(t, func(t *testing.T) linktest.StreamBench {
				a, b := openNet(t, Config{}), openNet(t, Config{})
				return linktest.StreamBench{A: a, B: b, AddrA: f.addr, AddrB: f.addr, TimeAfterArrival: settle(a, b)}
			})
		})
	}
}

// settle sleeps briefly on each net in turn, so that the tests cover WaitReady.
func settle(nets ...*Net) func() mono.Time {
	return func() mono.Time {
		for _, n := range nets {
			n.WaitReady(200 * time.Microsecond)
		}
		return 1
	}
}

func listenOn(tb testing.TB, n *Net, addr netip.Addr) *Listener {
	tb.Helper()
	l := must.Get(n.Listen(netip.AddrPortFrom(addr, 0), 64))(tb)
	return l.(*Listener)
}

func dialTo(tb testing.TB, n *Net, to netip.AddrPort) *Stream {
	tb.Helper()
	s := must.Get(n.Dial(1, netip.AddrPort{}, to))(tb)
	return s.(*Stream)
}

// eventually waits until done returns true, for at most 30 s.
func eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for until := time.Now().Add(30 * time.Second); !done(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(until) {
			tb.Fatalf("not within 30 s: %s", what)
		}
	}
}

func acceptFrom(tb testing.TB, l *Listener) (s *Stream) {
	tb.Helper()
	eventually(tb, "a stream to accept", func() bool {
		got := must.Get(l.Accept(1))(tb)
		if got != nil {
			s = got.(*Stream)
		}
		return got != nil
	})
	return s
}

// connectStreams returns streams between two nets.
func connectStreams(tb testing.TB, a, b *Net, count int) (dialed, accepted []*Stream) {
	tb.Helper()
	l := listenOn(tb, b, families[0].addr)
	for range count {
		d := dialTo(tb, a, l.Addr())
		accepted = append(accepted, acceptFrom(tb, l))
		eventually(tb, "connected", func() bool { return d.Connected(1) })
		dialed = append(dialed, d)
	}
	return dialed, accepted
}

// drainReady drops all pending events.
func drainReady(n *Net) {
	var ready [64]link.StreamReady
	for range 3 {
		n.Ready(ready[:])
		n.WaitReady(0)
	}
	n.Ready(ready[:])
}

// BenchmarkEmptyPoll measures Ready and Read of a stream without bytes.
func BenchmarkEmptyPoll(b *testing.B) {
	for _, streams := range []int{1, 2, 3, 100} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			x, y := openNet(b, Config{}), openNet(b, Config{})
			dialed, _ := connectStreams(b, x, y, streams)
			drainReady(x)
			byID := make([]*Stream, 1000)
			for _, s := range dialed {
				byID[s.ID()] = s
			}
			ready, buf := make([]link.StreamReady, 64), make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range ready[:x.Ready(ready)] {
					byID[r.ID].Read(1, buf)
				}
			}
		})
	}
}

// BenchmarkMessage writes and reads a message of header, payload and trailer on one thread.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{64, 8192} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x, y := openNet(b, Config{}), openNet(b, Config{})
			dialed, accepted := connectStreams(b, x, y, 1)
			bufs, in := [][]byte{make([]byte, 20), make([]byte, size), make([]byte, 4)}, make([]byte, 128<<10)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if n, err := dialed[0].Writev(1, bufs, false); n != size+24 || err != nil {
					b.Fatal(n, err)
				}
				for got := 0; got < size+24; {
					n := must.Get(accepted[0].Read(1, in))(b)
					got += n
				}
			}
		})
	}
}

func TestCapturedStreamNet(t *testing.T) {
	linktest.TestStreamNet(t, func(t *testing.T) linktest.StreamBench {
		a, b := openNet(t, Config{}), openNet(t, Config{})
		c := pcaplink.NewCapture(io.Discard, pcaplink.Options{})
		return linktest.StreamBench{
			A: c.WrapStreams("a", a), B: c.WrapStreams("b", b),
			AddrA: families[0].addr, AddrB: families[0].addr, TimeAfterArrival: settle(a, b),
		}
	})
}

func TestCapturedNetIsStreamWaiter(t *testing.T) {
	var file bytes.Buffer
	c := pcaplink.NewCapture(&file, pcaplink.Options{})
	w, ok := c.WrapStreams("a", openNet(t, Config{})).(link.StreamWaiter)
	if !ok {
		t.Fatal("a wrapped net is not a StreamWaiter")
	}
	w.Wake()
	must.Do(t, w.WaitReady(-1))
}

// A stream orders memory accesses: the race detector does not report a write before a call
// of one end and a read after the other end has seen its effect.
func TestStreamOrdersMemoryAccesses(t *testing.T) {
	write := func(sizes ...int) func(*Stream) error {
		var bufs [][]byte
		for _, n := range sizes {
			bufs = append(bufs, make([]byte, n))
		}
		return func(s *Stream) error {
			_, err := s.Writev(0, bufs, false)
			return err
		}
	}
	for name, act := range map[string]func(*Stream) error{
		"short write":  write(100),
		"long write":   write(rawWriteBytes + 1),
		"short vector": write(100, 100),
		"long vector":  write(rawWriteBytes, 100),
		"end":          func(s *Stream) error { return s.CloseWrite(0) },
		"reset":        func(s *Stream) error { return s.Abort(0) },
	} {
		t.Run(name, func(t *testing.T) {
			dialed, accepted := connectStreams(t, openNet(t, Config{}), openNet(t, Config{}), 1)
			in := make([]byte, 1<<16)
			checkOrdered(t, func() error { return act(dialed[0]) }, func() bool {
				k, err := accepted[0].Read(0, in)
				return k > 0 || err != nil
			})
		})
	}
	t.Run("connect", func(t *testing.T) {
		a, b := openNet(t, Config{}), openNet(t, Config{})
		l := listenOn(t, b, families[0].addr)
		checkOrdered(t, func() error {
			_, err := a.Dial(1, netip.AddrPort{}, l.Addr())
			return err
		}, func() bool {
			s, err := l.Accept(1)
			return s != nil || err != nil
		})
	})
}

// checkOrdered writes memory and calls act in one goroutine, and reads it in another after noticed.
// Only the stream may order the two, not even t.Helper.
func checkOrdered(t *testing.T, act func() error, noticed func() bool) {
	before, errs := 0, make(chan error, 1)
	go func() {
		before = 1
		errs <- act()
	}()
	for !noticed() {
		runtime.Gosched()
	}
	if before != 1 {
		t.Error("the memory has the old value")
	}
	if err := <-errs; err != nil {
		t.Error(err)
	}
}
