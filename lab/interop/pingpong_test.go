package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	here4, there4 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	here6, there6 = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
)

// freePort returns a loopback TCP address without a listener.
func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.82.0.1:0"))(t) // an address that no other test uses
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

type runner interface {
	Run(context.Context, verbs.Context) (Result, error)
}

// cPingPong acts as the C programs: it sends from the one buffer that it receives into.
type cPingPong struct{ PingPong }

func (p cPingPong) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	l, err := newPingPongRun(p.PingPong, dev)
	if err != nil {
		return Result{}, err
	}
	buf := make([]byte, p.Size)
	first := constant(fillByte)
	if p.Tool == SRQ {
		first = constant(0)
	}
	if p.Check {
		first = first.checked()
	}
	first.fill(buf)
	l.compose = func(_ *pingPongQP, b []byte) { copy(b, buf) }
	l.inspect = func(_ *pingPongQP, b []byte) error { copy(buf, b); return nil }
	result, err := l.run(ctx)
	for i := 0; err == nil && p.Check && i < p.Size; i += pageSize {
		if buf[i] != 0 {
			err = fmt.Errorf("invalid data in page %d", i/pageSize)
		}
	}
	return result, err
}

// programTest is our program and the peer's, each on a device of a fabric.
type programTest struct {
	fabric      *fabric
	here, there netip.Addr
	ours, peers runner
}

// run runs both programs and returns our error and the peer's.
func (m programTest) run(t *testing.T, timeout time.Duration) (ours, peers error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errTooLong)
	defer cancel()
	here, there := m.fabric.device(m.here), m.fabric.device(m.there)
	end := make(chan error, 1)
	go func() {
		_, err := m.peers.Run(ctx, there)
		end <- err
	}()
	result, ours := m.ours.Run(ctx, here)
	if ours != nil {
		cancel() // the peer waits for a message that is not sent
	} else if result.Sent == 0 || result.Received == 0 {
		t.Errorf("no messages were exchanged: %+v", result)
	}
	peers = <-end
	if here.open != 0 || there.open != 0 {
		t.Errorf("%d of our objects and %d of the peer's are open", here.open, there.open)
	}
	return ours, peers
}

var errTooLong = errors.New("too long")

// pingPong returns a test of p at here with the C program at there.
func pingPong(t *testing.T, p PingPong, here, there netip.Addr) programTest {
	p.SideChannel, p.MTU, p.Local = freePort(t), verbs.MTU1024, here
	peer := p
	peer.Local, peer.Role = there, Server
	if p.Role == Server {
		peer.Role = Client
	}
	return programTest{newFabric(), here, there, p, cPingPong{peer}}
}

var pingPongs = []PingPong{
	{Tool: RC, Size: 1},
	{Tool: RC, Size: 3000, Events: true, Check: true},
	{Tool: UC, Size: 65536, Check: true},
	{Tool: UC, Size: 64, Events: true},
	{Tool: UD, Size: 1024, Events: true, Check: true},
	{Tool: UD, Size: 1},
	{Tool: SRQ, Size: 64, QPs: 1},
	{Tool: SRQ, Size: 4097, QPs: 16, Events: true, Check: true},
}

func TestPingPong(t *testing.T) {
	t.Parallel()
	for _, p := range pingPongs {
		for _, p.Role = range []Role{Client, Server} {
			t.Run(fmt.Sprintf("%v/%v/%d", p.Tool, p.Role, p.Size), func(t *testing.T) {
				p.Iters = 40
				for _, m := range []programTest{pingPong(t, p, here4, there4), pingPong(t, p, here6, there6)} {
					if ours, peers := m.run(t, 30*time.Second); ours != nil || peers != nil {
						t.Errorf("ours: %v; the peer's: %v", ours, peers)
					}
				}
			})
		}
	}
}

// A flipped bit in one message, in either direction, must be detected.
func TestPingPongDetectsFlippedBit(t *testing.T) {
	t.Parallel()
	for _, p := range pingPongs {
		for _, p.Role = range []Role{Client, Server} {
			for _, to := range []netip.Addr{here6, there6} {
				t.Run(fmt.Sprintf("%v/%v/%d to %v", p.Tool, p.Role, p.Size, to), func(t *testing.T) {
					p.Iters = 40
					m := pingPong(t, p, here6, there6)
					messages := 0
					m.fabric.corrupt = func(dst netip.Addr, payload []byte) {
						if dst != to {
							return
						}
						if messages++; messages == 20 {
							payload[len(payload)-1] ^= 0x10
						}
					}
					ours, _ := m.run(t, 30*time.Second)
					if want := fmt.Sprintf("byte %d of %d", p.Size-1, p.Size); ours == nil || !strings.Contains(ours.Error(), want) {
						t.Errorf("got %v, want an error with %s", ours, want)
					}
				})
			}
		}
	}
}

func TestPingPongDetectsLostEvent(t *testing.T) {
	t.Parallel()
	m := pingPong(t, PingPong{Tool: RC, Role: Client, Size: 64, Iters: 10, Events: true}, here6, there6)
	m.fabric.noEvents = here6
	ours, _ := m.run(t, 2*time.Second)
	if !errors.Is(ours, errTooLong) || !strings.Contains(ours.Error(), "event never came") {
		t.Errorf("got %v", ours)
	}
}

func TestPingPongTimesOutWithoutPeer(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{Client, Server} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errTooLong)
		p := PingPong{Tool: RC, Role: role, Size: 1, Iters: 1, MTU: verbs.MTU1024, Local: here4, SideChannel: freePort(t)}
		want := map[Role]string{Client: "nobody listens", Server: "no client connected"}[role]
		if _, err := p.Run(ctx, newFabric().device(here4)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s without a peer: %v", role, err)
		}
		cancel()
	}
}

// pastDeadline has a deadline that has passed, and no error yet.
type pastDeadline struct{ context.Context }

func (pastDeadline) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// A dial may time out before the context has its error.
func TestDialReportsTimeoutBeforeContextError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := dial(pastDeadline{ctx}, freePort(t)); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("got %v", err)
	}
}

// The context may end before the first attempt.
func TestDialReportsEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dial(ctx, freePort(t)); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("got %v", err)
	}
}

func TestPingPongRejectsInvalidConfig(t *testing.T) {
	for _, p := range []PingPong{
		{Tool: "xrc"}, {Tool: RC, QPs: 2}, {Tool: SRQ}, {Tool: SRQ, QPs: 257}, {Tool: RC, Size: 0}, {Tool: UD, Size: 1025},
	} {
		p.Iters, p.MTU, p.Local = 1, verbs.MTU1024, here4
		if _, err := p.Run(t.Context(), newFabric().device(here4)); err == nil {
			t.Errorf("%+v ran", p)
		}
	}
	p := PingPong{Tool: RC, Size: 1, Iters: 1, MTU: verbs.MTU1024, Local: there4}
	if _, err := p.Run(t.Context(), newFabric().device(here4)); err == nil || !strings.Contains(err.Error(), "GID") {
		t.Errorf("an address the device does not have: %v", err)
	}
}
