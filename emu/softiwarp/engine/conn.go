package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/queue"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// Conn is one connection: a TCP stream from the time it is dialed or accepted
// until it has ended. Its methods are of two kinds. Connected, Failed, Input,
// InputEOF, Output and Sent are for the driver that has the stream; the others
// are for whoever manages connections.
type Conn struct {
	nic   *NIC
	qp    *QP // nil if there is none yet, or no longer
	mpa   *mpa.Conn
	state ConnState
	err   error // why it ended, or is to end; nil if in order

	initiator bool
	param     ConnParam // ours, without private data once MPA has it
	depths    struct{ ird, ord uint16 }

	local, remote netip.AddrPort
	peer          mpa.Params // as the peer's frame says
	private       []byte     // what came with it
	fallback      bool

	tail    []byte // what was on its way out when the stream ended, no longer borrowed
	tailOut int    // of it, what TCP has taken

	disconnecting  bool // the program closes: nothing more is asked of the peer
	closeWhenSent  bool // our direction ends behind what is queued
	outputClosed   bool // and did
	inputClosed    bool // the peer's direction has ended
	aborted        bool // to be aborted
	wasEstablished bool // it was established, at some time

	inOutputs bool // in NIC.outputs
	inChanged bool // in NIC.changed
	timer     queue.Timer[Conn]
	closeBy   mono.Time
	nudge     nudge

	// Owner is the driver's to use.
	Owner any
}

// State is how far the connection has got.
func (c *Conn) State() ConnState {
	return c.state
}

// WasEstablished reports whether the connection has got as far as Established,
// whatever became of it since.
func (c *Conn) WasEstablished() bool { return c.wasEstablished }

// Err is why the connection failed; nil if it has not, or ended in order.
func (c *Conn) Err() error { return c.err }

// QP is the queue pair of the connection; nil if it has none.
func (c *Conn) QP() *QP { return c.qp }

// Local and Remote are the ends of the stream, known once it is connected.
func (c *Conn) Local() netip.AddrPort { return c.local }

// Remote is the peer's address.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Peer is what the peer's start-up frame said, as far as it has come.
func (c *Conn) Peer() mpa.Params { return c.peer }

// Depths are how many reads and atomics are settled for: those that the peer may
// have under way, and ours.
func (c *Conn) Depths() (ird, ord uint16) { return c.depths.ird, c.depths.ord }

// PrivateData is what came with the peer's start-up frame, refusals included.
func (c *Conn) PrivateData() []byte { return c.private }

// Fallback says of a connection that failed that the peer seems not to know the
// enhanced start-up: with ConnParam.Revision 1 another may succeed.
func (c *Conn) Fallback() bool { return c.fallback }

// move sets the state and lets whoever manages connections know.
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

// wake has the driver ask for output.
func (c *Conn) queueOutput() {
	if !c.inOutputs {
		c.inOutputs = true
		c.nic.outputs.Push(c)
	}
}

// Connected says that the stream is there.
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

// Failed says that the stream could not be made, or is broken.
func (c *Conn) Failed(now mono.Time, err error) {
	c.nic.clock = now
	if c.state == Closed {
		return
	}
	// When our direction has ended all was said, and a peer may reset what nobody
	// needs any more.
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

// Input gives octets that have arrived.
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

// begun is what a NIC with mpa.Defects.PlacesEarly looks at too soon.
func (c *Conn) partialSegment() []byte {
	if c.qp == nil || c.mpa == nil {
		return nil
	}
	return c.mpa.Begun()
}

// InputEOF says that the peer has ended its direction in order.
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

// Output appends what is to be written next to into, as far as there is room,
// and says what becomes of the stream behind it.
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

// fill moves segments of the QP's stream to MPA, as many as it has room for.
func (c *Conn) fill() {
	if c.qp == nil || c.closeWhenSent && c.state >= Closing && c.qp.stream.Live() {
		return
	}
	g := &c.nic.segment
	for c.mpa.Room() && c.qp.stream.Output(c.mpa.MULPDU(), g) {
		if g.Volatile {
			// What answers a read is the peer's to read only as long as the memory
			// is registered, and may change under a CRC.
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

// Sent says that the stream took n more octets of what Output gave.
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
		c.startNudging(now)
		c.qp.stream.Taken(taken)
	}
	c.progress()
	c.releaseBuffers()
}
