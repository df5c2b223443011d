package iwarp

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Steps that the cases of DDP, RDMAP and its extensions share.

// unknownSTag is a key that no region has: devices draw theirs, and one that has drawn
// this one as well would be a coincidence of 1 to 2^32.
const unknownSTag = 0x5eadbeef

// Lengths of DDP's headers.
const (
	ddpTaggedLen   = 14
	ddpUntaggedLen = 18
)

// tcpBufferBytes is more than what TCP keeps on the way when nobody reads: buffers of Linux
// grow to some 10 MiB on both sides together.
const tcpBufferBytes = 16 << 20

// longMemLen is how long memory is in cases with messages of several segments.
const longMemLen = 256 << 10

// onLongMessages makes a case of a body that uses messages of several segments.
func onLongMessages(body func(*conn)) func(*conformance.Bench) error {
	return onSetup(setup{receives: 4, recvLen: longMemLen / 4, memLen: longMemLen}, body)
}

// longLen is the length of a message that needs several segments.
func (c *conn) longLen() int { return min(3*c.tcp.MSS(), longMemLen/4) &^ 7 }

// waitForDevice gives the device time for whatever it is going to do, while the peer does not
// read.
func (c *conn) waitForDevice() {
	if c.Virtual {
		c.Sleep(silencePeriod)
		return
	}
	if c.syncQP == nil {
		c.syncQP = newSyncQP(c.host)
	}
	c.syncQP.sync()
}

// exchangeAllKinds has the device send a message of every kind that it can be made to without an
// error, and returns their segments.
func (c *conn) exchangeAllKinds() []iwarp.ReceivedFPDU {
	solicited := c.sendWR(2, 16, 16)
	solicited.Flags |= verbs.SendSolicited
	wrs := []verbs.SendWR{c.sendWR(1, 0, 16), solicited, c.writeWR(3, 32, 16), c.readWR(4, 48, 16)}
	if c.Caps.Has(verbs.CapSendInv) {
		invalidate := c.sendWR(5, 64, 16)
		invalidate.Opcode, invalidate.InvalidateRKey = verbs.OpSendInv, peerSTag
		wrs = append(wrs, invalidate)
	}
	if c.Caps.Has(verbs.CapAtomics) {
		wrs = append(wrs, c.fetchAddWR(6, 80, 1))
	}
	c.PostSend(c.qp, wrs...)
	all := c.nextFPDUs(len(wrs))
	c.send(c.peerRead(0, 16))
	return append(all, c.nextFPDUs(1)...)
}

// fetchAddWR is a FetchAdd of the device's program, which puts what was there into own.
func (c *conn) fetchAddWR(id uint64, off int, add uint64) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(off, 8),
		Remote: verbs.Remote{Addr: peerTO, RKey: peerSTag}, Atomic: verbs.Atomic{CompareAdd: add},
	}
}

// nextPayload returns what the device sends, whatever it says about itself, up to where it
// has n octets of payload.
func (c *conn) nextPayload(n int) []iwarp.ReceivedFPDU {
	var all []iwarp.ReceivedFPDU
	for left := n; left > 0; {
		g, ok := c.nextFPDU(c.ResponseTimeout())
		if !ok {
			c.Fail(fmt.Sprintf("%d octets of payload", n), "%d, then %s", n-left, c.describeMissing())
		}
		all = append(all, g)
		left -= len(g.Payload)
	}
	return all
}

// joinPayloads is the payload of segments, in the order in which they came.
func joinPayloads(segments []iwarp.ReceivedFPDU) []byte {
	var b []byte
	for _, g := range segments {
		b = append(b, g.Payload...)
	}
	return b
}

// expectAnyTerminate ends the case unless the next FPDU is a Terminate, for whatever reason.
// It is read in either order of bits.
func (c *conn) expectAnyTerminate() iwarp.Segment {
	return parseTerminate(c.expect(iwarp.Op(iwarp.OpTerminate)))
}

// expectNoResponse ends the case if the device sends anything in answer to what came before,
// but for a Terminate.
func (c *conn) expectNoResponse() {
	c.waitForDevice()
	if g, ok := c.nextFPDU(0); ok {
		c.checkFPDU(iwarp.Op(iwarp.OpTerminate), g)
	}
}

// expectAbort ends the case unless the device ends the stream, with or without a Terminate
// that says why: for errors of which the clause says no more.
func (c *conn) expectAbort() {
	if g, ok := c.nextFPDU(c.ResponseTimeout()); ok {
		c.checkFPDU(iwarp.Op(iwarp.OpTerminate), g)
	}
	c.expectEnd()
}

// drainUntilTerminate ends the case unless the device ends the stream with a Terminate. What
// it sends before, which was under way, is returned too.
func (c *conn) drainUntilTerminate() (before []iwarp.ReceivedFPDU, t iwarp.Segment) {
	for {
		g, ok := c.nextFPDU(c.ResponseTimeout())
		switch {
		case !ok:
			c.Fail("TERMINATE", "%s behind %d segments", c.describeMissing(), len(before))
		case g.Op() == iwarp.OpTerminate:
			c.expectEnd()
			return before, parseTerminate(g)
		}
		before = append(before, g)
	}
}

// drainOpUntilTerminate is untilTerminate for one of these reasons, where nothing but segments
// of op is under way.
func (c *conn) drainOpUntilTerminate(op iwarp.Opcode, causes ...iwarp.Cause) (before []iwarp.ReceivedFPDU, t iwarp.Segment) {
	before, t = c.drainUntilTerminate()
	for _, g := range before {
		c.checkFPDU(iwarp.Op(op), g)
	}
	c.checkCause(t, causes)
	return before, t
}

// parseTerminate reads a Terminate in the order of bits that it has.
func parseTerminate(g iwarp.ReceivedFPDU) iwarp.Segment {
	if t, ok := g.InSiwBitOrder(true); ok {
		return t
	}
	return g.Segment
}

// checkCause ends the case unless a Terminate is for one of these reasons, or any if there
// are none.
func (c *conn) checkCause(t iwarp.Segment, causes []iwarp.Cause) {
	if len(causes) == 0 {
		return
	}
	for _, cause := range causes {
		if t.Terminate != nil && iwarp.Val(t.Terminate.Cause) == cause {
			return
		}
	}
	c.Fail(fmt.Sprintf("TERMINATE %v", causes), "%v", t)
}

// expectQuotedDDPHeader ends the case unless a Terminate quotes the DDP header of the segment that was
// wrong.
func (c *conn) expectQuotedDDPHeader(t, wrong iwarp.Segment) {
	want := iwarp.Terminate(0).About(wrong).Terminate.DDPHeader
	got := t.Terminate.DDPHeader
	c.Check(bytes.Equal(got, want), fmt.Sprintf("the DDP header % x in the Terminate", want), "% x", got)
}

// expectNoSuccess ends the case if any request or receive has completed with success by
// now. See to it that the device has had its time: wait for the end of the stream.
func (c *conn) expectNoSuccess() {
	for {
		wc, ok := c.PollCompletion(0)
		if !ok {
			return
		}
		c.Check(wc.Status != verbs.WCSuccess, "no success", "%s", rig.Describe(&wc))
	}
}

// expectFailures ends the case unless n requests or receives complete, all of them in error. If
// the device has ended its direction, the peer ends its own first: a device may well
// wait for that.
func (c *conn) expectFailures(n int) {
	if c.endErr != nil {
		c.closeWrite()
	}
	for i := range n {
		wc, ok := c.PollCompletion(c.ResponseTimeout())
		if !ok {
			c.Fail(fmt.Sprintf("%d requests and receives that complete in error", n), "%d", i)
		}
		c.Check(wc.Status != verbs.WCSuccess, "a completion in error", "%s", rig.Describe(&wc))
	}
}

// bindID is the ID of requests that bind windows.
const bindID = 0xb1d

// bindableMemory is memory that windows can be bound to, and that no peer may use otherwise.
func (h *host) bindableMemory(n int) *rig.Memory {
	return h.Memory(n, verbs.AccessLocalWrite|verbs.AccessMWBind)
}

// bindWindow binds a window of type 2 to n octets of m from off on, and returns its key.
func (c *conn) bindWindow(m *rig.Memory, off, n int, access verbs.Access) uint32 {
	mw, err := c.PD.AllocMW(verbs.MWType2)
	c.Must("a window", err)
	key := verbs.NextRKey(mw.RKey())
	c.PostSend(c.qp, verbs.SendWR{
		WRID: bindID, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled,
		Bind: verbs.Bind{MW: mw, RKey: key, Info: verbs.BindInfo{MR: m.MR, Addr: m.Addr() + uint64(off), Length: uint64(n), Access: access}},
	})
	c.ExpectCompletion(bindID, verbs.WCSuccess)
	return uint32(key)
}

// sendBatch sends n messages in one write. Each is made when those before it have been
// numbered.
func (c *conn) sendBatch(n int, message func(i int) iwarp.Segment) {
	const usual = 64 // octets of a request with its frame, more or less
	b := make([]byte, 0, n*usual)
	for i := range n {
		b = append(b, c.encode(message(i))...)
	}
	c.write(b)
}

// addrOf is where an octet of a region is.
func addrOf(m *rig.Memory, off int) iwarp.Addr {
	return iwarp.At(uint32(m.RKey()), m.Addr()+uint64(off))
}

// writeTo is a Write of the peer's to a place.
func writeTo(at iwarp.Addr, b []byte) iwarp.Segment { return iwarp.Write(at.STag, at.TO, b) }

// readFrom is a Read Request of the peer's, to a sink of its own.
func (c *conn) readFrom(at iwarp.Addr, n int) iwarp.Segment {
	return iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, peerTO), uint32(n), at)
}
