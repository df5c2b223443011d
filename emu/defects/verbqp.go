package defects

import (
	"errors"
	"math/bits"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/verbs"
)

// queuePair implements verbs.QP.
type queuePair struct {
	verbs.QP
	dev *device

	mu       sync.Mutex
	refused  []verbs.SendWR  // RefusedWRStays: to be posted when the QP accepts requests
	sends    map[uint64]bool // RecvErrorIsQPOp: IDs of posted sends
	receives map[uint64]int  // RecvErrorIsQPOp: number of posted receives of each ID
}

func (q *queuePair) inner() verbs.QP { return q.QP }

// CreateQP creates a QP of the device and returns a handle that has its defects.
func (d *device) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	in.SendCQ, in.RecvCQ = innerOf(in.SendCQ), innerOf(in.RecvCQ)
	return d.newQueuePair(d.Context.CreateQP(in))
}

// OpenQP opens an XRC target QP of the device and returns a handle that has its defects.
func (d *device) OpenQP(x verbs.XRCD, num verbs.QPN) (verbs.QP, error) {
	return d.newQueuePair(d.Context.OpenQP(x, num))
}

// newQueuePair returns a handle for a QP of the device. inner and err are the results of creating
// or opening that QP.
func (d *device) newQueuePair(inner verbs.QP, err error) (verbs.QP, error) {
	if err != nil {
		return nil, err
	}
	q := &queuePair{QP: inner, dev: d, sends: map[uint64]bool{}, receives: map[uint64]int{}}
	d.addHandle(inner, q)
	return q, nil
}

// Close closes the device's QP and forgets the handle.
func (q *queuePair) Close() error { return q.dev.removeHandle(q.QP, q.QP.Close()) }

// Query queries the device's QP. With the defect SQNeverDrains, it reports a QP in SQD as still
// draining its send queue.
func (q *queuePair) Query() (verbs.QPAttr, error) {
	a, err := q.QP.Query()
	a.SQDraining = a.SQDraining || q.dev.defects.SQNeverDrains && a.State == verbs.QPStateSQD
	return a, err
}

// state returns the state of the QP; RESET if it is closed.
func (q *queuePair) state() verbs.QPState {
	a, _ := q.QP.Query()
	return a.State
}

// Modify modifies the QP with attributes changed by defects: it replaces invalid values
// (ValuesUnchecked), rounds up depths (RdAtomicRoundsUp) and omits a change from RESET or INIT to
// RTR (RTRIgnored). Then it posts the requests that PostSend kept (RefusedWRStays).
func (q *queuePair) Modify(a verbs.QPAttr, mask verbs.QPAttrMask) error {
	defects := &q.dev.defects
	if defects.ValuesUnchecked {
		q.dev.makeValid(&a)
	}
	if defects.RdAtomicRoundsUp {
		limits, _ := q.dev.QueryDevice() // zero if the device is closed
		a.MaxRdAtomic = roundUp(a.MaxRdAtomic, limits.MaxQPInitAtomic)
		a.MaxDestRdAtomic = roundUp(a.MaxDestRdAtomic, limits.MaxQPRdAtomic)
	}
	if defects.RTRIgnored && a.State == verbs.QPStateRTR && q.state() <= verbs.QPStateInit {
		mask &^= verbs.QPAttrState
	}
	err := q.QP.Modify(a, mask)
	if err == nil {
		q.postRefused()
	}
	return err
}

// makeValid replaces invalid attributes so that the device accepts them (defect ValuesUnchecked).
func (d *device) makeValid(a *verbs.QPAttr) {
	const timerMask, maxRetries = 31, 7 // fields of five and three bits
	limits, _ := d.QueryDevice()        // zero if the device is closed
	port, _ := d.QueryPort(1)
	if int(a.PKeyIndex) >= port.PKeys {
		a.PKeyIndex = 0
	}
	if a.PathMTU == 0 {
		a.PathMTU = port.ActiveMTU
	}
	a.MaxDestRdAtomic = min(a.MaxDestRdAtomic, limits.MaxQPRdAtomic)
	a.MinRNRTimer &= timerMask
	a.RetryCnt, a.RNRRetry = min(a.RetryCnt, maxRetries), min(a.RNRRetry, maxRetries)
}

// roundUp rounds a depth n up to a power of two, but not above limit. It returns n unchanged if n
// is 0 or above limit.
func roundUp(n, limit uint8) uint8 {
	if n == 0 || n > limit {
		return n
	}
	return uint8(min(1<<bits.Len8(n-1), int(limit)))
}

// PostSend posts sends with the defects: it swaps the operands of atomics (AtomicOperandsSwapped), and
// keeps a request that is refused before RTS, so that postRefused posts it later (RefusedWRStays). For
// RecvErrorIsQPOp it records the IDs of sends, by which completions of sends and receives are told apart.
func (q *queuePair) PostSend(wrs []verbs.SendWR) (int, error) {
	defects := &q.dev.defects
	wrs = slices.Clone(wrs)
	q.mu.Lock()
	for i := range wrs {
		if a := &wrs[i].Atomic; defects.AtomicOperandsSwapped && wrs[i].Opcode == verbs.OpAtomicCmpAndSwp {
			a.CompareAdd, a.Swap = a.Swap, a.CompareAdd
		}
		if defects.RecvErrorIsQPOp {
			q.sends[wrs[i].WRID] = true
		}
	}
	q.mu.Unlock()
	n, err := q.QP.PostSend(wrs)
	refused := errors.Is(err, verbs.ErrInvalid) || errors.Is(err, verbs.ErrNotSupported) // not if the queue is full
	if defects.RefusedWRStays && refused && q.state() < verbs.QPStateRTS {
		wr := wrs[n] // the first that was not posted
		wr.SGL, wr.Inline = slices.Clone(wr.SGL), slices.Clone(wr.Inline)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.refused = append(q.refused, wr)
	}
	return n, err
}

// postRefused posts the requests that PostSend kept (RefusedWRStays), or drops them if the QP was
// reset. In INIT and RTR, in which a QP refuses send requests, it keeps them.
func (q *queuePair) postRefused() {
	if !q.dev.defects.RefusedWRStays {
		return
	}
	state := q.state()
	if state == verbs.QPStateInit || state == verbs.QPStateRTR {
		return
	}
	q.mu.Lock()
	wrs := q.refused
	q.refused = nil
	q.mu.Unlock()
	if state != verbs.QPStateReset && len(wrs) > 0 {
		_, _ = q.QP.PostSend(wrs) // those that do not fit are lost
	}
}

// PostRecv posts receives, and counts those that were posted, for completeReceive.
func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.countReceives(wrs, 1) // before they are posted: they may complete at once
	n, err := q.QP.PostRecv(wrs)
	q.countReceives(wrs[n:], -1)
	return n, err
}

// countReceives adds n to the number of posted receives of each ID in wrs. By these numbers the
// defect RecvErrorIsQPOp distinguishes failed receives from failed send requests.
func (q *queuePair) countReceives(wrs []verbs.RecvWR, n int) {
	if !q.dev.defects.RecvErrorIsQPOp {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range wrs {
		q.receives[wrs[i].WRID] += n
	}
}

// completeReceive reports whether wc completes a receive, and if so counts the receive as
// completed. A completion in error, which has no valid opcode, is taken for that of a receive if a
// receive with its ID is posted, or no send with its ID was ever posted: receives of an SRQ are not
// counted.
func (q *queuePair) completeReceive(wc *verbs.WC) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	success, posted := wc.Status == verbs.WCSuccess, q.receives[wc.WRID] > 0
	if success && wc.Opcode&verbs.WCOpRecv == 0 {
		return false
	}
	if posted {
		q.receives[wc.WRID]--
	}
	return success || posted || !q.sends[wc.WRID]
}
