package iwarp

import (
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// expectTerminate fails the case unless the next FPDU is a Terminate for one of these
// reasons. It is read in the RFC's order of bits, or in that of Linux's siw: which of
// the two a device has, other cases say.
func (c *conn) expectTerminate(causes ...iwarp.Cause) iwarp.Segment {
	names := make([]string, len(causes))
	for i, cause := range causes {
		names[i] = cause.String()
	}
	want := "TERMINATE " + strings.Join(names, ", or ")
	g, ok := c.nextFPDU(c.ResponseTimeout())
	if !ok {
		c.Fail(want, "%s", c.describeMissing())
	}
	t := g.Segment
	if siw, ok := t.InSiwBitOrder(c.deviceConn != nil); ok {
		t = siw
	}
	if t.Terminate == nil || !slices.Contains(causes, iwarp.Val(t.Terminate.Cause)) {
		c.Fail(want, "%v", g)
	}
	return t
}

// expectTerminateAndEnd fails the case unless the device sends a Terminate for one of these
// reasons, and ends its direction after it.
func (c *conn) expectTerminateAndEnd(causes ...iwarp.Cause) iwarp.Segment {
	t := c.expectTerminate(causes...)
	c.expectEnd()
	return t
}

// expectClose fails the case unless the device ends its direction in order, and says
// nothing more.
func (c *conn) expectClose() {
	c.expectEnd()
	c.Check(errors.Is(c.endErr, io.EOF), "the stream ended in order", "%s", describeEnd(c.endErr))
}

// expectEnd fails the case unless the device ends the stream, in order or not, and
// says nothing more.
func (c *conn) expectEnd() { c.expectEndWithin(c.ResponseTimeout()) }

// expectEndWithin is expectEnd for what takes its time.
func (c *conn) expectEndWithin(timeout time.Duration) {
	want := "the end of the stream"
	if g, ok := c.nextFPDU(timeout); ok {
		c.Fail(want, "%v", g)
	}
	switch n := len(c.deframer.Pending()); {
	case c.endErr == nil && n == 0:
		c.Fail(want, "nothing in %v", timeout)
	case n != 0:
		c.Fail(want, "%s", describeOctets(c.deframer.Pending()))
	}
}

// belowStartupTimer is less than any timer of start-up runs.
const belowStartupTimer = time.Second

// expectTerminateOrEnd takes a Terminate for one of these reasons, if there is one, and ends
// the case unless the stream then ends.
func (c *conn) expectTerminateOrEnd(causes ...iwarp.Cause) {
	g, ok := c.nextFPDU(c.ResponseTimeout())
	if ok {
		t := g.Segment
		if siw, swapped := t.InSiwBitOrder(c.deviceConn != nil); swapped {
			t = siw
		}
		if t.Terminate == nil || !slices.Contains(causes, iwarp.Val(t.Terminate.Cause)) {
			c.Fail("the end of the stream, or a Terminate that says why", "%v", g)
		}
	}
	c.expectEnd()
}

// expectSilence fails the case if the device sends anything, or ends the stream. In virtual
// time it is proven by time that passes; in real time by a syncQP: a connection of
// its own, on which reads are answered meanwhile.
func (c *conn) expectSilence(quiet time.Duration) { c.expectNothingWithin(c.waitQuiet(quiet)) }

// waitQuiet gives the device the time that silence takes, and returns how long to wait
// for what it says in it.
func (c *conn) waitQuiet(quiet time.Duration) time.Duration {
	if c.Virtual {
		return quiet
	}
	if c.syncQP == nil {
		c.syncQP = newSyncQP(c.host)
	}
	c.syncQP.sync()
	return 0
}

// drain returns what the device sends until it falls silent.
func (c *conn) drain(quiet time.Duration) (all []iwarp.ReceivedFPDU) {
	timeout := c.waitQuiet(quiet)
	for {
		g, ok := c.nextFPDU(timeout)
		if !ok {
			return all
		}
		all = append(all, g)
	}
}

// expectNothingWithin fails the case if the device sends anything in some time.
func (c *conn) expectNothingWithin(timeout time.Duration) {
	want := "nothing is sent"
	if len(c.startupOctets) > 0 {
		c.Fail(want, "%s", describeOctets(c.startupOctets))
	}
	if g, ok := c.nextFPDU(timeout); ok {
		c.Fail(want, "%v", g)
	}
	if len(c.deframer.Pending()) > 0 {
		c.Fail(want, "%s", describeOctets(c.deframer.Pending()))
	}
	if c.endErr != nil {
		c.Fail(want, "%s", describeEnd(c.endErr))
	}
}

// sync fails the case unless the next thing that the device sends answers a read on
// the same stream: it has dealt with all that came before, and said nothing to it.
func (c *conn) sync() {
	const n = 8
	sink := iwarp.At(peerSTag, peerTO)
	c.send(iwarp.ReadRequest(c.nextRequestMSN(), sink, n, c.targetAddr(len(c.targetMem.Buf)-n)))
	c.expect(iwarp.ReadResponse(sink.STag, sink.TO, c.targetMem.Buf[len(c.targetMem.Buf)-n:]))
}

// closeWrite ends the peer's direction, in order.
func (c *conn) closeWrite() {
	if err := c.tcp.CloseWrite(); err != nil {
		c.Note("close: %v", err)
	}
}

// reset breaks the stream.
func (c *conn) reset() {
	if err := c.tcp.Reset(); err != nil {
		c.Note("reset: %v", err)
	}
}

// expectDisconnect fails the case unless the application is told that its connection
// has ended. If the device has ended its direction, the peer ends its own first, as
// peers do: else a device may well wait for that.
func (c *conn) expectDisconnect() {
	if c.endErr != nil {
		c.closeWrite()
	}
	c.Must("the application is notified of the end", c.deviceConn.WaitDisconnect(c.ResponseTimeout()))
}
