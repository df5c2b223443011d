package dgiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// player is one side of a comparison: a queue pair of either provider with its
// memory, and how it addresses its peer.
type player struct {
	ch    verbs.CompChannel
	cq    verbs.CQ
	mr    verbs.MR
	qp    verbs.QP
	area  int // bytes before each received message
	ud    verbs.UD
	block bool

	recvs [1]verbs.RecvWR
	sends [list]verbs.SendWR
	wc    [64]verbs.WC
}

const (
	playerDepth = 256
	// list is how many messages a stream posts with one call.
	list = 16
)

// newPlayer makes a queue pair and its memory.
func newPlayer(d verbs.Context, typ verbs.QPType) (p *player, pd verbs.PD, err error) {
	p = &player{}
	if pd, err = d.AllocPD(); err != nil {
		return nil, nil, err
	}
	if p.ch, err = d.CreateCompChannel(); err != nil {
		return nil, nil, err
	}
	if p.cq, err = d.CreateCQ(verbs.CQInit{Depth: 4 * playerDepth, Channel: p.ch}); err != nil {
		return nil, nil, err
	}
	if p.mr, err = pd.RegMR(verbs.MRInit{Buf: make([]byte, 1<<17), Access: fullAccess}); err != nil {
		return nil, nil, err
	}
	p.qp, err = d.CreateQP(verbs.QPInit{
		Type: typ, PD: pd, SendCQ: p.cq, RecvCQ: p.cq,
		Caps: verbs.QPCaps{MaxSendWR: playerDepth, MaxRecvWR: playerDepth, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return p, pd, err
}

// prepare posts as many receives as fit, of size bytes each.
func (p *player) prepare(size int, block bool) error {
	p.block = block
	p.recvs[0] = verbs.RecvWR{SGL: []verbs.SGE{verbs.SGEOf(p.mr, 1<<16, p.area+size)}}
	for i := range p.sends {
		p.sends[i] = verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(p.mr, 0, size)}, UD: p.ud}
	}
	return p.receives(playerDepth)
}

func (p *player) receives(n int) error {
	for range n {
		if _, err := p.qp.PostRecv(p.recvs[:]); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) send(n int) error {
	_, err := p.qp.PostSend(p.sends[:n])
	return err
}

// await takes at least one message and makes room for as many.
func (p *player) await() (int, error) {
	n, err := (&end{cq: p.cq, ch: p.ch}).nextWC(p.block, p.wc[:], 10*time.Second)
	for i := range n {
		if p.wc[i].Status != verbs.WCSuccess {
			return 0, fmt.Errorf("%v: %v", p.wc[i].Opcode, p.wc[i].Status)
		}
	}
	if err != nil {
		return 0, err
	}
	return n, p.receives(n)
}

// pingPong plays rounds of a message each way and returns the median time of a
// half round.
func pingPong(a, b *player, rounds int) (time.Duration, error) {
	errs := make(chan error, 1)
	go func() {
		for range rounds {
			if _, err := b.await(); err != nil {
				errs <- err
				return
			}
			if err := b.send(1); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		if err := a.send(1); err != nil {
			return 0, err
		}
		if _, err := a.await(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[rounds/2] / 2, <-errs
}

// A stream's sender may be window messages ahead of what the receiver has said
// that it has got, which it says for every grant of them. Neither service has
// another way to keep a sender from overrunning its receiver.
const (
	window = 128
	grant  = 32
)

// stream sends count messages from a to b and returns bits a second.
func stream(a, b *player, size, count int) (float64, error) {
	errs := make(chan error, 1)
	go func() {
		errs <- func() error {
			for got, told := 0, 0; got < count; {
				n, err := b.await()
				if err != nil {
					return err
				}
				for got += n; got-told >= grant; told += grant {
					if err := b.send(1); err != nil {
						return err
					}
				}
			}
			return nil
		}()
	}()
	start := time.Now()
	for sent, told := 0, 0; sent < count || told < count/grant*grant; {
		for sent < count && sent-told < window {
			n := min(list, count-sent)
			if err := a.send(n); err != nil {
				return 0, err
			}
			sent += n
		}
		n, err := a.await()
		if err != nil {
			return 0, fmt.Errorf("after %d, %d of them confirmed: %w", sent, told, err)
		}
		told += n * grant
	}
	took := time.Since(start)
	return float64(count) * float64(size) * 8 / took.Seconds(), <-errs
}

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
		req, err := l.Next(10 * time.Second)
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
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 91, 0, byte(2 + i)}) }
	against(b, func() (duel, error) {
		return streams(func(i int) (*softiwarp.Device, netip.Addr, error) {
			d, err := softiwarp.OnTCP(tcplink.Config{}, softiwarp.Config{Addrs: []netip.Addr{addr(i)}})
			return d, addr(i), err
		})
	}, func(opt QPOptions) (duel, error) {
		return datagrams(func(i int) (*Device, error) {
			return OnUDP(udplink.Config{}, Config{Addrs: []netip.Addr{addr(i)}, QP: opt})
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
