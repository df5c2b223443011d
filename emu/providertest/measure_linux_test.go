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

// deviceConfig opens a device of a provider in some configuration.
type deviceConfig struct {
	name string
	open func(addr netip.Addr) (verbs.Context, error)
}

var (
	roce  = newRoCE("softroce", softroce.Config{})
	iwarp = deviceConfig{"softiwarp", func(addr netip.Addr) (verbs.Context, error) {
		return softiwarp.OnTCP(tcplink.Config{}, softiwarp.Config{Addrs: []netip.Addr{addr}})
	}}
	unreliable, reliable = newDatagrams("UD", false), newDatagrams("RD", true)
)

func newRoCE(name string, cfg softroce.Config) deviceConfig {
	return deviceConfig{name, func(addr netip.Addr) (verbs.Context, error) {
		cfg := cfg
		cfg.Addrs = []netip.Addr{addr}
		return softroce.OnUDP(udplink.Config{}, cfg)
	}}
}

func newDatagrams(name string, reliable bool) deviceConfig {
	return deviceConfig{name, func(addr netip.Addr) (verbs.Context, error) {
		return dgiwarp.OnUDP(udplink.Config{}, dgiwarp.Config{Addrs: []netip.Addr{addr}, QP: dgiwarp.QPOptions{Reliable: reliable}})
	}}
}

// hosts are two hosts with a link, or the loopback network.
type hosts struct {
	a, b *testutil.Host // nil: loopback
	v6   bool
}

func newHosts(b testing.TB, v6 bool) *hosts {
	b.Helper()
	x, y := testutil.HostPair(b, 9000)
	return &hosts{x, y, v6}
}

// runMessengers opens two devices, fills their receive queues, and runs f on them. It then closes
// the devices: an idle one still uses CPU time, which would slow down the measurement that
// alternates with it.
func (h *hosts) runMessengers(t testing.TB, c deviceConfig, size int, block bool, f func(a, b *Messenger) (float64, error)) (float64, error) {
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
	var messengers [2]*Messenger
	if must.Get(devices[0].QueryDevice())(t).Caps.Has(verbs.CapRC) {
		x, y, _ := connect(t, devices[0], devices[1])
		messengers = [2]*Messenger{NewMessenger(x, size, block, verbs.UD{}), NewMessenger(y, size, block, verbs.UD{})}
	} else {
		messengers = datagramMessengers(t, devices, addrs, size, block)
	}
	if err := errors.Join(messengers[0].PostRecvs(queueDepth), messengers[1].PostRecvs(queueDepth)); err != nil {
		return 0, err
	}
	return f(messengers[0], messengers[1])
}

// datagramMessengers makes two messengers that address each other.
func datagramMessengers(t testing.TB, devices [2]verbs.Context, addrs [2]netip.Addr, size int, block bool) (messengers [2]*Messenger) {
	const key = 0x0badcafe
	var ends [2]*End
	for i, d := range devices {
		ends[i] = NewEnd(t, d, verbs.QPTypeUD)
		ends[i].ReadyUD(key)
	}
	for i, e := range ends {
		ah := must.Get(e.PD.CreateAH(dgiwarp.AddressOf(netip.AddrPortFrom(addrs[1-i], 0))))(t)
		messengers[i] = NewMessenger(e, size, block, verbs.UD{AH: ah, QPN: ends[1-i].QP.QPN(), QKey: key})
	}
	return messengers
}

// halfRoundTrip returns the median time of half a round of a ping-pong in µs.
func halfRoundTrip(rounds int) func(a, b *Messenger) (float64, error) {
	return func(a, b *Messenger) (float64, error) {
		half, err := PingPong(a, b, rounds)
		return float64(half.Nanoseconds()) / 1e3, err
	}
}

// writes makes a write 1 MiB messages for about the given time, and then read to be sure that
// all have arrived. It returns Gb/s.
func writes(d time.Duration) func(a, b *Messenger) (float64, error) {
	const size = 1 << 20
	return func(a, b *Messenger) (float64, error) {
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

// The receiver of messages acknowledges every grant of them, and the sender sends at most
// window messages that are not acknowledged.
const window, grant = 128, 32

// messages sends count messages from a to b and returns Gb/s.
func messages(count int) func(a, b *Messenger) (float64, error) {
	return func(a, b *Messenger) (float64, error) {
		errs := make(chan error, 1)
		go func() {
			errs <- func() error {
				for got, acked := 0, 0; got < count; {
					n, err := b.AwaitMessages()
					if err != nil {
						return err
					}
					for got += n; got-acked >= grant; acked += grant {
						if err := b.PostSends(1); err != nil {
							return err
						}
					}
				}
				return nil
			}()
		}()
		start := time.Now()
		for sent, acked := 0, 0; sent < count || acked < count/grant*grant; {
			for sent < count && sent-acked < window {
				n := min(len(a.Sends), count-sent)
				if err := a.PostSends(n); err != nil {
					return 0, err
				}
				sent += n
			}
			n, err := a.AwaitMessages()
			if err != nil {
				return 0, fmt.Errorf("after %d messages, %d of them acknowledged: %w", sent, acked, err)
			}
			acked += n * grant
		}
		bits := 8 * float64(count) * float64(a.Sends[0].SGL[0].Length)
		return bits / float64(time.Since(start).Nanoseconds()), <-errs
	}
}

// signaledPingPong runs a ping-pong in which a side sends when a message has arrived and its own
// last send has completed.
func signaledPingPong(rounds int) func(a, b *Messenger) (float64, error) {
	side := func(p *Messenger, first bool) error {
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
			for done := 0; done < 2; { // completions of a receive and of the own send
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
	return func(a, b *Messenger) (float64, error) {
		errs := make(chan error, 1)
		start := time.Now()
		go func() { errs <- side(b, false) }()
		err := side(a, true)
		took := time.Since(start)
		return float64(took.Nanoseconds()) / 2e3 / float64(rounds), errors.Join(err, <-errs)
	}
}
