package traffic

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/fabrictest/fabrictest/verbs"
)

// Queues are a protection domain, and completion queues with a common channel.
type Queues struct {
	PD      verbs.PD
	Channel verbs.CompChannel
	CQs     []verbs.CQ
}

// OpenQueues allocates a protection domain, a completion channel, and n completion queues of the
// given depth that share the channel. After an error, q has the objects created so far.
func OpenQueues(dev verbs.Context, n, depth int) (q Queues, err error) {
	if q.PD, err = dev.AllocPD(); err != nil {
		return q, err
	}
	if q.Channel, err = dev.CreateCompChannel(); err != nil {
		return q, err
	}
	for range n {
		cq, err := dev.CreateCQ(verbs.CQInit{Depth: depth, Channel: q.Channel})
		if err != nil {
			return q, fmt.Errorf("create a completion queue of depth %d: %w", depth, err)
		}
		q.CQs = append(q.CQs, cq)
	}
	return q, nil
}

// Close closes the completion queues, the channel and the PD, which no queue pair may use any more.
func (q *Queues) Close() error {
	var errs []error
	for _, cq := range q.CQs {
		errs = append(errs, cq.Close())
	}
	return errors.Join(append(errs, Close(q.Channel, q.PD))...)
}

// Close closes verbs objects in the given order, except those that are nil, and returns all errors.
func Close(objects ...io.Closer) error {
	var errs []error
	for _, o := range objects {
		if o != nil {
			errs = append(errs, o.Close())
		}
	}
	return errors.Join(errs...)
}

// QPs are the queue pairs of one end of a connection: one that sends and receives, or with
// XRC one for each. AH is the address of the peer of datagrams.
type QPs struct {
	QP     verbs.QP // sends, and receives except with XRC
	Target verbs.QP // receives with XRC
	AH     verbs.AH
}

// QPNumbers are the numbers of the queue pairs of an end, for the other end.
type QPNumbers struct {
	QPN verbs.QPN `json:"qpn"`
	XRC verbs.QPN `json:"xrc,omitempty"` // the queue pair that receives with XRC
}

// CreateQPs creates the queue pairs of one end. With XRC (init.Type is verbs.QPTypeXRCSend) the
// queue pair that receives belongs to the XRC domain; otherwise domain is not used.
func CreateQPs(dev verbs.Context, init verbs.QPInit, domain verbs.XRCD) (q QPs, err error) {
	if init.Type == verbs.QPTypeXRCSend {
		init.RecvCQ = nil
		if q.Target, err = dev.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: domain}); err != nil {
			return q, err
		}
	}
	q.QP, err = dev.CreateQP(init)
	return q, err
}

// all returns the queue pairs. With XRC the last is the target, which receives.
func (q *QPs) all() []verbs.QP {
	if q.Target == nil {
		return []verbs.QP{q.QP}
	}
	return []verbs.QP{q.QP, q.Target}
}

// Receiver is the queue pair that receives: with XRC the target, else the only one.
func (q *QPs) Receiver() verbs.QP { return q.all()[len(q.all())-1] }

// Numbers returns the numbers of the queue pairs.
func (q *QPs) Numbers() (n QPNumbers) {
	if n.QPN = q.QP.QPN(); q.Target != nil {
		n.XRC = q.Target.QPN()
	}
	return n
}

// ToInit moves the queue pairs from RESET to INIT, where receives can be posted.
func (q *QPs) ToInit(attr verbs.QPAttr) error {
	for _, qp := range q.all() {
		if err := ToInit(qp, attr); err != nil {
			return err
		}
	}
	return nil
}

// ToRTS moves the queue pairs from INIT to RTS. It connects the one that sends to the peer's
// receiver, and with XRC the one that receives to the peer's sender.
func (q *QPs) ToRTS(peer QPNumbers, attr verbs.QPAttr) error {
	if q.Target != nil {
		attr.DestQPN = peer.QPN
		if err := ToRTS(q.Target, attr); err != nil {
			return err
		}
	}
	attr.DestQPN = cmp.Or(peer.XRC, peer.QPN)
	return ToRTS(q.QP, attr)
}

// ToError moves the queue pairs to the error state, which flushes their queues.
func (q *QPs) ToError() error {
	for _, qp := range q.all() {
		if err := ToError(qp); err != nil {
			return err
		}
	}
	return nil
}
