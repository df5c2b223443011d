package model

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// VerbsWR is a request or a receive of a work queue.
type VerbsWR struct {
	ID       uint64
	Signaled bool
	Opcode   verbs.WCOpcode
	// Outstanding: the request was sent, and waits for an acknowledgement that never comes.
	Outstanding bool
	done        bool
}

// VerbsQueue is a model of a send queue or a receive queue. A request keeps its place until it is
// done, and may keep it until the completion of this or a later request was polled.
type VerbsQueue struct {
	Size int
	CQ   *VerbsCQ
	qpn  verbs.QPN
	wrs  []VerbsWR
}

// Room returns how many requests the device must accept at least, and how many at most.
func (q *VerbsQueue) Room() (least, most int) {
	pending := len(q.Pending())
	return max(0, q.Size-len(q.wrs)), q.Size - pending
}

// Pending returns the requests that are not done.
func (q *VerbsQueue) Pending() (pending []VerbsWR) {
	for _, wr := range q.wrs {
		if !wr.done {
			pending = append(pending, wr)
		}
	}
	return pending
}

// First returns the oldest request that is not done, or nil.
func (q *VerbsQueue) First() *VerbsWR {
	for i := range q.wrs {
		if !q.wrs[i].done {
			return &q.wrs[i]
		}
	}
	return nil
}

// Add appends a posted request.
func (q *VerbsQueue) Add(wr VerbsWR) { q.wrs = append(q.wrs, wr) }

// Complete completes the oldest request that is not done. A success of an unsignaled request
// makes no completion.
func (q *VerbsQueue) Complete(wc verbs.WC, solicited bool) {
	wr := q.First()
	wr.done = true
	if wc.Status == verbs.WCSuccess && !wr.Signaled {
		return
	}
	wc.WRID, wc.QPN = wr.ID, q.qpn
	if wc.Opcode == 0 {
		wc.Opcode = wr.Opcode
	}
	q.CQ.add(&VerbsCompletion{WC: wc, Solicited: solicited, queue: q})
}

// Flush completes all requests that are not done with WR_FLUSH_ERR.
func (q *VerbsQueue) Flush() {
	for range q.Pending() {
		q.Complete(verbs.WC{Status: verbs.WCWRFlushErr}, false)
	}
}

// retire frees the places of a request and of all before it.
func (q *VerbsQueue) retire(id uint64) {
	if i := slices.IndexFunc(q.wrs, func(wr VerbsWR) bool { return wr.ID == id }); i >= 0 {
		q.wrs = q.wrs[i+1:]
	}
}

// VerbsTransition is a state transition with its required and optional attributes.
type VerbsTransition struct {
	From, To           verbs.QPState
	Required, Optional verbs.QPAttrMask
}

// VerbsQP is a model of a queue pair. Its requests are never answered unless the application of the
// model completes them.
type VerbsQP struct {
	Type  verbs.QPType
	State verbs.QPState
	// Attr has the attributes in Known, which were set since RESET.
	Attr  verbs.QPAttr
	Known verbs.QPAttrMask
	// Sends and Recvs are its queues. Recvs has only the CQ if SRQ is not nil.
	Sends, Recvs VerbsQueue
	SRQ          *VerbsSRQ
	SignalAll    bool
	// Transitions are those of its type, without those to RESET and ERR.
	Transitions []VerbsTransition
	// RecvInReset: receives can be posted in RESET, as over iWARP.
	RecvInReset bool
	// CountsPSN: sq_psn counts the packets that were sent, as over InfiniBand.
	CountsPSN bool
	// HasSQE: a request with a local error takes the queue pair to SQE, and not to ERR.
	HasSQE bool
	// LastWQE counts the times that it raised LAST_WQE_REACHED, and Drained SQ_DRAINED.
	LastWQE, Drained int
}

// NewVerbsQP returns a queue pair with the fields of init. Its state is RESET unless init has one.
func NewVerbsQP(qpn verbs.QPN, init VerbsQP) *VerbsQP {
	q := &init
	q.Sends.qpn, q.Recvs.qpn = qpn, qpn
	return q
}

// Transition returns the transition to a state, or nil if there is none.
func (q *VerbsQP) Transition(to verbs.QPState) *VerbsTransition {
	if to == verbs.QPStateReset || to == verbs.QPStateErr && q.State != verbs.QPStateReset {
		return &VerbsTransition{From: q.State, To: to}
	}
	for i := range q.Transitions {
		if t := &q.Transitions[i]; t.From == q.State && t.To == to {
			return t
		}
	}
	return nil
}

// Draining reports whether the queue pair is in SQD with a request that was not acknowledged.
func (q *VerbsQP) Draining() bool {
	first := q.Sends.First()
	return q.State == verbs.QPStateSQD && first != nil && first.Outstanding
}

// CanModify reports whether the device must accept a state transition with valid attributes of
// this mask.
func (q *VerbsQP) CanModify(to verbs.QPState, mask verbs.QPAttrMask) bool {
	t := q.Transition(to)
	mask &^= verbs.QPAttrState
	return t != nil && mask&t.Required == t.Required && mask&^(t.Required|t.Optional) == 0 &&
		(!q.Draining() || to == verbs.QPStateReset || to == verbs.QPStateErr)
}

// Modify changes the state and the attributes of a mask, which must be permitted.
func (q *VerbsQP) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) {
	from := q.State
	q.State = attr.State
	q.set(attr, mask)
	switch q.State {
	case verbs.QPStateReset:
		q.Sends.wrs, q.Recvs.wrs, q.Known = nil, nil, 0
	case verbs.QPStateErr:
		q.fail(from)
	case verbs.QPStateSQD:
		if from == verbs.QPStateRTS && mask&verbs.QPAttrEnSQDAsyncNotify != 0 && attr.EnSQDAsyncNotify && !q.Draining() {
			q.Drained++
		}
	case verbs.QPStateRTS:
		q.start()
	}
}

// fail moves the queue pair to ERR and flushes its queues. Receives of a shared receive queue stay
// there, and LAST_WQE_REACHED is raised unless the state before, from, is ERR.
func (q *VerbsQP) fail(from verbs.QPState) {
	q.State = verbs.QPStateErr
	q.Sends.Flush()
	q.Recvs.Flush()
	if q.SRQ != nil && from != verbs.QPStateErr {
		q.LastWQE++
	}
}

// set stores the attributes of a mask.
func (q *VerbsQP) set(attr *verbs.QPAttr, mask verbs.QPAttrMask) {
	q.Known |= mask
	for _, f := range verbsAttrs {
		if mask&f.bit != 0 {
			f.copy(&q.Attr, attr)
		}
	}
}

// verbsAttr is an attribute that a query must return as it was set.
type verbsAttr struct {
	bit  verbs.QPAttrMask
	name string
	copy func(to, from *verbs.QPAttr)
	get  func(*verbs.QPAttr) any
}

// verbsAttrOf returns the verbsAttr whose value is in the field that the function field returns.
func verbsAttrOf[A any](bit verbs.QPAttrMask, name string, field func(*verbs.QPAttr) *A) verbsAttr {
	return verbsAttr{
		bit: bit, name: name,
		copy: func(to, from *verbs.QPAttr) { *field(to) = *field(from) },
		get:  func(a *verbs.QPAttr) any { return *field(a) },
	}
}

var verbsAttrs = []verbsAttr{
	verbsAttrOf(verbs.QPAttrAccessFlags, "qp_access_flags", func(a *verbs.QPAttr) *verbs.Access { return &a.Access }),
	verbsAttrOf(verbs.QPAttrPKeyIndex, "pkey_index", func(a *verbs.QPAttr) *uint16 { return &a.PKeyIndex }),
	verbsAttrOf(verbs.QPAttrPort, "port_num", func(a *verbs.QPAttr) *uint8 { return &a.Port }),
	verbsAttrOf(verbs.QPAttrQKey, "qkey", func(a *verbs.QPAttr) *uint32 { return &a.QKey }),
	verbsAttrOf(verbs.QPAttrAV, "ah_attr", func(a *verbs.QPAttr) *verbs.AHAttr { return &a.AH }),
	verbsAttrOf(verbs.QPAttrPathMTU, "path_mtu", func(a *verbs.QPAttr) *verbs.MTU { return &a.PathMTU }),
	verbsAttrOf(verbs.QPAttrTimeout, "timeout", func(a *verbs.QPAttr) *uint8 { return &a.Timeout }),
	verbsAttrOf(verbs.QPAttrRetryCnt, "retry_cnt", func(a *verbs.QPAttr) *uint8 { return &a.RetryCnt }),
	verbsAttrOf(verbs.QPAttrRNRRetry, "rnr_retry", func(a *verbs.QPAttr) *uint8 { return &a.RNRRetry }),
	verbsAttrOf(verbs.QPAttrRQPSN, "rq_psn", func(a *verbs.QPAttr) *uint32 { return &a.RQPSN }),
	verbsAttrOf(verbs.QPAttrSQPSN, "sq_psn", func(a *verbs.QPAttr) *uint32 { return &a.SQPSN }),
	verbsAttrOf(verbs.QPAttrMaxQPRdAtomic, "max_rd_atomic", func(a *verbs.QPAttr) *uint8 { return &a.MaxRdAtomic }),
	verbsAttrOf(verbs.QPAttrMaxDestRdAtomic, "max_dest_rd_atomic", func(a *verbs.QPAttr) *uint8 { return &a.MaxDestRdAtomic }),
	verbsAttrOf(verbs.QPAttrMinRNRTimer, "min_rnr_timer", func(a *verbs.QPAttr) *uint8 { return &a.MinRNRTimer }),
	verbsAttrOf(verbs.QPAttrDestQPN, "dest_qp_num", func(a *verbs.QPAttr) *verbs.QPN { return &a.DestQPN }),
}

// Differs returns the name and both values of the first known attribute of which got, the result of
// a query, has another value. The name is empty if there is none.
func (q *VerbsQP) Differs(got *verbs.QPAttr) (name string, wantValue, gotValue any) {
	for _, f := range verbsAttrs {
		if q.Known&f.bit != 0 && f.get(&q.Attr) != f.get(got) {
			return f.name, f.get(&q.Attr), f.get(got)
		}
	}
	return "", nil, nil
}

// CanReceive reports whether receives can be posted.
func (q *VerbsQP) CanReceive() bool {
	return q.SRQ == nil && (q.State != verbs.QPStateReset || q.RecvInReset)
}

// CanSend reports whether requests can be posted.
func (q *VerbsQP) CanSend() bool { return q.State >= verbs.QPStateRTS }

// PostRecv adds a receive, which is flushed at once in ERR.
func (q *VerbsQP) PostRecv(id uint64) {
	q.Recvs.Add(VerbsWR{ID: id, Signaled: true, Opcode: verbs.WCOpRecv})
	if q.State == verbs.QPStateErr {
		q.Recvs.Flush()
	}
}

// Receive completes a receive with a message of the peer. Which receive of an SRQ the device takes
// is not known before its completion is polled.
func (q *VerbsQP) Receive(wc verbs.WC, solicited bool, payload []byte) {
	wc.QPN = q.Recvs.qpn
	if q.SRQ != nil {
		q.SRQ.use()
	} else {
		first := q.Recvs.First()
		first.done = true
		wc.WRID = first.ID
	}
	q.Recvs.CQ.add(&VerbsCompletion{WC: wc, Solicited: solicited, Payload: payload, srq: q.SRQ, queue: &q.Recvs})
}

// PostSend adds a SEND of one packet.
func (q *VerbsQP) PostSend(id uint64, signaled bool) {
	q.Sends.Add(VerbsWR{ID: id, Signaled: signaled || q.SignalAll, Opcode: verbs.WCOpSend})
	switch q.State {
	case verbs.QPStateErr, verbs.QPStateSQE:
		q.Sends.Flush()
	case verbs.QPStateRTS:
		q.start()
	}
}

// start sends the requests. On RC they wait for acknowledgements, on other queue pairs they complete.
// The PSN in a query is no longer known for RC, whose credits limit the packets sent, and for a
// device that does not count packets by PSN (iWARP).
func (q *VerbsQP) start() {
	for range q.Sends.Pending() {
		if q.Type == verbs.QPTypeRC || !q.CountsPSN {
			q.Known &^= verbs.QPAttrSQPSN
		}
		if q.Type == verbs.QPTypeRC {
			for i := range q.Sends.wrs {
				q.Sends.wrs[i].Outstanding = true
			}
			return
		}
		q.Attr.SQPSN = (q.Attr.SQPSN + 1) & 0xffffff
		q.Sends.Complete(verbs.WC{}, false)
	}
}

// FailSend completes the oldest request, which has a local error, with one of the statuses. The
// queue pair goes to ERR or SQE, and the later requests are flushed.
func (q *VerbsQP) FailSend(statuses ...verbs.WCStatus) {
	first := q.Sends.First()
	first.done = true
	q.Sends.CQ.add(&VerbsCompletion{WC: verbs.WC{WRID: first.ID, QPN: q.Sends.qpn, Status: statuses[0]}, orStatus: statuses[1:], queue: &q.Sends})
	if !q.HasSQE {
		q.fail(q.State)
		return
	}
	q.State = verbs.QPStateSQE
	q.Sends.Flush()
}
