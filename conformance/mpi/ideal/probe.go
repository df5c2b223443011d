package ideal

import (
	"cmp"
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// The argument wait of findMessage, mprobe and findComplete.
const nonblocking, blocking = false, true

// probedStatus returns the status that a probe returns for the unexpected message with index k.
// Defects return a wrong status, remove the message, or complete its send.
func (c *comm) probedStatus(queues *recvQueues, k int) mpi.Status {
	if c.Defects.ProbeLatest {
		k = len(queues.unexpected) - 1
	}
	m := queues.unexpected[k]
	if c.Defects.ProbeCompletesSync && m.send != nil {
		m.send.finish(nil)
	}
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: len(m.data)}
	if c.Defects.ProbeCutsCount && st.Count > largeMessage {
		st.Count = largeMessage
	}
	if c.Defects.SourceIsOfWorld {
		st.Source = m.sender.rank
	}
	if c.Defects.ProbeConsumes {
		queues.unexpected = slices.Delete(queues.unexpected, k, k+1)
		m.completeSend()
	}
	return st
}

// queues returns the queues of this rank in the communicator.
func (c *comm) queues() *recvQueues { return c.group.queues[c.rank] }

// Iprobe is MPI_Iprobe. findMessage returns index -1 for MPI_PROC_NULL.
func (c *comm) Iprobe(source, tag int) (mpi.Status, bool, error) {
	k, found, err := c.findMessage("Iprobe", source, tag, nonblocking)
	switch {
	case err != nil || found && k < 0: // a failure, or MPI_PROC_NULL
		return procNullStatus, found, err
	case found:
		return c.probedStatus(c.queues(), k), true, nil
	case c.Defects.IprobeAlways:
		return mpi.Status{Source: 0, Tag: max(tag, 0)}, true, nil
	}
	return mpi.Status{}, false, nil
}

// Probe is MPI_Probe. findMessage returns index -1 for MPI_PROC_NULL.
func (c *comm) Probe(source, tag int) (mpi.Status, error) {
	k, _, err := c.findMessage("Probe", source, tag, blocking)
	if err != nil || k < 0 {
		return procNullStatus, err
	}
	return c.probedStatus(c.queues(), k), nil
}

// findMessage returns the index of the unexpected message that a probe finds. If the source is
// MPI_PROC_NULL, found is true and the index is -1. If wait is true, it waits for a message.
func (c *comm) findMessage(call string, source, tag int, wait bool) (k int, found bool, err error) {
	if err := cmp.Or(c.startCall(), c.checkSource(source, tag)); err != nil {
		return -1, false, c.fail(call, err)
	}
	if !wait {
		c.letOthersRun()
	}
	if source == mpi.ProcNull && !c.Defects.NullBlocks {
		return -1, true, nil
	}
	find := func() bool {
		k = c.findUnexpected(c.queues(), source, tag)
		return k >= 0
	}
	if wait {
		c.blockUntil("a message of "+call, find)
		return k, true, nil
	}
	found = find()
	return k, found && !c.Defects.IprobeNever, nil
}

// message is a message that Mprobe returned. It is empty for MPI_PROC_NULL.
type message struct {
	c        *comm
	m        *msg
	received bool
}

func (c *comm) Improbe(source, tag int) (cases.Message, mpi.Status, bool, error) {
	return c.mprobe("Improbe", source, tag, nonblocking)
}

func (c *comm) Mprobe(source, tag int) (cases.Message, mpi.Status, error) {
	m, st, _, err := c.mprobe("Mprobe", source, tag, blocking)
	return m, st, err
}

// mprobe removes a message from the unexpected messages. If wait is true, it waits for one. Defects
// (deliberate errors) leave the message there, or return another.
func (c *comm) mprobe(call string, source, tag int, wait bool) (cases.Message, mpi.Status, bool, error) {
	k, found, err := c.findMessage(call, source, tag, wait)
	switch {
	case err != nil || !found:
		return nil, mpi.Status{}, false, err
	case k < 0:
		return &message{c: c}, procNullStatus, true, nil
	}
	queues := c.queues()
	m := queues.unexpected[k]
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: len(m.data)}
	if !c.Defects.MprobeLeaves {
		queues.unexpected = slices.Delete(queues.unexpected, k, k+1)
	}
	if c.Defects.MprobeGetsNext {
		if k := c.findUnexpected(queues, source, tag); k >= 0 {
			m, queues.unexpected[k] = queues.unexpected[k], m
		}
	}
	return &message{c: c, m: m}, st, true, nil
}

// Irecv is MPI_Imrecv: it starts to receive a message that a probe has matched.
func (matched *message) Irecv(buf []byte) (cases.Request, error) {
	r := &request{c: matched.c, buf: buf, peer: mpi.ProcNull, active: true}
	switch {
	case matched.m == nil:
		matched.c.recvFromProcNull(r)
	case matched.received && !matched.c.Defects.MessageTwice:
		return nil, matched.c.fail("Message.Irecv", mpi.ErrRequest)
	default:
		matched.received = true
		r.peer = matched.m.source
		r.queues = &recvQueues{} // the defect TruncateKeepsRest adds the rest of a message to it
		matched.c.completeRecv(r, matched.m)
		r.queues = nil // a matched message cannot be cancelled
	}
	return r, nil
}

// Recv is MPI_Mrecv: it receives a message that a probe has matched.
func (matched *message) Recv(buf []byte) (mpi.Status, error) {
	r, err := matched.Irecv(buf)
	if r == nil { // err is nil as well if an error handler has ignored the error
		return mpi.Status{}, err
	}
	return r.Wait()
}
