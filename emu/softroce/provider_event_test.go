package softroce

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// flushed has e's QP complete a receive in error, which makes an event of it.
func (e *end) flushed() error {
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1}
	if err := e.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return err
	}
	if _, err := e.qp.PostRecv([]verbs.RecvWR{{}}); err != nil {
		return err
	}
	if err := e.cq.ReqNotify(false); err != nil {
		return err
	}
	return e.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
}

func TestClosedCQHasNoCompletionEvents(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		other, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		if other.cq, err = d.CreateCQ(verbs.CQInit{Depth: 4, Channel: e.ch}); err != nil {
			return err
		}
		if other.qp, err = d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.pd, SendCQ: other.cq, RecvCQ: other.cq, Caps: verbs.QPCaps{MaxRecvWR: 1}}); err != nil {
			return err
		}
		if err := e.flushed(); err != nil {
			return err
		}
		if err := other.flushed(); err != nil {
			return err
		}
		if err := e.qp.Close(); err != nil {
			return err
		}
		if err := e.cq.Close(); err != nil {
			return err
		}
		if cq, err := e.ch.Wait(0); cq != other.cq {
			t.Errorf("event of %p, %v; want %p", cq, err, other.cq)
		}
		if _, err := e.ch.Wait(0); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("one more event: %v", err)
		}
		return nil
	}, idle)
}

func TestClosingObjectsRemovesTheirEvents(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		small := func() (*end, error) {
			e, err := newEnd(d, verbs.QPTypeRC)
			if err != nil {
				return nil, err
			}
			if err := e.qp.Close(); err != nil {
				return nil, err
			}
			// Two receives flushed to a queue of one: the CQ overruns.
			if err := e.cq.Resize(1); err != nil {
				return nil, err
			}
			if e.qp, err = d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.QPCaps{MaxRecvWR: 2}}); err != nil {
				return nil, err
			}
			attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1}
			if err := e.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
				return nil, err
			}
			if _, err := e.qp.PostRecv(make([]verbs.RecvWR, 2)); err != nil {
				return nil, err
			}
			return e, e.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		}
		gone, err := small()
		if err != nil {
			return err
		}
		kept, err := small()
		if err != nil {
			return err
		}
		if err := gone.qp.Close(); err != nil {
			return err
		}
		if err := gone.cq.Close(); err != nil {
			return err
		}
		if e, err := d.WaitAsync(0); err != nil || e.Type != verbs.EventCQErr || e.CQ != kept.cq {
			t.Errorf("got %+v, %v; want the error of %p", e, err, kept.cq)
		}
		for {
			e, err := d.WaitAsync(0)
			if errors.Is(err, verbs.ErrTimeout) {
				return nil
			}
			if err != nil || e.CQ == gone.cq || e.QP == gone.qp {
				t.Errorf("got %+v, %v", e, err)
				return err
			}
		}
	}, idle)
}

// skipping is a link that loses the n-th datagram sent.
type skipping struct {
	*sim.Port
	n int
}

func (l *skipping) Send(now mono.Time, ds []link.Datagram) (int, error) {
	for i := range ds {
		if l.n--; l.n == 0 {
			continue
		}
		if n, err := l.Port.Send(now, ds[i:i+1]); n == 0 {
			l.n++
			return i, err
		}
	}
	return len(ds), nil
}

// Data that overtakes the message which completes a connection completes it,
// also while nobody takes events and there is no room for the one about it.
func TestEventQueueOverflowIsCounted(t *testing.T) {
	w := sim.New(sim.Config{Seed: 1})
	cfg := func(addr netip.Addr) sim.PortConfig {
		return sim.PortConfig{Addrs: []netip.Addr{addr}, Link: sim.LinkConfig{Latency: time.Microsecond, MTU: 4200}}
	}
	pa, pb, err := sim.NewPair(w, sim.NetConfig{}, cfg(addrA), cfg(addrB))
	if err != nil {
		t.Fatal(err)
	}
	a, err := InWorld(w, pa, &skipping{pa, 2}, Config{Name: "a"}) // REQ, then RTU
	if err != nil {
		t.Fatal(err)
	}
	b, err := InWorld(w, pb, pb, Config{Name: "b", NIC: engine.Config{Limits: engine.Limits{Limits: nic.Limits{PendingEvents: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	b.nic.SetPort(false)
	b.nic.SetPort(true) // the one event that fits was the other
	at := netip.AddrPortFrom(addrB, 7)
	w.Go("b", func(p *sim.Proc) error {
		_, err := acceptOne(b, at, func() {})
		if p.Now() > 10*time.Millisecond {
			t.Errorf("accepted at %v: not before the reply was sent again", p.Now())
		}
		return err
	})
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		e, _, err := connectTo(a, at)
		if err != nil {
			return err
		}
		_, err = e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend}})
		return err
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	if got := counter(b, "events_lost"); got != 2 {
		t.Errorf("%d events lost", got)
	}
	if e, err := b.WaitAsync(0); err != nil || e.Type != verbs.EventPortErr {
		t.Errorf("oldest event %v, %v", e.Type, err)
	}
}

func counter(d *Device, name string) uint64 {
	for _, c := range d.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

func TestCountersIncludeNICAndCM(t *testing.T) {
	w, a, b := pairInWorld(t, 1, impair.Config{})
	at := netip.AddrPortFrom(addrB, 7)
	w.Go("b", func(*sim.Proc) error {
		_, err := acceptOne(b, at, func() {})
		return err
	})
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		_, _, err := connectTo(a, at)
		return err
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"mads_sent": 2, "cm_sent_req": 1, "cm_rcvd_rep": 1, "cm_sent_rtu": 1, "cm_sent_rep": 0, "cm_bad_length": 0} {
		if got := counter(a, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	seen := map[string]bool{}
	manager := false
	for i, c := range a.Counters() {
		if seen[c.Name] {
			t.Errorf("%s appears twice", c.Name)
		}
		seen[c.Name] = true
		if other := b.Counters()[i].Name; other != c.Name {
			t.Errorf("counter %d is %s here and %s there", i, c.Name, other)
		}
		if manager && !strings.HasPrefix(c.Name, "cm_") {
			t.Errorf("%s stands among the connection manager's", c.Name)
		}
		manager = manager || strings.HasPrefix(c.Name, "cm_")
	}
}
