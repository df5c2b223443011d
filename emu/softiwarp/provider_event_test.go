package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestCounters(t *testing.T) {
	onConnectedPair(t, sim.NetConfig{}, func(c *connectedPair) {
		c.b.Recv(0, 100)
		c.a.Send(0, 100)
		c.b.AwaitSuccess()
		a, b := c.a.Dev.(*Device), c.b.Dev.(*Device)
		for name, want := range map[string]uint64{
			"conns": 1, "conns_established": 1, "mpa_requests_sent": 1, "mpa_requests_rcvd": 0, "mpa_accepted": 1,
			"rdma_sends": 1, "mpa_sent_fpdus": 2, "cm_fallbacks": 0,
		} {
			if got := counter(a, name); got != want {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		}
		if got := counter(b, "rcvd_sends"); got != 1 {
			t.Errorf("rcvd_sends is %d", got)
		}
		seen := map[string]bool{}
		for i, n := range a.Counters() {
			if seen[n.Name] {
				t.Errorf("%s appears twice", n.Name)
			}
			seen[n.Name] = true
			if other := b.Counters()[i].Name; other != n.Name {
				t.Errorf("counter %d is %s at one device and %s at the other", i, n.Name, other)
			}
		}
	})
}

func TestRemovedAddressLeavesGIDEntryEmpty(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		own := d.cfg.Addrs[0]
		for _, present := range []bool{false, true} {
			set := portOf(d).RemoveAddr
			if present {
				set = portOf(d).AddAddr
			}
			must.Do(t, set(own))
			if e, err := d.WaitAsync(time.Second); err != nil || e.Type != verbs.EventGIDChange || e.Port != 1 {
				t.Errorf("event %v, %v", e.Type, err)
			}
			if e, err := d.QueryGID(1, 0); err != nil || (e.GID == verbs.GIDFrom(own)) != present {
				t.Errorf("present %v: %v, %v", present, e.GID, err)
			}
			for _, at := range []netip.Addr{own, netip.IPv6Unspecified()} {
				l, err := d.cm.Listen(netip.AddrPortFrom(at, 7), verbs.PortSpaceTCP, 1)
				if (err == nil) != present || err != nil && !errors.Is(err, verbs.ErrNotFound) {
					t.Errorf("present %v: listen at %v: %v", present, at, err)
				}
				if err == nil {
					l.Close()
				}
			}
		}
	}, idle)
}

// Two connections receive from one SRQ, each in the order of its messages. Below its limit the SRQ
// raises an event.
func TestSharedReceiveQueue(t *testing.T) {
	const conns, messages = 2, 20
	w, da, db := pairInWorld(t, 3, impaired)
	w.Go("b", func(p *sim.Proc) error {
		e := newEnd(t, db)
		srq := must.Get(db.CreateSRQ(verbs.SRQInit{PD: e.PD, MaxWR: 64, MaxSGE: 1, Limit: 0}))(t)
		for i := range conns * messages {
			must.Get(srq.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: e.SGL(1000*i, 1000)}}))(t)
		}
		must.Do(t, srq.Modify(verbs.SRQAttr{Limit: 5}, verbs.SRQLimit))
		l := listen(t, db, at(9))
		qps := map[verbs.QPN]int{}
		for range conns {
			req := must.Get(l.GetRequest(verbs.Forever))(t)
			qp := must.Get(db.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ, SRQ: srq}))(t)
			if _, err := qp.PostRecv([]verbs.RecvWR{{}}); !errors.Is(err, verbs.ErrInvalid) {
				return fmt.Errorf("PostRecv with an SRQ: %w", err)
			}
			must.Get(req.Accept(qp, connParam, verbs.Forever))(t)
			qps[qp.QPN()] = 0
		}
		for range conns * messages {
			wc := e.AwaitSuccess()
			n, ok := qps[wc.QPN]
			if got := e.Buf[1000*wc.WRID]; !ok || int(got) != n {
				return fmt.Errorf("message %d of %#x, want %d", got, wc.QPN, n)
			}
			qps[wc.QPN]++
		}
		got := map[verbs.AsyncEventType]int{}
		for range 1 + conns {
			ev := must.Get(db.WaitAsync(time.Second))(t)
			got[ev.Type]++
		}
		if got[verbs.EventSRQLimitReached] != 1 || got[verbs.EventQPLastWQEReached] != conns {
			return fmt.Errorf("events %v", got)
		}
		return nil
	})
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		for range conns {
			w.Go("client", func(*sim.Proc) error {
				e, c := connectTo(t, da, at(9))
				for i := range messages {
					e.Buf[0] = byte(i)
					e.Do(verbs.SendWR{Opcode: verbs.OpSend, SGL: e.SGL(0, 900)})
				}
				return c.Disconnect()
			})
		}
		return nil
	})
	must.Do(t, w.RunPrograms())
}

// A send that completes within PostSend raises a completion event.
func TestSendCompletionsCauseEvents(t *testing.T) {
	onConnectedPair(t, sim.NetConfig{}, func(c *connectedPair) {
		c.b.Recv(0, 10)
		must.Do(c, c.a.CQ.ReqNotify(false))
		c.a.Send(0, 10)
		must.Get(c.a.Ch.Wait(0))(c)
		c.a.AwaitSuccess()
	})
}
