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
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// flush makes the QP of an end flush a receive, which causes a completion event.
func flush(e *end) {
	must.Do(e, e.QP.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, toInit))
	must.Get(e.QP.PostRecv([]verbs.RecvWR{{}}))(e)
	must.Do(e, e.CQ.ReqNotify(false))
	e.SetState(verbs.QPStateErr)
}

func TestClosedCQHasNoCompletionEvents(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		e := newEnd(t, d)
		other := newEnd(t, d)
		other.CQ = must.Get(d.CreateCQ(verbs.CQInit{Depth: 4, Channel: e.Ch}))(t)
		other.QP = must.Get(d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.PD, SendCQ: other.CQ, RecvCQ: other.CQ, Caps: verbs.QPCaps{MaxRecvWR: 1}}))(t)
		flush(e)
		flush(other)
		must.Do(t, e.QP.Close())
		must.Do(t, e.CQ.Close())
		if cq, err := e.Ch.Wait(0); cq != other.CQ {
			t.Errorf("event of %p, %v; want %p", cq, err, other.CQ)
		}
		must.Fail(t, "one more event", must.Err(e.Ch.Wait(0)), verbs.ErrTimeout)
	}, idle)
}

// A UD send completes when it is sent, and its event does not wait for a packet.
func TestSentDatagramCausesCompletionEvent(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		e := providertest.NewEnd(t, d, verbs.QPTypeUD)
		e.ReadyUD(1)
		ah := must.Get(e.PD.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(addrB), HopLimit: 64}}))(t)
		must.Do(t, e.CQ.ReqNotify(false))
		must.Get(e.QP.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: e.SGL(0, 8), UD: verbs.UD{AH: ah, QPN: 99, QKey: 1}}}))(t)
		if cq, err := e.Ch.Wait(time.Second); cq != e.CQ {
			t.Errorf("event of %p, %v; want %p", cq, err, e.CQ)
		}
	}, idle)
}

func TestClosingObjectsRemovesTheirEvents(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		overrunCQ := func() *end {
			e := newEnd(t, d)
			must.Do(t, e.QP.Close())
			// Two receives flushed to a queue of one: the CQ overruns.
			must.Do(t, e.CQ.Resize(1))
			e.QP = must.Get(d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ, Caps: verbs.QPCaps{MaxRecvWR: 2}}))(t)
			must.Do(t, e.QP.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, toInit))
			must.Get(e.QP.PostRecv(make([]verbs.RecvWR, 2)))(t)
			e.SetState(verbs.QPStateErr)
			return e
		}
		closed := overrunCQ()
		open := overrunCQ()
		must.Do(t, closed.QP.Close())
		must.Do(t, closed.CQ.Close())
		if e, err := d.WaitAsync(0); err != nil || e.Type != verbs.EventCQErr || e.CQ != open.CQ {
			t.Errorf("got %+v, %v; want the error of %p", e, err, open.CQ)
		}
		for {
			e, err := d.WaitAsync(0)
			if errors.Is(err, verbs.ErrTimeout) {
				return
			}
			if err != nil || e.CQ == closed.CQ || e.QP == closed.QP {
				t.Fatalf("got %+v, %v", e, err)
			}
		}
	}, idle)
}

// lossyLink loses the n-th datagram sent.
type lossyLink struct {
	*sim.Port
	n int
}

func (l *lossyLink) Send(now mono.Time, ds []link.Datagram) (int, error) {
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

// Data that arrives before a lost RTU establishes the connection, even if the event queue is
// full; the lost events are counted.
func TestDataEstablishesConnectionWithFullEventQueue(t *testing.T) {
	w, ports := providertest.Cable{Seed: 1, Link: sim.LinkConfig{Latency: time.Microsecond, MTU: 4200}}.Open(t)
	a := openOn(t, w, ports[0], &lossyLink{ports[0], 2}, Config{Name: "a"}) // sends REQ, then RTU
	b := openOn(t, w, ports[1], ports[1], Config{Name: "b", NIC: engine.Config{Limits: engine.Limits{Limits: nic.Limits{PendingEvents: 1}}}})
	b.nic.SetPort(false)
	b.nic.SetPort(true) // its event is lost: the queue has one entry
	at := netip.AddrPortFrom(addrB, 7)
	w.Go("b", func(p *sim.Proc) error {
		acceptOne(t, b, at)
		if p.Now() > 10*time.Millisecond {
			t.Errorf("accepted at %v: after the REP was retransmitted", p.Now())
		}
		return nil
	})
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		e, _ := providertest.Connect(t, a, at)
		return e.TryPost(verbs.SendWR{Opcode: verbs.OpSend})
	})
	must.Do(t, w.RunPrograms())
	if got := counter(b, "events_lost"); got != 2 {
		t.Errorf("%d events lost", got)
	}
	if e, err := b.WaitAsync(0); err != nil || e.Type != verbs.EventPortErr {
		t.Errorf("oldest event %v, %v", e.Type, err)
	}
}

func TestCountersIncludeNICAndCM(t *testing.T) {
	w, a, b := pairInWorld(t, 1, impair.Config{})
	at := netip.AddrPortFrom(addrB, 7)
	w.Go("b", func(*sim.Proc) error { acceptOne(t, b, at); return nil })
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		providertest.Connect(t, a, at)
		return nil
	})
	must.Do(t, w.RunPrograms())
	for name, want := range map[string]uint64{"mads_sent": 2, "cm_sent_req": 1, "cm_rcvd_rep": 1, "cm_sent_rtu": 1, "cm_sent_rep": 0, "cm_bad_length": 0} {
		if got := counter(a, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	afterCM := false
	for _, c := range a.Counters() {
		if afterCM && !strings.HasPrefix(c.Name, "cm_") {
			t.Errorf("%s is listed among the counters of the CM", c.Name)
		}
		afterCM = afterCM || strings.HasPrefix(c.Name, "cm_")
	}
}
