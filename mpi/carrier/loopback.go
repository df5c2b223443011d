package carrier

import (
	"errors"

	"github.com/fabrictest/fabrictest/verbs"
)

// Atomics on a rank's own memory must be executed by its NIC, like those of other ranks.
// Therefore a rank connects to itself on demand, with a second queue pair as the passive
// end.

// newLoopbackQP creates the passive end.
func (r *rail) newLoopbackQP() (verbs.QP, error) {
	qp, err := r.dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	if err := r.toInit(qp); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	r.loopbackQPs = append(r.loopbackQPs, qp)
	return qp, nil
}

func (r *rail) toInit(qp verbs.QP) error {
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: r.access &^ verbs.AccessLocalWrite}
	return qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags)
}

// connectSelf connects a queue pair of this rank to another one of this rank (loopback), so
// that it can send to itself. No connection manager takes part.
func (c *Carrier) connectSelf(p *peer, r *rail) error {
	k, err := c.newConn(p, r, open)
	if err != nil {
		return err
	}
	end, err := r.newLoopbackQP()
	if err != nil {
		return err
	}
	mine, theirs := k.connInfo(), connInfo{qpn: end.QPN(), psn: k.psn(p.rank) + 1, credits: k.credits}
	if err := r.connectQP(end, p, mine, theirs.psn); err != nil {
		return err
	}
	c.stats.ConnectionsOpened++
	c.markBusy(p)
	return k.connectQP(theirs)
}
