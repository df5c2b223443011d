package carrier

import "github.com/fabrictest/fabrictest/verbs"

// Atomics on a rank's own memory must be executed by its NIC, like those of other ranks.
// Therefore a rank connects to itself on demand, with a second queue pair as the passive
// end.

// newLoopbackQP creates the queue pair at the passive end of a connection of this rank to itself.
func (r *rail) newLoopbackQP() (verbs.QP, error) {
	qp, err := r.NewRC(verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, nil)
	if err == nil {
		r.loopbackQPs = append(r.loopbackQPs, qp)
	}
	return qp, err
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
	mine, theirs := k.connInfo(), connInfo{qpn: end.QPN(), psn: k.psn(p.rank) + 1, credits: k.credits.available}
	if err := r.ConnectRC(end, mine.remote(r.endpoint(p)), theirs.psn); err != nil {
		return err
	}
	c.stats.ConnectionsOpened++
	c.markBusy(p)
	return k.connectQP(theirs)
}
