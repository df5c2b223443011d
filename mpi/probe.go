package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// Probe waits for a matching message without receiving it.
func (c *Comm) Probe(source, tag int) (Status, error) {
	st, _, err := c.probeStatus("Probe", source, tag, blocking)
	return st, err
}

// Iprobe reports whether a matching message has arrived, without receiving it.
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	return c.probeStatus("Iprobe", source, tag, nonblocking)
}

// probeStatus waits for a matching message, or looks for one once if wait is false, and returns its
// status. The bool is false if there is none.
func (c *Comm) probeStatus(call string, source, tag int, wait bool) (Status, bool, error) {
	st := emptyStatus
	found, err := c.probe(call, source, tag, wait, func(e p2p.Envelope) bool {
		from, tag, size, found := c.rank.p2p.Probe(e)
		if found {
			st = Status{Source: c.rankOf(from), Tag: int(tag), Count: size}
		}
		return found
	})
	if found && source == ProcNull {
		st = procNullStatus
	}
	return st, found, err
}

// probe calls find until it finds a message or none can arrive any more, or once if wait is false.
// ProcNull always has a message, for which find is not called.
func (c *Comm) probe(call string, source, tag int, wait bool, find func(p2p.Envelope) bool) (found bool, err error) {
	if err := c.checkRecv(source, tag); err != nil || source == ProcNull {
		return err == nil, c.raise(call, err)
	}
	envelope := p2p.Envelope{Context: c.context, Source: p2p.Any, Tag: int32(tag)}
	if source != AnySource {
		envelope.Source = int32(c.worldRank(source))
	}
	done := func() bool {
		if found = found || find(envelope); !found {
			err = c.rank.p2p.ProbeError(envelope)
		}
		return found || err != nil
	}
	k := c.rank
	k.lock()
	if wait {
		if k.calls != nil {
			k.calls.waitsFor(k.calls.probe(c, envelope))
		}
		k.activeProbes = append(k.activeProbes, envelope) // EachAwaitedPeer visits its peers
		k.waitUntil(done)
		i := slices.Index(k.activeProbes, envelope)
		k.activeProbes = slices.Delete(k.activeProbes, i, i+1)
	} else {
		k.pollOnce(done)
	}
	k.unlock()
	if t := k.calls; t != nil && !wait && !found {
		t.polledFor(&misuse.Wait{Place: t.place(), Ops: []*misuse.Op{t.probe(c, envelope)}})
	}
	return found, c.raise(call, err)
}

// Message is a handle from Mprobe or Improbe. Only this handle can receive the message.
type Message struct {
	c        *Comm
	matched  *p2p.Message // nil for ProcNull
	received bool
}

// Mprobe waits for a matching message and returns it, to be received with Message.Recv or
// Message.Irecv. No other receive or probe matches it.
func (c *Comm) Mprobe(source, tag int) (*Message, Status, error) {
	m, st, _, err := c.mprobe("Mprobe", source, tag, blocking)
	return m, st, err
}

// Improbe returns a matching message, as Mprobe does, if one has arrived; else false.
func (c *Comm) Improbe(source, tag int) (*Message, Status, bool, error) {
	return c.mprobe("Improbe", source, tag, nonblocking)
}

// mprobe takes a matching message; the bool is false if there is none. If wait is true, it waits.
func (c *Comm) mprobe(call string, source, tag int, wait bool) (*Message, Status, bool, error) {
	var m *p2p.Message
	found, err := c.probe(call, source, tag, wait, func(e p2p.Envelope) bool {
		m = c.rank.p2p.Improbe(e)
		return m != nil
	})
	switch {
	case !found:
		return nil, emptyStatus, false, err
	case m == nil: // source is ProcNull
		return &Message{c: c}, procNullStatus, true, nil
	}
	from, messageTag, size := m.Status()
	message := &Message{c: c, matched: m}
	if t := c.rank.calls; t != nil {
		t.matched(c, message, from, int(messageTag))
	}
	return message, Status{Source: c.rankOf(from), Tag: int(messageTag), Count: size}, true, nil
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

// Recv receives the message, which can be received only once. It returns at once if the message is
// from ProcNull.
func (m *Message) Recv(buf []byte) (Status, error) {
	if err := m.markReceived(); err != nil {
		return emptyStatus, m.comm().raise("Message.Recv", err)
	}
	if m.matched == nil {
		return procNullStatus, nil
	}
	k := m.c.rank
	k.lock()
	if k.calls != nil {
		k.calls.received(m, buf)
	}
	r := k.allocP2P()
	r.Buf = buf
	if k.races != nil {
		k.races.startRecv(r, buf)
	}
	k.p2p.Imrecv(r, m.matched)
	st, err := m.c.await(r)
	k.unlock()
	return st, m.c.raise("Message.Recv", err)
}

// Irecv starts to receive the message that Mprobe or Improbe has matched. The message of
// MPI_PROC_NULL has no match, and is received at once.
func (m *Message) Irecv(buf []byte) (*Request, error) {
	if err := m.markReceived(); err != nil {
		return nil, m.comm().raise("Message.Irecv", err)
	}
	r := &Request{c: m.c, call: "Message.Irecv", active: true, status: procNullStatus}
	if m.matched == nil {
		return r, nil
	}
	r.kind = recvRequest
	k := m.c.rank
	k.lock()
	r.p2p = k.allocP2P()
	r.p2p.Buf = buf
	if k.races != nil {
		k.races.startRecv(r.p2p, buf)
	}
	if k.calls != nil {
		k.calls.received(m, buf)
		k.calls.newRequest(r, false)
	}
	k.p2p.Imrecv(r.p2p, m.matched)
	k.unlock()
	return r, nil
}
