package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// Conn is one connection, from dialing or accepting its TCP stream until the stream has ended. The
// driver of the stream calls Connected, Failed, Input, InputEOF, Output and Sent; the connection
// manager calls the other methods.
type Conn struct {
	nic   *NIC
	qp    *QP // nil before and after it is connected
	mpa   *mpa.Conn
	state ConnState
	err   error // why it failed; nil if it did not

	initiator bool
	param     ConnParam // local parameters; private data moves to MPA
	depths    struct{ ird, ord uint16 }
	PeerFrame
	// WasEstablished is set if the connection is or was Established.
	WasEstablished bool

	copiedOutput []byte // output that was pending when the stream ended
	closing
	deadlines
	inOutputs bool // in NIC.outputs
	inChanged bool // in NIC.changed

	// Owner is free for use by the driver.
	Owner any
}

// PeerFrame is the content of the peer's MPA Request or Reply, if it was received.
type PeerFrame struct {
	Peer        mpa.Params
	PrivateData []byte // also of a rejection
	// Fallback is set in a failed connection if the peer seems not to support enhanced MPA. A
	// connection with ConnParam.Revision 1 may succeed.
	Fallback bool
}

// closing is the progress of the end of a connection.
type closing struct {
	disconnecting bool // Disconnect was called
	closeWhenSent bool // close our direction after the queued output
	outputClosed  bool // our direction is closed
	inputClosed   bool // the peer's direction is closed
	aborted       bool // the TCP connection must be reset
}

// State returns the state of the connection.
func (c *Conn) State() ConnState {
	return c.state
}

// Err returns why the connection failed; nil if it has not, or was closed gracefully.
func (c *Conn) Err() error { return c.err }

// QP returns the queue pair of the connection, or nil.
func (c *Conn) QP() *QP { return c.qp }

// setState enters state s and queues c for NextChanged, if s is later than the current state.
func (c *Conn) setState(s ConnState) {
	if c.state >= s {
		return
	}
	c.state = s
	switch s {
	case Established:
		c.WasEstablished = true
		c.nic.Count.Established++
	case Closed:
		c.nic.Count.Closed++
	}
	if !c.inChanged {
		c.inChanged = true
		c.nic.changed.Push(c)
	}
}

// queueOutput queues the connection for NextOutput.
func (c *Conn) queueOutput() {
	if !c.inOutputs {
		c.inOutputs = true
		c.nic.outputs.Push(c)
	}
}

// Connected is called when TCP is connected. It starts MPA on it: an initiator sends its Request.
func (c *Conn) Connected(now mono.Time, _, _ netip.AddrPort, mss int) {
	if c.state != Dialing {
		return
	}
	c.nic.clock = now
	cfg := c.nic.cfg.MPA
	cfg.MSS, cfg.Counters = mss, &c.nic.mpa
	if c.initiator {
		c.param.apply(&cfg)
		c.mpa = mpa.NewInitiator(now, cfg)
	} else {
		c.mpa = mpa.NewResponder(now, cfg)
	}
	c.param.PrivateData = nil // c.mpa has it now
	c.setState(Starting)
	c.rearm()
	c.queueOutput()
}

// Failed closes the connection when the TCP stream could not be connected, or was reset.
func (c *Conn) Failed(now mono.Time, err error) {
	c.nic.clock = now
	if c.state == Closed {
		return
	}
	// After our direction is closed a reset by the peer is no error.
	if c.err == nil && !c.outputClosed {
		c.err = err
		if c.mpa != nil {
			c.mpa.Lost()
			c.handleMPAEvents()
		}
	}
	c.setClosed()
	c.releaseBuffers()
}

// Input handles received octets. The policy DeliverPartial also places an incomplete DDP segment.
func (c *Conn) Input(now mono.Time, b []byte) {
	c.nic.clock = now
	if c.mpa == nil || c.state == Closed {
		return
	}
	c.mpa.Input(now, b)
	c.handleMPAEvents()
	if c.qp != nil && c.mpa != nil {
		if begun := c.mpa.PartialULPDU(); begun != nil {
			c.qp.stream.PlaceEarly(begun)
		}
	}
	if c.nic.cfg.MPA.FPDUTimeout > 0 { // input changes the deadline of an incomplete FPDU
		c.rearm()
	}
	c.advanceClose()
	c.releaseBuffers()
}

// InputEOF starts to close the connection: the peer has closed its direction of the TCP stream.
func (c *Conn) InputEOF(now mono.Time) {
	c.nic.clock = now
	c.inputClosed = true
	if c.mpa == nil || c.state == Closed {
		return
	}
	c.mpa.InputEOF()
	c.handleMPAEvents()
	if c.state != Closed {
		c.peerClosed()
	}
	c.advanceClose()
	c.releaseBuffers()
}

// Output appends the next buffers to write to the slice, as many as its capacity holds, and returns
// whether to keep the stream open, close our direction or reset it after them. Output that
// was pending when the QP's stream ended (c.copiedOutput) precedes that of MPA.
func (c *Conn) Output(into [][]byte) ([][]byte, link.StreamEnd) {
	if c.aborted {
		c.releaseBuffers()
		return into, link.StreamAbort
	}
	if c.mpa == nil {
		return into, link.StreamOpen
	}
	c.fillMPA()
	if len(c.copiedOutput) > 0 && len(into) < cap(into) {
		into = append(into, c.copiedOutput)
	}
	n := c.nic
	n.vectors = c.mpa.Output(n.vectors[:0])
	into = append(into, n.vectors[:min(len(n.vectors), cap(into)-len(into))]...)
	clear(n.vectors)
	if len(into) == 0 && c.closeWhenSent {
		c.outputClosed = true
		c.closeIfFinished()
		c.releaseBuffers()
		return into, link.StreamClose
	}
	return into, link.StreamOpen
}

// fillMPA moves segments from the stream of the queue pair to MPA while MPA has room. Once the
// connection closes, only a stream that has ended has segments to send: its Terminate.
func (c *Conn) fillMPA() {
	if c.qp == nil || c.closeWhenSent && c.state >= Closing && c.qp.stream.Live() {
		return
	}
	g := &c.nic.segment
	for c.mpa.Room() && c.qp.stream.Output(c.mpa.MULPDU(), g) {
		if g.Volatile {
			// Copy Read Responses: the memory may be deregistered or modified before
			// the FPDU and its CRC are sent.
			for _, p := range g.Payload {
				g.Header = append(g.Header, p...)
			}
			g.Payload = g.Payload[:0]
		}
		c.mpa.Send(g.Header, g.Payload)
		clear(g.Payload)
		if c.qp == nil { // Output has ended the connection
			return
		}
	}
}

// Sent is called when TCP takes n more octets of Output, which it has accepted at the time accepted:
// first those of c.copiedOutput, then those of MPA. Sent tells the stream how many ULPDUs TCP has
// accepted, at once or at that time, and advances a close that waits for the output.
func (c *Conn) Sent(now mono.Time, n int, accepted mono.Time) {
	c.nic.clock = now
	if c.mpa == nil {
		return
	}
	fromCopied := min(n, len(c.copiedOutput))
	if c.copiedOutput = c.copiedOutput[fromCopied:]; len(c.copiedOutput) == 0 {
		c.copiedOutput = nil
	}
	ulpdus := c.mpa.Sent(n - fromCopied)
	if c.qp != nil && ulpdus > 0 {
		c.startEmptyWrites(now)
		if c.pending.Len() == 0 && !now.Before(accepted) {
			c.qp.stream.Accepted(ulpdus)
		} else {
			c.pending.Push(acceptance{accepted, ulpdus})
			c.rearm()
		}
	}
	c.advanceClose()
	c.releaseBuffers()
}
