package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
)

var (
	addrA = netip.MustParseAddr("fd00::1")
	addrB = netip.MustParseAddr("fd00::2")
)

// maxWorldTime ends a simulation that hangs.
const maxWorldTime = mono.Time(5 * time.Minute)

// testKey is the Q_Key of all queue pairs.
const testKey = 0x0badcafe

// reliable and unreliable are the two services.
var reliable, unreliable = QPOptions{Reliable: true}, QPOptions{}

// impaired loses, duplicates, reorders and corrupts a fifth of the packets each.
var impaired = impair.Config{Specs: []impair.Spec{{
	LossPPM: 200_000, DuplicatePPM: 200_000, DuplicateDelay: 30 * time.Microsecond,
	ReorderPPM: 200_000, ReorderDelay: 50 * time.Microsecond, CorruptPPM: 200_000,
}}}

// netInWorld opens n devices behind a switch, with addresses fd00::1 and up.
func netInWorld(t testing.TB, seed uint64, n int, spec impair.Config, cfg Config) (*sim.World, []*Device) {
	t.Helper()
	w := sim.New(sim.Config{Seed: seed, MaxTime: maxWorldTime})
	net := must.Get(sim.NewNet(w, sim.NetConfig{Dissector: Dissector{}}))(t)
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
	p := must.Get(net.Attach(sim.PortConfig{
		Addrs: []netip.Addr{addr}, Up: spec,
		Link: sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond},
	}))(t)
	cfg.Name = "d-" + addr.String()
	return must.Get(InWorld(w, p, p, cfg))(t)
}

// pairInWorld opens two devices.
func pairInWorld(t testing.TB, seed uint64, spec impair.Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w, ds := netInWorld(t, seed, 2, spec, Config{})
	return w, ds[0], ds[1]
}

// exchange is a client that sends messages of different lengths, and a server that returns them.
type exchange struct {
	client, server *end
	messages       int
}

// inWorld starts the programs of both ends.
func (x exchange) inWorld(w *sim.World) {
	w.Go("server", func(*sim.Proc) error { return x.serve(func() {}) })
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		return x.request()
	})
}

// run runs the programs in real time.
func (x exchange) run() error {
	errs := make(chan error, 2)
	serving := make(chan struct{})
	go func() { errs <- x.serve(func() { close(serving) }) }()
	select {
	case <-serving:
	case err := <-errs:
		return err
	}
	go func() { errs <- x.request() }()
	return errors.Join(<-errs, <-errs)
}

// serve returns messages to their senders. It calls serving when it can receive.
func (x exchange) serve(serving func()) error {
	e := x.server
	for range 4 {
		if err := e.tryRecv(0, 8192); err != nil {
			return err
		}
	}
	serving()
	for got, sent := 0, 0; got < x.messages || sent < x.messages; {
		wc, err := e.next(20 * time.Second)
		if err != nil {
			return fmt.Errorf("server, after %d: %w", got, err)
		}
		if wc.WRID == sendID {
			sent++
			continue
		}
		from, b, err := e.tryMessage(&wc)
		if err != nil {
			return err
		}
		copy(e.Buf, b)
		if err := errors.Join(e.trySend(from, 0, len(b)), e.tryRecv(0, 8192)); err != nil {
			return err
		}
		got++
	}
	return nil
}

// request sends messages and checks those that return.
func (x exchange) request() error {
	e, server := x.client, x.server.source()
	for i := range x.messages {
		size := 1 + i*97%8000
		for k := range size {
			e.Buf[k] = byte(k + i)
		}
		if err := errors.Join(e.tryRecv(0, 8192), e.trySend(server, 0, size)); err != nil {
			return err
		}
		for range 2 {
			wc, err := e.next(20 * time.Second)
			if err != nil {
				return fmt.Errorf("client, message %d: %w", i, err)
			}
			if wc.WRID == sendID {
				continue
			}
			if from, b, err := e.tryMessage(&wc); err != nil || from != server || !bytes.Equal(b, e.Buf[:size]) {
				return fmt.Errorf("message %d: %d bytes from %v, sent %d to %v", i, len(b), from, size, server)
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
		{"RD with impairments", reliable, impaired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, a, b := pairInWorld(t, 7, tc.spec)
			exchange{newEnd(t, a, tc.opt), newEnd(t, b, tc.opt), 50}.inWorld(w)
			must.Do(t, w.RunPrograms())
		})
	}
}
