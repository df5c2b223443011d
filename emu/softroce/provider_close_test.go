package softroce

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// acceptOne accepts one connection. It calls listening when a peer may come.
func acceptOne(d *Device, at netip.AddrPort, listening func()) (verbs.Conn, error) {
	e, err := newEnd(d, verbs.QPTypeRC)
	if err != nil {
		return nil, err
	}
	l, err := d.cm.Listen(at, verbs.PortSpaceTCP, 0)
	if err != nil {
		return nil, err
	}
	listening()
	req, err := l.GetRequest(verbs.Forever)
	if err != nil {
		return nil, err
	}
	return req.Accept(e.qp, connParam, verbs.Forever)
}

func connectTo(d *Device, to netip.AddrPort) (*end, verbs.Conn, error) {
	e, err := newEnd(d, verbs.QPTypeRC)
	if err != nil {
		return nil, nil, err
	}
	c, err := d.cm.Connect(e.qp, to, connParam, verbs.Forever)
	return e, c, err
}

type waitingCall struct {
	what string
	do   func() error
}

// parked are calls that block for ever.
func parked(d *Device, c verbs.Conn, self, nobody netip.Addr) ([]waitingCall, error) {
	e, err := newEnd(d, verbs.QPTypeRC)
	if err != nil {
		return nil, err
	}
	l, err := d.cm.Listen(netip.AddrPortFrom(self, 99), verbs.PortSpaceTCP, 0)
	if err != nil {
		return nil, err
	}
	return []waitingCall{
		{"completion event", func() error { _, err := e.ch.Wait(verbs.Forever); return err }},
		{"asynchronous event", func() error { _, err := d.WaitAsync(verbs.Forever); return err }},
		{"connection request", func() error { _, err := l.GetRequest(verbs.Forever); return err }},
		{"disconnect", func() error { return c.WaitDisconnect(verbs.Forever) }},
		{"connect", func() error {
			_, err := d.cm.Connect(e.qp, netip.AddrPortFrom(nobody, 1), connParam, verbs.Forever)
			return err
		}},
	}, nil
}

func TestCloseWakesBlockedCallsInSimulation(t *testing.T) {
	w, a, b := pairInWorld(t, 1, impair.Config{})
	at := netip.AddrPortFrom(addrB, 7)
	ended := 0
	w.Go("b", func(*sim.Proc) error {
		_, err := acceptOne(b, at, func() {})
		return err
	})
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		_, c, err := connectTo(a, at)
		if err != nil {
			return err
		}
		calls, err := parked(a, c, addrA, netip.MustParseAddr("fd00::77"))
		if err != nil {
			return err
		}
		for _, call := range calls {
			w.Go(call.what, func(*sim.Proc) error {
				if err := call.do(); !errors.Is(err, verbs.ErrClosed) {
					t.Errorf("%s: %v", call.what, err)
				}
				ended++
				return nil
			})
		}
		p.Sleep(time.Millisecond)
		if ended != 0 || a.BlockedCalls() != len(calls) {
			t.Errorf("%d of %d calls wait, %d have ended", a.BlockedCalls(), len(calls), ended)
		}
		if err := a.Close(); err != nil {
			return err
		}
		p.Sleep(time.Microsecond)
		if ended != len(calls) || a.BlockedCalls() != 0 {
			t.Errorf("%d of %d calls have ended, %d wait", ended, len(calls), a.BlockedCalls())
		}
		return nil
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}

func TestCloseWakesBlockedCallsOnUDP(t *testing.T) {
	a, b := loopback(t, "127.71.1.2", udplink.Config{}), loopback(t, "127.71.1.3", udplink.Config{})
	at := netip.AddrPortFrom(netip.MustParseAddr("127.71.1.3"), 7)
	listening, accepted := make(chan struct{}), make(chan error)
	go func() {
		_, err := acceptOne(b, at, func() { close(listening) })
		accepted <- err
	}()
	<-listening
	_, c, err := connectTo(a, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	calls, err := parked(a, c, netip.MustParseAddr("127.71.1.2"), netip.MustParseAddr("127.71.1.77"))
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		name string
		err  error
	}
	ended := make(chan outcome, len(calls))
	for _, call := range calls {
		go func() { ended <- outcome{call.what, call.do()} }()
	}
	for {
		a.Driver().Lock(drive.CallWait)
		n := a.BlockedCalls()
		a.Driver().Unlock()
		if n == len(calls) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for range calls {
		select {
		case o := <-ended:
			if !errors.Is(o.err, verbs.ErrClosed) {
				t.Errorf("%s: %v", o.name, o.err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a call still waits")
		}
	}
}

func TestClosingQPEndsItsConnection(t *testing.T) {
	at := netip.AddrPortFrom(addrB, 7)
	inWorld(t, func(p *sim.Proc, d *Device) error {
		p.Sleep(time.Millisecond)
		e, c, err := connectTo(d, at)
		if err != nil {
			return err
		}
		waited := false
		p.World().Go("waiter", func(*sim.Proc) error {
			waited = true
			return c.WaitDisconnect(verbs.Forever)
		})
		p.Sleep(time.Millisecond)
		if err := e.qp.Close(); err != nil || !waited || len(d.cm.conns) != 0 {
			t.Errorf("%v, waited %v, %d connections left", err, waited, len(d.cm.conns))
		}
		return nil
	}, func(_ *sim.Proc, d *Device) error {
		c, err := acceptOne(d, at, func() {})
		if err != nil {
			return err
		}
		return c.WaitDisconnect(verbs.Forever) // the peer is told
	})
}

// Every handle can be closed once; closed again, and used, it says so and
// leaves the counts of what it belonged to alone.
func TestVerbsFailOnClosedHandles(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		srq, err := d.CreateSRQ(verbs.SRQInit{PD: e.pd, MaxWR: 4, MaxSGE: 1})
		if err != nil {
			return err
		}
		mw, err := e.pd.AllocMW(verbs.MWType1)
		if err != nil {
			return err
		}
		ah, err := e.pd.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(addrB), HopLimit: 1}})
		if err != nil {
			return err
		}
		x, err := d.OpenXRCD()
		if err != nil {
			return err
		}
		// A second user of everything, whose share must not be given away.
		other, err := d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq})
		if err != nil {
			return err
		}
		for _, h := range []interface{ Close() error }{e.qp, srq, mw, ah, x, e.mr} {
			if err := h.Close(); err != nil {
				t.Errorf("%T: %v", h, err)
			}
			if err := h.Close(); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("%T closed twice: %v", h, err)
			}
		}
		for _, h := range []interface{ Close() error }{e.cq, e.pd} {
			if err := h.Close(); !errors.Is(err, verbs.ErrBusy) {
				t.Errorf("%T in use: %v", h, err)
			}
		}
		if _, err := e.qp.PostSend(nil); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("post to a closed QP: %v", err)
		}
		if _, err := d.cm.Connect(e.qp, netip.AddrPortFrom(addrB, 1), connParam, 0); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("connect of a closed QP: %v", err)
		}
		if _, err := d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq}); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("QP on a closed SRQ: %v", err)
		}
		for _, h := range []interface{ Close() error }{other, e.cq, e.pd, e.ch} {
			if err := h.Close(); err != nil {
				t.Errorf("%T: %v", h, err)
			}
		}
		if _, err := e.cq.Poll(nil); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("poll of a closed CQ: %v", err)
		}
		if _, err := e.ch.Wait(0); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("wait at a closed channel: %v", err)
		}
		return nil
	}, idle)
}

func TestXRCTargetHandlesCloseIndependently(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		x, err := d.OpenXRCD()
		if err != nil {
			return err
		}
		first, err := d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x})
		if err != nil {
			return err
		}
		second, err := d.OpenQP(x, first.QPN())
		if err != nil {
			return err
		}
		third, err := d.OpenQP(x, first.QPN())
		if err != nil {
			return err
		}
		if first == second || second == third {
			t.Error("handles are shared")
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		if err := first.Close(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
		if h := second.(*queuePair).handles; len(h) != 2 || h[0] != second {
			t.Errorf("events go to %v", h)
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
		if _, err := third.Query(); err != nil {
			t.Errorf("the last handle: %v", err)
		}
		if err := third.Close(); err != nil {
			t.Error(err)
		}
		if _, err := d.OpenQP(x, first.QPN()); !errors.Is(err, verbs.ErrNotFound) {
			t.Errorf("open of a QP that is gone: %v", err)
		}
		return x.Close()
	}, idle)
}

// A connection belongs to the queue pair, not to the handle it was made with.
func TestConnectionSurvivesCloseOfOneHandle(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		x, err := d.OpenXRCD()
		if err != nil {
			return err
		}
		first, err := d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x})
		if err != nil {
			return err
		}
		second, err := d.OpenQP(x, first.QPN())
		if err != nil {
			return err
		}
		p := first.(*queuePair).qpState
		p.conn = &connection{m: &d.cm, qp: p, cond: d.Driver().NewCond(nil)}
		if err := first.Close(); err != nil || p.conn == nil {
			t.Errorf("%v, connection %v", err, p.conn)
		}
		if err := second.Close(); err != nil || p.conn != nil {
			t.Errorf("%v, connection %v", err, p.conn)
		}
		return nil
	}, idle)
}
