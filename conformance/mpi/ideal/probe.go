package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// seen is what a probe says of a message.
func (c *comm) seen(b *box, k int) mpi.Status {
	fl := c.p.w.fl
	if fl.ProbeLatest {
		k = len(b.unexpected) - 1
	}
	m := b.unexpected[k]
	if fl.ProbeCompletesSync && m.of != nil {
		m.of.finish(nil)
	}
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: len(m.data)}
	if fl.ProbeCutsCount && st.Count > 4096 {
		st.Count = 4096
	}
	if fl.SourceIsOfWorld {
		st.Source = m.sender.rank
	}
	if fl.ProbeConsumes {
		b.unexpected = slices.Delete(b.unexpected, k, k+1)
		m.left()
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
	c.p.look()
	fl := c.p.w.fl
	if source == mpi.ProcNull && !fl.NullBlocks {
		return nobody, true, nil
	}
	k := c.p.w.find(c.box(), source, tag)
	switch {
	case k >= 0 && !fl.IprobeNever:
		return c.seen(c.box(), k), true, nil
	case fl.IprobeAlways:
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
	if source == mpi.ProcNull && !c.p.w.fl.NullBlocks {
		return nobody, nil
	}
	k := -1
	c.p.park("a message to probe", func() bool {
		k = c.p.w.find(c.box(), source, tag)
		return k >= 0
	})
	return c.seen(c.box(), k), nil
}

// message is one that was taken out. That of nobody has none.
type message struct {
	c    *comm
	m    *msg
	gone bool
}

// take takes a message out.
func (c *comm) take(source, tag, k int) (cases.Message, mpi.Status) {
	fl, b := c.p.w.fl, c.box()
	m := b.unexpected[k]
	st := mpi.Status{Source: m.source, Tag: m.tag, Count: len(m.data)}
	switch {
	case fl.MprobeLeaves:
	default:
		b.unexpected = slices.Delete(b.unexpected, k, k+1)
	}
	if fl.MprobeGetsNext {
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
	c.p.look()
	if source == mpi.ProcNull && !c.p.w.fl.NullBlocks {
		return &message{c: c}, nobody, true, nil
	}
	k := c.p.w.find(c.box(), source, tag)
	if k < 0 || c.p.w.fl.IprobeNever {
		return nil, mpi.Status{}, false, nil
	}
	m, st := c.take(source, tag, k)
	return m, st, true, nil
}

func (c *comm) Mprobe(source, tag int) (cases.Message, mpi.Status, error) {
	if err := c.usable(); err != nil {
		return nil, mpi.Status{}, c.fail("Mprobe", err)
	}
	if err := c.badSource(source, tag); err != nil {
		return nil, mpi.Status{}, c.fail("Mprobe", err)
	}
	if source == mpi.ProcNull && !c.p.w.fl.NullBlocks {
		return &message{c: c}, nobody, nil
	}
	k := -1
	c.p.park("a message to take", func() bool {
		k = c.p.w.find(c.box(), source, tag)
		return k >= 0
	})
	m, st := c.take(source, tag, k)
	return m, st, nil
}

func (x *message) Irecv(buf []byte) (cases.Request, error) {
	r := &request{p: x.c.p, c: x.c, buf: buf, source: mpi.ProcNull, active: true}
	switch {
	case x.m == nil:
		x.c.fromNobody(r)
	case x.gone && !x.c.p.w.fl.MessageTwice:
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
