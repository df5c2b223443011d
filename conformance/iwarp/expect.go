package iwarp

import (
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// expectTerminate fails the case unless the next FPDU is a Terminate with one of the causes, in
// the RFC's bit order or in that of Linux's siw. Other cases check the bit order.
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

// expectTerminateAndEnd fails the case unless the device sends a Terminate with one of the
// causes, and then ends its direction.
func (c *conn) expectTerminateAndEnd(causes ...iwarp.Cause) iwarp.Segment {
	t := c.expectTerminate(causes...)
	c.expectEnd()
	return t
}

// expectClose fails the case unless the device closes its direction with FIN and sends nothing
// before.
func (c *conn) expectClose() {
	c.expectEnd()
	c.Check(errors.Is(c.endErr, io.EOF), "FIN", "%s", describeEnd(c.endErr))
}

// expectEnd fails the case unless the device ends the stream with FIN or RST and sends nothing
// before.
func (c *conn) expectEnd() { c.expectEndWithin(c.ResponseTimeout()) }

// expectEndWithin is expectEnd with a timeout.
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

// belowStartupTimer is shorter than the start-up timers of known devices.
const belowStartupTimer = time.Second

// expectTerminateOrEnd fails the case unless the device ends the stream, with or without a
// Terminate with one of the causes.
func (c *conn) expectTerminateOrEnd(causes ...iwarp.Cause) {
	g, ok := c.nextFPDU(c.ResponseTimeout())
	if ok {
		t := g.Segment
		if siw, swapped := t.InSiwBitOrder(c.deviceConn != nil); swapped {
			t = siw
		}
		if t.Terminate == nil || !slices.Contains(causes, iwarp.Val(t.Terminate.Cause)) {
			c.Fail("the end of the stream, or a Terminate with its cause", "%v", g)
		}
	}
	c.expectEnd()
}

// expectSilence fails the case if the device sends anything or ends the stream. It waits for
// quiet in virtual time, and for a read on another connection (syncQP) in real time.
func (c *conn) expectSilence(quiet time.Duration) { c.expectNothingWithin(c.waitQuiet(quiet)) }

// waitQuiet synchronizes with the device in real time, and returns how long to wait for frames.
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

// drain returns the FPDUs that the device sends until it is silent.
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

// expectNothingWithin fails the case if the device sends anything before the timeout.
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

// sync fails the case unless the next FPDU is the response to a read on this stream. The device
// has then processed all earlier frames without a response.
func (c *conn) sync() {
	const n = 8
	sink := iwarp.At(peerSTag, peerTO)
	c.send(iwarp.ReadRequest(c.nextRequestMSN(), sink, n, c.targetAddr(len(c.targetMem.Buf)-n)))
	c.expect(iwarp.ReadResponse(sink.STag, sink.TO, c.targetMem.Buf[len(c.targetMem.Buf)-n:]))
}

// closeWrite sends FIN.
func (c *conn) closeWrite() {
	if err := c.tcp.CloseWrite(); err != nil {
		c.Note("close: %v", err)
	}
}

// reset sends RST.
func (c *conn) reset() {
	if err := c.tcp.Reset(); err != nil {
		c.Note("reset: %v", err)
	}
}

// expectDisconnect fails the case unless the application is notified of the end of its
// connection. If the device has closed its direction, the peer closes the other first.
func (c *conn) expectDisconnect() {
	if c.endErr != nil {
		c.closeWrite()
	}
	c.Must("a notification of the disconnect", c.deviceConn.WaitDisconnect(c.ResponseTimeout()))
}
