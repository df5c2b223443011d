package carrier

import (
	"errors"

	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// rail is a NIC with the resources that all peers share.
type rail struct {
	*transport.Rail
	c           *Carrier
	endpoints   transport.Endpoints // of all ranks
	dg          *datagrams          // nil without datagrams
	srq         *sharedReceives     // nil without SRQ
	conns       map[verbs.QPN]*conn
	loopbackQPs []verbs.QP      // passive ends of the rank's connection to itself
	cm          *connManager    // nil on rails with datagrams
	completed   func(*verbs.WC) // handles a completion
}

// openRail opens a rail, whose completions go to handleCompletion. After an error the rail must
// be closed as well.
func (c *Carrier) openRail(num int, nic transport.NIC) (*rail, error) {
	t, err := transport.OpenRail(num, nic)
	r := &rail{Rail: t, c: c, conns: make(map[verbs.QPN]*conn)}
	r.completed = func(wc *verbs.WC) { c.handleCompletion(r, wc) }
	return r, err
}

// endpoint is the address of a peer on the rail.
func (r *rail) endpoint(p *peer) transport.Endpoint { return r.endpoints.Of(p.rank, r.Num) }

// poll handles completions.
func (r *rail) poll() bool {
	moved, err := r.Poll(r.completed)
	if err != nil {
		r.c.failAll(err)
	}
	return moved
}

// arm requests a completion event. It returns true if the caller must poll again for
// completions that came before.
func (r *rail) arm() bool {
	again, err := r.Arm()
	if err != nil {
		r.c.failAll(err)
	}
	return again
}

// repost posts used receives in a batch.
func (r *rail) repost() {
	if r.dg != nil {
		if err := r.dg.recv.Flush(); err != nil {
			r.c.failAll(err)
		}
	}
	if r.srq != nil {
		r.srq.refill()
	}
}

// needsReceives reports whether repost has receives to post.
func (r *rail) needsReceives() bool {
	return r.dg != nil && r.dg.recv.Staged() > 0 || r.srq != nil && r.srq.wantsRefill()
}

// close closes everything of the rail but its protection domain, which the memory of all rails needs.
func (r *rail) close() error {
	var errs []error
	if r.cm != nil {
		errs = append(errs, r.cm.listener.Close())
	}
	for _, qp := range r.loopbackQPs {
		errs = append(errs, transport.IgnoreClosed(qp.Close()))
	}
	if r.dg != nil {
		errs = append(errs, r.dg.Close())
	}
	if r.srq != nil {
		errs = append(errs, r.srq.queue.Close())
	}
	return errors.Join(append(errs, r.Close())...)
}
