package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

var (
	addrA = netip.MustParseAddr("fd00::1")
	addrB = netip.MustParseAddr("fd00::2")
)

// maxWorldTime ends a world that hangs.
const maxWorldTime = mono.Time(5 * time.Minute)

// testKey is the Q_Key of all queue pairs.
const testKey = 0x0badcafe

// reliable and unreliable are the two services.
var reliable, unreliable = QPOptions{Reliable: true}, QPOptions{}

// bad is a network that does everything wrong to every fifth packet.
var bad = impair.Config{Specs: []impair.Spec{{
	LossPPM: 200_000, DuplicatePPM: 200_000, DuplicateDelay: 30 * time.Microsecond,
	ReorderPPM: 200_000, ReorderDelay: 50 * time.Microsecond, CorruptPPM: 200_000,
}}}

// netInWorld opens n devices behind a switch, with addresses fd00::1 and up.
func netInWorld(t testing.TB, seed uint64, n int, spec impair.Config, cfg Config) (*sim.World, []*Device) {
	t.Helper()
	w := sim.New(sim.Config{Seed: seed, MaxTime: maxWorldTime})
	net, err := sim.NewNet(w, sim.NetConfig{Dissector: Dissector{}})
	if err != nil {
		t.Fatal(err)
	}
	devices := make([]*Device, n)
	for i := range devices {
		addr := addrA.As16()
		binary.BigEndian.PutUint16(addr[14:], uint16(i+1))
		devices[i] = attach(t, w, net, netip.AddrFrom16(addr), spec, cfg)
	}
	return w, devices
}

// attach opens a device on a new port of the net.
func attach(t testing.TB, w *sim.World, net *sim.Net, addr netip.Addr, spec impair.Config, cfg Config) *Device {
	t.Helper()
	p, err := net.Attach(sim.PortConfig{
		Addrs: []netip.Addr{addr}, Up: spec,
		Link: sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name = "d-" + addr.String()
	d, err := InWorld(w, p, p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// pairInWorld opens two devices.
func pairInWorld(t testing.TB, seed uint64, spec impair.Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w, ds := netInWorld(t, seed, 2, spec, Config{})
	return w, ds[0], ds[1]
}

// echoServer sends back what it receives, n times, to where it came from. It
// calls serving when clients may begin.
func echoServer(e *end, n int, serving func()) error {
	for range 4 {
		if err := e.recv(0, 8192); err != nil {
			return err
		}
	}
	serving()
	for got, sent := 0, 0; got < n || sent < n; {
		wc, err := e.succeed()
		if err != nil {
			return fmt.Errorf("server, after %d: %w", got, err)
		}
		if wc.WRID == sendID {
			sent++
			continue
		}
		from, b, err := e.message(&wc)
		if err != nil {
			return err
		}
		copy(e.buf, b)
		if err := e.send(from, 0, len(b)); err != nil {
			return err
		}
		if err := e.recv(0, 8192); err != nil {
			return err
		}
		got++
	}
	return nil
}

// echoClient sends n messages of different lengths and checks the echoes.
func echoClient(e *end, server Source, n int) error {
	for i := range n {
		size := 1 + i*97%8000
		for k := range size {
			e.buf[k] = byte(k + i)
		}
		if err := e.recv(0, 8192); err != nil {
			return err
		}
		if err := e.send(server, 0, size); err != nil {
			return err
		}
		for range 2 {
			wc, err := e.succeed()
			if err != nil {
				return fmt.Errorf("client, message %d: %w", i, err)
			}
			if wc.WRID == sendID {
				continue
			}
			from, b, err := e.message(&wc)
			if err != nil || from != server || !bytes.Equal(b, e.buf[:size]) {
				return fmt.Errorf("echo %d: %d bytes from %v, sent %d to %v; %w", i, len(b), from, size, server, err)
			}
		}
	}
	return nil
}

func TestEcho(t *testing.T) {
	for _, tc := range []struct {
		name string
		opt  QPOptions
		spec impair.Config
	}{
		{"UD", unreliable, impair.Config{}},
		{"RD", reliable, impair.Config{}},
		{"RD through a bad network", reliable, bad},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, a, b := pairInWorld(t, 7, tc.spec)
			client, server := mustEnd(t, a, tc.opt), mustEnd(t, b, tc.opt)
			w.Go("server", func(*sim.Proc) error { return echoServer(server, 50, func() {}) })
			w.Go("client", func(p *sim.Proc) error {
				p.Sleep(time.Millisecond)
				return echoClient(client, server.where(), 50)
			})
			if err := w.RunPrograms(); err != nil {
				t.Fatal(err)
			}
			t.Logf("took %v of virtual time, %d events", w.Now(), w.Events())
		})
	}
}
