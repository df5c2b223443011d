package dgiwarp

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// duel is two players that address each other, on devices of their own.
type duel struct {
	a, b  *player
	close func()
}

// datagrams makes a duel of datagram-iWARP.
func datagrams(open func(i int) (*Device, error), opt QPOptions) (duel, error) {
	var ds [2]*Device
	var ps [2]*player
	var pds [2]verbs.PD
	for i := range ds {
		var err error
		if ds[i], err = open(i); err != nil {
			return duel{}, err
		}
		ds[i].cfg.QP = opt
		if ps[i], pds[i], err = newPlayer(ds[i], verbs.QPTypeUD); err != nil {
			return duel{}, err
		}
		if err = ready(ps[i].qp); err != nil {
			return duel{}, err
		}
		ps[i].area = verbs.GRHLen
	}
	for i, p := range ps {
		ah, err := pds[i].CreateAH(AddressOf(netip.AddrPortFrom(ds[1-i].cfg.Addrs[0], 0)))
		if err != nil {
			return duel{}, err
		}
		p.ud = verbs.UD{AH: ah, QPN: ps[1-i].qp.QPN(), QKey: testKey}
	}
	return duel{ps[0], ps[1], func() { ds[0].Close(); ds[1].Close() }}, nil
}

// streams makes a duel of soft-iWARP.
func streams(open func(i int) (*softiwarp.Device, netip.Addr, error)) (d duel, err error) {
	var ds [2]*softiwarp.Device
	var ps [2]*player
	var addrs [2]netip.Addr
	for i := range ds {
		if ds[i], addrs[i], err = open(i); err != nil {
			return d, err
		}
		if ps[i], _, err = newPlayer(ds[i], verbs.QPTypeRC); err != nil {
			return d, err
		}
	}
	d = duel{ps[0], ps[1], func() { ds[0].Close(); ds[1].Close() }}
	active, err := ds[0].CM()
	if err != nil {
		return d, err
	}
	passive, err := ds[1].CM()
	if err != nil {
		return d, err
	}
	l, err := passive.Listen(netip.AddrPortFrom(addrs[1], 0), verbs.PortSpaceTCP, 1)
	if err != nil {
		return d, err
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := l.GetRequest(10 * time.Second)
		if err == nil {
			_, err = req.Accept(ps[1].qp, verbs.ConnParam{}, 10*time.Second)
		}
		accepted <- err
	}()
	_, err = active.Connect(ps[0].qp, l.Addr(), verbs.ConnParam{}, 10*time.Second)
	return d, errors.Join(err, <-accepted)
}

// contest is what is compared on both.
type contest struct {
	name  string
	size  int
	block bool
	unit  string
	run   func(a, b *player, size int) (float64, error)
}

var contests = []contest{
	{"pingpong64/poll", 64, false, "µs", halfRound},
	{"pingpong64/block", 64, true, "µs", halfRound},
	{"stream2K", 2048, false, "Gb/s", throughput},
}

func halfRound(a, b *player, _ int) (float64, error) {
	d, err := pingPong(a, b, 10_000)
	return float64(d.Nanoseconds()) / 1e3, err
}

func throughput(a, b *player, size int) (float64, error) {
	bps, err := stream(a, b, size, 100_000)
	return bps / 1e9, err
}

func (c *contest) on(d duel, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	defer d.close()
	for _, p := range []*player{d.a, d.b} {
		if err := p.prepare(c.size, c.block); err != nil {
			return 0, err
		}
	}
	return c.run(d.a, d.b, c.size)
}

// BenchmarkAgainstStreams compares UD and RD with soft-iWARP, in turns, on
// loopback. The ratio is that of datagram-iWARP to soft-iWARP.
func BenchmarkAgainstStreams(b *testing.B) {
	against(b, func() (duel, error) {
		return streams(func(int) (*softiwarp.Device, netip.Addr, error) {
			addr := loopbackAddr()
			d, err := softiwarp.OnTCP(tcplink.Config{}, softiwarp.Config{Addrs: []netip.Addr{addr}})
			return d, addr, err
		})
	}, func(opt QPOptions) (duel, error) {
		return datagrams(func(int) (*Device, error) {
			return OnUDP(udplink.Config{}, Config{Addrs: []netip.Addr{loopbackAddr()}, QP: opt})
		}, opt)
	})
}

// BenchmarkAgainstStreamsOnAWire does the same between two namespaces.
func BenchmarkAgainstStreamsOnAWire(b *testing.B) {
	h := newHosts(b, true)
	against(b, func() (duel, error) {
		return streams(func(i int) (d *softiwarp.Device, a netip.Addr, err error) {
			host := h.host(i)
			a = host.Addr(h.v6, 0).Addr()
			err = host.Do(func() (err error) {
				d, err = softiwarp.OnTCP(tcplink.Config{}, softiwarp.Config{Addrs: []netip.Addr{a}})
				return err
			})
			return d, a, err
		})
	}, func(opt QPOptions) (duel, error) {
		return datagrams(func(i int) (*Device, error) { return h.device(i, Config{QP: opt}) }, opt)
	})
}

func against(b *testing.B, base func() (duel, error), ours func(QPOptions) (duel, error)) {
	for _, service := range []struct {
		name string
		opt  QPOptions
	}{{"UD", unreliable}, {"RD", reliable}} {
		for _, c := range contests {
			b.Run(service.name+"/"+c.name, func(b *testing.B) {
				for b.Loop() {
					r, err := rawbench.Compare(3,
						func() (float64, error) { return c.on(base()) },
						func() (float64, error) { return c.on(ours(service.opt)) })
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(r.Base, "softiwarp-"+c.unit)
					b.ReportMetric(r.Other, c.unit)
					b.ReportMetric(r.Ratio, "ratio")
					b.ReportMetric(r.Noise, "noise")
				}
			})
		}
	}
}
