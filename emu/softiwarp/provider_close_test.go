package softiwarp

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// If one side closes an object at any time, pending calls of both sides return and no stream
// remains.
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
	closers := []struct {
		name  string
		close func(s *side) error
	}{
		{"device", func(s *side) error { return s.d.Close() }},
		{"queue pair", func(s *side) error { return s.e.QP.Close() }},
		{"to RESET", func(s *side) error {
			return s.e.QP.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState)
		}},
		{"to ERR", func(s *side) error { return s.e.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) }},
		{"disconnect", func(s *side) error {
			if s.conn == nil {
				return nil
			}
			return s.conn.Disconnect()
		}},
	}
	for _, closer := range closers {
		for _, active := range []bool{true, false} {
			// The time from the first SYN until all messages have arrived is 60 µs.
			for when := 500 * time.Nanosecond; when < 80*time.Microsecond; when += step {
				name := fmt.Sprintf("%s, by a: %v, after %v", closer.name, active, when)
				w, da, db := pairInWorld(t, 1, sim.NetConfig{Stream: sim.StreamConfig{BufferBytes: 30_000}})
				a, b := &side{d: da}, &side{d: db}
				var err error
				a.e = newEnd(t, da)
				b.e = newEnd(t, db)
				exchange := func(s *side) error {
					for range 10 {
						if s.e.TryPost(verbs.SendWR{Opcode: verbs.OpSend, SGL: s.e.SGL(0, 40_000)}) != nil {
							return nil // the object is closed
						}
					}
					_ = s.conn.WaitDisconnect(verbs.Forever) // fails if the device is closed
					return nil
				}
				for range 10 {
					a.e.Recv(0, 40_000)
					b.e.Recv(0, 40_000)
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
					if b.conn, err = req.Accept(b.e.QP, connParam, verbs.Forever); err != nil {
						_ = req.Reject(nil) // fails if the peer is closed
						return nil
					}
					return exchange(b)
				})
				w.Go("a", func(p *sim.Proc) error {
					p.Sleep(10 * time.Microsecond)
					if a.conn, err = da.cm.Connect(a.e.QP, at(7), connParam, time.Second); err != nil {
						return nil
					}
					return exchange(a)
				})
				w.Go("closer", func(p *sim.Proc) error {
					p.Sleep(10*time.Microsecond + when)
					s := b
					if active {
						s = a
					}
					must.Do(t, closer.close(s))
					if closer.name == "disconnect" && s.conn == nil {
						return da.Close() // end the programs
					}
					return nil
				})
				if err := w.RunPrograms(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if err := w.Run(); err != nil {
					t.Fatalf("%s, after the programs: %v", name, err)
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

func TestClosingListenerRejectsWaitingRequests(t *testing.T) {
	inWorld(t, later(func(_ *sim.Proc, d *Device) {
		_, err := newEnd(t, d).TryConnect(at(7))
		must.Fail(t, "connect", err, verbs.ErrRejected, "rejected by the remote application")
	}), func(p *sim.Proc, d *Device) {
		l := listen(t, d, at(7))
		other := listen(t, d, at(8))
		p.World().Go("next", func(*sim.Proc) error {
			_, err := other.GetRequest(verbs.Forever)
			must.Fail(t, "next", err, verbs.ErrClosed, "get_request [fd00::2]:8")
			return nil
		})
		p.Sleep(2 * time.Millisecond)
		err := errors.Join(l.Close(), other.Close())
		must.Fail(t, "close again", l.Close(), verbs.ErrClosed, "close_listener [fd00::2]:7")
		must.Do(t, err)
	})
}

func TestWindowOfAnotherDeviceIsRejected(t *testing.T) {
	_, d, other := pairInWorld(t, 1, sim.NetConfig{})
	mw := must.Get(newEnd(t, other).PD.AllocMW(verbs.MWType2))(t)
	err := newEnd(t, d).TryPost(verbs.SendWR{Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw}})
	must.Fail(t, "window", err, verbs.ErrInvalid, "the memory window belongs to another device")
}
