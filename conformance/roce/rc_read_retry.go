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
	ID:    "rc/read/retry-asks-for-the-missing-tail",
	Title: "A READ is retried from the first lost response on",
	Cite:  ibta("", "roce/rc/read/10"), Defects: []string{"ReadRetryFromStart"},
	Sends:   "to READs of three packets: all responses but the first, the second or the last",
	Expects: "a READ_REQUEST with PSN, address and length from the lost response on",
	Run: OnPort(onEachConn(Setup{Modify: withTimeout(timeout67ms, 7)}, []int{0, 1, 2}, func(c *Conn, lost int) {
		bytes := Data(2500)
		responses := c.startRead(bytes)
		c.Send(slices.Delete(responses, lost, lost+1)...)
		c.expect(ib.ReadRequest(c.DevicePSN(lost), rdmaRemoteRETH(len(bytes)).Skip(lost*MTU)))
		c.Send(ib.ReadResponses(c.DevicePSN(lost), 1, bytes[lost*MTU:], MTU)...)
		c.expectReadDone(bytes)
	})),
}, {
	ID:    "rc/read/retry-answered-as-new-message-accepted",
	Title: "A READ that was retried in part accepts responses that begin with FIRST or ONLY",
	Cite:  ibta("9.4.4", "roce/rc/read/8"), Defects: []string{"ReadRestartRefused"},
	Sends:   "to the retransmission of a READ from its second, or its third and last packet on: FIRST and LAST, or ONLY",
	Expects: "SUCCESS, and all bytes in place",
	Run: OnPort(onEachConn(Setup{Modify: withTimeout(timeout67ms, 7)}, []int{1, 2}, func(c *Conn, got int) {
		bytes := Data(2500)
		c.awaitRetryFrom(got, bytes)
		c.Send(ib.ReadResponses(c.DevicePSN(got), 1, bytes[got*MTU:], MTU)...)
		c.expectReadDone(bytes)
	})),
}, {
	ID:    "rc/read/retry-answered-as-continuation-accepted",
	Title: "A READ that was retried in part accepts responses that continue the first ones",
	Cite:  ibta("9.4.4", "roce/rc/read/8"), Defects: []string{"ReadRestartRefused"},
	Sends:   "to the retransmission of a READ from its second, or its third and last packet on: MIDDLE and LAST, or LAST",
	Expects: "SUCCESS, and all bytes in place",
	Run: OnPort(onEachConn(Setup{Modify: withTimeout(timeout67ms, 7)}, []int{1, 2}, func(c *Conn, got int) {
		bytes := Data(2500)
		c.awaitRetryFrom(got, bytes)
		c.Send(ib.ReadResponses(c.DevicePSN(0), 1, bytes, MTU)[got:]...)
		c.expectReadDone(bytes)
	})),
}, {
	ID:    "rc/read/last-behind-a-gap-completes-nothing",
	Title: "A LAST response after a gap does not complete a READ",
	Cite:  ibta("", "roce/rc/read/11"), Defects: []string{"LastCompletesRead"},
	Sends:   "to a READ of three packets: FIRST and LAST; when it is retried, the missing responses",
	Expects: "no completion before, SUCCESS and all bytes in place after",
	Run: onConn(Setup{Modify: withTimeout(timeout67ms, 7)}, func(c *Conn) {
		bytes := Data(2500)
		responses := c.startRead(bytes)
		c.Send(responses[0], responses[2])
		c.Sync()
		c.ExpectNoCompletion()
		c.expect(ib.Op(ib.OpReadRequest).WithPSN(c.DevicePSN(1)))
		c.ExpectNoCompletion()
		c.Send(ib.ReadResponses(c.DevicePSN(1), 1, bytes[MTU:], MTU)...)
		c.expectReadDone(bytes)
	}),
}, {
	ID:    "rc/read/gap-retried-from-the-gap",
	Title: "A READ with a gap in its responses is retried from the gap on, at once or when the timer expires",
	Cite:  ibta("", "roce/rc/read/12"), Level: conformance.May, Defects: []string{"ReadRetryFromStart"},
	Sends:   "to a READ of six packets: all responses but the third and fourth",
	Expects: "a READ_REQUEST for the last four packets",
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
