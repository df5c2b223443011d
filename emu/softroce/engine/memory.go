package engine

import "github.com/fabrictest/fabrictest/verbs"

// resultWritable checks that the local buffer of a READ or atomic is writable. The
// requester checks it before sending, because an atomic whose result cannot be
// stored must not be executed.
func (q *QP) resultWritable(w *sendWQE) bool {
	switch w.Op {
	case verbs.OpRDMARead:
		return q.nic.Accessible(w.SGL, q.pd, int(w.Length), verbs.AccessLocalWrite)
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
	default:
		return true
	}
	return q.nic.Writable(w.SGL, q.pd, int(w.Length))
}
