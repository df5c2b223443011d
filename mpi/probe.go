package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// envelope returns the match envelope of a source and a tag.
func (c *Comm) envelope(source, tag int) p2p.Envelope {
	if source != AnySource {
		source = c.worldRank(source)
	}
	return p2p.Envelope{Context: c.context, Source: int32(source), Tag: int32(tag)}
}

// Probe waits for a matching message without receiving it.
func (c *Comm) Probe(source, tag int) (Status, error) {
	st, _, err := c.probe("Probe", source, tag, true)
	return st, err
}

// Iprobe reports whether a matching message has arrived, without receiving it.
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	return c.probe("Iprobe", source, tag, false)
}

func (c *Comm) probe(call string, source, tag int, wait bool) (Status, bool, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return emptyStatus, false, c.raise(call, err)
	}
	if source == ProcNull {
		return procNullStatus, true, nil
	}
	envelope := c.envelope(source, tag)
	st, found := emptyStatus, false
	var err error
	tryProbe := func() bool {
		from, tag, size, ok := c.rank.p2p.Probe(envelope)
		if found = ok; ok {
			st = Status{Source: c.rankOf(from), Tag: int(tag), Count: size}
			return true
		}
		err = c.rank.p2p.ProbeError(envelope)
		return err != nil
	}
	c.tryUntil(tryProbe, envelope, wait)
	return st, found, c.raise(call, err)
}

// tryUntil probes once, or waits until done. While it waits it records the envelope, so that
// EachAwaitedPeer visits its peers.
func (c *Comm) tryUntil(done func() bool, envelope p2p.Envelope, wait bool) {
	k := c.rank
	k.lock()
	if wait {
		k.activeProbes = append(k.activeProbes, envelope)
		k.waitUntil(done)
		i := slices.Index(k.activeProbes, envelope)
		k.activeProbes = slices.Delete(k.activeProbes, i, i+1)
	} else {
		k.pollOnce(done)
	}
	k.unlock()
}

// Message is a handle from Mprobe or Improbe. Only this handle can receive the message.
type Message struct {
	c        *Comm
	m        *p2p.Message
	procNull bool
	received bool
}

// Mprobe waits for a matching message and removes it from matching.
func (c *Comm) Mprobe(source, tag int) (*Message, Status, error) {
	m, st, _, err := c.mprobe("Mprobe", source, tag, true)
	return m, st, err
}

// Improbe is Mprobe without waiting.
func (c *Comm) Improbe(source, tag int) (*Message, Status, bool, error) {
	return c.mprobe("Improbe", source, tag, false)
}

func (c *Comm) mprobe(call string, source, tag int, wait bool) (*Message, Status, bool, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return nil, emptyStatus, false, c.raise(call, err)
	}
	if source == ProcNull {
		return &Message{c: c, procNull: true}, procNullStatus, true, nil
	}
	envelope := c.envelope(source, tag)
	var m *p2p.Message
	var err error
	tryMprobe := func() bool {
		if m != nil {
			return true
		}
		if m = c.rank.p2p.Improbe(envelope); m == nil {
			err = c.rank.p2p.ProbeError(envelope)
		}
		return m != nil || err != nil
	}
	c.tryUntil(tryMprobe, envelope, wait)
	if m == nil {
		return nil, emptyStatus, false, c.raise(call, err)
	}
	from, got, size := m.Status()
	return &Message{c: c, m: m}, Status{Source: c.rankOf(from), Tag: int(got), Count: size}, true, nil
}

// markReceived marks the message as received, or returns why it cannot be.
func (m *Message) markReceived() error {
	if m == nil {
		return fmt.Errorf("%w: the message is nil", ErrRequest)
	}
	if m.received {
		return fmt.Errorf("%w: the message has already been received", ErrRequest)
	}
	if err := m.c.rank.checkRunning(); err != nil {
		return err
	}
	m.received = true
	return nil
}

// comm returns the communicator of the message; nil for a nil message.
func (m *Message) comm() *Comm {
	if m == nil {
		return nil
	}
	return m.c
}

// Recv receives the message.
func (m *Message) Recv(buf []byte) (Status, error) {
	if err := m.markReceived(); err != nil {
		return emptyStatus, m.comm().raise("Message.Recv", err)
	}
	if m.procNull {
		return procNullStatus, nil
	}
	k := m.c.rank
	k.lock()
	r := k.allocRequest()
	r.p2p.Buf = buf
	k.p2p.Imrecv(&r.p2p, m.m)
	k.waitUntil(r.p2p.Done)
	st, err := m.c.recvStatus(&r.p2p), r.p2p.Err
	k.freeRequest(r)
	k.unlock()
	return st, m.c.raise("Message.Recv", err)
}

// Irecv starts to receive the message.
func (m *Message) Irecv(buf []byte) (*Request, error) {
	if err := m.markReceived(); err != nil {
		return nil, m.comm().raise("Message.Irecv", err)
	}
	r := &Request{c: m.c, call: "Message.Irecv", active: true, status: procNullStatus}
	if m.procNull {
		return r, nil
	}
	r.kind = recvRequest
	m.c.rank.lock()
	r.p2p.Buf = buf
	m.c.rank.p2p.Imrecv(&r.p2p, m.m)
	m.c.rank.unlock()
	return r, nil
}
