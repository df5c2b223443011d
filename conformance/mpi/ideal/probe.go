package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// probedStatus returns the status of a probed message.
func (c *comm) probedStatus(b *box, k int) mpi.Status {
	defects := c.p.w.defects
	if defects.ProbeLatest {
		k = len(b.unexpected) - 1
	}
	m := b.unexpected[k]
	if defects.ProbeCompletesSync && m.of != nil {
		m.of.finish(nil)
	}
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: len(m.data)}
	if defects.ProbeCutsCount && st.Count > 4096 {
		st.Count = 4096
	}
	if defects.SourceIsOfWorld {
		st.Source = m.sender.rank
	}
	if defects.ProbeConsumes {
		b.unexpected = slices.Delete(b.unexpected, k, k+1)
		m.releaseSendBuffer()
	}
	return st
}

func (c *comm) box() *box { return c.g.boxes[c.rank] }

func (c *comm) Iprobe(source, tag int) (mpi.Status, bool, error) {
	if err := c.usable(); err != nil {
		return mpi.Status{}, false, c.fail("Iprobe", err)
	}
	if err := c.badSource(source, tag); err != nil {
		return mpi.Status{}, false, c.fail("Iprobe", err)
	}
	c.p.letOthersRun()
	defects := c.p.w.defects
	if source == mpi.ProcNull && !defects.NullBlocks {
		return procNullStatus, true, nil
	}
	k := c.p.w.find(c.box(), source, tag)
	switch {
	case k >= 0 && !defects.IprobeNever:
		return c.probedStatus(c.box(), k), true, nil
	case defects.IprobeAlways:
		return mpi.Status{Source: 0, Tag: max(tag, 0)}, true, nil
	}
	return mpi.Status{}, false, nil
}

func (c *comm) Probe(source, tag int) (mpi.Status, error) {
	if err := c.usable(); err != nil {
		return mpi.Status{}, c.fail("Probe", err)
	}
	if err := c.badSource(source, tag); err != nil {
		return mpi.Status{}, c.fail("Probe", err)
	}
	if source == mpi.ProcNull && !c.p.w.defects.NullBlocks {
		return procNullStatus, nil
	}
	k := -1
	c.p.blockUntil("a message to probe", func() bool {
		k = c.p.w.find(c.box(), source, tag)
		return k >= 0
	})
	return c.probedStatus(c.box(), k), nil
}

// message is a message that Mprobe returned. It is empty for MPI_PROC_NULL.
type message struct {
	c    *comm
	m    *msg
	gone bool
}

// takeMatched removes a message from the unexpected ones.
func (c *comm) takeMatched(source, tag, k int) (cases.Message, mpi.Status) {
	defects, b := c.p.w.defects, c.box()
	m := b.unexpected[k]
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: len(m.data)}
	switch {
	case defects.MprobeLeaves:
	default:
		b.unexpected = slices.Delete(b.unexpected, k, k+1)
	}
	if defects.MprobeGetsNext {
		if k := c.p.w.find(b, source, tag); k >= 0 {
			m, b.unexpected[k] = b.unexpected[k], m
		}
	}
	return &message{c: c, m: m}, st
}

func (c *comm) Improbe(source, tag int) (cases.Message, mpi.Status, bool, error) {
	if err := c.badSource(source, tag); err != nil {
		return nil, mpi.Status{}, false, c.fail("Improbe", err)
	}
	c.p.letOthersRun()
	if source == mpi.ProcNull && !c.p.w.defects.NullBlocks {
		return &message{c: c}, procNullStatus, true, nil
	}
	k := c.p.w.find(c.box(), source, tag)
	if k < 0 || c.p.w.defects.IprobeNever {
		return nil, mpi.Status{}, false, nil
	}
	m, st := c.takeMatched(source, tag, k)
	return m, st, true, nil
}

func (c *comm) Mprobe(source, tag int) (cases.Message, mpi.Status, error) {
	if err := c.usable(); err != nil {
		return nil, mpi.Status{}, c.fail("Mprobe", err)
	}
	if err := c.badSource(source, tag); err != nil {
		return nil, mpi.Status{}, c.fail("Mprobe", err)
	}
	if source == mpi.ProcNull && !c.p.w.defects.NullBlocks {
		return &message{c: c}, procNullStatus, nil
	}
	k := -1
	c.p.blockUntil("a message to take", func() bool {
		k = c.p.w.find(c.box(), source, tag)
		return k >= 0
	})
	m, st := c.takeMatched(source, tag, k)
	return m, st, nil
}

func (x *message) Irecv(buf []byte) (cases.Request, error) {
	r := &request{p: x.c.p, c: x.c, buf: buf, source: mpi.ProcNull, active: true}
	switch {
	case x.m == nil:
		x.c.recvFromProcNull(r)
	case x.gone && !x.c.p.w.defects.MessageTwice:
		return nil, x.c.fail("Message.Irecv", mpi.ErrRequest)
	default:
		x.gone = true
		r.source = x.m.source
		r.box = &box{}
		x.c.p.w.fill(r, x.m)
		r.box = nil
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
