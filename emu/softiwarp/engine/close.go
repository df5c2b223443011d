package engine

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// drain acts on what input has caused.
func (c *Conn) handleMPAEvents() {
	for {
		e, ok := c.mpa.Next()
		if !ok {
			return
		}
		switch e.Kind {
		case mpa.EventULPDU:
			c.ulpdu(e.ULPDU)
		case mpa.EventRequest:
			c.storePeerParams(&e)
			c.rearm()
			c.setState(Requested)
		case mpa.EventAccepted:
			c.storePeerParams(&e)
			c.rearm()
			c.receiveReply(e.Params)
		case mpa.EventRejected:
			c.storePeerParams(&e)
			c.err = ErrRejected
			c.detach()
			c.closeAfterOutput()
		case mpa.EventError, mpa.EventTimeout:
			c.fallback = e.Fallback
			if e.ULPDU != nil && c.qp != nil {
				c.qp.stream.PlaceUnchecked(e.ULPDU)
			}
			c.mpaFailed(&e)
		case mpa.EventEOF:
			c.fallback = e.Fallback
			if c.state < Accepted {
				c.mpaFailed(&e)
			}
		}
	}
}

// learn keeps what the peer's start-up frame says.
func (c *Conn) storePeerParams(e *mpa.Event) {
	c.peer = *e.Params
	c.private = append([]byte(nil), e.PrivateData...)
}

// ulpdu takes a segment.
func (c *Conn) ulpdu(segment []byte) {
	c.stopNudging()
	if c.qp == nil {
		c.nic.Count.DropNoQP++
		return
	}
	c.qp.stream.Input(segment)
	if c.state == Accepted && c.qp != nil && c.qp.stream.Live() {
		c.setState(Established)
	}
	c.queueOutput() // for what it asks for, and since a responder may send now
}

// mpaFailed ends the connection for an error that MPA found. A queue pair that
// was not connected yet stays as it was, unless there is a Terminate to send.
func (c *Conn) mpaFailed(e *mpa.Event) {
	if c.err == nil {
		c.err = e.Err
	}
	speaks := e.Reaction == mpa.TerminateThenClose
	if q := c.qp; q != nil {
		if speaks && c.state < Accepted && q.idle() {
			c.openStream()
			q.state = verbs.QPStateRTS
		}
		switch {
		case q.stream.Live():
			q.report(verbs.EventQPFatal)
			q.stream.Fail(e.Term, speaks)
		case c.state < Accepted:
			c.detach()
		}
	}
	c.closeAfterOutput()
}

// streamEnded is called when the QP's stream has failed, of itself or because it
// was told to, or was closed.
func (c *Conn) streamEnded(end iwarp.End) {
	if c.err == nil && end.Cause != iwarp.ByClose {
		c.err = fmt.Errorf("%w: %v", ErrTerminated, end.Error)
	}
	c.copyPendingOutput()
	if end.Terminate && (c.outputClosed || !c.mpa.MaySend()) {
		// Our direction has ended; or a responder has not heard of the initiator, and
		// must be silent.
		c.qp.stream.Drop()
	}
	c.startClosing()
	c.closeWhenSent = c.closeWhenSent || c.outputDone()
}

// keepOut copies what is on its way out of memory that the program has back now:
// an FPDU that is half out must be ended, so that a Terminate can follow it.
func (c *Conn) copyPendingOutput() {
	var bufs [][]byte
	for {
		bufs = c.mpa.Output(bufs[:0])
		n := 0
		for _, b := range bufs {
			c.tail = append(c.tail, b...)
			n += len(b)
		}
		if n == 0 {
			return
		}
		c.qp.stream.Taken(c.mpa.Sent(n))
	}
}

// Disconnect closes the connection in order: what was posted is carried out, and
// answered, before our direction ends; then the peer's end is waited for.
func (c *Conn) Disconnect(now mono.Time) {
	c.nic.clock = now
	switch {
	case c.state < Accepted:
		c.abort(ErrCutOff)
	case c.state < Closing:
		c.disconnecting = true
		c.qp.state = verbs.QPStateSQD
		c.startClosing()
		c.progress()
	}
}

// hangUp is what the peer's end of the stream means: it asks for nothing more and
// answers nothing more. What it has asked for it still gets.
func (c *Conn) peerClosed() {
	if q := c.qp; q != nil && q.stream.Live() {
		q.state = verbs.QPStateSQD
		switch {
		case q.stream.Receiving():
			c.err = errTruncated
			q.report(verbs.EventQPFatal)
			q.stream.Fail(wire.TermMPAClosed, true)
		case c.nic.defects.FINDropsAnswers:
			q.stream.Close()
		}
	}
	c.startClosing()
}

// leave closes our direction behind what is queued.
func (c *Conn) closeAfterOutput() {
	c.startClosing()
	c.closeWhenSent = true
}

// startClosing bounds how long the end takes.
func (c *Conn) startClosing() {
	c.setState(Closing)
	if c.closeBy == mono.Never && c.nic.cfg.CloseTimeout > 0 {
		c.closeBy = c.nic.clock.Add(c.nic.cfg.CloseTimeout)
	}
	c.rearm()
	c.queueOutput()
}

// progress looks whether a connection that is being closed has got to where our
// direction can end, or to its own end.
func (c *Conn) progress() {
	if c.state != Closing {
		return
	}
	if !c.closeWhenSent && c.outputDone() {
		c.closeWhenSent = true
		c.queueOutput()
	}
	c.closeIfFinished()
}

// done reports whether nothing more is to be said.
func (c *Conn) outputDone() bool {
	q := c.qp
	switch {
	case q == nil, c.inputClosed && !c.mpa.MaySend():
		return true
	case !q.stream.Live(), c.disconnecting && !c.inputClosed:
		return q.stream.Quiet()
	default:
		// The peer has gone. It answers nothing any more, so that what is left of our
		// own requests waits in vain; what it asked for, it gets.
		return q.stream.Stuck()
	}
}

// settle ends a connection both of whose directions have ended.
func (c *Conn) closeIfFinished() {
	if c.outputClosed && c.inputClosed && c.state != Closed {
		c.setClosed()
	}
}

// abort breaks the stream.
func (c *Conn) abort(err error) {
	if c.state == Closed {
		return
	}
	c.aborted = true
	c.nic.Count.Aborted++
	if c.err == nil {
		c.err = err
	}
	c.setClosed()
	c.queueOutput()
}

// collapse is the end, in order or not.
func (c *Conn) setClosed() {
	if c.state == Closed {
		return
	}
	c.setState(Closed)
	if c.err != nil {
		c.nic.Count.Failed++
	}
	c.rearm()
	q := c.qp
	if q == nil {
		return
	}
	busy := q.sq.count() > 0
	q.stream.Drop()
	q.stream.Close()
	c.detach()
	switch {
	case q.idle(): // it never was connected
	case busy && c.err == nil && c.nic.defects.BusyCloseIsIdle:
		q.state = verbs.QPStateInit
	default:
		q.fail(verbs.QPStateErr)
	}
	if c.err == nil {
		q.end = iwarp.End{}
	}
}

// letGo gives the memory of a connection back that has ended: what MPA has
// borrowed of the program's, and its own, up to an FPDU each way. A program may
// keep what stands for the connection for long.
func (c *Conn) releaseBuffers() {
	if c.state == Closed {
		c.mpa, c.tail, c.tailOut = nil, nil, 0
	}
}

// detach parts the connection and its queue pair.
func (c *Conn) detach() {
	if c.qp != nil {
		c.qp.conn = nil
		c.qp = nil
	}
}

// Abort breaks the connection. Nobody is told why.
func (c *Conn) Abort() { c.abort(ErrCutOff) }
