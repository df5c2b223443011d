package verbcalls

import (
	"math/bits"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Defects of the verbs of Linux's soft-RoCE (rxe) and soft-iWARP (siw).

// hides reports whether a defect suppresses asynchronous events of a type.
func (q *Defects) hides(e verbs.AsyncEventType) bool {
	switch e {
	case verbs.EventCommEst, verbs.EventQPAccessErr, verbs.EventQPReqErr:
		return q.NoQPEvents
	case verbs.EventQPLastWQEReached:
		return q.NoLastWQEEvent
	case verbs.EventSQDrained:
		return q.SQNeverDrains
	}
	return false
}

// changeReceive applies GRHFlagOnConnected and RecvErrorIsQPOp to the completion of a
// receive of a connected QP.
func (d *device) changeReceive(wc *verbs.WC) {
	grh := d.q.GRHFlagOnConnected && wc.Status == verbs.WCSuccess && wc.Opcode&verbs.WCOpRecv != 0
	failed := d.q.RecvErrorIsQPOp && wc.Status == verbs.WCLocProtErr
	if !grh && !failed {
		return
	}
	p := d.pairOf(wc.QPN)
	switch {
	case p == nil || p.Type() == verbs.QPTypeUD:
	case grh:
		wc.Flags |= verbs.WCWithGRH
	case !p.isSend(wc.WRID):
		wc.Status = verbs.WCLocQPOpErr
	}
}

// isSend reports whether a completion with this ID and an error is one of a send: its
// opcode does not say.
func (p *pair) isSend(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, sent := p.quiet[id]
	return sent && p.receives[id] <= 0
}

// replace replaces attributes that the device would reject (ValuesUnchecked, RTRIgnored), and
// those that RdAtomicRoundsUp rounds up.
func (p *pair) replace(a *verbs.QPAttr, mask *verbs.QPAttrMask) {
	const timerMask, maxRetries = 31, 7
	q := &p.d.q
	if q.ValuesUnchecked {
		port, _ := p.d.Context.QueryPort(1) // it exists while the device is open
		if int(a.PKeyIndex) >= port.PKeys {
			a.PKeyIndex = 0
		}
		if a.PathMTU == 0 {
			a.PathMTU = port.ActiveMTU
		}
		a.MaxDestRdAtomic = min(a.MaxDestRdAtomic, p.d.truth().MaxQPRdAtomic)
		a.MinRNRTimer &= timerMask
		a.RetryCnt, a.RNRRetry = min(a.RetryCnt, maxRetries), min(a.RNRRetry, maxRetries)
	}
	if q.RdAtomicRoundsUp {
		limits := p.d.truth()
		a.MaxRdAtomic = roundUp(a.MaxRdAtomic, limits.MaxQPInitAtomic)
		a.MaxDestRdAtomic = roundUp(a.MaxDestRdAtomic, limits.MaxQPRdAtomic)
	}
	if q.RTRIgnored && a.State == verbs.QPStateRTR && p.state() <= verbs.QPStateInit {
		*mask &^= verbs.QPAttrState
	}
}

// roundUp returns the next power of two, if n is a depth that the limit allows.
func roundUp(n, limit uint8) uint8 {
	if n == 0 || n > limit {
		return n
	}
	return uint8(min(1<<bits.Len8(n-1), int(limit)))
}

// keepRefused keeps a request that was refused before RTS, by RefusedWRStays.
func (p *pair) keepRefused(wr verbs.SendWR) {
	if p.state() < verbs.QPStateRTS {
		wr.SGL, wr.Inline = slices.Clone(wr.SGL), slices.Clone(wr.Inline)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stays = append(p.stays, wr)
	}
}

// postRefused posts the requests of keepRefused in a QP that takes requests, and drops those
// of a QP that was reset.
func (p *pair) postRefused() {
	if !p.d.q.RefusedWRStays {
		return
	}
	state := p.state()
	if state == verbs.QPStateInit || state == verbs.QPStateRTR {
		return
	}
	p.mu.Lock()
	wrs := p.stays
	p.stays = nil
	p.mu.Unlock()
	if state != verbs.QPStateReset && len(wrs) > 0 {
		_, _ = p.QP.PostSend(wrs) // those that do not fit are lost
	}
}
