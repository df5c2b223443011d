package softiwarp

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

type end = providertest.End

const fullAccess = providertest.FullAccess

var (
	addrA, addrB = providertest.AddrA, providertest.AddrB
	connParam    = providertest.ConnParam
	counter      = providertest.Counter
)

// pairInWorld opens two devices on one cable.
func pairInWorld(t testing.TB, seed uint64, net sim.NetConfig, cfgs ...Config) (*sim.World, *Device, *Device) {
	t.Helper()
	return onCable(t, providertest.Cable{Seed: seed, Net: net}, cfgs...)
}

// onCable opens two devices on a cable.
func onCable(t testing.TB, c providertest.Cable, cfgs ...Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w, ports := c.Open(t)
	var devices [2]*Device
	for i, p := range ports {
		cfg := Config{}
		if i < len(cfgs) {
			cfg = cfgs[i]
		}
		cfg.Name = string(rune('a' + i))
		devices[i] = must.Get(InWorld(w, p, portNet{p.StreamHost(), p}, cfg))(t)
	}
	return w, devices[0], devices[1]
}

// portNet is the streams of a port.
type portNet struct {
	*sim.StreamHost
	port *sim.Port
}

func portOf(d *Device) *sim.Port { return d.net.(portNet).port }

func newEnd(t testing.TB, d *Device) *end {
	t.Helper()
	return providertest.NewEnd(t, d, verbs.QPTypeRC)
}

func listen(t testing.TB, d *Device, at netip.AddrPort) verbs.Listener {
	t.Helper()
	return providertest.Listen(t, d, at, 0)
}

// acceptOne accepts one connection.
func acceptOne(t testing.TB, d *Device, at netip.AddrPort) (*end, verbs.Conn) {
	t.Helper()
	return providertest.Accept(t, d, at, func() {})
}

func connectTo(t testing.TB, d *Device, to netip.AddrPort) (*end, verbs.Conn) {
	t.Helper()
	return providertest.Connect(t, d, to)
}

// echoOf exchanges n messages between two devices.
func echoOf(a, b *Device, n int) providertest.Echo {
	return providertest.Echo{Client: a, Server: b, To: b.cfg.Addrs[0], Messages: n, Preposted: 2, Start: time.Millisecond}
}

// echo exchanges messages in real time.
func echo(t testing.TB, a, b *Device, n int) error { return echoOf(a, b, n).Run(t) }

// A device lists the same counters in the same order at all times.
func TestCounterNamesDuringConnections(t *testing.T) {
	names := func(d *Device) (names []string) {
		for _, c := range d.Counters() {
			names = append(names, c.Name)
		}
		return names
	}
	var first []string
	same := func(d *Device, when string) {
		t.Helper()
		if got := names(d); !slices.Equal(got, first) {
			t.Errorf("%s: %d counters, want %d: %q", when, len(got), len(first), got)
		}
	}
	w, a, b := pairInWorld(t, 3, sim.NetConfig{})
	first = names(a)
	w.Go("server", func(*sim.Proc) error {
		e, c := acceptOne(t, b, at(5))
		same(b, "accepted")
		must.Do(t, c.WaitDisconnect(verbs.Forever))
		same(b, "terminated")
		return e.QP.Close()
	})
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		if _, err := newEnd(t, a).TryConnect(at(1)); err == nil {
			t.Error("connected to a closed port")
		}
		same(a, "refused")
		e, c := connectTo(t, a, at(5))
		same(a, "connected")
		e.Send(0, 1) // the peer has posted no receive
		must.Do(t, c.WaitDisconnect(verbs.Forever))
		same(a, "terminated")
		return e.QP.Close()
	})
	must.Do(t, w.RunPrograms())
	for d, name := range map[*Device]string{a: "rcvd_terminate_1_2_02", b: "sent_terminate_1_2_02"} {
		if counter(d, name) != 1 || !slices.Contains(first, name) {
			t.Errorf("%s is %d", name, counter(d, name))
		}
	}
}

// connectedPair is two connected ends in one simulated world, for a program that runs both sides.
type connectedPair struct {
	testing.TB
	p      *sim.Proc
	a, b   *end // a has connected, b has accepted
	ca, cb verbs.Conn
}

// onConnectedPair runs a program on two connected ends.
func onConnectedPair(t *testing.T, net sim.NetConfig, program func(c *connectedPair), cfgs ...Config) {
	t.Helper()
	w, da, db := pairInWorld(t, 1, net, cfgs...)
	w.Go("both", func(p *sim.Proc) error {
		program(newConnectedPair(t, p, da, db))
		return nil
	})
	must.Do(t, w.RunPrograms())
}

// newConnectedPair connects an end of each device.
func newConnectedPair(t testing.TB, p *sim.Proc, da, db *Device) *connectedPair {
	c := &connectedPair{TB: t, p: p, b: newEnd(t, db)}
	at := netip.AddrPortFrom(db.cfg.Addrs[0], 9)
	p.World().Go("accept", func(*sim.Proc) error {
		l := providertest.Listen(t, db, at, 0)
		c.cb = c.b.AcceptFrom(l, connParam)
		return l.Close()
	})
	p.Sleep(time.Millisecond)
	c.a, c.ca = connectTo(t, da, at)
	for c.cb == nil {
		p.Sleep(time.Microsecond)
	}
	return c
}

// recorder records the bytes that the streams of a net write and read.
type recorder struct {
	link.StreamNet
	sent, got *[]byte
}

func (r recorder) Dial(now mono.Time, local, remote netip.AddrPort) (link.StreamLink, error) {
	s, err := r.StreamNet.Dial(now, local, remote)
	return recordedStream{s, r}, err
}

type recordedStream struct {
	link.StreamLink
	r recorder
}

func (s recordedStream) Writev(now mono.Time, bufs [][]byte, more bool) (int, error) {
	n, err := s.StreamLink.Writev(now, bufs, more)
	left := n
	for _, b := range bufs {
		b = b[:min(len(b), left)]
		*s.r.sent = append(*s.r.sent, b...)
		left -= len(b)
	}
	return n, err
}

func (s recordedStream) Read(now mono.Time, b []byte) (int, error) {
	n, err := s.StreamLink.Read(now, b)
	*s.r.got = append(*s.r.got, b[:n]...)
	return n, err
}

// recordEcho returns the bytes that the client of a short echo writes and reads.
func recordEcho(t *testing.T, cfg Config) (sent, got []byte) {
	t.Helper()
	w, ports := providertest.Cable{Seed: 1}.Open(t)
	a := must.Get(InWorld(w, ports[0], recorder{ports[0].StreamHost(), &sent, &got}, cfg))(t)
	b := must.Get(InWorld(w, ports[1], ports[1].StreamHost(), cfg))(t)
	echoOf(a, b, 20).InWorld(t, w)
	must.Do(t, w.RunPrograms())
	return sent, got
}
