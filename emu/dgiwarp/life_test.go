package dgiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A peer that starts anew takes nothing twice that it had before, and is talked
// to again as if nothing had been.
func TestPeerRestart(t *testing.T) {
	w := sim.New(sim.Config{Seed: 4, MaxTime: maxWorldTime})
	net := must.Get(sim.NewNet(w, sim.NetConfig{}))(t)
	client := newEnd(t, attach(t, w, net, addrA, impair.Config{}, Config{}), reliable)
	server := func() *end { return newEnd(t, attach(t, w, net, addrB, impair.Config{}, Config{}), reliable) }
	old := server()
	run(t, w, func(p *sim.Proc) {
		old.recv(0, 100)
		client.do(old.where(), verbs.SendWR{Opcode: verbs.OpSend, SGL: client.SGL(0, 10)})
		must.Do(t, old.dev.Close())
		// The old one may have got this: the client must not be told that it is well.
		client.send(old.where(), 0, 10)
		p.Sleep(time.Second)
	})
	fresh := server()
	run(t, w, func(p *sim.Proc) {
		fresh.recv(0, 100)
		wc := client.Complete()
		if wc.Status != verbs.WCRetryExcErr {
			t.Fatalf("what was under way: %v", wc.Status)
		}
		fresh.quiet(time.Second)
		client.do(fresh.where(), verbs.SendWR{Opcode: verbs.OpSend, SGL: client.SGL(0, 20)})
		if wc := fresh.Succeed(); wc.ByteLen != 20+verbs.GRHLen {
			t.Fatalf("%d bytes", wc.ByteLen)
		}
	})
}

// One queue pair talks with many others, of which each answers it.
func TestManyPeers(t *testing.T) {
	hosts, pairs := 50, 200 // queue pairs a host
	if testing.Short() {
		hosts, pairs = 10, 100
	}
	for _, opt := range []QPOptions{unreliable, reliable} {
		w, ds := netInWorld(t, 6, 1+hosts, impair.Config{}, Config{QP: opt})
		center := newEnd(t, ds[0], opt)
		var peers []Source
		for i, d := range ds[1:] {
			qps, serve := crowd(t, d, opt, pairs)
			peers = append(peers, qps...)
			w.Go(fmt.Sprint("crowd", i), func(*sim.Proc) error { return serve() })
		}
		heard := map[Source]int{}
		w.Go("center", func(*sim.Proc) error {
			const rounds, depth = 2, 64
			for i := range 2 * depth {
				center.recv(i*64, 8)
			}
			sent, confirmed, answered := 0, 0, 0
			for answered < rounds*len(peers) || confirmed < sent {
				for ; sent < rounds*len(peers) && sent-answered < depth && sent-confirmed < depth; sent++ {
					center.send(peers[sent%len(peers)], 0, 8)
				}
				wc := center.Succeed()
				if wc.WRID == sendID {
					confirmed++
					continue
				}
				from, _ := center.message(&wc)
				heard[from]++
				answered++
				center.recv(int(wc.WRID)-recvAt, 8)
			}
			for _, p := range peers {
				if heard[p] != rounds {
					return fmt.Errorf("%v answered %d times", p, heard[p])
				}
			}
			return nil
		})
		if err := w.RunPrograms(); err != nil {
			t.Fatalf("%+v: %v", opt, err)
		}
		if got, want := counter(ds[0], "rd_peers"), uint64(len(peers)); opt.Reliable && got != want || !opt.Reliable && got != 0 {
			t.Errorf("%+v: %d peers are known of %d", opt, got, want)
		}
	}
}

// crowd makes queue pairs of one CQ, and a program in which each answers two
// messages.
func crowd(t testing.TB, d *Device, opt QPOptions, pairs int) (all []Source, serve func() error) {
	t.Helper()
	const slot = 64
	e := &end{&providertest.End{TB: t, Dev: d, Buf: make([]byte, slot*(pairs+1))}, d, map[netip.AddrPort]verbs.AH{}}
	e.PD = must.Get(d.AllocPD())(t)
	e.Ch = must.Get(d.CreateCompChannel())(t)
	e.CQ = must.Get(d.CreateCQ(verbs.CQInit{Depth: 4 * pairs, Channel: e.Ch}))(t)
	e.MR = must.Get(e.PD.RegMR(verbs.MRInit{Buf: e.Buf, Access: fullAccess}))(t)
	byNumber := map[verbs.QPN]verbs.QP{}
	for i := range pairs {
		e.QP = must.Get(d.CreateQPWith(verbs.QPInit{
			Type: verbs.QPTypeUD, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ,
			Caps: verbs.QPCaps{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1},
		}, opt))(t)
		e.ReadyUD(testKey)
		for range 2 {
			must.Get(e.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(slot * (i + 1)), SGL: e.SGL(slot*(i+1), slot)}}))(t)
		}
		byNumber[e.QP.QPN()] = e.QP
		all = append(all, e.where())
	}
	return all, func() error {
		for got, sent := 0, 0; got < 2*pairs || sent < 2*pairs; {
			wc := e.Succeed()
			if wc.WRID == sendID {
				sent++
				continue
			}
			got++
			from, _ := e.message(&wc)
			e.QP = byNumber[wc.QPN]
			e.send(from, 0, 8)
		}
		return nil
	}
}

// Whatever is under way, closing ends it: calls return, and so does the close.
func TestCloseInAnyState(t *testing.T) {
	step := 7 * time.Microsecond
	if testing.Short() {
		step = 37 * time.Microsecond
	}
	for _, opt := range []QPOptions{unreliable, reliable} {
		for after := time.Duration(0); after < 300*time.Microsecond; after += step {
			w, a, b := pairInWorld(t, uint64(after), bad)
			x, y := newEnd(t, a, opt), newEnd(t, b, opt)
			for i, e := range []*end{x, y} {
				to := []*end{y, x}[i].where()
				w.Go(fmt.Sprint("talker", i), func(*sim.Proc) error {
					for {
						err := errors.Join(e.tryRecv(0, 9000), e.trySend(to, 0, 9000))
						if err == nil {
							_, err = e.NextWC(true, make([]verbs.WC, 1), 20*time.Second)
						}
						if err != nil {
							return closedOnly(err)
						}
					}
				})
			}
			w.Go("closer", func(p *sim.Proc) error {
				p.Sleep(after)
				must.Do(t, x.QP.Close())
				must.Do(t, y.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
				p.Sleep(after)
				return errors.Join(a.Close(), b.Close(), a.Close())
			})
			if err := w.RunPrograms(); err != nil {
				t.Fatalf("%+v, after %v: %v", opt, after, err)
			}
		}
	}
}

func closedOnly(err error) error {
	if errors.Is(err, verbs.ErrClosed) || errors.Is(err, verbs.ErrNoMemory) {
		return nil
	}
	return err
}
