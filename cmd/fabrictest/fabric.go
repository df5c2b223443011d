package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
)

// fabric is an emulated fabric: hosts with a soft-RoCE NIC each, joined by a
// switch or a cable in a world of their own.
type fabric struct {
	world   *sim.World
	net     *sim.Net
	hosts   []*softroce.Device
	capture *pcaplink.Capture
}

// maxWorldTime ends a run that would never end. The longest without calls takes
// a hundredth of it.
const maxWorldTime = time.Minute

// tap is where everything that the hosts send and receive is written.
type tap struct {
	to      io.Writer // nil for no capture
	snapLen int
	comment string
}

// newFabric builds the network of a scenario, for so many messages.
func newFabric(s *scenario, seed uint64, messages int, wrong *flaws, tap tap) (f *fabric, err error) {
	n := &s.network
	limit := maxWorldTime
	if s.calls {
		limit = maxCallTime
	}
	f = &fabric{world: sim.New(sim.Config{Seed: seed, MaxTime: mono.Time(limit)})}
	if f.net, err = sim.NewNet(f.world, sim.NetConfig{Cable: n.cable, Dissector: softroce.Dissector{}}); err != nil {
		return nil, err
	}
	if tap.to != nil {
		f.capture = pcaplink.NewCapture(tap.to, pcaplink.Options{Comment: tap.comment, SnapLen: tap.snapLen})
	}
	for i := range n.hosts {
		host := fmt.Sprint("host", i)
		cfg := sim.PortConfig{Name: host, Addrs: []netip.Addr{hostAddr(n.ipv4, i)}, Link: n.link}
		cfg.Up.Specs = n.impair
		if n.exact {
			cfg.Up.Events = exactEvents(i, messages)
		}
		port, err := f.net.Attach(cfg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", host, err)
		}
		var l link.PacketLink = port
		if f.capture != nil {
			l = f.capture.Wrap(s.id+" "+host, port)
		}
		dev := softroce.Config{Name: host}
		dev.NIC.LineRateBps, dev.NIC.Quirks = n.link.RateBps, wrong.nic
		dev.CM.Quirks = wrong.cm
		if s.calls {
			dev.CM.MaxConns = callsHeld
		}
		d, err := softroce.InWorld(f.world, port, l, dev)
		if err != nil {
			return nil, err
		}
		f.hosts = append(f.hosts, d)
	}
	return f, nil
}

func hostAddr(ipv4 bool, i int) netip.Addr {
	if ipv4 {
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)})
	}
	a := netip.MustParseAddr("fd00::10").As16()
	a[15] += byte(i)
	return netip.AddrFrom16(a)
}

// lost counts the packets that the network lost or damaged beyond use, and
// marked those that it marked.
func (f *fabric) lost() (lost, marked uint64) {
	for _, p := range f.net.Ports() {
		s := p.Stats()
		lost += s.Drops.Total()
		marked += s.Marked
		up, _ := p.Impairments()
		if up == nil {
			continue
		}
		c := up.Counters()
		lost += c.Lost + c.LostInBurst + c.Overflowed + c.Corrupted + c.Truncated + c.EventsDropped
		marked += c.Marked
	}
	return lost, marked
}

// close closes every device, which must find nothing left in it, and the
// capture.
func (f *fabric) close() error {
	var errs []error
	for _, d := range f.hosts {
		errs = append(errs, d.Close())
	}
	if f.capture != nil {
		if err := f.capture.Close(); err != nil {
			errs = append(errs, fmt.Errorf("capture: %w", err))
		}
	}
	return errors.Join(errs...)
}
