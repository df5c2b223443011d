package providertest

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

type blockedCall struct {
	name string
	do   func() error
}

// blockedCalls returns calls to a device that block for ever. silent is an address where
// nothing answers a connection request.
func blockedCalls(e *End, c verbs.Conn, self netip.Addr, silent netip.AddrPort) []blockedCall {
	calls := []blockedCall{
		{"completion event", func() error { return must.Err(e.Ch.Wait(verbs.Forever)) }},
		{"asynchronous event", func() error { return must.Err(e.Dev.WaitAsync(verbs.Forever)) }},
	}
	if c == nil {
		return calls
	}
	l := Listen(e, e.Dev, netip.AddrPortFrom(self, 99), 0)
	return append(calls,
		blockedCall{"connection request", func() error { return must.Err(l.GetRequest(verbs.Forever)) }},
		blockedCall{"disconnect", func() error { return c.WaitDisconnect(verbs.Forever) }},
		blockedCall{"connect", func() error { return must.Err(e.TryConnect(silent)) }},
	)
}

func TestCloseWakesBlockedCallsInSimulation(t *testing.T) {
	each(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		silent := netip.AddrPortFrom(AddrB, 99)
		test := func(proc *sim.Proc, c verbs.Conn) {
			calls := blockedCalls(w.end(w.a), c, AddrA, silent)
			ended := 0
			for _, call := range calls {
				w.program(call.name, func(*sim.Proc) {
					must.Fail(t, call.name, call.do(), verbs.ErrClosed)
					ended++
				})
			}
			proc.Sleep(time.Millisecond)
			if ended != 0 || w.a.BlockedCalls() != len(calls) {
				t.Errorf("%d of %d calls wait, %d have ended", w.a.BlockedCalls(), len(calls), ended)
			}
			must.Do(t, w.a.Close())
			proc.Sleep(time.Microsecond)
			if ended != len(calls) || w.a.BlockedCalls() != 0 {
				t.Errorf("%d of %d calls have ended, %d wait", ended, len(calls), w.a.BlockedCalls())
			}
			must.Do(t, w.a.Close())
		}
		if !p.connects() {
			w.program("a", func(proc *sim.Proc) { test(proc, nil) })
			w.run()
			return
		}
		w.connected(func(*End, verbs.Conn) { Listen(t, w.b, silent, 0) }, func(proc *sim.Proc, _ *End, c verbs.Conn) { test(proc, c) })
	})
}

func TestClosingQPEndsItsConnection(t *testing.T) {
	eachConnecting(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		w.connected(func(_ *End, c verbs.Conn) {
			must.Do(t, c.WaitDisconnect(verbs.Forever))
		}, func(proc *sim.Proc, e *End, c verbs.Conn) {
			ended := false
			w.program("waiter", func(*sim.Proc) {
				must.Do(t, c.WaitDisconnect(verbs.Forever))
				ended = true
			})
			proc.Sleep(time.Millisecond)
			must.Do(t, e.QP.Close())
			proc.Sleep(time.Millisecond)
			if !ended {
				t.Error("the connection was not closed with its queue pair")
			}
		})
	})
}

// Every object is closed once, in order. Later calls return ErrClosed, and do not change the
// use counts of other objects.
func TestVerbsFailOnClosedHandles(t *testing.T) {
	each(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		w.program("a", func(*sim.Proc) {
			d := w.a
			e := w.end(d)
			srq := must.Get(d.CreateSRQ(verbs.SRQInit{PD: e.PD, MaxWR: 4, MaxSGE: 1}))(t)
			handles := []closer{e.QP, srq, must.Get(e.PD.AllocMW(verbs.MWType2))(t)}
			if caps := must.Get(d.QueryDevice())(t).Caps; caps.Has(verbs.CapUD) {
				attr := verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(AddrB), HopLimit: 1}}
				handles = append(handles, must.Get(e.PD.CreateAH(attr))(t))
			}
			if x, err := d.OpenXRCD(); err == nil {
				handles = append(handles, x)
			}
			// A second user of the PD and the CQ, whose use counts must not change.
			other := must.Get(d.CreateQP(e.QPInit(p.service)))(t)
			for _, h := range append(handles, e.MR) {
				must.Do(t, h.Close())
				must.Fail(t, "close again", h.Close(), verbs.ErrClosed)
			}
			for _, h := range []closer{e.CQ, e.PD} {
				must.Fail(t, "close in use", h.Close(), verbs.ErrBusy)
			}
			_, err := e.QP.PostSend(nil)
			must.Fail(t, "post to a closed QP", err, verbs.ErrClosed)
			in := e.QPInit(p.service)
			in.SRQ = srq
			_, err = d.CreateQP(in)
			must.Fail(t, "QP on a closed SRQ", err, verbs.ErrClosed)
			if p.connects() {
				_, err = e.TryConnect(netip.AddrPortFrom(AddrB, 1))
				must.Fail(t, "connect of a closed QP", err, verbs.ErrClosed)
			}
			for _, h := range []closer{other, e.CQ, e.PD, e.Ch, d, d} { // the device may be closed twice
				must.Do(t, h.Close())
			}
			_, err = e.CQ.Poll(nil)
			must.Fail(t, "poll of a closed CQ", err, verbs.ErrClosed)
			_, err = e.Ch.Wait(0)
			must.Fail(t, "wait at a closed channel", err, verbs.ErrClosed)
			_, err = d.AllocPD()
			must.Fail(t, "PD of a closed device", err, verbs.ErrClosed)
			if p.connects() {
				_, err = CM(t, d).Listen(netip.AddrPortFrom(AddrA, 1), verbs.PortSpaceTCP, 0)
				must.Fail(t, "listen of a closed device", err, verbs.ErrClosed)
			}
		})
		w.run()
	})
}

func TestObjectsOfAnotherDeviceAreRejected(t *testing.T) {
	each(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		mine, theirs := w.end(w.a), w.end(w.b)
		srq := must.Get(w.b.CreateSRQ(verbs.SRQInit{PD: theirs.PD, MaxWR: 1}))(t)
		for name, change := range map[string]func(*verbs.QPInit){
			"PD":         func(in *verbs.QPInit) { in.PD = theirs.PD },
			"send CQ":    func(in *verbs.QPInit) { in.SendCQ = theirs.CQ },
			"receive CQ": func(in *verbs.QPInit) { in.RecvCQ = theirs.CQ },
			"SRQ":        func(in *verbs.QPInit) { in.SRQ = srq },
		} {
			in := mine.QPInit(p.service)
			change(&in)
			_, err := w.a.CreateQP(in)
			must.Fail(t, name, err, verbs.ErrInvalid, "create_qp", "the "+name+" belongs to another device")
		}
		_, err := w.a.CreateSRQ(verbs.SRQInit{PD: theirs.PD, MaxWR: 1})
		must.Fail(t, "PD of an SRQ", err, verbs.ErrInvalid, "create_srq", "the PD belongs to another device")
		_, err = w.a.CreateCQ(verbs.CQInit{Depth: 1, Channel: theirs.Ch})
		must.Fail(t, "channel", err, verbs.ErrInvalid)
		if p.connects() {
			_, err = CM(t, w.a).Connect(theirs.QP, netip.AddrPortFrom(AddrB, 1), ConnParam, time.Second)
			must.Fail(t, "QP", err, verbs.ErrInvalid, "the QP belongs to another device")
		}
	})
}

func TestConnectWithoutListenerIsRejected(t *testing.T) {
	const invalidService = 8 // reason of an InfiniBand REJ
	eachConnecting(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		w.program("a", func(*sim.Proc) {
			e := w.end(w.a)
			_, err := e.TryConnect(netip.AddrPortFrom(AddrB, 1))
			must.Fail(t, "closed port", err, verbs.ErrRejected, "connect", "[fd00::2]:1")
			if rej := new(verbs.RejectError); !errors.As(err, &rej) || rej.Reason != invalidService {
				t.Errorf("connect to a closed port: %v", err)
			}
			must.Do(t, e.QP.Close())
		})
		w.run()
	})
}

func TestRejectFailsConnectWithPrivateData(t *testing.T) {
	const consumer = 28 // reason of an InfiniBand REJ
	eachConnecting(t, func(t *testing.T, p *provider) {
		w := p.world(t, Cable{})
		at := netip.AddrPortFrom(AddrB, 5)
		w.program("b", func(*sim.Proc) {
			l := Listen(t, w.b, at, 0)
			req := must.Get(l.GetRequest(verbs.Forever))(t)
			if req.Remote().Addr() != AddrA {
				t.Errorf("request from %v", req.Remote())
			}
			must.Do(t, req.Reject([]byte("no")))
			must.Fail(t, "second answer", req.Reject(nil), verbs.ErrInvalid)
			must.Do(t, l.Close())
		})
		w.program("a", func(proc *sim.Proc) {
			proc.Sleep(time.Millisecond)
			_, err := w.end(w.a).TryConnect(at)
			rej := new(verbs.RejectError)
			if !errors.As(err, &rej) || rej.Reason != consumer || string(rej.PrivateData[:2]) != "no" {
				t.Errorf("connect: %v", err)
			}
		})
		w.run()
	})
}
