package mpi

import "github.com/fabrictest/fabrictest/mpi/coll"

// All ranks call the blocking collectives in the same order, so one tag per operation suffices: that is
// its number. Nonblocking and persistent operations have separate tags, as long as fewer than
// maxNonblocking of a communicator are active at once.
const (
	tagNonblocking = int(coll.NumOps)
	maxNonblocking = 1 << 20

	// stepTags is the distance of the tags of steps of one operation. It is above all tags of operations, and
	// coll.MaxTag such tags are below tagFailed.
	stepTags = 2 * maxNonblocking

	// tagFailed marks the announcement that collectives on a communicator have failed.
	tagFailed = TagMax
)

// newNonblocking returns a request for a collective operation that has not started. The caller holds
// the lock.
func (c *Comm) newNonblocking(call string, a *collectiveCall) *Request {
	x := c.newExecution(a, tagNonblocking+c.nonblocking%maxNonblocking)
	c.nonblocking++
	return &Request{c: c, call: call, kind: collectiveRequest, execution: x}
}

// startCollective starts a nonblocking operation.
func (c *Comm) startCollective(call string, a collectiveCall) (*Request, error) {
	if a.err == nil {
		c.recordArrival(&a)
		a.err = c.share(&a, false)
	}
	return lockedResult(c, call, a.err, func() (*Request, error) {
		r := c.newNonblocking(call, &a)
		r.active = true
		if t := c.rank.calls; t != nil {
			t.collectiveStarted(call, r.execution)
			t.newRequest(r, false)
		}
		r.execution.startNonblocking()
		return r, nil
	})
}

// prepareCollective creates a persistent operation, inactive until Start. All ranks create and start
// the collective operations of a communicator in the same order.
func (c *Comm) prepareCollective(call string, a collectiveCall) (*Request, error) {
	if a.err == nil {
		a.err = c.share(&a, false)
	}
	return lockedResult(c, call, a.err, func() (*Request, error) {
		r := c.newNonblocking(call, &a)
		r.execution.persistent = true
		if t := c.rank.calls; t != nil {
			t.newRequest(r, true)
			c.beginCollective(checkedCall(call, &r.execution.collectiveCall))()
		}
		return r, nil
	})
}
