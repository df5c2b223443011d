package roce

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// The cases below accept a requester that retransmits the READ when its timer expires,
// and one that does when it detects the gap.

var readRetryCases = overRC.Cases([]conformance.Case{{
	ID: "rc/read/retry-asks-for-the-missing-tail", Cite: ibta("", "roce/rc/read/10"),
	Run: OnPort(onEachConn(Setup{Modify: withTimeout(timeout67ms, 7)}, []int{0, 1, 2}, func(c *Conn, lost int) {
		bytes := Data(2500)
		responses := c.startRead(bytes)
		c.Send(slices.Delete(responses, lost, lost+1)...)
		c.expect(ib.ReadRequest(c.DevicePSN(lost), rdmaRemoteRETH(len(bytes)).Skip(lost*MTU)))
		c.Send(ib.ReadResponses(c.DevicePSN(lost), 1, bytes[lost*MTU:], MTU)...)
		c.expectReadDone(bytes)
	})),
}, {
	ID: "rc/read/retry-answered-as-new-message-accepted", Cite: ibta("9.4.4", "roce/rc/read/8"),
	Run: OnPort(onEachConn(Setup{Modify: withTimeout(timeout67ms, 7)}, []int{1, 2}, func(c *Conn, got int) {
		bytes := Data(2500)
		c.awaitRetryFrom(got, bytes)
		c.Send(ib.ReadResponses(c.DevicePSN(got), 1, bytes[got*MTU:], MTU)...)
		c.expectReadDone(bytes)
	})),
}, {
	ID: "rc/read/retry-answered-as-continuation-accepted", Cite: ibta("9.4.4", "roce/rc/read/8"),
	Run: OnPort(onEachConn(Setup{Modify: withTimeout(timeout67ms, 7)}, []int{1, 2}, func(c *Conn, got int) {
		bytes := Data(2500)
		c.awaitRetryFrom(got, bytes)
		c.Send(ib.ReadResponses(c.DevicePSN(0), 1, bytes, MTU)[got:]...)
		c.expectReadDone(bytes)
	})),
}, {
	ID: "rc/read/last-behind-a-gap-completes-nothing", Cite: ibta("", "roce/rc/read/11"),
	Run: onConn(Setup{Modify: withTimeout(timeout67ms, 7)}, func(c *Conn) {
		bytes := Data(2500)
		responses := c.startRead(bytes)
		c.Send(responses[0], responses[2])
		c.expectNoCompletion()
		c.expect(ib.Op(ib.OpReadRequest).WithPSN(c.DevicePSN(1)))
		c.ExpectNoCompletion()
		c.Send(ib.ReadResponses(c.DevicePSN(1), 1, bytes[MTU:], MTU)...)
		c.expectReadDone(bytes)
	}),
}, {
	ID: "rc/read/gap-retried-from-the-gap", Cite: ibta("", "roce/rc/read/12"), Level: conformance.May,
	Run: onConn(Setup{Modify: withTimeout(timeout67ms, 7)}, func(c *Conn) {
		bytes := Data(6 * MTU)
		responses := c.startRead(bytes)
		c.Send(slices.Delete(responses, 2, 4)...)
		c.expect(ib.ReadRequest(c.DevicePSN(2), rdmaRemoteRETH(len(bytes)).Skip(2*MTU)))
	}),
}})

// startRead has the device read these bytes. It returns the responses without sending
// them.
func (c *Conn) startRead(bytes []byte) []ib.Packet {
	c.postRead(len(bytes))
	c.expect(ib.ReadRequest(c.DevicePSN(0), rdmaRemoteRETH(len(bytes))))
	return ib.ReadResponses(c.DevicePSN(0), 1, bytes, MTU)
}

// awaitRetryFrom has the device read these bytes, sends the first got responses only, and
// waits until the device requests the rest.
func (c *Conn) awaitRetryFrom(got int, bytes []byte) {
	c.Send(c.startRead(bytes)[:got]...)
	c.expect(ib.Op(ib.OpReadRequest).WithPSN(c.DevicePSN(got)))
}

// expectReadDone fails the case unless the device's READ succeeds with these bytes.
func (c *Conn) expectReadDone(bytes []byte) {
	c.ExpectCompletion(1, verbs.WCSuccess)
	c.ExpectBytes(c.LocalMem, 0, bytes)
	c.ExpectUnchanged(c.LocalMem, 0, len(bytes))
}
