package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// envelope is what a probe looks for.
func (c *Comm) envelope(source, tag int) match.Envelope {
	if source != AnySource {
		source = c.worldRank(source)
	}
	return match.Envelope{Context: c.context, Source: int32(source), Tag: int32(tag)}
}

// Probe waits for a message, without receiving it.
func (c *Comm) Probe(source, tag int) (Status, error) {
	st, _, err := c.probe("Probe", source, tag, true)
	return st, err
}

// Iprobe looks for a message.
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	return c.probe("Iprobe", source, tag, false)
}

func (c *Comm) probe(call string, source, tag int, wait bool) (Status, bool, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return empty, false, c.raise(call, err)
	}
	if source == ProcNull {
		return fromNobody, true, nil
	}
	envelope := c.envelope(source, tag)
	st, found := empty, false
	var err error
	see := func() bool {
		from, tag, size, ok := c.k.p2p.Probe(envelope)
		if found = ok; ok {
			st = Status{Source: c.rankOf(from), Tag: int(tag), Count: size}
			return true
		}
		err = c.k.p2p.ProbeError(envelope)
		return err != nil
	}
	c.k.lock()
	if wait {
		c.await(envelope, see)
	} else {
		c.k.look(see)
	}
	c.k.unlock()
	return st, found, c.raise(call, err)
}

// await waits for what a probe looks for, so that others know whom it waits for.
func (c *Comm) await(envelope match.Envelope, so func() bool) {
	k := c.k
	k.probing = append(k.probing, envelope)
	k.until(so)
	i := slices.Index(k.probing, envelope)
	k.probing = slices.Delete(k.probing, i, i+1)
}

// Message is one that a probe has taken out: only it can receive it.
type Message struct {
	c       *Comm
	m       *p2p.Message
	nobody  bool // from ProcNull
	claimed bool
}

// Mprobe waits for a message, and takes it out.
func (c *Comm) Mprobe(source, tag int) (*Message, Status, error) {
	m, st, _, err := c.matched("Mprobe", source, tag, true)
	return m, st, err
}

// Improbe looks for a message, and takes it out if there is one.
func (c *Comm) Improbe(source, tag int) (*Message, Status, bool, error) {
	return c.matched("Improbe", source, tag, false)
}

func (c *Comm) matched(call string, source, tag int, wait bool) (*Message, Status, bool, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return nil, empty, false, c.raise(call, err)
	}
	if source == ProcNull {
		return &Message{c: c, nobody: true}, fromNobody, true, nil
	}
	envelope := c.envelope(source, tag)
	var m *p2p.Message
	var err error
	take := func() bool {
		if m != nil {
			return true
		}
		if m = c.k.p2p.Improbe(envelope); m == nil {
			err = c.k.p2p.ProbeError(envelope)
		}
		return m != nil || err != nil
	}
	c.k.lock()
	if wait {
		c.await(envelope, take)
	} else {
		c.k.look(take)
	}
	c.k.unlock()
	if m == nil {
		return nil, empty, false, c.raise(call, err)
	}
	from, got, size := m.Status()
	return &Message{c: c, m: m}, Status{Source: c.rankOf(from), Tag: int(got), Count: size}, true, nil
}

// claim says why a message cannot be received.
func (m *Message) claim() error {
	if m == nil {
		return fmt.Errorf("%w: there is no message", ErrRequest)
	}
	if m.claimed {
		return fmt.Errorf("%w: a matched message is received once", ErrRequest)
	}
	if err := m.c.k.over(); err != nil {
		return err
	}
	m.claimed = true
	return nil
}

// comm is the communicator of a message, if there is one.
func (m *Message) comm() *Comm {
	if m == nil {
		return nil
	}
	return m.c
}

// Recv receives the message.
func (m *Message) Recv(buf []byte) (Status, error) {
	if err := m.claim(); err != nil {
		return empty, m.comm().raise("Message.Recv", err)
	}
	if m.nobody {
		return fromNobody, nil
	}
	k := m.c.k
	k.lock()
	r := k.borrow()
	r.p.Buf = buf
	k.p2p.Imrecv(&r.p, m.m)
	k.until(r.p.Done)
	st, err := m.c.received(&r.p), r.p.Err
	k.giveBack(r)
	k.unlock()
	return st, m.c.raise("Message.Recv", err)
}

// Irecv begins to receive the message.
func (m *Message) Irecv(buf []byte) (*Request, error) {
	if err := m.claim(); err != nil {
		return nil, m.comm().raise("Message.Irecv", err)
	}
	r := &Request{c: m.c, call: "Message.Irecv", active: true, found: fromNobody}
	if m.nobody {
		return r, nil
	}
	r.kind = receives
	m.c.k.lock()
	r.p.Buf = buf
	m.c.k.p2p.Imrecv(&r.p, m.m)
	m.c.k.unlock()
	return r, nil
}
