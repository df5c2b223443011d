package engine

import "github.com/fabrictest/fabrictest/verbs"

// sinkOK checks that the answer to a READ or an atomic may be written where the
// request says. It is asked before the request leaves: an atomic whose result
// has no place must not be executed.
func (q *QP) sinkOK(w *sendWQE) bool {
	switch w.Op {
	case verbs.OpRDMARead:
		return q.nic.Opens(w.SGL, q.pd, int(w.Length), q.sinkAccess())
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		if q.nic.q.AtomicSinkUnchecked {
			return true
		}
	default:
		return true
	}
	return q.nic.Writable(w.SGL, q.pd, int(w.Length))
}

// sinkAccess is what the memory that a READ goes to must grant.
func (q *QP) sinkAccess() verbs.Access {
	if q.nic.q.SinkUnchecked {
		return 0
	}
	return verbs.AccessLocalWrite
}
