package cm

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

func TestRequireRTUIgnoresData(t *testing.T) {
	w := newWorld(t, Config{}, Config{RequireRTU: true})
	_, cb := w.confirmed()
	must(t, w.b.Established(w.now, cb))
	w.b.noEvent()
	w.b.inState(cb, StateREPSent)
	w.pass(w.a, mad.AttrRTU) // an RTU still works
	w.b.event(EventEstablished)
}
