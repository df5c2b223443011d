package providertest

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

// contestant opens a device of a provider in some configuration.
type contestant struct {
	name string
	open func(addr netip.Addr) (verbs.Context, error)
}

var (
	roce  = newRoCE("softroce", softroce.Config{})
	iwarp = contestant{"softiwarp", func(addr netip.Addr) (verbs.Context, error) {
		return softiwarp.OnTCP(tcplink.Config{}, softiwarp.Config{Addrs: []netip.Addr{addr}})
	}}
	unreliable, reliable = newDatagrams("UD", false), newDatagrams("RD", true)
)

func newRoCE(name string, cfg softroce.Config) contestant {
	return contestant{name, func(addr netip.Addr) (verbs.Context, error) {
		cfg := cfg
		cfg.Addrs = []netip.Addr{addr}
		return softroce.OnUDP(udplink.Config{}, cfg)
	}}
}

func newDatagrams(name string, reliable bool) contestant {
	return contestant{name, func(addr netip.Addr) (verbs.Context, error) {
		return dgiwarp.OnUDP(udplink.Config{}, dgiwarp.Config{Addrs: []netip.Addr{addr}, QP: dgiwarp.QPOptions{Reliable: reliable}})
	}}
}

// hosts are two hosts joined by a wire, or the loopback network.
type hosts struct {
	a, b *testutil.Host // nil: loopback
	v6   bool
}

func newHosts(b testing.TB, v6 bool) *hosts {
	b.Helper()
	x, y := testutil.HostPair(b, 9000)
	return &hosts{x, y, v6}
}

// play opens two devices, with as many receives posted as fit, and runs f on them. The
// devices are open only meanwhile: even an idle one wakes now and then, at the expense of
// what is compared with it.
func (h *hosts) play(t testing.TB, c contestant, size int, block bool, f func(a, b *Player) (float64, error)) (float64, error) {
	addrs := [2]netip.Addr{netip.MustParseAddr(loopbackA), netip.MustParseAddr(loopbackB)}
	var devices [2]verbs.Context
	for i, host := range []*testutil.Host{h.a, h.b} {
		open := func() (err error) {
			devices[i], err = c.open(addrs[i])
			return err
		}
		var err error
		if host == nil {
			err = open()
		} else {
			addrs[i] = host.Addr(h.v6, 0).Addr()
			err = host.Do(open)
		}
		if err != nil {
			return 0, err
		}
		defer devices[i].Close()
	}
	var players [2]*Player
	if must.Get(devices[0].QueryDevice())(t).Caps.Has(verbs.CapRC) {
		x, y, _ := connect(t, devices[0], devices[1])
		players = [2]*Player{NewPlayer(x, size, block, verbs.UD{}), NewPlayer(y, size, block, verbs.UD{})}
	} else {
		players = datagramPlayers(t, devices, addrs, size, block)
	}
	if err := errors.Join(players[0].PostRecvs(queueDepth), players[1].PostRecvs(queueDepth)); err != nil {
		return 0, err
	}
	return f(players[0], players[1])
}

// datagramPlayers makes two players that address each other.
func datagramPlayers(t testing.TB, devices [2]verbs.Context, addrs [2]netip.Addr, size int, block bool) (players [2]*Player) {
	const key = 0x0badcafe
	var ends [2]*End
	for i, d := range devices {
		ends[i] = NewEnd(t, d, verbs.QPTypeUD)
		ends[i].ReadyUD(key)
	}
	for i, e := range ends {
		ah := must.Get(e.PD.CreateAH(dgiwarp.AddressOf(netip.AddrPortFrom(addrs[1-i], 0))))(t)
		players[i] = NewPlayer(e, size, block, verbs.UD{AH: ah, QPN: ends[1-i].QP.QPN(), QKey: key})
	}
	return players
}

// halfRound returns the median time of half a round of a ping-pong in µs.
func halfRound(rounds int) func(a, b *Player) (float64, error) {
	return func(a, b *Player) (float64, error) {
		half, err := PingPong(a, b, rounds)
		return float64(half.Nanoseconds()) / 1e3, err
	}
}

// writes has a write 1 MiB messages for about the given time, until a read has shown that
// all have arrived, and returns Gb/s.
func writes(d time.Duration) func(a, b *Player) (float64, error) {
	const size = 1 << 20
	return func(a, b *Player) (float64, error) {
		src := must.Get(a.PD.RegMR(verbs.MRInit{Buf: make([]byte, size), Access: verbs.AccessLocalWrite}))(a)
		defer src.Close()
		dst := must.Get(b.PD.RegMR(verbs.MRInit{Buf: make([]byte, size), Access: FullAccess}))(a)
		defer dst.Close()
		wr := []verbs.SendWR{{
			Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(src, 0, size)},
			Remote: verbs.Remote{Addr: dst.Addr(), RKey: dst.RKey()},
		}}
		posted, done := 0, 0
		start := time.Now()
		for time.Since(start) < d {
			for ; posted-done < 4; posted++ {
				if _, err := a.QP.PostSend(wr); err != nil {
					return 0, err
				}
			}
			wcs, err := a.AwaitWCs()
			if err != nil {
				return 0, err
			}
			done += len(wcs)
		}
		wr[0].Opcode, wr[0].SGL = verbs.OpRDMARead, []verbs.SGE{verbs.SGEOf(src, 0, 1)}
		if _, err := a.QP.PostSend(wr); err != nil {
			return 0, err
		}
		for done <= posted {
			wcs, err := a.AwaitWCs()
			if err != nil {
				return 0, err
			}
			done += len(wcs)
		}
		return float64(posted) * size * 8 / float64(time.Since(start).Nanoseconds()), nil
	}
}

// The sender of messages may be window messages ahead of what the receiver has announced as
// received, which it does for every grant of them.
const window, grant = 128, 32

// messages sends count messages from a to b and returns Gb/s.
func messages(count int) func(a, b *Player) (float64, error) {
	return func(a, b *Player) (float64, error) {
		errs := make(chan error, 1)
		go func() {
			errs <- func() error {
				for got, told := 0, 0; got < count; {
					n, err := b.AwaitMessages()
					if err != nil {
						return err
					}
					for got += n; got-told >= grant; told += grant {
						if err := b.PostSends(1); err != nil {
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
				n := min(len(a.Sends), count-sent)
				if err := a.PostSends(n); err != nil {
					return 0, err
				}
				sent += n
			}
			n, err := a.AwaitMessages()
			if err != nil {
				return 0, fmt.Errorf("after %d, %d of them confirmed: %w", sent, told, err)
			}
			told += n * grant
		}
		bits := 8 * float64(count) * float64(a.Sends[0].SGL[0].Length)
		return bits / float64(time.Since(start).Nanoseconds()), <-errs
	}
}

// confirmed plays a ping-pong in which a side sends when a message has come and its own last
// one has completed.
func confirmed(rounds int) func(a, b *Player) (float64, error) {
	side := func(p *Player, first bool) error {
		p.Sends[0].Flags = verbs.SendSignaled
		if !first {
			if _, err := p.AwaitMessages(); err != nil {
				return err
			}
		}
		for range rounds {
			if err := p.PostSends(1); err != nil {
				return err
			}
			for done := 0; done < 2; { // a message, and the completion of the own one
				wcs, err := p.AwaitWCs()
				if err != nil {
					return err
				}
				for _, wc := range wcs {
					if wc.Opcode == verbs.WCOpRecv {
						err = errors.Join(err, p.PostRecvs(1))
					}
				}
				if done += len(wcs); err != nil {
					return err
				}
			}
		}
		if first {
			return p.PostSends(1) // the other side waits for it
		}
		return nil
	}
	return func(a, b *Player) (float64, error) {
		errs := make(chan error, 1)
		start := time.Now()
		go func() { errs <- side(b, false) }()
		err := side(a, true)
		took := time.Since(start)
		return float64(took.Nanoseconds()) / 2e3 / float64(rounds), errors.Join(err, <-errs)
	}
}
