package iwarp

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// conn is a connected queue pair of the device and a peer that plays its other end by
// hand. The peer keeps no state but what the framing needs: it neither answers nor
// asks for anything by itself.
type conn struct {
	*host
	qp verbs.QP
	// task is the device's program that connects, or accepts.
	task conformance.Task
	// cm is the connection as the device's program has it.
	cm  verbs.Conn
	tcp conformance.Stream
	// mem is memory that the peer may write to, read from and do atomics on; own is for
	// the device's own requests and receives.
	mem, own *rig.Memory
	// device and peer are the start-up frames.
	device, peer startup

	out iwarp.Framer
	in  iwarp.Deframer
	// defects has next let pass frames of which padding, CRC or markers are wrong: for
	// cases that look themselves.
	defects bool
	// early is what came before start-up was over.
	early []byte
	// end is how the device's direction has ended.
	end error
	// sends and requests are how many messages the peer has sent to queues 0 and 1, an
	// RTR included.
	sends, requests uint32
}

// The peer's memory, which nobody has: far from what a device would choose.
const (
	peerSTag = 0x0bad5eed
	peerTO   = 0x0000_7000_0000_1000
)

// on makes a case of a body that uses a connection made like that.
func on(s setup, body func(*conn)) func(*conformance.Bench) error {
	return onHost(func(h *host) { body(h.connect(s)) })
}

// onConn makes a case of a body that uses a connection with some receives posted, on
// which both sides may send.
func onConn(body func(*conn)) func(*conformance.Bench) error { return on(setup{receives: 4}, body) }

// connect makes a connection.
func (h *host) connect(s setup) *conn {
	if s.active {
		st := h.connecting(s)
		st.hear()
		st.reply(s.frame)
		c := st.full()
		c.takeRTR()
		return st.connected()
	}
	st := h.listening(s)
	f := request()
	if s.frame != nil {
		f = s.frame(f)
	}
	st.say(f)
	st.hears(iwarp.Reply().Reject(false))
	c := st.full()
	c.sendRTR()
	return st.connected()
}

// nextSend and nextRequest number the peer's next message to queue 0 and 1.
func (c *conn) nextSend() uint32    { return c.sends + 1 }
func (c *conn) nextRequest() uint32 { return c.requests + 1 }

// octets puts frames into the peer's stream, for a case that writes them itself.
func (c *conn) octets(frames ...iwarp.Frame) []byte {
	var b []byte
	for _, f := range frames {
		b = c.out.Append(b, f)
		c.count(f.FPDU().Segment)
	}
	return b
}

// count keeps the numbers of the peer's messages.
func (c *conn) count(s iwarp.Segment) {
	if s.DDP.MSN == nil || s.RDMAP.Opcode == nil {
		return
	}
	switch s.Op() {
	case iwarp.OpReadRequest, iwarp.OpAtomicRequest:
		c.requests = *s.DDP.MSN
	case iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate, iwarp.OpImmediate, iwarp.OpImmediateSE:
		c.sends = *s.DDP.MSN
	}
}

// write sends octets as they are, in a segment of their own.
func (c *conn) write(b []byte) {
	if err := c.tcp.Write(b); err != nil {
		// The device may have broken the stream by now: what it said before that is
		// for the case to find.
		c.Note("write: %v", err)
	}
}

// send sends frames, each in a segment of its own.
func (c *conn) send(frames ...iwarp.Frame) {
	for _, f := range frames {
		c.write(c.octets(f))
	}
}

// sendTogether sends frames in as few segments as the path allows.
func (c *conn) sendTogether(frames ...iwarp.Frame) { c.write(c.octets(frames...)) }

// next returns the next FPDU of the device's, if there is one in time and the stream
// has not ended. All that a device sends has to be framed well, whatever a case is
// about.
func (c *conn) next(timeout time.Duration) (iwarp.ReceivedFPDU, bool) {
	until := c.Now() + timeout
	for {
		if g, ok := c.in.Next(); ok {
			c.checkFrame(&g)
			return g, true
		}
		if !c.pull(max(0, until-c.Now())) {
			return iwarp.ReceivedFPDU{}, false
		}
	}
}

// pull reads what the device sends next; false if nothing comes in time, or nothing
// ever will.
func (c *conn) pull(timeout time.Duration) bool {
	if c.end != nil {
		return false
	}
	b, err := c.tcp.Read(timeout)
	switch {
	case err == nil:
		c.in.Feed(b)
		return true
	case errors.Is(err, verbs.ErrTimeout):
		return false
	default:
		c.end = err
		return false
	}
}

// checkFrame ends the case if a frame is not as MPA has it.
func (c *conn) checkFrame(g *iwarp.ReceivedFPDU) {
	if c.defects {
		return
	}
	if n := iwarp.Val(g.MPA.Length); n > maxULPDU {
		c.Fail(fmt.Sprintf("a ULPDU of at most %d octets", maxULPDU), "%d in %v", n, g)
	}
	for _, b := range g.MPA.Pad {
		c.Check(b == 0, "a pad of zeros", "% x in %v", g.MPA.Pad, g)
	}
	for _, m := range g.Markers {
		c.Check(m.Ptr == m.Want && m.Reserved == 0, fmt.Sprintf("a marker at %d that points back %d", m.Offset, m.Want),
			"one that says %#04x%04x", m.Reserved, m.Ptr)
	}
	if c.in.CRC && iwarp.Val(g.MPA.CRCStatus) != iwarp.CRCRight {
		c.Fail(fmt.Sprintf("the CRC %08x", g.RightCRC), "%08x in %v", iwarp.Val(g.MPA.CRC), g)
	}
}

// maxULPDU is the longest ULPDU that there is.
const maxULPDU = 64768

// whyNoFrame describes what arrived in place of an FPDU.
func (c *conn) whyNoFrame() string {
	switch {
	case c.end != nil && len(c.in.Pending()) > 0:
		return fmt.Sprintf("%s inside an FPDU", ending(c.end))
	case c.end != nil:
		return ending(c.end)
	case len(c.in.Pending()) > 0:
		return fmt.Sprintf("%d octets of an FPDU and no more in %v: % x", len(c.in.Pending()), c.ResponseTimeout(), head(c.in.Pending()))
	}
	return fmt.Sprintf("nothing in %v", c.ResponseTimeout())
}

// head is the beginning of b, short enough to print.
func head(b []byte) []byte { return b[:min(len(b), 32)] }

// expect ends the case unless the next FPDU is as wanted. It returns the FPDU.
func (c *conn) expect(want iwarp.Frame) iwarp.ReceivedFPDU {
	got, ok := c.next(c.ResponseTimeout())
	if !ok {
		c.Fail(want.String(), "%s", c.whyNoFrame())
	}
	c.same(want, got)
	return got
}

// same ends the case unless an FPDU is as wanted.
func (c *conn) same(want iwarp.Frame, got iwarp.ReceivedFPDU) {
	if d := iwarp.Diff(want, got); d != nil {
		c.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
}

// take returns the next n FPDUs; fewer end the case.
func (c *conn) take(n int) []iwarp.ReceivedFPDU {
	all := make([]iwarp.ReceivedFPDU, n)
	for i := range all {
		var ok bool
		if all[i], ok = c.next(c.ResponseTimeout()); !ok {
			c.Fail(fmt.Sprintf("%d FPDUs", n), "%d, then %s", i, c.whyNoFrame())
		}
	}
	return all
}

// message returns the segments of the next message, up to its last.
func (c *conn) message(op iwarp.Opcode) []iwarp.ReceivedFPDU {
	for segments := []iwarp.ReceivedFPDU{}; ; {
		g := c.expect(iwarp.Op(op))
		if segments = append(segments, g); iwarp.Val(g.DDP.Last) {
			return segments
		}
	}
}
