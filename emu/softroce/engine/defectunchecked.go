package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Checks that rxe does not make.

// bind opens a window, or closes one. By Defects.BindForeignRegion its region seems to
// be of its own domain for so long.
func (q *QP) bind(w *sendWQE) error {
	if r := w.Bind.Region; r != nil && q.nic.defects.BindForeignRegion && w.Window.Type == verbs.MWType2 {
		defer func(pd nic.PD) { r.PD = pd }(r.PD)
		r.PD = w.Window.PD
	}
	return q.nic.Mem.Bind(w.Window, w.Bind)
}

// replaceInvalidValues puts values in place of those that cannot be, so that nobody refuses them
// (Defects.ValuesUnchecked). A QP that is to work in spite of them has to have some.
func (q *QP) replaceInvalidValues(a *verbs.QPAttr) {
	const last, most = 31, 7 // codes of timers, counts of retries
	if int(a.PKeyIndex) >= len(q.nic.cfg.PKeys) {
		a.PKeyIndex = 0
	}
	if a.PathMTU == 0 {
		a.PathMTU = q.nic.MTU()
	}
	a.MaxDestRdAtomic = min(a.MaxDestRdAtomic, q.nic.cfg.Limits.RdAtomic)
	a.MinRNRTimer &= last
	a.RetryCnt, a.RNRRetry = min(a.RetryCnt, most), min(a.RNRRetry, most)
}
