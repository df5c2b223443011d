package p2p

import (
	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Message is one that was taken out of the queue, for a receive that is to come.
type Message struct{ a *unexpectedMessage }

// Look says whose it is, what it is about, and how long it is.
func (m *Message) Status() (source int, tag int32, size int) { return m.a.status() }

// Take takes out what a receive with this envelope would take now; nil if there is
// nothing. Nobody else gets it.
func (e *Engine) Improbe(envelope match.Envelope) *Message {
	n := e.unexpected.Match(envelope)
	if n == nil {
		return nil
	}
	a := n.Value
	e.unexpected.Remove(n)
	if e.cfg.Protocol == Speculative && a.header.Kind == wire.RTS && e.lost[a.peer] == nil {
		// Now, not when it is received: receives that are posted meanwhile may send
		// RTRs, and its sender would take the first of them for this message's.
		a.recvKnown = true
		e.sendControl(a.peer, &wire.Header{Kind: wire.RTSAck, Send: a.header.Send})
	}
	return &Message{a}
}

// Receive begins the receive of a message that was taken out. Each is received once.
func (e *Engine) Imrecv(r *Request, m *Message) {
	a := m.a
	m.a = nil
	r.Context, r.Peer, r.Tag = a.header.Context, a.peer, a.header.Tag
	r.reset()
	r.isRecv = true
	e.requests.add(r)
	e.deliver(r, a.peer, &a.header, a.data, a.recvKnown)
	e.freeUnexpected(a)
}
