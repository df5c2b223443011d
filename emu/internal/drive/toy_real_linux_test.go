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
	"github.com/fabrictest/fabrictest/internal/nstest"
)

// socketed is a toy on real sockets.
type socketed struct {
	*toy
	net  *tcplink.Net
	drv  *drive.RealStreams
	addr netip.AddrPort
}

// openNet opens a net where in runs it.
func openNet(tb testing.TB, in func(func() error) error, cfg tcplink.Config) *tcplink.Net {
	tb.Helper()
	var n *tcplink.Net
	if err := in(func() (err error) { n, err = tcplink.Open(cfg); return err }); err != nil {
		tb.Fatal(err)
	}
	return n
}

func newSocketed(tb testing.TB, in func(func() error) error, addr netip.AddrPort, cfg tcplink.Config) *socketed {
	tb.Helper()
	r := &socketed{toy: newToy(), net: openNet(tb, in, cfg), addr: addr}
	r.drv = drive.NewRealStreams(r.toy, r.net, 1)
	r.start(r.drv)
	tb.Cleanup(func() {
		r.drv.Close()
		r.net.Close()
	})
	return r
}

func here(f func() error) error { return f() }

// places are where two toys can meet.
func places(t *testing.T, run func(t *testing.T, open func(testing.TB, tcplink.Config) (a, b *socketed))) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run("loopback "+addr, func(t *testing.T) {
			at := netip.AddrPortFrom(netip.MustParseAddr(addr), 0)
			run(t, func(tb testing.TB, cfg tcplink.Config) (a, b *socketed) {
				return newSocketed(tb, here, at, cfg), newSocketed(tb, here, at, cfg)
			})
		})
	}
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("namespaces, IPv6 %v", v6), func(t *testing.T) {
			ha, hb := nstest.Pair(t, 1500)
			run(t, func(tb testing.TB, cfg tcplink.Config) (a, b *socketed) {
				return newSocketed(tb, ha.Do, ha.Addr(v6, 0), cfg), newSocketed(tb, hb.Do, hb.Addr(v6, 0), cfg)
			})
		})
	}
}

// spin polls until done, as a program does that does not want to sleep.
func (r *socketed) spin(timeout time.Duration, done func() bool) bool {
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
	places(t, func(t *testing.T, open func(testing.TB, tcplink.Config) (a, b *socketed)) {
		for name, await := range map[string]func(*socketed, time.Duration, func() bool) bool{
			"asleep":   func(r *socketed, d time.Duration, done func() bool) bool { return r.await(d, done) },
			"spinning": (*socketed).spin,
		} {
			// With small buffers streams are full most of the time.
			for _, cfg := range []tcplink.Config{{}, {SendBufBytes: 4096, RecvBufBytes: 4096}} {
				a, b := open(t, cfg)
				l, err := b.echo(b.addr)
				if err != nil {
					t.Fatal(err)
				}
				for i := range 4 {
					c := speaker(uint64(i), 150, 8000)
					if i == 2 {
						c.every = 30 * time.Microsecond
					}
					if i == 3 {
						c.abortAt = 100_000
					}
					if err := a.dial(a.addr, l.Addr(), c); err != nil {
						t.Fatal(err)
					}
				}
				if !await(a, time.Minute, a.finished) || !await(b, time.Minute, b.finished) {
					t.Fatalf("%s, %+v: not all came to an end", name, cfg)
				}
				for _, r := range []*socketed{a, b} {
					r.drv.Lock(drive.CallPoll)
					if err := r.faults(); err != nil {
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

// Nobody looks at either side: what is in the background is enough.
func TestPassiveStreamsAnswer(t *testing.T) {
	places(t, func(t *testing.T, open func(testing.TB, tcplink.Config) (a, b *socketed)) {
		a, b := open(t, tcplink.Config{})
		l, err := b.echo(b.addr)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // both backgrounds sleep
		c := speaker(1, 200, 2000)
		if err := a.dial(a.addr, l.Addr(), c); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			a.drv.Lock(drive.CallPost)
			over := c.over()
			a.drv.Unlock()
			if over {
				return
			}
			if time.Now().After(until) {
				t.Fatal("no end")
			}
		}
	})
}

func TestRealDialsFail(t *testing.T) {
	places(t, func(t *testing.T, open func(testing.TB, tcplink.Config) (a, b *socketed)) {
		a, b := open(t, tcplink.Config{})
		b.turnAway = true
		l, err := b.echo(b.addr)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{link.ErrReset, link.ErrRefused} {
			c := speaker(1, 1, 10)
			if err := a.dial(a.addr, l.Addr(), c); err != nil {
				t.Fatal(err)
			}
			if !a.await(30*time.Second, c.over) || !errors.Is(c.err, want) {
				t.Errorf("%v, want %v", c.err, want)
			}
			b.drv.Lock(drive.CallControl)
			l.Close()
			b.drv.Unlock()
		}
	})
}

// Many streams at once, from many goroutines, some of which give up, while
// drivers are closed under them.
func TestStreamsUnderStress(t *testing.T) {
	a, b := newSocketed(t, here, netip.MustParseAddrPort("127.0.0.1:0"), tcplink.Config{}), newSocketed(t, here, netip.MustParseAddrPort("127.0.0.1:0"), tcplink.Config{})
	l, err := b.echo(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 8 {
				c := speaker(uint64(g*100+i), 30, 3000)
				if i%3 == 0 {
					c.abortAt = 20_000
				}
				if err := a.dial(a.addr, l.Addr(), c); err != nil {
					t.Error(err)
					return
				}
				await := a.await
				if g%2 == 0 {
					await = a.spin
				}
				if !await(time.Minute, c.over) {
					t.Error("no end")
					return
				}
			}
		}()
	}
	wg.Wait()
	if !b.await(time.Minute, b.finished) {
		t.Error("the other side has no end")
	}
	for _, r := range []*socketed{a, b} {
		r.drv.Lock(drive.CallPoll)
		if err := r.faults(); err != nil {
			t.Error(err)
		}
		r.drv.Unlock()
	}
}

func TestClosingAStreamDriverEndsWaits(t *testing.T) {
	a := newSocketed(t, here, netip.MustParseAddrPort("127.0.0.1:0"), tcplink.Config{})
	ended := make(chan bool, 3)
	for range 3 {
		go func() {
			a.drv.Lock(drive.CallWait)
			defer a.drv.Unlock()
			ended <- a.gate.Wait(-1)
		}()
	}
	time.Sleep(5 * time.Millisecond)
	a.drv.Close()
	a.net.Close()
	for range 3 {
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Fatal("a wait survived Close")
		}
	}
}
