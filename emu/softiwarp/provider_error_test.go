package softiwarp

import (
	"bytes"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// An error of one side makes the other send a Terminate. Both get an event, and completions
// with errors.
func TestErrorsTerminateConnectionAndAreReported(t *testing.T) {
	none := func(*connectedPair) {}
	for _, tc := range []struct {
		name    string
		prepare func(c *connectedPair)
		wrong   func(c *connectedPair) verbs.SendWR
		term    wire.TermError
		event   verbs.AsyncEventType // at b
		status  verbs.WCStatus       // of a's request; success if it completes before the error
		recv    verbs.WCStatus       // of b's receive, if posted
	}{
		{
			"send without a receive", none,
			func(c *connectedPair) verbs.SendWR { return verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.SGL(0, 10)} },
			wire.TermUntaggedNoBuffer, verbs.EventQPReqErr, verbs.WCSuccess, 0,
		},
		{
			"send too long", func(c *connectedPair) { c.b.Recv(0, 10) },
			func(c *connectedPair) verbs.SendWR { return verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.SGL(0, 11)} },
			wire.TermUntaggedTooLong, verbs.EventQPReqErr, verbs.WCSuccess, verbs.WCLocLenErr,
		},
		{
			"write with a wrong key", none,
			func(c *connectedPair) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.SGL(0, 10), Remote: verbs.Remote{Addr: c.b.MR.Addr(), RKey: c.b.MR.RKey() ^ 0x5500}}
			},
			wire.TermTaggedSTag, verbs.EventQPAccessErr, verbs.WCSuccess, 0,
		},
		{
			"write out of bounds", none,
			func(c *connectedPair) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.SGL(0, 10), Remote: c.b.Remote(len(c.b.Buf) - 9)}
			},
			wire.TermTaggedBounds, verbs.EventQPAccessErr, verbs.WCSuccess, 0,
		},
		{
			"read with a wrong key", none,
			func(c *connectedPair) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.a.SGL(0, 10), Remote: verbs.Remote{Addr: c.b.MR.Addr(), RKey: c.b.MR.RKey() ^ 0x5500}}
			},
			wire.TermProtInvalidSTag, verbs.EventQPAccessErr, verbs.WCRemAccessErr, 0,
		},
		{
			"read out of bounds", none,
			func(c *connectedPair) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.a.SGL(0, 10), Remote: c.b.Remote(len(c.b.Buf) - 9)}
			},
			wire.TermProtBounds, verbs.EventQPAccessErr, verbs.WCRemAccessErr, 0,
		},
		{
			"read that the QP does not permit",
			func(c *connectedPair) {
				must.Do(c, c.b.QP.Modify(verbs.QPAttr{Access: verbs.AccessRemoteWrite}, verbs.QPAttrAccessFlags))
			},
			func(c *connectedPair) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.a.SGL(0, 10), Remote: c.b.Remote(0)}
			},
			wire.TermProtAccess, verbs.EventQPAccessErr, verbs.WCRemAccessErr, 0,
		},
		{
			"remote invalidation of an unknown key", func(c *connectedPair) { c.b.Recv(0, 10) },
			func(c *connectedPair) verbs.SendWR {
				return verbs.SendWR{Opcode: verbs.OpSendInv, SGL: c.a.SGL(0, 10), InvalidateRKey: 0x123400}
			},
			wire.TermProtNoInvalidate, verbs.EventQPAccessErr, verbs.WCSuccess, verbs.WCRemInvReqErr,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onConnectedPair(t, impaired, func(c *connectedPair) {
				tc.prepare(c)
				wr := tc.wrong(c)
				wr.WRID, wr.Flags = 1, verbs.SendSignaled
				c.a.Recv(0, 10)
				c.a.Post(wr)
				if wc := c.a.ExpectWC(tc.status); wc.WRID != 1 {
					t.Errorf("first completion %+v", wc)
				}
				// a's receive is flushed, with the Terminate as vendor error.
				wc := c.a.ExpectWC(verbs.WCWRFlushErr)
				if wc.VendorErr != engine.VendorError(tc.term, true) {
					t.Errorf("a's vendor error %#x, want %v, received", wc.VendorErr, tc.term)
				}
				if tc.recv != 0 {
					c.b.ExpectWC(tc.recv)
				}
				for _, x := range []struct {
					conn  verbs.Conn
					e     *end
					event verbs.AsyncEventType
				}{{c.ca, c.a, verbs.EventQPFatal}, {c.cb, c.b, tc.event}} {
					must.Do(t, x.conn.WaitDisconnect(time.Second))
					if ev, err := x.e.Dev.WaitAsync(time.Second); err != nil || ev.Type != x.event || ev.QP != x.e.QP {
						t.Errorf("event %v of %v, %v; want %v", ev.Type, ev.QP, err, x.event)
					}
					if a, err := x.e.QP.Query(); err != nil || a.State != verbs.QPStateErr {
						t.Errorf("QP in %v, %v", a.State, err)
					}
				}
				for name, d := range map[string]verbs.Context{"rcvd_terminates": c.a.Dev, "sent_terminates": c.b.Dev} {
					if n := counter(d.(*Device), name); n != 1 {
						t.Errorf("%s is %d", name, n)
					}
				}
				// A receive posted now is flushed at once, with the same vendor error.
				c.b.Send(0, 1)
				wc = c.b.ExpectWC(verbs.WCWRFlushErr)
				if wc.VendorErr != engine.VendorError(tc.term, false) {
					t.Errorf("b's vendor error %#x, want %v, sent", wc.VendorErr, tc.term)
				}
			})
		})
	}
}

// A request that fails locally terminates the connection.
func TestLocalErrorFailsItsRequest(t *testing.T) {
	onConnectedPair(t, impaired, func(c *connectedPair) {
		wr := verbs.SendWR{WRID: 5, Opcode: verbs.OpSend, SGL: []verbs.SGE{{Addr: c.a.MR.Addr(), Length: 1, LKey: c.a.MR.LKey() ^ 0x5500}}}
		c.a.Post(wr)
		if wc := c.a.ExpectWC(verbs.WCLocProtErr); wc.WRID != 5 {
			t.Errorf("completed %+v", wc)
		}
		if e, err := c.b.Dev.WaitAsync(time.Second); err != nil || e.Type != verbs.EventQPFatal {
			t.Errorf("the peer got %v, %v", e.Type, err)
		}
		must.Do(c, c.cb.WaitDisconnect(time.Second))
	})
}

// The CRC, if enabled, detects a bit inverted below TCP.
func TestCRCDetectsCorruption(t *testing.T) {
	for _, crc := range []bool{true, false} {
		net := sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{
			{Conn: 1, Offset: 5000, Action: sim.StreamCorrupt, Bit: 3},
		}}}
		cfg := Config{NIC: engine.Config{MPA: mpa.Config{NoCRC: !crc}}}
		onConnectedPair(t, net, func(c *connectedPair) {
			c.b.Recv(0, 8000)
			want := c.a.Fill(0, 8000, 1)
			c.a.Send(0, 8000)
			if !crc {
				c.b.AwaitSuccess()
				if bytes.Equal(want, c.b.Buf[:8000]) {
					t.Error("nothing was corrupted")
				}
				return
			}
			wc := c.b.ExpectWC(verbs.WCWRFlushErr)
			if wc.VendorErr != engine.VendorError(wire.TermMPACRC, false) {
				t.Errorf("vendor error %#x", wc.VendorErr)
			}
			if e, err := c.b.Dev.WaitAsync(time.Second); err != nil || e.Type != verbs.EventQPFatal {
				t.Errorf("event %v, %v", e.Type, err)
			}
			if n := counter(c.b.Dev.(*Device), "mpa_bad_crcs"); n != 1 {
				t.Errorf("%d bad CRCs", n)
			}
			must.Do(c, c.ca.WaitDisconnect(time.Second))
		}, cfg, cfg)
	}
}

// If a stream is reset, the queue pairs of both sides fail.
func TestResetStreamFlushesBothSides(t *testing.T) {
	net := sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{
		{Conn: 1, Offset: 30_000, Action: sim.StreamReset},
	}}}
	onConnectedPair(t, net, func(c *connectedPair) {
		for _, e := range []*end{c.a, c.b} {
			e.Recv(0, 60_000)
		}
		c.a.Send(0, 60_000)
		c.b.ExpectWC(verbs.WCWRFlushErr)
		must.Do(c, c.cb.WaitDisconnect(time.Second))
		must.Do(c, c.ca.WaitDisconnect(time.Second))
		for _, e := range []*end{c.a, c.b} {
			if ev, err := e.Dev.WaitAsync(time.Second); err != nil || ev.Type != verbs.EventQPFatal || ev.QP != e.QP {
				t.Errorf("event %v, %v", ev.Type, err)
			}
			if n := counter(e.Dev.(*Device), "mpa_lost"); n != 1 {
				t.Errorf("mpa_lost is %d", n)
			}
			if a, err := e.QP.Query(); err != nil || a.State != verbs.QPStateErr {
				t.Errorf("QP in %v, %v", a.State, err)
			}
		}
	})
}

// If a link stays down, the stream breaks when TCP times out, and not before.
func TestLinkDownBreaksConnectionsAfterTimeout(t *testing.T) {
	net := sim.NetConfig{Stream: sim.StreamConfig{RetryDelay: time.Millisecond, Retries: 4}}
	w, da, db := pairInWorld(t, 1, net)
	w.Go("both", func(p *sim.Proc) error {
		c := newConnectedPair(t, p, da, db)
		c.a.Recv(0, 10)
		portOf(da).SetDown()
		if e, err := da.WaitAsync(time.Second); err != nil || e.Type != verbs.EventPortErr || e.Port != 1 {
			t.Errorf("event %v, %v", e.Type, err)
		}
		if a, err := da.QueryPort(1); err != nil || a.State != verbs.PortDown {
			t.Errorf("port %v, %v", a.State, err)
		}
		c.a.Post(verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.SGL(0, 10)})
		before := p.Now()
		c.a.ExpectWC(verbs.WCWRFlushErr)
		if took := p.Now() - before; took < 10*time.Millisecond {
			t.Errorf("disconnected after %v", took)
		}
		return nil
	})
	must.Do(t, w.RunPrograms())
}
