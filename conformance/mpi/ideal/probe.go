package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// probedStatus returns the status of a probed message.
func (c *comm) probedStatus(b *recvQueues, k int) mpi.Status {
	if c.Defects.ProbeLatest {
		k = len(b.unexpected) - 1
	}
	m := b.unexpected[k]
	if c.Defects.ProbeCompletesSync && m.send != nil {
		m.send.finish(nil)
	}
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: len(m.data)}
	if c.Defects.ProbeCutsCount && st.Count > 4096 {
		st.Count = 4096
	}
	if c.Defects.SourceIsOfWorld {
		st.Source = m.sender.rank
	}
	if c.Defects.ProbeConsumes {
		b.unexpected = slices.Delete(b.unexpected, k, k+1)
		m.releaseSendBuffer()
	}
	return st
}

func (c *comm) queues() *recvQueues { return c.g.queues[c.rank] }

func (c *comm) Iprobe(source, tag int) (mpi.Status, bool, error) {
	k, found, err := c.findMessage("Iprobe", source, tag, false)
	switch {
	case err != nil || found && k < 0:
		return procNullStatus, found, err
	case found:
		return c.probedStatus(c.queues(), k), true, nil
	case c.Defects.IprobeAlways:
		return mpi.Status{Source: 0, Tag: max(tag, 0)}, true, nil
	}
	return mpi.Status{}, false, nil
}

func (c *comm) Probe(source, tag int) (mpi.Status, error) {
	k, _, err := c.findMessage("Probe", source, tag, true)
	if err != nil || k < 0 {
		return procNullStatus, err
	}
	return c.probedStatus(c.queues(), k), nil
}

// findMessage returns the index of the unexpected message that a probe finds, or -1 with
// found for MPI_PROC_NULL. If wait is true, it waits for a message.
func (c *comm) findMessage(call string, source, tag int, wait bool) (k int, found bool, err error) {
	err = c.startCall()
	if err == nil {
		err = c.checkSource(source, tag)
	}
	if err != nil {
		return -1, false, c.fail(call, err)
	}
	if !wait {
		c.letOthersRun()
	}
	if source == mpi.ProcNull && !c.Defects.NullBlocks {
		return -1, true, nil
	}
	find := func() bool {
		k = c.find(c.queues(), source, tag)
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
	c    *comm
	m    *msg
	gone bool
}

// takeMatched removes a message from the unexpected ones.
func (c *comm) takeMatched(source, tag, k int) (cases.Message, mpi.Status) {
	b := c.queues()
	m := b.unexpected[k]
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: len(m.data)}
	if !c.Defects.MprobeLeaves {
		b.unexpected = slices.Delete(b.unexpected, k, k+1)
	}
	if c.Defects.MprobeGetsNext {
		if k := c.find(b, source, tag); k >= 0 {
			m, b.unexpected[k] = b.unexpected[k], m
		}
	}
	return &message{c: c, m: m}, st
}

func (c *comm) Improbe(source, tag int) (cases.Message, mpi.Status, bool, error) {
	return c.mprobe("Improbe", source, tag, false)
}

func (c *comm) Mprobe(source, tag int) (cases.Message, mpi.Status, error) {
	m, st, _, err := c.mprobe("Mprobe", source, tag, true)
	return m, st, err
}

// mprobe finds a message and removes it from the unexpected ones.
func (c *comm) mprobe(call string, source, tag int, wait bool) (cases.Message, mpi.Status, bool, error) {
	k, found, err := c.findMessage(call, source, tag, wait)
	switch {
	case err != nil || !found:
		return nil, mpi.Status{}, false, err
	case k < 0:
		return &message{c: c}, procNullStatus, true, nil
	}
	m, st := c.takeMatched(source, tag, k)
	return m, st, true, nil
}

func (x *message) Irecv(buf []byte) (cases.Request, error) {
	r := &request{c: x.c, buf: buf, peer: mpi.ProcNull, active: true}
	switch {
	case x.m == nil:
		x.c.recvFromProcNull(r)
	case x.gone && !x.c.Defects.MessageTwice:
		return nil, x.c.fail("Message.Irecv", mpi.ErrRequest)
	default:
		x.gone = true
		r.peer = x.m.source
		r.queues = &recvQueues{}
		x.c.completeRecv(r, x.m)
		r.queues = nil
	}
	return r, nil
}

func (x *message) Recv(buf []byte) (mpi.Status, error) {
	r, err := x.Irecv(buf)
	if err != nil {
		return mpi.Status{}, err
	}
	return r.Wait()
}
