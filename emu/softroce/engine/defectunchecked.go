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

// replaceInvalidValues replaces invalid attribute values by valid ones, so that
// Modify accepts them (Defects.ValuesUnchecked).
func (q *QP) replaceInvalidValues(a *verbs.QPAttr) {
	const timerMask, maxRetries = 31, 7
	if int(a.PKeyIndex) >= len(q.nic.cfg.PKeys) {
		a.PKeyIndex = 0
	}
	if a.PathMTU == 0 {
		a.PathMTU = q.nic.MTU()
	}
	a.MaxDestRdAtomic = min(a.MaxDestRdAtomic, q.nic.cfg.Limits.RdAtomic)
	a.MinRNRTimer &= timerMask
	a.RetryCnt, a.RNRRetry = min(a.RetryCnt, maxRetries), min(a.RNRRetry, maxRetries)
}
