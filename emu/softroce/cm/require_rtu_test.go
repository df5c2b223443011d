package cm

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestRequireRTUIgnoresData(t *testing.T) {
	w := newWorld(t, Config{}, Config{RequireRTU: true})
	_, cb := w.confirmed()
	must.Do(t, w.b.Established(w.now, cb))
	w.b.noEvent()
	w.b.inState(cb, StateREPSent)
	w.pass(w.a, wire.AttrRTU) // an RTU still works
	w.b.event(EventEstablished)
}
