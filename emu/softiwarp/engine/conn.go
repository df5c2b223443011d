package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// Conn is one connection, from dialing or accepting its TCP stream until the stream has ended.
// The driver of the stream calls Connected, Failed, Input, InputEOF, Output and Sent; the
// connection manager calls the other methods.
type Conn struct {
	nic   *NIC
	qp    *QP // nil before and after it is connected
	mpa   *mpa.Conn
	state ConnState
	err   error // why it failed; nil if it did not

	initiator bool
	param     ConnParam // local parameters; private data moves to MPA
	depths    struct{ ird, ord uint16 }

	local, remote netip.AddrPort
	peer          mpa.Params // from the peer's MPA frame
	private       []byte     // private data of that frame
	fallback      bool

	tail    []byte // copied output that was pending when the stream ended
	tailOut int    // octets of tail that TCP has accepted

	disconnecting  bool // Disconnect was called
	closeWhenSent  bool // close our direction after the queued output
	outputClosed   bool // our direction is closed
	inputClosed    bool // the peer's direction is closed
	aborted        bool // the TCP connection must be reset
	wasEstablished bool // the state has been Established

	inOutputs   bool // in NIC.outputs
	inChanged   bool // in NIC.changed
	timer       nic.Timer[Conn]
	closeBy     mono.Time
	emptyWrites emptyWrites

	// Owner is free for use by the driver.
	Owner any
}

// State returns the state of the connection.
func (c *Conn) State() ConnState {
	return c.state
}

// WasEstablished reports whether the connection is or was Established.
func (c *Conn) WasEstablished() bool { return c.wasEstablished }

// Err returns why the connection failed; nil if it has not, or was closed gracefully.
func (c *Conn) Err() error { return c.err }

// QP returns the queue pair of the connection, or nil.
func (c *Conn) QP() *QP { return c.qp }

// Local returns the local address, once the stream is connected.
func (c *Conn) Local() netip.AddrPort { return c.local }

// Remote returns the peer's address, once the stream is connected.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Peer returns the parameters of the peer's MPA Request or Reply, if it was received.
func (c *Conn) Peer() mpa.Params { return c.peer }

// Depths returns the negotiated IRD and ORD.
func (c *Conn) Depths() (ird, ord uint16) { return c.depths.ird, c.depths.ord }

// PrivateData returns the private data of the peer's MPA frame, also of a rejection.
func (c *Conn) PrivateData() []byte { return c.private }

// Fallback reports of a failed connection that the peer seems not to support enhanced MPA. A
// connection with ConnParam.Revision 1 may succeed.
func (c *Conn) Fallback() bool { return c.fallback }

// setState enters a later state and queues the connection for NextChanged.
func (c *Conn) setState(s ConnState) {
	if c.state >= s {
		return
	}
	c.state = s
	c.wasEstablished = c.wasEstablished || s == Established
	c.nic.Count.conn(s)
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

// Connected reports that the TCP stream is connected.
func (c *Conn) Connected(now mono.Time, local, remote netip.AddrPort, mss int) {
	if c.state != Dialing {
		return
	}
	c.nic.clock = now
	c.local, c.remote = local, remote
	cfg := c.nic.cfg.MPA
	cfg.MSS, cfg.Counters = mss, &c.nic.mpa
	if c.initiator {
		cfg.IRD, cfg.ORD, cfg.PrivateData = c.param.IRD, c.param.ORD, c.param.PrivateData
		cfg.MaxRevision, cfg.PeerToPeer = c.param.revision(&cfg)
		c.mpa = mpa.NewInitiator(now, cfg)
	} else {
		c.mpa = mpa.NewResponder(now, cfg)
	}
	c.param.PrivateData = nil
	c.setState(Starting)
	c.rearm()
	c.queueOutput()
}

// Failed reports that the TCP stream could not be connected, or was reset.
func (c *Conn) Failed(now mono.Time, err error) {
	c.nic.clock = now
	if c.state == Closed {
		return
	}
	// After our direction is closed a reset by the peer is no error.
	if c.err == nil && !c.outputClosed {
		c.err = err
		if c.mpa != nil {
			c.mpa.Lost(now)
			c.handleMPAEvents()
		}
	}
	c.setClosed()
	c.releaseBuffers()
}

// Input handles received octets.
func (c *Conn) Input(now mono.Time, b []byte) {
	c.nic.clock = now
	if c.mpa == nil || c.state == Closed {
		return
	}
	c.mpa.Input(now, b)
	c.handleMPAEvents()
	if begun := c.partialSegment(); begun != nil {
		c.qp.stream.PlaceEarly(begun)
	}
	if c.nic.cfg.MPA.FPDUTimeout > 0 {
		c.rearm()
	}
	c.progress()
	c.releaseBuffers()
}

// partialSegment returns the received part of an incomplete segment if the policy places it
// early.
func (c *Conn) partialSegment() []byte {
	if c.qp == nil || c.mpa == nil {
		return nil
	}
	return c.mpa.PartialULPDU()
}

// InputEOF reports that the peer has closed its direction.
func (c *Conn) InputEOF(now mono.Time) {
	c.nic.clock = now
	c.inputClosed = true
	if c.mpa == nil || c.state == Closed {
		return
	}
	c.mpa.InputEOF(now)
	c.handleMPAEvents()
	if c.state != Closed {
		c.peerClosed()
	}
	c.progress()
	c.releaseBuffers()
}

// Output appends to the slice into, up to its capacity, the next buffers to be written, and
// returns whether to keep the stream open, close our direction or reset it after them.
func (c *Conn) Output(into [][]byte) ([][]byte, link.StreamEnd) {
	if c.aborted {
		c.releaseBuffers()
		return into, link.StreamAbort
	}
	if c.mpa == nil {
		return into, link.StreamOpen
	}
	c.fill()
	if len(c.tail) > c.tailOut && len(into) < cap(into) {
		into = append(into, c.tail[c.tailOut:])
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

// fill moves segments from the stream of the queue pair to MPA while MPA has room. Once the
// connection closes, only a stream that has ended has segments to send: its Terminate.
func (c *Conn) fill() {
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
		if c.qp == nil {
			return
		}
	}
}

// Sent reports that TCP has accepted n more octets of the output.
func (c *Conn) Sent(now mono.Time, n int) {
	c.nic.clock = now
	if c.mpa == nil {
		return
	}
	if old := len(c.tail) - c.tailOut; old > 0 {
		k := min(n, old)
		c.tailOut += k
		n -= k
		if c.tailOut == len(c.tail) {
			c.tail, c.tailOut = nil, 0
		}
	}
	taken := c.mpa.Sent(n)
	if c.qp != nil && taken > 0 {
		c.startEmptyWrites(now)
		c.qp.stream.Accepted(taken)
	}
	c.progress()
	c.releaseBuffers()
}
