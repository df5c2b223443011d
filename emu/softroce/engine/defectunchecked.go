package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Checks that rxe omits.

// bind binds or unbinds a memory window. With Defects.BindForeignRegion the
// protection domain of the region is not checked.
func (q *QP) bind(w *sendWQE) error {
	if r := w.Bind.Region; r != nil && q.nic.defects.BindForeignRegion && w.Window.Type == verbs.MWType2 {
		defer func(pd nic.PD) { r.PD = pd }(r.PD)
		r.PD = w.Window.PD
	}
	return q.nic.Mem.Bind(w.Window, w.Bind)
}
