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

// counter is the value of a counter, which there must be.
func counter(d *Device, name string) uint64 {
	for _, c := range d.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no counter " + name)
}

func TestCounters(t *testing.T) {
	coupled(t, sim.NetConfig{}, func(c *couple) error {
		if err := c.b.recv(0, 100); err != nil {
			return err
		}
		if err := c.a.send(0, 100); err != nil {
			return err
		}
		if _, err := c.b.succeed(); err != nil {
			return err
		}
		a, b := c.a.dev.(*Device), c.b.dev.(*Device)
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
				t.Errorf("counter %d is %s here and %s there", i, n.Name, other)
			}
		}
		return nil
	})
}

func TestPortEventsFollowLink(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		portOf(d).SetDown()
		for _, want := range []verbs.AsyncEventType{verbs.EventPortErr, verbs.EventPortActive} {
			e, err := d.WaitAsync(time.Second)
			if err != nil || e.Type != want || e.Port != 1 {
				t.Errorf("got %v, %v; want %v", e.Type, err, want)
			}
			portOf(d).SetUp()
		}
		return nil
	}, idle)
}

func TestRemovedAddressLeavesGIDEntryEmpty(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		own := d.cfg.Addrs[0]
		for _, present := range []bool{false, true} {
			set := portOf(d).RemoveAddr
			if present {
				set = portOf(d).AddAddr
			}
			if err := set(own); err != nil {
				return err
			}
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
		return nil
	}, idle)
}

// A queue that is armed for solicited completions wakes for those, and for
// failures.
func TestSolicitedEvents(t *testing.T) {
	coupled(t, sim.NetConfig{}, func(c *couple) error {
		for range 3 {
			if err := c.b.recv(0, 10); err != nil {
				return err
			}
		}
		if err := c.b.cq.ReqNotify(true); err != nil {
			return err
		}
		if err := c.a.do(verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.sgl(0, 10)}); err != nil {
			return err
		}
		if _, err := c.b.ch.Wait(time.Second); !errors.Is(err, verbs.ErrTimeout) {
			return fmt.Errorf("unsolicited: %w", err)
		}
		if err := c.a.do(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSolicited, SGL: c.a.sgl(0, 10)}); err != nil {
			return err
		}
		if cq, err := c.b.ch.Wait(time.Second); err != nil || cq != c.b.cq {
			return fmt.Errorf("solicited: %w", err)
		}
		for range 2 {
			if _, err := c.b.succeed(); err != nil {
				return err
			}
		}
		if err := c.b.cq.ReqNotify(true); err != nil {
			return err
		}
		if err := c.a.qp.Close(); err != nil {
			return err
		}
		if _, err := c.b.ch.Wait(time.Second); err != nil {
			return fmt.Errorf("failure: %w", err)
		}
		c.mustFail(c.b, verbs.WCWRFlushErr)
		return nil
	})
}

// Two connections take their receives from one queue, each in the order in which
// its messages came, and say when there are few left.
func TestSharedReceiveQueue(t *testing.T) {
	const conns, messages = 2, 20
	w, da, db := pairInWorld(t, 3, rough)
	w.Go("b", func(p *sim.Proc) error {
		e, err := newEnd(db)
		if err != nil {
			return err
		}
		srq, err := db.CreateSRQ(verbs.SRQInit{PD: e.pd, MaxWR: 64, MaxSGE: 1, Limit: 0})
		if err != nil {
			return err
		}
		for i := range conns * messages {
			if _, err := srq.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: e.sgl(1000*i, 1000)}}); err != nil {
				return err
			}
		}
		if err := srq.Modify(verbs.SRQAttr{Limit: 5}, verbs.SRQLimit); err != nil {
			return err
		}
		l, err := db.cm.Listen(at(9), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		qps := map[verbs.QPN]int{}
		for range conns {
			req, err := l.GetRequest(verbs.Forever)
			if err != nil {
				return err
			}
			qp, err := db.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq})
			if err != nil {
				return err
			}
			if _, err := qp.PostRecv([]verbs.RecvWR{{}}); !errors.Is(err, verbs.ErrInvalid) {
				return fmt.Errorf("a receive of its own: %w", err)
			}
			if _, err := req.Accept(qp, connParam, verbs.Forever); err != nil {
				return err
			}
			qps[qp.QPN()] = 0
		}
		for range conns * messages {
			wc, err := e.succeed()
			if err != nil {
				return err
			}
			n, ok := qps[wc.QPN]
			if got := e.buf[1000*wc.WRID]; !ok || int(got) != n {
				return fmt.Errorf("message %d of %#x where %d was due", got, wc.QPN, n)
			}
			qps[wc.QPN]++
		}
		got := map[verbs.AsyncEventType]int{}
		for range 1 + conns {
			ev, err := db.WaitAsync(time.Second)
			if err != nil {
				return err
			}
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
				e, c, err := connectTo(da, at(9))
				if err != nil {
					return err
				}
				for i := range messages {
					e.buf[0] = byte(i)
					if err := e.do(verbs.SendWR{Opcode: verbs.OpSend, SGL: e.sgl(0, 900)}); err != nil {
						return err
					}
				}
				return c.Disconnect()
			})
		}
		return nil
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}

// The completion of a send that leaves with a post, and wakes nobody on the way,
// is announced all the same.
func TestSendCompletionsCauseEvents(t *testing.T) {
	coupled(t, sim.NetConfig{}, func(c *couple) error {
		if err := c.b.recv(0, 10); err != nil {
			return err
		}
		if err := c.a.cq.ReqNotify(false); err != nil {
			return err
		}
		if err := c.a.send(0, 10); err != nil {
			return err
		}
		if _, err := c.a.ch.Wait(0); err != nil {
			return err
		}
		_, err := c.a.succeed()
		return err
	})
}
