package drive_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// realToy is a toy on TCP sockets.
type realToy struct {
	*toy
	net  *tcplink.Net
	drv  *drive.RealStreams
	addr netip.AddrPort
}

// openNet opens a net in the namespace in which in runs functions.
func openNet(tb testing.TB, in func(func() error) error, cfg tcplink.Config) *tcplink.Net {
	tb.Helper()
	var n *tcplink.Net
	must.Do(tb, in(func() (err error) { n, err = tcplink.Open(cfg); return err }))
	return n
}

func newRealToy(tb testing.TB, in func(func() error) error, addr netip.AddrPort, cfg tcplink.Config) *realToy {
	tb.Helper()
	r := &realToy{toy: newToy(), net: openNet(tb, in, cfg), addr: addr}
	r.drv = drive.NewRealStreams(r.toy, r.net, 1)
	r.start(r.drv)
	tb.Cleanup(func() {
		r.drv.Close()
		r.net.Close()
	})
	return r
}

// currentNamespace runs f in the namespace of the test.
func currentNamespace(f func() error) error { return f() }

// forEachNetwork runs a test with two toys on loopback and in two namespaces, with IPv4
// and IPv6.
func forEachNetwork(t *testing.T, run func(t *testing.T, open func(testing.TB, tcplink.Config) (a, b *realToy))) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run("loopback "+addr, func(t *testing.T) {
			at := netip.AddrPortFrom(netip.MustParseAddr(addr), 0)
			run(t, func(tb testing.TB, cfg tcplink.Config) (a, b *realToy) {
				return newRealToy(tb, currentNamespace, at, cfg), newRealToy(tb, currentNamespace, at, cfg)
			})
		})
	}
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("namespaces, IPv6 %v", v6), func(t *testing.T) {
			ha, hb := testutil.HostPair(t, 1500)
			run(t, func(tb testing.TB, cfg tcplink.Config) (a, b *realToy) {
				return newRealToy(tb, ha.Do, ha.Addr(v6, 0), cfg), newRealToy(tb, hb.Do, hb.Addr(v6, 0), cfg)
			})
		})
	}
}

// spin polls the driver without blocking until done returns true, as a program that busy-polls a
// CQ. It returns false after the timeout.
func (r *realToy) spin(timeout time.Duration, done func() bool) bool {
	for until := time.Now().Add(timeout); time.Now().Before(until); {
		r.drv.Lock(drive.CallPoll)
		r.drv.Progress()
		found := done()
		if found {
			r.drv.PollFound()
		} else {
			r.drv.PollEmpty()
		}
		r.drv.Unlock()
		if found {
			return true
		}
		r.drv.Yield()
	}
	return false
}

func TestRealStreamsCarryMessages(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, open func(testing.TB, tcplink.Config) (a, b *realToy)) {
		for name, await := range map[string]func(*realToy, time.Duration, func() bool) bool{
			"blocking": func(r *realToy, d time.Duration, done func() bool) bool { return r.waitUntil(d, done) },
			"spinning": (*realToy).spin,
		} {
			// With small buffers the streams are often full.
			for _, cfg := range []tcplink.Config{{}, {SendBufBytes: 4096, RecvBufBytes: 4096}} {
				a, b := open(t, cfg)
				l := must.Get(b.echo(b.addr))(t)
				for i := range 4 {
					c := newClient(uint64(i), 150, 8000)
					if i == 2 {
						c.interval = 30 * time.Microsecond
					}
					if i == 3 {
						c.abortAt = 100_000
					}
					must.Do(t, a.dial(a.addr, l.Addr(), c))
				}
				if !await(a, time.Minute, a.allFinished) || !await(b, time.Minute, b.allFinished) {
					t.Fatalf("%s, %+v: not all conns finished", name, cfg)
				}
				for _, r := range []*realToy{a, b} {
					r.drv.Lock(drive.CallPoll)
					if err := r.check(); err != nil {
						t.Errorf("%s, %+v: %v", name, cfg, err)
					}
					if r.drv.OpenStreams() != 0 {
						t.Errorf("%s, %+v: the driver holds %d streams", name, cfg, r.drv.OpenStreams())
					}
					for i, c := range r.conns {
						if (c.err != nil) != (r == b && errors.Is(c.err, link.ErrReset)) || !c.connected {
							t.Errorf("%s, %+v: conn %d: %v", name, cfg, i, c.err)
						}
					}
					r.drv.Unlock()
				}
				a.drv.Lock(drive.CallPoll)
				if a.conns[2].got < 100_000 || a.ticks < 100 {
					t.Errorf("%d bytes and %d ticks", a.conns[2].got, a.ticks)
				}
				a.drv.Unlock()
			}
		}
	})
}

// Neither side polls: the background goroutines do all the work.
func TestBackgroundDrivesStreams(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, open func(testing.TB, tcplink.Config) (a, b *realToy)) {
		a, b := open(t, tcplink.Config{})
		l := must.Get(b.echo(b.addr))(t)
		time.Sleep(20 * time.Millisecond) // both background goroutines sleep
		c := newClient(1, 200, 2000)
		must.Do(t, a.dial(a.addr, l.Addr(), c))
		for until := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			a.drv.Lock(drive.CallPost)
			finished := c.finished()
			a.drv.Unlock()
			if finished {
				return
			}
			if time.Now().After(until) {
				t.Fatal("the conn did not finish")
			}
		}
	})
}

func TestRealStreamsReportDialErrors(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, open func(testing.TB, tcplink.Config) (a, b *realToy)) {
		a, b := open(t, tcplink.Config{})
		b.rejectStreams = true
		l := must.Get(b.echo(b.addr))(t)
		for _, want := range []error{link.ErrReset, link.ErrRefused} {
			c := newClient(1, 1, 10)
			must.Do(t, a.dial(a.addr, l.Addr(), c))
			if !a.waitUntil(30*time.Second, c.finished) || !errors.Is(c.err, want) {
				t.Errorf("%v, want %v", c.err, want)
			}
			b.drv.Lock(drive.CallControl)
			l.Close()
			b.drv.Unlock()
		}
	})
}

// Goroutines use many streams concurrently, some of which abort.
func TestConcurrentStreamsCarryMessages(t *testing.T) {
	a, b := newRealToy(t, currentNamespace, netip.MustParseAddrPort("127.0.0.1:0"), tcplink.Config{}), newRealToy(t, currentNamespace, netip.MustParseAddrPort("127.0.0.1:0"), tcplink.Config{})
	l := must.Get(b.echo(b.addr))(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 8 {
				c := newClient(uint64(g*100+i), 30, 3000)
				if i%3 == 0 {
					c.abortAt = 20_000
				}
				if err := a.dial(a.addr, l.Addr(), c); err != nil {
					t.Error(err)
					return
				}
				await := a.waitUntil
				if g%2 == 0 {
					await = a.spin
				}
				if !await(time.Minute, c.finished) {
					t.Error("a conn did not finish")
					return
				}
			}
		}()
	}
	wg.Wait()
	if !b.waitUntil(time.Minute, b.allFinished) {
		t.Error("the other side did not finish")
	}
	for _, r := range []*realToy{a, b} {
		r.drv.Lock(drive.CallPoll)
		must.Do(t, r.check())
		r.drv.Unlock()
	}
}

func TestStreamDriverCloseWakesBlockedWaiters(t *testing.T) {
	a := newRealToy(t, currentNamespace, netip.MustParseAddrPort("127.0.0.1:0"), tcplink.Config{})
	ended := make(chan bool, 3)
	for range 3 {
		go func() {
			a.drv.Lock(drive.CallWait)
			defer a.drv.Unlock()
			ended <- a.cond.Wait(-1)
		}()
	}
	time.Sleep(5 * time.Millisecond)
	a.drv.Close()
	a.net.Close()
	for range 3 {
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Fatal("a wait did not return after Close")
		}
	}
}
