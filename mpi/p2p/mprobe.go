package p2p

import (
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Message is a message that Improbe has removed from the unexpected queue.
type Message struct{ a *unexpectedMessage }

// Status returns the source, the tag and the size of the message.
func (m *Message) Status() (source int, tag int32, size int) { return m.a.status() }

// Improbe removes the first unexpected message that a receive with this envelope would
// match; nil if there is none.
func (e *Engine) Improbe(envelope Envelope) *Message {
	n := e.unexpected.Match(envelope)
	if n == nil {
		return nil
	}
	a := n.Value
	e.unexpected.Remove(n)
	if e.cfg.Protocol == Speculative && a.header.Kind == wire.RTS && e.lost[a.peer] == nil {
		// Acknowledge now, not in Imrecv: a receive posted in between may send an RTR, and
		// the sender would use it for this message.
		a.rtsAcked = true
		e.sendControl(a.peer, &wire.Header{Kind: wire.RTSAck, Send: a.header.Send})
	}
	return &Message{a}
}

// Imrecv starts to receive a message of Improbe. A message can be received once.
func (e *Engine) Imrecv(r *Request, m *Message) {
	a := m.a
	m.a = nil
	r.Context, r.Peer, r.Tag = a.header.Context, a.peer, a.header.Tag
	r.reset()
	r.isRecv = true
	e.requests.add(r)
	e.deliver(r, a.peer, &a.header, a.data, a.rtsAcked)
	e.freeUnexpected(a)
}
