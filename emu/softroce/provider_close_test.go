package softroce

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestXRCTargetHandlesCloseIndependently(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		x := must.Get(d.OpenXRCD())(t)
		first := must.Get(d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x}))(t)
		second := must.Get(d.OpenQP(x, first.QPN()))(t)
		third := must.Get(d.OpenQP(x, first.QPN()))(t)
		if first == second || second == third {
			t.Error("handles are shared")
		}
		must.Do(t, first.Close())
		must.Fail(t, "closed twice", first.Close(), verbs.ErrClosed)
		if h := second.(*queuePair).handles; len(h) != 2 || h[0] != second {
			t.Errorf("events go to %v", h)
		}
		must.Do(t, second.Close())
		if _, err := third.Query(); err != nil {
			t.Errorf("the last handle: %v", err)
		}
		must.Do(t, third.Close())
		_, err := d.OpenQP(x, first.QPN())
		must.Fail(t, "open of a QP that is gone", err, verbs.ErrNotFound)
		must.Do(t, x.Close())
	}, idle)
}

// A connection belongs to the queue pair, not to the handle it was made with.
func TestConnectionSurvivesCloseOfOneHandle(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		x := must.Get(d.OpenXRCD())(t)
		first := must.Get(d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x}))(t)
		second := must.Get(d.OpenQP(x, first.QPN()))(t)
		p := first.(*queuePair).qpState
		p.conn = &connection{m: &d.cm, qp: p, cond: d.Driver().NewCond(nil)}
		if err := first.Close(); err != nil || p.conn == nil {
			t.Errorf("%v, connection %v", err, p.conn)
		}
		if err := second.Close(); err != nil || p.conn != nil {
			t.Errorf("%v, connection %v", err, p.conn)
		}
	}, idle)
}
