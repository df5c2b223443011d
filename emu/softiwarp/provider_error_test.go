package softiwarp

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// An error of one side makes the other send a Terminate. Both get an event, and completions
// with errors.
func TestErrorsTerminateConnectionAndAreReported(t *testing.T) {
	none := func(*couple) error { return nil }
	for _, tc := range []struct {
		name    string
		prepare func(c *couple) error
		wrong   func(c *couple) verbs.SendWR
		term    wire.TermError
		event   verbs.AsyncEventType // at b
		status  verbs.WCStatus       // of a's request; success where it is done before anybody knows
		recv    verbs.WCStatus       // of b's receive, if it has one
	}{
		{
			"send without a receive", none,
			func(c *couple) verbs.SendWR { return verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.sgl(0, 10)} },
			wire.TermUntaggedNoBuffer, verbs.EventQPReqErr, verbs.WCSuccess, 0,
		},
		{
			"send too long", func(c *couple) error { return c.b.recv(0, 10) },
			func(c *couple) verbs.SendWR { return verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.sgl(0, 11)} },
			wire.TermUntaggedTooLong, verbs.EventQPReqErr, verbs.WCSuccess, verbs.WCLocLenErr,
		},
		{
			"write with a wrong key", none,
			func(c *couple) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.sgl(0, 10), Remote: verbs.Remote{Addr: c.b.mr.Addr(), RKey: c.b.mr.RKey() ^ 0x5500}}
			},
			wire.TermTaggedSTag, verbs.EventQPAccessErr, verbs.WCSuccess, 0,
		},
		{
			"write out of bounds", none,
			func(c *couple) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.sgl(0, 10), Remote: c.b.at(len(c.b.buf) - 9)}
			},
			wire.TermTaggedBounds, verbs.EventQPAccessErr, verbs.WCSuccess, 0,
		},
		{
			"read with a wrong key", none,
			func(c *couple) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.a.sgl(0, 10), Remote: verbs.Remote{Addr: c.b.mr.Addr(), RKey: c.b.mr.RKey() ^ 0x5500}}
			},
			wire.TermProtInvalidSTag, verbs.EventQPAccessErr, verbs.WCRemAccessErr, 0,
		},
		{
			"read out of bounds", none,
			func(c *couple) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.a.sgl(0, 10), Remote: c.b.at(len(c.b.buf) - 9)}
			},
			wire.TermProtBounds, verbs.EventQPAccessErr, verbs.WCRemAccessErr, 0,
		},
		{
			"read that the QP does not permit",
			func(c *couple) error {
				return c.b.qp.Modify(verbs.QPAttr{Access: verbs.AccessRemoteWrite}, verbs.QPAttrAccessFlags)
			},
			func(c *couple) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.a.sgl(0, 10), Remote: c.b.at(0)}
			},
			wire.TermProtAccess, verbs.EventQPAccessErr, verbs.WCRemAccessErr, 0,
		},
		{
			"invalidation of what cannot be", func(c *couple) error { return c.b.recv(0, 10) },
			func(c *couple) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpSendInv, SGL: c.a.sgl(0, 10), InvalidateRKey: 0x123400}
			},
			wire.TermProtNoInvalidate, verbs.EventQPAccessErr, verbs.WCSuccess, verbs.WCRemInvReqErr,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			coupled(t, rough, func(c *couple) error {
				if err := tc.prepare(c); err != nil {
					return err
				}
				wr := tc.wrong(c)
				wr.WRID, wr.Flags = 1, verbs.SendSignaled
				if err := c.a.recv(0, 10); err != nil {
					return err
				}
				if err := c.a.post(wr); err != nil {
					return err
				}
				if wc := c.mustFail(c.a, tc.status); wc.WRID != 1 {
					t.Errorf("first completion %+v", wc)
				}
				// a's receive is flushed, and says why.
				wc := c.mustFail(c.a, verbs.WCWRFlushErr)
				if e, received, ok := engine.TerminateOf(wc.VendorErr); e != tc.term || !received || !ok {
					t.Errorf("a's vendor error %#x is %v, received %v", wc.VendorErr, e, received)
				}
				if tc.recv != 0 {
					c.mustFail(c.b, tc.recv)
				}
				for _, x := range []struct {
					conn  verbs.Conn
					e     *end
					event verbs.AsyncEventType
				}{{c.ca, c.a, verbs.EventQPFatal}, {c.cb, c.b, tc.event}} {
					if err := x.conn.WaitDisconnect(time.Second); err != nil {
						t.Error(err)
					}
					if ev, err := x.e.dev.WaitAsync(time.Second); err != nil || ev.Type != x.event || ev.QP != x.e.qp {
						t.Errorf("event %v of %v, %v; want %v", ev.Type, ev.QP, err, x.event)
					}
					if a, err := x.e.qp.Query(); err != nil || a.State != verbs.QPStateErr {
						t.Errorf("QP in %v, %v", a.State, err)
					}
				}
				for name, d := range map[string]verbs.Context{"rcvd_terminates": c.a.dev, "sent_terminates": c.b.dev} {
					if n := counter(d.(*Device), name); n != 1 {
						t.Errorf("%s is %d", name, n)
					}
				}
				// What is posted now is flushed at once, and says the same.
				if err := c.b.send(0, 1); err != nil {
					return err
				}
				wc = c.mustFail(c.b, verbs.WCWRFlushErr)
				if e, received, _ := engine.TerminateOf(wc.VendorErr); e != tc.term || received {
					t.Errorf("b's vendor error is %v, received %v", e, received)
				}
				return nil
			})
		})
	}
}

// A request that cannot be carried out here ends the connection too.
func TestLocalErrorFailsItsRequest(t *testing.T) {
	coupled(t, rough, func(c *couple) error {
		wr := verbs.SendWR{WRID: 5, Opcode: verbs.OpSend, SGL: []verbs.SGE{{Addr: c.a.mr.Addr(), Length: 1, LKey: c.a.mr.LKey() ^ 0x5500}}}
		if err := c.a.post(wr); err != nil {
			return err
		}
		if wc := c.mustFail(c.a, verbs.WCLocProtErr); wc.WRID != 5 {
			t.Errorf("completed %+v", wc)
		}
		if e, err := c.b.dev.WaitAsync(time.Second); err != nil || e.Type != verbs.EventQPFatal {
			t.Errorf("the peer got %v, %v", e.Type, err)
		}
		return c.cb.WaitDisconnect(time.Second)
	})
}

// A bit that TCP let through inverted is found by the CRC, if there is one.
func TestCRCDetectsCorruption(t *testing.T) {
	for _, crc := range []bool{true, false} {
		net := sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{
			{Conn: 1, Offset: 5000, Action: sim.StreamCorrupt, Bit: 3},
		}}}
		cfg := Config{NIC: engine.Config{MPA: mpa.Config{NoCRC: !crc}}}
		coupled(t, net, func(c *couple) error {
			if err := c.b.recv(0, 8000); err != nil {
				return err
			}
			want := c.a.fill(0, 8000, 1)
			if err := c.a.send(0, 8000); err != nil {
				return err
			}
			if !crc {
				if _, err := c.b.succeed(); err != nil {
					return err
				}
				if same(want, c.b.buf[:8000]) == nil {
					t.Error("nothing was corrupted")
				}
				return nil
			}
			wc := c.mustFail(c.b, verbs.WCWRFlushErr)
			if e, received, _ := engine.TerminateOf(wc.VendorErr); e != wire.TermMPACRC || received {
				t.Errorf("vendor error %v", e)
			}
			if e, err := c.b.dev.WaitAsync(time.Second); err != nil || e.Type != verbs.EventQPFatal {
				t.Errorf("event %v, %v", e.Type, err)
			}
			if n := counter(c.b.dev.(*Device), "mpa_bad_crcs"); n != 1 {
				t.Errorf("%d bad CRCs", n)
			}
			return c.ca.WaitDisconnect(time.Second)
		}, cfg, cfg)
	}
}

// A stream that breaks takes the queue pairs on both sides with it.
func TestResetStreamFlushesBothSides(t *testing.T) {
	net := sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{
		{Conn: 1, Offset: 30_000, Action: sim.StreamReset},
	}}}
	coupled(t, net, func(c *couple) error {
		for _, e := range []*end{c.a, c.b} {
			if err := e.recv(0, 60_000); err != nil {
				return err
			}
		}
		if err := c.a.send(0, 60_000); err != nil {
			return err
		}
		c.mustFail(c.b, verbs.WCWRFlushErr)
		if err := c.cb.WaitDisconnect(time.Second); err != nil {
			return err
		}
		if err := c.ca.WaitDisconnect(time.Second); err != nil {
			return err
		}
		for _, e := range []*end{c.a, c.b} {
			if ev, err := e.dev.WaitAsync(time.Second); err != nil || ev.Type != verbs.EventQPFatal || ev.QP != e.qp {
				t.Errorf("event %v, %v", ev.Type, err)
			}
			if n := counter(e.dev.(*Device), "mpa_lost"); n != 1 {
				t.Errorf("%d streams were lost", n)
			}
			if a, err := e.qp.Query(); err != nil || a.State != verbs.QPStateErr {
				t.Errorf("QP in %v, %v", a.State, err)
			}
		}
		return nil
	})
}

// Where a link goes down for good the stream breaks once TCP gives up; until then
// all waits.
func TestLinkDownBreaksConnectionsAfterTimeout(t *testing.T) {
	net := sim.NetConfig{Stream: sim.StreamConfig{RetryDelay: time.Millisecond, Retries: 4}}
	w, da, db := pairInWorld(t, 1, net)
	w.Go("both", func(p *sim.Proc) error {
		c := &couple{t: t, p: p}
		if err := c.connect(da, db); err != nil {
			return err
		}
		if err := c.a.recv(0, 10); err != nil {
			return err
		}
		portOf(da).SetDown()
		if e, err := da.WaitAsync(time.Second); err != nil || e.Type != verbs.EventPortErr || e.Port != 1 {
			t.Errorf("event %v, %v", e.Type, err)
		}
		if a, err := da.QueryPort(1); err != nil || a.State != verbs.PortDown {
			t.Errorf("port %v, %v", a.State, err)
		}
		if err := c.a.post(verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.sgl(0, 10)}); err != nil {
			return err
		}
		before := p.Now()
		c.mustFail(c.a, verbs.WCWRFlushErr)
		if took := p.Now() - before; took < 10*time.Millisecond {
			t.Errorf("broke after %v", took)
		}
		return nil
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}
