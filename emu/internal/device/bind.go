package device

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// ResolveBind returns the engine's memory window and region for the handles in a bind request. The
// region is nil if the bind has none; both are nil for other requests. The caller holds the device's
// lock.
func (d *Device) ResolveBind(wr *verbs.SendWR) (w *nic.Window, r *nic.Region, err error) {
	if wr.Opcode != verbs.OpBindMW {
		return nil, nil, nil
	}
	mw, ok := wr.Bind.MW.(*MW)
	if !ok || mw.D != d {
		return nil, nil, ForeignHandleError("post_send", "memory window")
	}
	if mw.W.Type == verbs.MWType1 && wr != &mw.bindWR[0] { // BindMW did not build this request
		return nil, nil, &verbs.OpError{Op: "post_send", Err: fmt.Errorf("%w: a type 1 window is bound by BindMW", verbs.ErrInvalid)}
	}
	if wr.Bind.Info.MR == nil {
		return mw.W, nil, nil
	}
	mr, ok := wr.Bind.Info.MR.(*MR)
	if !ok || mr.D != d {
		return nil, nil, ForeignHandleError("bind_mw", "memory region")
	}
	return mw.W, mr.R, nil
}

// BindMW implements verbs.QP. It posts a bind of a type 1 window, and returns the window's new
// R_Key, which follows that of the last posted bind.
func (q *QP) BindMW(mw verbs.MW, wrID uint64, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	const op = "bind_mw"
	w, ok := mw.(*MW)
	if !ok || w.D != q.D {
		return 0, ForeignHandleError(op, "memory window")
	}
	if w.W.Type != verbs.MWType1 {
		return 0, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: a type 2 window is bound by posting OpBindMW", verbs.ErrInvalid)}
	}
	if err := q.Enter(op, drive.CallPost); err != nil {
		return 0, err
	}
	defer q.D.Leave()
	key := verbs.NextRKey(w.lastKey)
	w.bindWR[0] = verbs.SendWR{WRID: wrID, Opcode: verbs.OpBindMW, Flags: flags, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}}
	err := q.Post(&w.bindWR[0])
	w.bindWR[0] = verbs.SendWR{} // keep no reference to the application's objects
	if err != nil {
		return 0, err
	}
	w.lastKey = key
	return key, nil
}
