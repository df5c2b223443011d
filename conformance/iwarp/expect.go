package iwarp

import (
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectTerminate fails the case unless the next FPDU is a Terminate with one of the causes, or
// with any if there are none.
func (c *conn) expectTerminate(causes ...iwarp.Cause) iwarp.Segment {
	g, ok := c.nextFPDU(c.ResponseTimeout())
	if !ok {
		c.Fail(formatTerminate(causes), "%s", c.describeMissing())
	}
	return c.checkTerminate(g, causes)
}

// formatTerminate formats an expected Terminate with alternative causes.
func formatTerminate(causes []iwarp.Cause) string {
	names := make([]string, len(causes))
	for i, cause := range causes {
		names[i] = cause.String()
	}
	return strings.TrimSpace("TERMINATE " + strings.Join(names, ", or "))
}

// checkTerminate fails the case unless an FPDU is a Terminate with one of the causes, or with
// any if there are none. It parses the RFC's bit order and that of Linux's siw; other cases
// check the bit order.
func (c *conn) checkTerminate(g iwarp.ReceivedFPDU, causes []iwarp.Cause) iwarp.Segment {
	if siw, ok := g.InSiwBitOrder(c.deviceConn != nil); ok {
		g.Segment = siw
	}
	if g.Terminate == nil || len(causes) > 0 && !slices.Contains(causes, iwarp.Val(g.Terminate.Cause)) {
		c.Fail(formatTerminate(causes), "%v", g)
	}
	return g.Segment
}

// expectRefusal sends a frame, and fails the case unless it causes a Terminate with one of the
// causes, or with any if there are none, and the end of the stream.
func (c *conn) expectRefusal(wrong iwarp.Frame, causes ...iwarp.Cause) iwarp.Segment {
	c.send(wrong)
	return c.expectTerminateAndEnd(causes...)
}

// expectRefusalWithoutEffect is expectRefusal, and fails the case if a request or receive has
// succeeded, or memory has changed.
func (c *conn) expectRefusalWithoutEffect(wrong iwarp.Frame, causes ...iwarp.Cause) {
	c.expectRefusal(wrong, causes...)
	c.expectNoSuccess()
	c.ExpectUnchanged(c.localMem, 0, 0)
	c.ExpectUnchanged(c.targetMem, 0, 0)
}

// expectAbortBy sends a frame, and fails the case unless the device ends the stream, with or
// without a Terminate.
func (c *conn) expectAbortBy(wrong iwarp.Frame) {
	c.send(wrong)
	c.expectAbort()
}

// expectAnswer sends a frame, and fails the case unless the next FPDU of the device matches want.
func (c *conn) expectAnswer(request, want iwarp.Frame) iwarp.ReceivedFPDU {
	c.send(request)
	return c.expect(want)
}

// expectSent posts a request, and fails the case unless the next FPDU of the device matches want.
func (c *conn) expectSent(wr verbs.SendWR, want iwarp.Frame) iwarp.ReceivedFPDU {
	c.PostSend(c.qp, wr)
	return c.expect(want)
}

// expectMessage fails the case unless receive id completes with a message of n octets.
func (c *conn) expectMessage(id uint64, n int) {
	c.ExpectRecv(id, n)
	c.ExpectBytes(c.localMem, int(id-1)*c.recvLen, data(n))
}

// expectMessageDelivered sends a Send of n octets, and fails the case unless receive id completes
// with it.
func (c *conn) expectMessageDelivered(id uint64, n int) {
	c.send(iwarp.Send(c.nextSendMSN(), data(n)))
	c.expectMessage(id, n)
}

// expectSendDelivered sends a Send of n octets, and fails the case unless it completes receive id.
func (c *conn) expectSendDelivered(id uint64, n int) verbs.WC {
	c.send(iwarp.Send(c.nextSendMSN(), data(n)))
	return c.ExpectRecv(id, n)
}

// expectRecvs fails the case unless receives with IDs from 1 on complete with the lengths.
func (c *conn) expectRecvs(lengths ...int) {
	for i, n := range lengths {
		c.ExpectRecv(uint64(i+1), n)
	}
}

// expectIdle fails the case if the device sends anything, ends the stream, or completes a request
// or receive.
func (c *conn) expectIdle() {
	c.expectSilence(silencePeriod)
	c.ExpectNoCompletion()
}

// expectTerminateAndEnd fails the case unless the device sends a Terminate with one of the
// causes, or with any if there are none, and then ends its direction.
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

// expectSilence fails the case if the device sends anything or ends the stream. It waits for
// quiet in virtual time, and for a read on another connection in real time.
func (c *conn) expectSilence(quiet time.Duration) {
	const want = "nothing is sent"
	timeout := c.syncUnlessVirtual(quiet)
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

// drain returns the FPDUs that the device sends until it is silent.
func (c *conn) drain(quiet time.Duration) (all []iwarp.ReceivedFPDU) {
	timeout := c.syncUnlessVirtual(quiet)
	for {
		g, ok := c.nextFPDU(timeout)
		if !ok {
			return all
		}
		all = append(all, g)
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
