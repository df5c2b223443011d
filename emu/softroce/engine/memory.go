package engine

import "github.com/fabrictest/fabrictest/verbs"

// resultWritable checks that the answer to a READ or an atomic may be written where the
// request says. It is asked before the request leaves: an atomic whose result
// has no place must not be executed.
func (q *QP) resultWritable(w *sendWQE) bool {
	switch w.Op {
	case verbs.OpRDMARead:
		return q.nic.Opens(w.SGL, q.pd, int(w.Length), verbs.AccessLocalWrite)
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
	default:
		return true
	}
	return q.nic.Writable(w.SGL, q.pd, int(w.Length))
}
