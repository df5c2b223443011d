package dgiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// A peer that starts anew takes nothing twice that it had before, and is talked
// to again as if nothing had been.
func TestPeerRestart(t *testing.T) {
	w := sim.New(sim.Config{Seed: 4, MaxTime: maxWorldTime})
	net, err := sim.NewNet(w, sim.NetConfig{})
	if err != nil {
		t.Fatal(err)
	}
	client := mustEnd(t, attach(t, w, net, addrA, impair.Config{}, Config{}), reliable)
	server := func() *end { return mustEnd(t, attach(t, w, net, addrB, impair.Config{}, Config{}), reliable) }
	old := server()
	run(t, w, func(p *sim.Proc) error {
		if err := old.recv(0, 100); err != nil {
			return err
		}
		if err := client.do(old.where(), verbs.SendWR{Opcode: verbs.OpSend, SGL: client.sge(0, 10)}); err != nil {
			return err
		}
		if err := old.dev.Close(); err != nil {
			return err
		}
		// The old one may have got this: the client must not be told that it is well.
		if err := client.send(old.where(), 0, 10); err != nil {
			return err
		}
		p.Sleep(time.Second)
		return nil
	})
	fresh := server()
	run(t, w, func(p *sim.Proc) error {
		if err := fresh.recv(0, 100); err != nil {
			return err
		}
		wc, err := client.complete()
		if err != nil || wc.Status != verbs.WCRetryExcErr {
			return fmt.Errorf("what was under way: %v, %w", wc.Status, err)
		}
		if err := fresh.quiet(time.Second); err != nil {
			return err
		}
		if err := client.do(fresh.where(), verbs.SendWR{Opcode: verbs.OpSend, SGL: client.sge(0, 20)}); err != nil {
			return err
		}
		if wc, err = fresh.succeed(); err != nil || wc.ByteLen != 20+verbs.GRHLen {
			return fmt.Errorf("%d bytes, %w", wc.ByteLen, err)
		}
		return nil
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
		center := mustEnd(t, ds[0], opt)
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
				if err := center.recv(i*64, 8); err != nil {
					return err
				}
			}
			sent, confirmed, answered := 0, 0, 0
			for answered < rounds*len(peers) || confirmed < sent {
				for ; sent < rounds*len(peers) && sent-answered < depth && sent-confirmed < depth; sent++ {
					if err := center.send(peers[sent%len(peers)], 0, 8); err != nil {
						return err
					}
				}
				wc, err := center.succeed()
				if err != nil {
					return fmt.Errorf("after %d: %w", answered, err)
				}
				if wc.WRID == sendID {
					confirmed++
					continue
				}
				from, _, err := center.message(&wc)
				if err != nil {
					return err
				}
				heard[from]++
				answered++
				if err := center.recv(int(wc.WRID)-recvAt, 8); err != nil {
					return err
				}
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
	e := &end{dev: d, buf: make([]byte, slot*(pairs+1)), ahs: map[netip.AddrPort]verbs.AH{}}
	var err error
	check := func(e error) { err = errors.Join(err, e) }
	var e1, e2, e3, e4 error
	e.pd, e1 = d.AllocPD()
	e.ch, e2 = d.CreateCompChannel()
	e.cq, e3 = d.CreateCQ(verbs.CQInit{Depth: 4 * pairs, Channel: e.ch})
	e.mr, e4 = e.pd.RegMR(verbs.MRInit{Buf: e.buf, Access: fullAccess})
	check(errors.Join(e1, e2, e3, e4))
	byNumber := map[verbs.QPN]verbs.QP{}
	for i := range pairs {
		q, e1 := d.CreateQPWith(verbs.QPInit{
			Type: verbs.QPTypeUD, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq,
			Caps: verbs.QPCaps{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1},
		}, opt)
		if e1 != nil {
			t.Fatal(e1)
		}
		check(ready(q))
		for range 2 {
			_, e1 := q.PostRecv([]verbs.RecvWR{{WRID: uint64(slot * (i + 1)), SGL: e.sge(slot*(i+1), slot)}})
			check(e1)
		}
		byNumber[q.QPN()] = q
		all = append(all, Source{netip.AddrPortFrom(d.cfg.Addrs[0], DefaultPort), q.QPN()})
	}
	if err != nil {
		t.Fatal(err)
	}
	return all, func() error {
		for got, sent := 0, 0; got < 2*pairs || sent < 2*pairs; {
			wc, err := e.succeed()
			if err != nil {
				return err
			}
			if wc.WRID == sendID {
				sent++
				continue
			}
			got++
			from, _, err := e.message(&wc)
			if err != nil {
				return err
			}
			e.qp = byNumber[wc.QPN]
			if err := e.send(from, 0, 8); err != nil {
				return err
			}
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
			x, y := mustEnd(t, a, opt), mustEnd(t, b, opt)
			for i, e := range []*end{x, y} {
				to := []*end{y, x}[i].where()
				w.Go(fmt.Sprint("talker", i), func(*sim.Proc) error {
					for {
						if err := errors.Join(e.recv(0, 9000), e.send(to, 0, 9000)); err != nil {
							return closedOnly(err)
						}
						if _, err := e.complete(); err != nil {
							return closedOnly(err)
						}
					}
				})
			}
			w.Go("closer", func(p *sim.Proc) error {
				p.Sleep(after)
				if err := x.qp.Close(); err != nil {
					return err
				}
				if err := y.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil {
					return err
				}
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
