package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

type waitingCall struct {
	what string
	do   func() error
}

// parked are calls that wait for what never comes. mute is where somebody takes
// connections and says nothing.
func parked(d *Device, c verbs.Conn, self netip.Addr, mute netip.AddrPort) ([]waitingCall, error) {
	e, err := newEnd(d)
	if err != nil {
		return nil, err
	}
	l, err := d.cm.Listen(netip.AddrPortFrom(self, 0), verbs.PortSpaceTCP, 0)
	if err != nil {
		return nil, err
	}
	return []waitingCall{
		{"completion event", func() error { _, err := e.ch.Wait(verbs.Forever); return err }},
		{"asynchronous event", func() error { _, err := d.WaitAsync(verbs.Forever); return err }},
		{"connection request", func() error { _, err := l.GetRequest(verbs.Forever); return err }},
		{"disconnect", func() error { return c.WaitDisconnect(verbs.Forever) }},
		{"connect", func() error {
			_, err := d.cm.Connect(e.qp, mute, connParam, verbs.Forever)
			return err
		}},
	}, nil
}

func TestCloseWakesBlockedCallsInSimulation(t *testing.T) {
	w, a, b := pairInWorld(t, 1, sim.NetConfig{})
	ended := 0
	w.Go("b", func(*sim.Proc) error {
		if _, err := b.cm.Listen(at(99), verbs.PortSpaceTCP, 0); err != nil { // nobody asks it for requests
			return err
		}
		_, _, err := acceptOne(b, at(7), func() {})
		return err
	})
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		_, c, err := connectTo(a, at(7))
		if err != nil {
			return err
		}
		calls, err := parked(a, c, addrA, at(99))
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
		return a.Close()
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}

// Whatever is closed at whatever moment, on either side: the call that was under
// way ends, the other side hears of it, and the world goes quiet.
func TestCloseInAnyState(t *testing.T) {
	t.Parallel()
	type side struct {
		d    *Device
		e    *end
		conn verbs.Conn
	}
	step := 1700 * time.Nanosecond
	if testing.Short() {
		step *= 5
	}
	ways := []struct {
		name  string
		close func(s *side) error
	}{
		{"device", func(s *side) error { return s.d.Close() }},
		{"queue pair", func(s *side) error { return s.e.qp.Close() }},
		{"to RESET", func(s *side) error {
			return s.e.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState)
		}},
		{"to ERR", func(s *side) error { return s.e.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) }},
		{"disconnect", func(s *side) error {
			if s.conn == nil {
				return nil
			}
			return s.conn.Disconnect()
		}},
	}
	for _, way := range ways {
		for _, active := range []bool{true, false} {
			// From the first SYN until all is said: a conversation takes 60 µs.
			for when := 500 * time.Nanosecond; when < 80*time.Microsecond; when += step {
				name := fmt.Sprintf("%s of a=%v after %v", way.name, active, when)
				w, da, db := pairInWorld(t, 1, sim.NetConfig{Stream: sim.StreamConfig{BufferBytes: 30_000}})
				a, b := &side{d: da}, &side{d: db}
				var err error
				if a.e, err = newEnd(da); err != nil {
					t.Fatal(err)
				}
				if b.e, err = newEnd(db); err != nil {
					t.Fatal(err)
				}
				talk := func(s *side) error {
					for range 10 {
						if err := s.e.send(0, 40_000); err != nil {
							return nil // it was closed
						}
					}
					_ = s.conn.WaitDisconnect(verbs.Forever) // or the device was
					return nil
				}
				for range 10 {
					if err := errors.Join(a.e.recv(0, 40_000), b.e.recv(0, 40_000)); err != nil {
						t.Fatal(err)
					}
				}
				w.Go("b", func(*sim.Proc) error {
					l, err := db.cm.Listen(at(7), verbs.PortSpaceTCP, 0)
					if err != nil {
						return err
					}
					req, err := l.GetRequest(time.Second)
					if err != nil {
						return nil
					}
					if b.conn, err = req.Accept(b.e.qp, connParam, verbs.Forever); err != nil {
						_ = req.Reject(nil) // unless there is nobody to refuse
						return nil
					}
					return talk(b)
				})
				w.Go("a", func(p *sim.Proc) error {
					p.Sleep(10 * time.Microsecond)
					if a.conn, err = da.cm.Connect(a.e.qp, at(7), connParam, time.Second); err != nil {
						return nil
					}
					return talk(a)
				})
				w.Go("closer", func(p *sim.Proc) error {
					p.Sleep(10*time.Microsecond + when)
					s := b
					if active {
						s = a
					}
					if err := way.close(s); err != nil {
						return err
					}
					if way.name == "disconnect" && s.conn == nil {
						return da.Close() // or they talk and wait for ever
					}
					return nil
				})
				if err := w.RunPrograms(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if err := w.Run(); err != nil {
					t.Fatalf("%s, afterwards: %v", name, err)
				}
				for _, d := range []*Device{da, db} {
					if n := openStreams(d); n != 0 && !d.Closed() {
						t.Fatalf("%s: %s still has %d streams", name, d.Name(), n)
					}
				}
			}
		}
	}
}

func openStreams(d *Device) int { return d.streams.(interface{ OpenStreams() int }).OpenStreams() }

func TestClosingQPEndsItsConnection(t *testing.T) {
	inWorld(t, later(func(p *sim.Proc, d *Device) error {
		e, c, err := connectTo(d, at(7))
		if err != nil {
			return err
		}
		waited := false
		p.World().Go("waiter", func(*sim.Proc) error {
			err := c.WaitDisconnect(verbs.Forever)
			waited = true
			return err
		})
		p.Sleep(time.Millisecond)
		if err := e.qp.Close(); err != nil {
			return err
		}
		p.Sleep(time.Microsecond)
		if !waited {
			t.Error("the connection outlives the queue pair")
		}
		return nil
	}), func(_ *sim.Proc, d *Device) error {
		_, c, err := acceptOne(d, at(7), func() {})
		if err != nil {
			return err
		}
		return c.WaitDisconnect(verbs.Forever) // the peer is told
	})
}

func TestClosingListenerRejectsWaitingRequests(t *testing.T) {
	inWorld(t, later(func(_ *sim.Proc, d *Device) error {
		_, _, err := connectTo(d, at(7))
		refused(t, "connect", err, verbs.ErrRejected, "rejected by the remote application")
		return nil
	}), func(p *sim.Proc, d *Device) error {
		l, err := d.cm.Listen(at(7), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		other, err := d.cm.Listen(at(8), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		p.World().Go("next", func(*sim.Proc) error {
			_, err := other.GetRequest(verbs.Forever)
			refused(t, "next", err, verbs.ErrClosed, "get_request [fd00::2]:8")
			return nil
		})
		p.Sleep(2 * time.Millisecond)
		err = errors.Join(l.Close(), other.Close())
		refused(t, "close again", l.Close(), verbs.ErrClosed, "close_listener [fd00::2]:7")
		return err
	})
}

// Every handle can be closed once; closed again, and used, it says so.
func TestVerbsFailOnClosedHandles(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		srq, err := d.CreateSRQ(verbs.SRQInit{PD: e.pd, MaxWR: 4, MaxSGE: 1})
		if err != nil {
			return err
		}
		for _, h := range []interface{ Close() error }{e.cq, e.pd} {
			if err := h.Close(); !errors.Is(err, verbs.ErrBusy) {
				t.Errorf("%T in use: %v", h, err)
			}
		}
		for _, h := range []interface{ Close() error }{e.qp, srq} {
			if err := h.Close(); err != nil {
				t.Errorf("%T: %v", h, err)
			}
			if err := h.Close(); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("%T closed twice: %v", h, err)
			}
		}
		if _, err := e.qp.PostSend(nil); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("post to a closed QP: %v", err)
		}
		if _, err := d.cm.Connect(e.qp, at(1), connParam, 0); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("connect of a closed QP: %v", err)
		}
		if _, err := d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq}); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("QP on a closed SRQ: %v", err)
		}
		for _, h := range []interface{ Close() error }{e.cq, e.mr, e.pd, e.ch} {
			if err := h.Close(); err != nil {
				t.Errorf("%T: %v", h, err)
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
		if _, err := d.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("a closed device allocates: %v", err)
		}
		if _, err := d.cm.Listen(netip.AddrPortFrom(addrA, 1), verbs.PortSpaceTCP, 0); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("a closed device listens: %v", err)
		}
		return nil
	}, idle)
}

func TestObjectsOfAnotherDeviceAreRejected(t *testing.T) {
	_, d, other := pairInWorld(t, 1, sim.NetConfig{})
	mine, err := newEnd(d)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := newEnd(other)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := other.CreateSRQ(verbs.SRQInit{PD: theirs.pd, MaxWR: 1})
	if err != nil {
		t.Fatal(err)
	}
	good := verbs.QPInit{Type: verbs.QPTypeRC, PD: mine.pd, SendCQ: mine.cq, RecvCQ: mine.cq}
	for _, tc := range []struct {
		name   string
		change func(*verbs.QPInit)
	}{
		{"PD", func(in *verbs.QPInit) { in.PD = theirs.pd }},
		{"send CQ", func(in *verbs.QPInit) { in.SendCQ = theirs.cq }},
		{"receive CQ", func(in *verbs.QPInit) { in.RecvCQ = theirs.cq }},
		{"SRQ", func(in *verbs.QPInit) { in.SRQ = queue }},
	} {
		in := good
		tc.change(&in)
		_, err := d.CreateQP(in)
		refused(t, tc.name, err, verbs.ErrInvalid, "create_qp", "the "+tc.name+" belongs to another device")
	}
	_, err = d.cm.Connect(theirs.qp, at(1), connParam, 0)
	refused(t, "QP", err, verbs.ErrInvalid, "the QP belongs to another device")
	mw, err := theirs.pd.AllocMW(verbs.MWType2)
	if err != nil {
		t.Fatal(err)
	}
	err = mine.post(verbs.SendWR{Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw}})
	refused(t, "window", err, verbs.ErrInvalid, "the memory window belongs to another device")
}
