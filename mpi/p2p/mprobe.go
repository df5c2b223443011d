package p2p

import (
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Message is a message that Improbe has removed from the unexpected queue.
type Message struct{ unexpected *unexpectedMessage }

// Status returns the source, the tag and the size of the message.
func (m *Message) Status() (source int, tag int32, size int) { return m.unexpected.status() }

// Improbe removes the first unexpected message that a receive with this envelope would
// match; nil if there is none.
func (e *Engine) Improbe(envelope Envelope) *Message {
	n := e.unexpected.Match(envelope)
	if n == nil {
		return nil
	}
	msg := n.Value
	e.unexpected.Remove(n)
	if e.cfg.Protocol == Speculative && msg.header.Kind == wire.RTS && e.lost[msg.peer] == nil {
		// Acknowledge now, not in Imrecv: a receive posted in between may send an RTR, and
		// the sender would use it for this message.
		msg.rtsAcked = true
		e.sendControl(msg.peer, &wire.Header{Kind: wire.RTSAck, Send: msg.header.Send})
	}
	return &Message{msg}
}

// Imrecv starts to receive a message of Improbe. A message can be received once.
func (e *Engine) Imrecv(r *Request, m *Message) {
	msg := m.unexpected
	m.unexpected = nil
	r.Context, r.Peer, r.Tag = msg.header.Context, msg.peer, msg.header.Tag
	r.reset()
	r.isRecv = true
	e.requests.add(r)
	e.deliver(r, msg.peer, &msg.header, msg.data, msg.rtsAcked)
	e.freeUnexpected(msg)
}
