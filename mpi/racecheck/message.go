package racecheck

import (
	"slices"

	"github.com/fabrictest/fabrictest/explore"
)

// envelope identifies the messages that are received in the order of their sends.
type envelope struct {
	context  uint32
	from, to int // world ranks
	tag      int32
}

// Message is a point-to-point message.
type Message struct {
	sent     clock
	received clock // when the receive that matched it began; nil before
}

// Send starts a send, which reads mem, to a world rank. With isSynchronous it completes after the receive
// has begun.
func (c *Checker) Send(p explore.Place, context uint32, to int, tag int32, mem []byte, isSynchronous bool) *Op {
	c.begin(p)
	m := &Message{sent: c.snapshot(p.Rank)}
	e := envelope{context, p.Rank, to, tag}
	c.messages[e] = append(c.messages[e], m)
	o := c.startBuffers(p, [][]byte{mem}, nil)
	if isSynchronous {
		o.sync = m
	}
	return o
}

// Recv starts a receive, which writes mem.
func (c *Checker) Recv(p explore.Place, mem []byte) *Op {
	c.begin(p)
	return c.startBuffers(p, nil, [][]byte{mem})
}

// Arrived returns the message that has arrived from a world rank: that of the first send that has not
// arrived; nil if none was sent.
func (c *Checker) Arrived(context uint32, from, to int, tag int32) *Message {
	e := envelope{context, from, to, tag}
	queue := c.messages[e]
	if len(queue) == 0 {
		return nil
	}
	m := queue[0]
	if queue = slices.Delete(queue, 0, 1); len(queue) == 0 {
		delete(c.messages, e)
	} else {
		c.messages[e] = queue
	}
	return m
}

// Matched records that a receive matches a message, which may be nil.
func (c *Checker) Matched(receive *Op, m *Message) {
	if m != nil {
		receive.message, m.received = m, receive.start
	}
}
