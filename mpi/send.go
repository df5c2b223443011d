package mpi

import "github.com/fabrictest/fabrictest/mpi/p2p"

// Send sends a message. It may return before the message is received.
func (c *Comm) Send(buf []byte, dest, tag int) error {
	return c.send("Send", buf, dest, tag, p2p.Standard)
}

// Ssend is a synchronous send: it returns when the receive has started.
func (c *Comm) Ssend(buf []byte, dest, tag int) error {
	return c.send("Ssend", buf, dest, tag, p2p.Synchronous)
}

// Rsend is a ready send: the receive must already be posted. If it is not, the message is
// delivered and counted in Stats.P2P.NotReady.
func (c *Comm) Rsend(buf []byte, dest, tag int) error {
	return c.send("Rsend", buf, dest, tag, p2p.Ready)
}

// send sends a message and waits for completion.
func (c *Comm) send(call string, buf []byte, dest, tag int, mode p2p.Mode) error {
	err := c.checkSend(dest, tag)
	if err == nil && dest != ProcNull {
		c.rank.lock()
		r := c.rank.allocRequest()
		c.startBlockingSend(&r.p2p, c.context, message{buf, dest, tag}, mode)
		c.rank.carrier.Flush() // the program may compute next
		c.rank.waitUntil(r.p2p.Done)
		err = r.p2p.Err
		c.rank.freeRequest(r)
		c.rank.unlock()
	}
	return c.raise(call, err)
}

// message is the buffer, the peer and the tag of a send or a receive. The peer is a rank of
// the communicator.
type message struct {
	buf       []byte
	peer, tag int
}

// startSend starts a nonblocking send. The caller holds the lock.
func (c *Comm) startSend(p *p2p.Request, context uint32, m message, mode p2p.Mode) {
	p.Peer, p.Context, p.Tag, p.Buf, p.Mode, p.Blocking = c.worldRank(m.peer), context, int32(m.tag), m.buf, mode, false
	c.rank.p2p.Isend(p)
}

// startBlockingSend is startSend for a caller that waits for this send only: unless the mode is
// Synchronous, the transport copies eager data, so that the send completes at once.
func (c *Comm) startBlockingSend(p *p2p.Request, context uint32, m message, mode p2p.Mode) {
	p.Peer, p.Context, p.Tag, p.Buf, p.Mode, p.Blocking = c.worldRank(m.peer), context, int32(m.tag), m.buf, mode, mode != p2p.Synchronous
	c.rank.p2p.Isend(p)
}

// Isend starts a send.
func (c *Comm) Isend(buf []byte, dest, tag int) (*Request, error) {
	return c.isend("Isend", buf, dest, tag, p2p.Standard)
}

// Issend starts a synchronous send.
func (c *Comm) Issend(buf []byte, dest, tag int) (*Request, error) {
	return c.isend("Issend", buf, dest, tag, p2p.Synchronous)
}

// Irsend starts a ready send.
func (c *Comm) Irsend(buf []byte, dest, tag int) (*Request, error) {
	return c.isend("Irsend", buf, dest, tag, p2p.Ready)
}

// isend starts a send of a mode.
func (c *Comm) isend(call string, buf []byte, dest, tag int, mode p2p.Mode) (*Request, error) {
	if err := c.checkSend(dest, tag); err != nil {
		return nil, c.raise(call, err)
	}
	if dest == ProcNull {
		return &Request{c: c, call: call, active: true, status: emptyStatus}, nil
	}
	r := &Request{c: c, call: call, active: true, kind: sendRequest}
	c.rank.lock()
	c.startSend(&r.p2p, c.context, message{buf, dest, tag}, mode)
	c.rank.unlock()
	return r, nil
}
