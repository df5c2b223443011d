package transport

import (
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// NewRC creates an RC queue pair in the state INIT. srq may be nil.
func (r *Rail) NewRC(caps verbs.QPCaps, srq verbs.SRQ) (verbs.QP, error) {
	qp, err := r.Dev.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: r.PD, SendCQ: r.cq, RecvCQ: r.cq, SRQ: srq, Caps: caps})
	if err != nil {
		return nil, err
	}
	// The access flags of a QP are about remote access only.
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: r.Access &^ verbs.AccessLocalWrite}
	if err := qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	return qp, nil
}

// Retransmission attributes of a queue pair. A NIC reports an unreachable peer after two
// seconds or more, because a rank on a busy machine may be stalled for one. It waits for
// receives without limit.
const (
	ackTimeout = 16 // 4.096 µs · 2^16
	retries    = 7
	rnrTimer   = 8 // 160 µs
	rnrForever = 7
)

// Remote is the remote end of an RC connection.
type Remote struct {
	GID verbs.GID
	QPN verbs.QPN
	PSN uint32
}

// MaxReads is how many RDMA reads and atomics a connection can have outstanding.
func (r *Rail) MaxReads() uint8 { return min(r.Attr.MaxQPRdAtomic, r.Attr.MaxQPInitAtomic) }

// ConnectRC connects a queue pair to a remote one: it moves qp from INIT to RTR and RTS. psn
// is the first PSN that qp sends.
func (r *Rail) ConnectRC(qp verbs.QP, to Remote, psn uint32) error {
	attr := verbs.QPAttr{
		State: verbs.QPStateRTR, AH: r.address(to.GID), PathMTU: r.MTU, DestQPN: to.QPN, RQPSN: to.PSN,
		MaxDestRdAtomic: r.MaxReads(), MinRNRTimer: rnrTimer,
	}
	mask := verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	if err := qp.Modify(attr, mask); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTS, SQPSN: psn, MaxRdAtomic: r.MaxReads(),
		Timeout: ackTimeout, RetryCnt: retries, RNRRetry: rnrForever,
	}
	return qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN|verbs.QPAttrMaxQPRdAtomic|
		verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry)
}

// IgnoreClosed returns nil if err says that the object is closed already or has gone with its
// device (ErrInvalid), and err otherwise.
func IgnoreClosed(err error) error {
	if errors.Is(err, verbs.ErrClosed) || errors.Is(err, verbs.ErrInvalid) {
		return nil
	}
	return err
}

// maxSGEs is the longest scatter/gather list: a packet with gathered data and a tail.
const maxSGEs = 3

// SendQueue posts the send requests of a queue pair, one at a time.
type SendQueue struct {
	QP          verbs.QP
	Depth       int
	outstanding int
	wr          [1]verbs.SendWR
	sges        [maxSGEs]verbs.SGE
}

// Free is how many more requests can be posted.
func (q *SendQueue) Free() int { return q.Depth - q.outstanding }

// Outstanding is how many posted requests have not completed.
func (q *SendQueue) Outstanding() int { return q.outstanding }

// Request returns the work request that Post posts; the caller fills it in.
func (q *SendQueue) Request() *verbs.SendWR { return &q.wr[0] }

// SGL returns an empty scatter/gather list for the request.
func (q *SendQueue) SGL() []verbs.SGE { return q.sges[:0] }

// Post posts the work request that Request returned.
func (q *SendQueue) Post() error {
	if _, err := q.QP.PostSend(q.wr[:]); err != nil {
		return err
	}
	q.outstanding++
	return nil
}

// CountCompletion must be called for every completion of a posted request.
func (q *SendQueue) CountCompletion() { q.outstanding-- }
