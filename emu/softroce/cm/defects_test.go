package cm

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/mad"
	"github.com/fabrictest/fabrictest/internal/must"
)

// Each defect does what it says; the tests of the sound agent show what it
// would do without.

func defective(t *testing.T, q Defects) *world {
	t.Helper()
	return newWorld(t, Config{}, Config{Defects: q})
}

func (w *world) defectCounted() {
	w.t.Helper()
	if w.b.Counters().Defect == 0 {
		w.t.Error("the defect was not counted")
	}
}

func TestDefectIgnoreCommEst(t *testing.T) {
	w := defective(t, Defects{IgnoreCommEst: true})
	_, cb := w.confirmed()
	must.Do(t, w.b.Established(w.now, cb))
	w.b.noEvent()
	w.b.inState(cb, StateREPSent)
	w.pass(w.a, mad.AttrRTU) // an RTU still works
	w.b.event(EventEstablished)
	w.defectCounted()
}
