package iwarp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectTerminate expects a Terminate with one of the causes, or any that an RFC lists if there are
// none.
func (c *conn) expectTerminate(causes ...iwarp.Cause) iwarp.Segment {
	return c.checkTerminate(c.mustNextFPDU(formatTerminate(causes)), causes)
}

// formatTerminate formats an expected Terminate with alternative causes.
func formatTerminate(causes []iwarp.Cause) string {
	if len(causes) == 0 {
		return "TERMINATE with a cause that an RFC lists"
	}
	names := make([]string, len(causes))
	for i, cause := range causes {
		names[i] = cause.String()
	}
	return "TERMINATE " + strings.Join(names, ", or ")
}

// checkTerminate expects that g is a Terminate with one of the causes, or any that an RFC lists if
// there are none.
func (c *conn) checkTerminate(g iwarp.ReceivedFPDU, causes []iwarp.Cause) iwarp.Segment {
	g.Segment = c.parseTerminate(g)
	cause := iwarp.Val(iwarp.Val(g.Terminate).Cause)
	permitted := slices.Contains(causes, cause) || len(causes) == 0 && cause.Listed()
	if g.Terminate == nil || !permitted {
		c.Fail(formatTerminate(causes), "%v", g)
	}
	return g.Segment
}

// expectRefusal sends a frame, and fails the case unless it causes a Terminate with one of the
// causes, or with any if there are none, and the end of the stream.
func (c *conn) expectRefusal(wrong iwarp.Segment, causes ...iwarp.Cause) iwarp.Segment {
	c.send(wrong)
	return c.expectTerminateAndEnd(causes...)
}

// expectRefusalWithoutEffect sends a frame, and fails the case unless it is refused as in
// expectRefusal, no request or receive succeeds, and no memory changes.
func (c *conn) expectRefusalWithoutEffect(wrong iwarp.Segment, causes ...iwarp.Cause) {
	c.expectRefusal(wrong, causes...)
	c.ExpectNoSuccess()
	c.ExpectUntouched(c.localMem)
	c.ExpectUntouched(c.targetMem)
}

// expectAbortBy sends a frame, and expects the end of the stream, perhaps after a Terminate.
func (c *conn) expectAbortBy(wrong iwarp.Segment) {
	c.send(wrong)
	c.expectAbort()
}

// expectAnswer sends a frame, and fails the case unless the next FPDU of the device matches want.
func (c *conn) expectAnswer(request, want iwarp.Segment) iwarp.ReceivedFPDU {
	c.send(request)
	return c.expect(want)
}

// expectSent posts a request, and fails the case unless the next FPDU of the device matches want.
func (c *conn) expectSent(wr verbs.SendWR, want iwarp.Segment) iwarp.ReceivedFPDU {
	c.PostSend(c.qp, wr)
	return c.expect(want)
}

// expectMessage fails the case unless receive id completes with a message of n octets.
func (c *conn) expectMessage(id uint64, n int) {
	c.ExpectRecv(id, n)
	c.ExpectBytes(c.localMem, int(id-1)*c.recvLen, data(n))
}

// sendSends sends Sends of the lengths, each in a separate TCP segment.
func (c *conn) sendSends(lengths ...int) {
	for _, n := range lengths {
		c.send(iwarp.Send(c.nextSendMSN(), data(n)))
	}
}

// expectSendDelivered sends a Send of n octets, and fails the case unless it completes receive id.
func (c *conn) expectSendDelivered(id uint64, n int) verbs.WC {
	c.sendSends(n)
	return c.ExpectRecv(id, n)
}

// expectRecvs fails the case unless receives with IDs from 1 on complete with the lengths.
func (c *conn) expectRecvs(lengths ...int) {
	for i, n := range lengths {
		c.ExpectRecv(uint64(i+1), n)
	}
}

// expectIdle fails the case if the device sends or completes anything, or ends the stream.
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

// expectClose expects that the device sends FIN, and no FPDU before it.
func (c *conn) expectClose() {
	c.expectEnd()
	c.Check(errors.Is(c.endErr, io.EOF), "FIN", "%s", describeEnd(c.endErr))
}

// expectEnd expects that the device ends the stream, by FIN or RST, and sends no FPDU before.
func (c *conn) expectEnd() { c.expectEndWithin(c.endTimeout()) }

// endTimeout is how long to wait for the end of a stream that a device ends at once. In virtual time
// it is shorter than ResponseTimeout, and than the time that known devices wait for the peer's FIN.
func (c *conn) endTimeout() time.Duration {
	if c.Virtual {
		return 3 * time.Second
	}
	return c.ResponseTimeout()
}

// expectEndWithin expects the end of the device's stream within the timeout, and no FPDU before.
func (c *conn) expectEndWithin(timeout time.Duration) {
	const want = "the end of the stream"
	g, ok := c.nextFPDU(timeout)
	switch part := c.deframer.Pending(); {
	case ok:
		c.Fail(want, "%v", g)
	case len(part) > 0:
		c.Fail(want, "%s", describeOctets(part))
	case c.endErr == nil:
		c.Fail(want, "nothing in %v", timeout)
	}
}

// belowStartupTimer is shorter than the start-up timers of known devices.
const belowStartupTimer = time.Second

// expectSilence fails the case if the device sends anything or ends the stream. In virtual time it
// waits for the time quiet; in real time, until the device has answered Reads on another
// connection, and thus processed all earlier frames.
func (c *conn) expectSilence(quiet time.Duration) {
	const want = "nothing is sent"
	timeout := c.syncUnlessVirtual(quiet) // 0 in real time
	g, ok := c.nextFPDU(timeout)
	switch part := slices.Concat(c.startupOctets, c.deframer.Pending()); {
	case ok:
		c.Fail(want, "%v", g)
	case len(part) > 0:
		c.Fail(want, "%s", describeOctets(part))
	case c.endErr != nil:
		c.Fail(want, "%s", describeEnd(c.endErr))
	}
}

// drain returns all FPDUs that the device sends. In virtual time it reads until none arrives for
// the time quiet. In real time it waits until the device has processed all earlier frames, and
// returns those that have arrived by then.
func (c *conn) drain(quiet time.Duration) (all []iwarp.ReceivedFPDU) {
	timeout := c.syncUnlessVirtual(quiet) // 0 in real time
	for {
		g, ok := c.nextFPDU(timeout)
		if !ok {
			return all
		}
		all = append(all, g)
	}
}

// syncByRead sends a Read Request, and fails the case unless the next FPDU is its response. The
// device has then processed all earlier frames, without a response to them.
func (c *conn) syncByRead() {
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
	c.Must("a notification of the disconnect", c.deviceConn.WaitDisconnect(c.endTimeout()))
}

const (
	// unknownSTag is a key that no region has, but for a coincidence of 1 to 2^32.
	unknownSTag = 0x5eadbeef
	// Lengths of DDP's headers.
	ddpTaggedLen   = 14
	ddpUntaggedLen = 18
	// tcpBufferBytes is more than TCP buffers if the receiver does not read: on Linux, some 10 MiB.
	tcpBufferBytes = 16 << 20
	// longMemLen is the memory length of cases with messages of several segments.
	longMemLen = 256 << 10
)

// moreThanTCPBuffers returns tcpBufferBytes in real time, and less in virtual time, where TCP
// buffers less.
func (h *host) moreThanTCPBuffers() int {
	if h.Virtual {
		return tcpBufferBytes / 8
	}
	return tcpBufferBytes
}

// largeMemory returns a region of moreThanTCPBuffers octets, with all access rights. A device
// cannot finish the response to a Read of all of it while the peer does not read.
func (h *host) largeMemory() *rig.Memory {
	if h.large == nil {
		h.large = h.Memory(h.moreThanTCPBuffers(), allAccess)
	}
	return h.large
}

// onLongMessages makes the body of a case from a function that uses messages of several segments.
func onLongMessages(body func(*conn)) func(*conformance.Bench) error {
	return onSetup(setup{receives: 4, recvLen: longMemLen / 4, memLen: longMemLen}, body)
}

// longLen returns the length of a message of several segments, a multiple of 8.
func (c *conn) longLen() int { return min(3*c.tcp.MSS(), longMemLen/4) &^ 7 }

// waitForDevice waits until the device has processed all frames. It does not read from the device.
func (c *conn) waitForDevice() {
	c.Sleep(c.syncUnlessVirtual(silencePeriod))
}

// exchangeAllKinds makes the device send each kind of message that it supports, except Terminate,
// and returns the FPDUs, whose opcodes it checks.
func (c *conn) exchangeAllKinds() []iwarp.ReceivedFPDU {
	wrs, ops := c.everySendWR(16)
	wrs = append(wrs, c.writeWR(5, 32, 16), c.readWR(6, 48, 16))
	ops = append(ops, iwarp.OpWrite, iwarp.OpReadRequest)
	if c.immediateError() == nil {
		immediate := c.writeImmWR(6, 96, 16, 7) // the ID is not unique: completions are not checked
		wrs = append(wrs, immediate, solicited(immediate))
		ops = append(ops, iwarp.OpWrite, iwarp.OpImmediate, iwarp.OpWrite, iwarp.OpImmediateSE)
	}
	if c.Caps.Has(verbs.CapAtomics) {
		wrs = append(wrs, c.fetchAddWR(7, 80, 1), c.cmpSwapWR(8, 88, 1, 2))
		ops = append(ops, iwarp.OpAtomicRequest, iwarp.OpAtomicRequest)
	}
	c.PostSend(c.qp, wrs...)
	all := make([]iwarp.ReceivedFPDU, 0, len(ops)+2)
	for _, op := range ops {
		all = append(all, c.expect(iwarp.Op(op)))
	}
	all = append(all, c.expectAnswer(c.peerRead(0, 16), iwarp.Op(iwarp.OpReadResponse)))
	if c.Caps.Has(verbs.CapAtomics) {
		all = append(all, c.expectAnswer(c.peerFetchAdd(1, 0), iwarp.Op(iwarp.OpAtomicResponse)))
	}
	return all
}

// exchangeAllSegments makes the device send each kind of message that it supports: first in one
// segment, then Sends, Writes and Read Responses in several segments, at last a Terminate. It
// returns the FPDUs, whose opcodes it checks. The setup is that of onLongMessages.
func (c *conn) exchangeAllSegments() []iwarp.ReceivedFPDU {
	all, n := c.exchangeAllKinds(), c.longLen()
	wrs, ops := c.everySendWR(n)
	c.PostSend(c.qp, append(wrs, c.writeWR(5, 0, n))...)
	c.send(c.peerRead(0, n))
	for _, op := range append(ops, iwarp.OpWrite, iwarp.OpReadResponse) {
		all = append(all, c.nextMessage(op)...)
	}
	return append(all, c.expectAnswer(iwarp.Write(unknownSTag, 0, data(16)), iwarp.Op(iwarp.OpTerminate)))
}

// solicited returns the request with the flag for a solicited event.
func solicited(wr verbs.SendWR) verbs.SendWR {
	wr.Flags |= verbs.SendSolicited
	return wr
}

// everySendWR returns Sends of n bytes of localMem, one of each kind that the device supports, with
// WR IDs from 1 on, and their opcodes.
func (c *conn) everySendWR(n int) (wrs []verbs.SendWR, ops []iwarp.Opcode) {
	invalidate := c.sendWR(3, 0, n)
	invalidate.Opcode, invalidate.InvalidateRKey = verbs.OpSendInv, peerSTag
	wrs = []verbs.SendWR{c.sendWR(1, 0, n), solicited(c.sendWR(2, 0, n)), invalidate, solicited(invalidate)}
	wrs[3].WRID = 4
	ops = []iwarp.Opcode{iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate}
	if !c.Caps.Has(verbs.CapSendInv) {
		return wrs[:2], ops[:2]
	}
	return wrs, ops
}

// fetchAddWR returns a FetchAdd request of the device, with the result in localMem.
func (c *conn) fetchAddWR(id uint64, off int, add uint64) verbs.SendWR {
	wr := c.wr(verbs.OpAtomicFetchAdd, id, off, 8)
	wr.Atomic.CompareAdd = add
	return wr
}

// cmpSwapWR returns a CmpSwap request of the device, with the result in localMem.
func (c *conn) cmpSwapWR(id uint64, off int, compare, swap uint64) verbs.SendWR {
	wr := c.fetchAddWR(id, off, compare)
	wr.Opcode, wr.Atomic.Swap = verbs.OpAtomicCmpAndSwp, swap
	return wr
}

// nextPayload receives FPDUs until they have at least n octets of payload in total, and returns
// them.
func (c *conn) nextPayload(n int) []iwarp.ReceivedFPDU {
	var all []iwarp.ReceivedFPDU
	for left := n; left > 0; {
		g := c.mustNextFPDU(fmt.Sprintf("%d more octets of payload", left))
		all = append(all, g)
		left -= len(g.Payload)
	}
	return all
}

// expectNoResponse expects no response to earlier frames, except for a Terminate.
func (c *conn) expectNoResponse() {
	c.waitForDevice()
	if g, ok := c.nextFPDU(0); ok {
		c.checkFPDU(iwarp.Op(iwarp.OpTerminate), g)
	}
}

// expectAbort fails the case unless the device ends the stream. It is for errors without a specified
// cause, and reports whether the device sent a Terminate before the end.
func (c *conn) expectAbort() (terminated bool) {
	g, terminated := c.nextFPDU(c.ResponseTimeout())
	if terminated {
		c.checkTerminate(g, nil)
	}
	c.expectEnd()
	return terminated
}

// expectTerminateAfter fails the case unless the device sends segments of op only, then a
// Terminate with one of the causes, or with any if there are none, and the end of the stream.
func (c *conn) expectTerminateAfter(op iwarp.Opcode, causes ...iwarp.Cause) iwarp.Segment {
	g := c.mustNextFPDU("TERMINATE")
	for ; g.Op() != iwarp.OpTerminate; g = c.mustNextFPDU("TERMINATE") {
		c.checkFPDU(iwarp.Op(op), g)
	}
	t := c.checkTerminate(g, causes)
	c.expectEnd()
	return t
}

// parseTerminate parses a Terminate in the RFC's bit order or in that of Linux's siw. If both are
// valid, the state decides: some causes are possible only before the end of MPA start-up, some
// only after it. Other cases check the bit order.
func (c *conn) parseTerminate(g iwarp.ReceivedFPDU) iwarp.Segment {
	started := c.deviceConn != nil
	if t, ok := g.InSiwBitOrder(started); ok {
		return t
	}
	return g.Segment
}

// expectQuotedDDPHeader expects that Terminate t quotes the DDP header of the wrong segment.
func (c *conn) expectQuotedDDPHeader(t, wrong iwarp.Segment) {
	want := iwarp.Terminate(0).About(wrong).Terminate.DDPHeader
	got := t.Terminate.DDPHeader
	c.Check(bytes.Equal(got, want), fmt.Sprintf("the DDP header % x in the Terminate", want), "% x", got)
}

// expectFailures fails the case unless n requests or receives complete in error. If the device
// has closed its direction, the peer closes the other first, since the device may wait for that.
func (c *conn) expectFailures(n int) {
	if c.endErr != nil {
		c.closeWrite()
	}
	for i := range n {
		wc, ok := c.PollCompletion(c.ResponseTimeout())
		c.Check(ok, fmt.Sprintf("%d requests and receives that complete in error", n), "%d", i)
		c.Check(wc.Status != verbs.WCSuccess, "an error completion", "%s", rig.Describe(&wc))
	}
}

// bindableAccess are the rights of memory that remote peers can access through windows only.
const bindableAccess = verbs.AccessLocalWrite | verbs.AccessMWBind

// newWindow binds a memory window of type 2 to 64 octets of new memory, and returns the memory and
// the address by which the peer accesses it.
func (c *conn) newWindow(access verbs.Access) (*rig.Memory, iwarp.Addr) {
	m := c.Memory(64, bindableAccess)
	return m, c.windowAddr(m, 0, 64, access)
}

// windowAddr binds a window of type 2 to n octets of m from off on, and returns its address.
func (c *conn) windowAddr(m *rig.Memory, off, n int, access verbs.Access) iwarp.Addr {
	return iwarp.At(uint32(c.BindWindow(c.qp, m, off, n, access)), m.Addr()+uint64(off))
}

// sendBatch sends n messages in one write. message returns message i; nextSendMSN and
// nextRequestMSN advance with each.
func (c *conn) sendBatch(n int, message func(i int) iwarp.Segment) {
	const frameLen = 64 // approximate octets of a framed request
	b := make([]byte, 0, n*frameLen)
	for i := range n {
		b = append(b, c.encode(message(i))...)
	}
	c.write(b)
}
