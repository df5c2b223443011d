package engine

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

// handleMPAEvents handles all events of the MPA connection: its start-up (the Request and Reply
// frames), received ULPDUs, errors, and the end of the stream.
func (c *Conn) handleMPAEvents() {
	for {
		e, ok := c.mpa.Next()
		if !ok {
			return
		}
		switch e.Kind {
		case mpa.EventULPDU:
			c.receiveULPDU(e.ULPDU)
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
			c.Fallback = e.Fallback // whether to retry with MPA revision 1
			if e.ULPDU != nil && c.qp != nil {
				c.qp.stream.PlaceUnchecked(e.ULPDU) // policy DeliverUnchecked: place an invalid FPDU
			}
			c.mpaFailed(&e)
		case mpa.EventEOF:
			c.Fallback = e.Fallback
			if c.state < Accepted { // else InputEOF closes the connection
				c.mpaFailed(&e)
			}
		}
	}
}

// storePeerParams stores the parameters and private data of the peer's MPA Request or Reply.
func (c *Conn) storePeerParams(e *mpa.Event) {
	c.Peer = *e.Params
	c.PrivateData = append([]byte(nil), e.PrivateData...)
}

// receiveULPDU passes a received DDP segment to the stream of the queue pair.
func (c *Conn) receiveULPDU(segment []byte) {
	c.stopEmptyWrites() // see sendEmptyWrite: a peer that sends FPDUs has processed ours
	if c.qp == nil {
		c.nic.Count.DropNoQP++
		return
	}
	c.qp.stream.Input(segment)
	if c.state == Accepted && c.qp != nil && c.qp.stream.Live() {
		c.setState(Established)
	}
	c.queueOutput() // responses to it; a responder may also send from now on
}

// mpaFailed ends the connection because of an MPA error. A queue pair that is not connected
// yet keeps its state, unless a Terminate must be sent.
func (c *Conn) mpaFailed(e *mpa.Event) {
	if c.err == nil {
		c.err = e.Err
	}
	terminate := e.Reaction == mpa.TerminateThenClose
	if q := c.qp; q != nil {
		if terminate && c.state < Accepted && q.idle() { // the Terminate needs a stream
			c.openStream()
			q.state = verbs.QPStateRTS
		}
		switch {
		case q.stream.Live():
			q.report(verbs.EventQPFatal)
			q.stream.Fail(e.Term, terminate)
		case c.state < Accepted:
			c.detach()
		}
	}
	c.closeAfterOutput()
}

// streamEnded closes the connection after the stream of its queue pair has ended.
func (c *Conn) streamEnded(end iwarp.End) {
	if c.err == nil && end.Cause != iwarp.ByClose {
		c.err = fmt.Errorf("%w: %v", ErrTerminated, end.Error)
	}
	c.copyPendingOutput()
	if end.Terminate && (c.outputClosed || !c.mpa.MaySend()) {
		// The Terminate cannot be sent: our direction is closed, or a responder may not send
		// before the initiator's first message.
		c.qp.stream.Drop()
	}
	c.startClosing()
	c.closeWhenSent = c.closeWhenSent || c.outputDone()
}

// copyPendingOutput copies the FPDUs that TCP has not accepted yet, and marks them as sent in MPA.
// They must be sent before a Terminate, because one may be partly sent; but their work requests
// were flushed with the stream, so that the application may already reuse the memory of the payload.
func (c *Conn) copyPendingOutput() {
	var bufs [][]byte
	for {
		bufs = c.mpa.Output(bufs[:0])
		n := 0
		for _, b := range bufs {
			c.copiedOutput = append(c.copiedOutput, b...)
			n += len(b)
		}
		if n == 0 {
			return
		}
		c.qp.stream.Accepted(c.mpa.Sent(n))
	}
}

// Disconnect closes our direction after the posted requests. The connection ends when the peer has
// closed its direction, too. Before Accepted, Disconnect aborts; from Closing on, it does nothing.
// SQD stands for iWARP's Closing state.
func (c *Conn) Disconnect(now mono.Time) {
	c.nic.clock = now
	switch {
	case c.state < Accepted:
		c.abort(ErrAborted)
	case c.state < Closing:
		c.disconnecting = true
		c.qp.state = verbs.QPStateSQD
		c.startClosing()
		c.advanceClose()
	}
}

// peerClosed handles the end of the peer's direction. The peer sends no more requests or responses;
// its earlier requests are still answered, unless the policy DropReadsOnEOF ends the stream. A
// message that was received in part is an error.
func (c *Conn) peerClosed() {
	if q := c.qp; q != nil && q.stream.Live() {
		q.state = verbs.QPStateSQD
		switch {
		case q.stream.Receiving():
			c.err = errTruncated
			q.report(verbs.EventQPFatal)
			q.stream.Fail(wire.TermMPAClosed, sendTerminate)
		case c.nic.policy.DropReadsOnEOF:
			q.stream.Close()
		}
	}
	c.startClosing()
}

// closeAfterOutput closes our direction after all queued output.
func (c *Conn) closeAfterOutput() {
	c.startClosing()
	c.closeWhenSent = true
}

// startClosing enters Closing and starts the close timeout.
func (c *Conn) startClosing() {
	c.setState(Closing)
	if c.closeDeadline == mono.Never && c.nic.cfg.CloseTimeout > 0 {
		c.closeDeadline = c.nic.clock.Add(c.nic.cfg.CloseTimeout)
	}
	c.rearm()
	c.queueOutput()
}

// advanceClose advances a connection in Closing. Once nothing more has to be sent, Output closes
// our direction after the queued output; once both directions are closed, the connection ends.
func (c *Conn) advanceClose() {
	if c.state != Closing {
		return
	}
	if !c.closeWhenSent && c.outputDone() {
		c.closeWhenSent = true
		c.queueOutput()
	}
	c.closeIfFinished()
}

// outputDone reports whether a closing connection has nothing more to send. That includes a
// responder that must not send (MaySend), because the initiator closed without a first message.
func (c *Conn) outputDone() bool {
	q := c.qp
	switch {
	case q == nil, c.inputClosed && !c.mpa.MaySend():
		return true
	case !q.stream.Live(), c.disconnecting && !c.inputClosed:
		// The stream has ended, or the peer still answers the requests that were posted.
		return q.stream.Idle()
	default:
		// The peer has closed its direction and answers no requests; we still answer its requests.
		return q.stream.WaitsForPeer()
	}
}

// closeIfFinished ends the connection if both directions are closed.
func (c *Conn) closeIfFinished() {
	if c.outputClosed && c.inputClosed && c.state != Closed {
		c.setClosed()
	}
}

// abort closes the connection with err, unless it has an earlier error. Output then resets TCP.
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

// setClosed enters Closed, closes the queue pair's stream, and moves a connected queue pair to ERR.
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
	q.stream.Drop()  // a Terminate that was not sent
	q.stream.Close() // if it has not ended yet
	c.detach()
	if !q.idle() { // the QP was connected
		q.fail(verbs.QPStateErr)
	}
	if c.err == nil { // closed gracefully: there is no end to report
		q.end = iwarp.End{}
	}
}

// releaseBuffers frees the buffers of a closed connection: applications may keep the Conn for long.
func (c *Conn) releaseBuffers() {
	if c.state == Closed {
		c.mpa, c.copiedOutput = nil, nil
	}
}

// detach separates the connection from its queue pair.
func (c *Conn) detach() {
	if c.qp != nil {
		c.qp.conn = nil
		c.qp = nil
	}
}

// Abort resets the connection without a Terminate.
func (c *Conn) Abort() { c.abort(ErrAborted) }
