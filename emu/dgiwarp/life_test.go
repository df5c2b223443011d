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

// A restarted peer receives no message that was sent to its old instance, and new messages arrive.
func TestRestartedPeerReceivesNoDuplicates(t *testing.T) {
	w := sim.New(sim.Config{Seed: 4, MaxTime: maxWorldTime})
	net := must.Get(sim.NewNet(w, sim.NetConfig{}))(t)
	client := newEnd(t, attach(t, w, net, addrA, impair.Config{}, Config{}), reliable)
	server := func() *end { return newEnd(t, attach(t, w, net, addrB, impair.Config{}, Config{}), reliable) }
	old := server()
	run(t, w, func(p *sim.Proc) {
		old.recv(0, 100)
		client.do(old.source(), verbs.SendWR{Opcode: verbs.OpSend, SGL: client.SGL(0, 10)})
		must.Do(t, old.dev.Close())
		// The old peer may have received this message: it must not complete with success.
		client.send(old.source(), 0, 10)
		p.Sleep(time.Second)
	})
	fresh := server()
	run(t, w, func(p *sim.Proc) {
		fresh.recv(0, 100)
		wc := client.AwaitWC()
		if wc.Status != verbs.WCRetryExcErr {
			t.Fatalf("message to the old peer: %v", wc.Status)
		}
		fresh.expectNoCompletion(time.Second)
		client.do(fresh.source(), verbs.SendWR{Opcode: verbs.OpSend, SGL: client.SGL(0, 20)})
		if wc := fresh.AwaitSuccess(); wc.ByteLen != 20+verbs.GRHLen {
			t.Fatalf("%d bytes", wc.ByteLen)
		}
	})
}

// echoQPs creates queue pairs that share a CQ, and a program that answers two messages on each.
func echoQPs(t testing.TB, d *Device, opt QPOptions, pairs int) (all []Source, serve func() error) {
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
		all = append(all, e.source())
	}
	return all, func() error {
		for got, sent := 0, 0; got < 2*pairs || sent < 2*pairs; {
			wc := e.AwaitSuccess()
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

// Close ends all transfers: blocked calls return, and Close itself returns.
func TestCloseEndsCallsInAnyState(t *testing.T) {
	step := 7 * time.Microsecond
	if testing.Short() {
		step = 37 * time.Microsecond
	}
	for _, opt := range []QPOptions{unreliable, reliable} {
		for after := time.Duration(0); after < 300*time.Microsecond; after += step {
			w, a, b := pairInWorld(t, uint64(after), impaired)
			x, y := newEnd(t, a, opt), newEnd(t, b, opt)
			for i, e := range []*end{x, y} {
				to := []*end{y, x}[i].source()
				w.Go(fmt.Sprint("sender", i), func(*sim.Proc) error {
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
