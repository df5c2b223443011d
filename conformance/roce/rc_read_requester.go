package roce

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var readRetryCases = overRC.Cases([]conformance.Case{{
	ID: "rc/read/retry-asks-for-the-missing-tail", Cite: ibta("", "rc/read/10"),
	Title:   "A READ is retried from the first lost response on",
	Sends:   "to READs of three packets: all responses but the first, the second or the last",
	Expects: "a READ_REQUEST with PSN, address and length from the lost response on",
	Defects: []string{"ReadRetryFromStart"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, []int{0, 1, 2}, func(c *Conn, lost int) {
		bytes := Data(2500)
		responses := c.startRead(bytes)
		c.Send(slices.Delete(responses, lost, lost+1)...)
		c.expect(ib.ReadRequest(c.DevicePSN(lost), peerMemoryRETH(len(bytes)).Skip(lost*MTU)))
		c.Send(ib.ReadResponses(c.DevicePSN(lost), 1, bytes[lost*MTU:], MTU)...)
		c.expectReadDone(bytes)
	}),
}, {
	ID: "rc/read/retry-answered-as-new-message-accepted", Cite: ibta("9.4.4", "rc/read/8"),
	Title:   "A READ that was retried in part accepts responses that begin with FIRST or ONLY",
	Sends:   "to the retransmission of a READ from its second, or its third and last packet on: FIRST and LAST, or ONLY",
	Expects: "SUCCESS, and all bytes in place",
	Defects: []string{"ReadRestartRefused"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, []int{1, 2}, func(c *Conn, got int) {
		bytes := Data(2500)
		c.awaitRetryFrom(got, bytes)
		c.Send(ib.ReadResponses(c.DevicePSN(got), 1, bytes[got*MTU:], MTU)...)
		c.expectReadDone(bytes)
	}),
}, {
	ID: "rc/read/retry-answered-as-continuation-accepted", Cite: ibta("9.4.4", "rc/read/8"),
	Title:   "A READ that was retried in part accepts responses that continue the first ones",
	Sends:   "to the retransmission of a READ from its second, or its third and last packet on: MIDDLE and LAST, or LAST",
	Expects: "SUCCESS, and all bytes in place",
	Defects: []string{"ReadRestartRefused"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, []int{1, 2}, func(c *Conn, got int) {
		bytes := Data(2500)
		c.awaitRetryFrom(got, bytes)
		c.Send(ib.ReadResponses(c.DevicePSN(0), 1, bytes, MTU)[got:]...)
		c.expectReadDone(bytes)
	}),
}, {
	ID: "rc/read/last-behind-a-gap-completes-nothing", Cite: ibta("V1C09-060#05", "rc/read/11"),
	Title:   "A LAST response after a gap does not complete a READ",
	Sends:   "to a READ of three packets: FIRST and LAST; when it is retried, the missing responses",
	Expects: "no completion before, SUCCESS and all bytes in place after",
	Defects: []string{"LastCompletesRead"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
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
	ID: "rc/read/gap-retried-from-the-gap", Cite: ibta("", "rc/read/12"), Level: conformance.May,
	Title:   "A READ with a gap in its responses is retried from the gap on, at once or when the timer expires",
	Sends:   "to a READ of six packets: all responses but the third and fourth",
	Expects: "a READ_REQUEST for the last four packets",
	Defects: []string{"ReadRetryFromStart"}, Run: onConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		bytes := Data(6 * MTU)
		responses := c.startRead(bytes)
		c.Send(slices.Delete(responses, 2, 4)...)
		c.expect(ib.ReadRequest(c.DevicePSN(2), peerMemoryRETH(len(bytes)).Skip(2*MTU)))
	}),
}, {
	ID: "rc/read/short-response-ends-or-is-retried", Cite: ibta("", "rc/read/13"),
	Title:   "A READ with a short response fails or is retried",
	Sends:   "to a READ of 8 bytes a RESPONSE_ONLY of 4; to one of 2500 a LAST that is 4 bytes short",
	Expects: "a completion with an error, or a retransmission of the READ and, after a correct answer, SUCCESS",
	Defects: []string{"ShortReadHangs"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, []int{8, 2500}, func(c *Conn, n int) {
		bytes := Data(n)
		responses := c.startRead(bytes)
		last := &responses[len(responses)-1]
		*last = last.WithPayload(last.Payload[:len(last.Payload)-4])
		c.Send(responses...)
		c.expectErrorOrRetry(bytes)
	}),
}, {
	ID: "rc/read/response-inside-is-as-long-as-the-mtu", Cite: ibta("", "rc/read/13"),
	Title:   "A READ with a FIRST or MIDDLE response shorter than the path MTU fails or is retried, even if the LAST has the missing bytes",
	Sends:   "to a READ of 2500 bytes a FIRST, MIDDLE and LAST of 1000, 1024 and 452 bytes, of 1024, 1000 and 452, of 1021, 1024 and 452; and with a LAST that has the missing bytes",
	Expects: "a completion with an error, or a retransmission of the READ and, after a correct answer, SUCCESS",
	Defects: []string{"ResponseLengthUnchecked"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}, []shortResponse{{1000, 1024, false}, {1024, 1000, false}, {1021, 1024, false}, {1000, 1024, true}, {1024, 1000, true}}, func(c *Conn, s shortResponse) {
		bytes := Data(2500)
		c.startRead(bytes)
		second, third := MTU, 2*MTU // offsets of their payload
		if s.lastCompensates {
			second, third = s.first, s.first+s.middle
		}
		c.Send(
			ib.Response(ib.OpReadResponseFirst, c.DevicePSN(0), 1, bytes[:s.first]),
			ib.New(ib.OpReadResponseMiddle, c.DevicePSN(1), bytes[second:][:s.middle]),
			ib.Response(ib.OpReadResponseLast, c.DevicePSN(2), 1, bytes[third:]),
		)
		c.expectErrorOrRetry(bytes)
	}),
}, {
	ID: "rc/read/long-response-stays-in-its-buffers", Cite: ibta("", "rc/read/14"),
	Title:   "A READ with a long response fails and changes no byte outside its buffers",
	Sends:   "to a READ of 8 bytes a RESPONSE_ONLY of 16; to one of 1028 bytes a LAST of 12; to one of 8 bytes a FIRST",
	Expects: "a completion with an error, and no byte changed after the buffer",
	Defects: []string{"LongReadOverflows"}, Run: onEachConn(Setup{}, []longResponse{
		{8, 16}, {1028, MTU + 12}, {8, MTU + 4},
	}, func(c *Conn, t longResponse) {
		c.startRead(Data(t.asked))
		c.Send(ib.ReadResponses(c.DevicePSN(0), 1, Data(t.answered), MTU)...)
		c.expectErrorCompletion(1)
		c.Sync()
		c.ExpectUnchangedOutside(c.LocalMem, SinkOffset, t.asked)
	}),
}, {
	ID: "rc/read/sink-must-be-writable", Cite: ibta("", "rc/read/15"),
	Title:   "A READ into memory without local write completes with LOC_PROT_ERR and writes nothing",
	Sends:   "posts a READ into a region without local write, and answers it if it is sent; another into a region that is deregistered after the first of three responses; a FETCH_ADD, if supported, whose region is deregistered before the response",
	Expects: "LOC_PROT_ERR, the memory unchanged from then on",
	Defects: []string{"SinkUnchecked", "SinkCheckedOnce"}, Run: onConn(Setup{}, func(c *Conn) {
		m := c.Memory(64, 0)
		wr := c.ReadWR(1, 0)
		wr.SGL = m.SGL(0, 64)
		c.PostSend(c.QP, wr)
		if _, sent := c.NextAfterSync(shortWait); sent {
			c.Send(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(64)))
		}
		c.ExpectCompletion(1, verbs.WCLocProtErr)
		c.ExpectUntouched(m)
		c = c.secondConn(Setup{})
		m = c.Memory(3*MTU, verbs.AccessLocalWrite)
		wr.SGL = m.SGL(0, 3*MTU)
		c.request(0, wr)
		responses := ib.ReadResponses(c.DevicePSN(0), 1, Data(3*MTU), MTU)
		c.Send(responses[0])
		c.Sync()
		c.Must("a region that can be deregistered", m.Close())
		c.Send(responses[1:]...)
		c.ExpectCompletion(1, verbs.WCLocProtErr)
		if c.Caps.Has(verbs.CapAtomics) {
			c = c.secondConn(Setup{})
			m = c.Memory(64, verbs.AccessLocalWrite)
			c.request(0, c.fetchAddWR(1, m.SGE(0, 8)))
			c.Must("a region that can be deregistered", m.Close())
			c.Send(ib.AtomicAck(c.DevicePSN(0), 1, 7))
			c.ExpectCompletion(1, verbs.WCLocProtErr)
		}
	}),
}, {
	ID: "rc/read/nak-among-responses-ends-the-read", Cite: ibta("", "rc/read/19"),
	Title:   "A fatal NAK after some responses completes the READ with the status of its code",
	Sends:   "to READs of three packets: a FIRST, then a NAK with the second PSN, with codes 1, 2 and 3",
	Expects: "REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR",
	Defects: []string{"NAKInReadSucceeds"}, Run: onEachConn(Setup{}, fatalNAKs, func(c *Conn, n nakStatus) {
		c.Send(c.startRead(Data(2500))[0], c.peerNak(1, n.code, 0))
		c.ExpectCompletion(1, n.status)
	}),
}, {
	ID: "rc/read/nak-in-a-response-is-a-bad-response", Cite: ibta("", "rc/read/20"),
	// The timeout is for devices that drop the response, and fail the READ only when
	// their retries are exhausted.
	Title:   "A READ response whose AETH has the syndrome of a NAK is a bad response",
	Sends:   "to READs of one and of three packets: the correct responses, with syndrome 0x62 in the first or in the last",
	Expects: "a completion with an error",
	Defects: []string{"BadRespSucceeds"}, Run: onEachConn(Setup{Modify: withTimeoutAndRetries(timeout67ms, 1)}, []badSyndrome{{8, 0}, {2500, 0}, {2500, 2}}, func(c *Conn, b badSyndrome) {
		responses := c.startRead(Data(b.n))
		responses[b.at] = responses[b.at].WithSyndrome(0x62)
		c.Send(responses...)
		c.expectErrorCompletion(1)
	}),
}})

// expectErrorOrRetry fails the case unless the READ of these bytes, to which the peer has sent a
// bad response, completes with an error, or is retransmitted and succeeds with a correct response.
func (c *Conn) expectErrorOrRetry(bytes []byte) {
	c.Sync() // the device has then processed the bad response
	if wc, ok := c.PollCompletion(0); ok {
		c.Check(wc.Status != verbs.WCSuccess, "an error, or a retry", "%s", rig.Describe(&wc))
		return
	}
	// The retransmission may start after the correct part of the response.
	again := c.expect(ib.Op(ib.OpReadRequest))
	from := int(*again.RETH.VA - PeerMemory.Addr)
	c.Check(from >= 0 && from+int(*again.RETH.Len) == len(bytes), "a READ_REQUEST up to the end of the original READ", "%v", again)
	c.Send(ib.ReadResponses(again.PSN(), 1, bytes[from:], MTU)...)
	c.expectReadDone(bytes)
}

// longResponse is the length of a READ, and the total length of the responses to it, which is
// larger.
type longResponse struct{ asked, answered int }

// shortResponse are the payload lengths of the first two of three READ responses, and
// whether the last response contains the missing bytes.
type shortResponse struct {
	first, middle   int
	lastCompensates bool
}

// badSyndrome is the length of a READ and the index of the response with a bad syndrome.
type badSyndrome struct{ n, at int }

// The cases above accept a requester that retransmits the READ when its timer expires,
// and a requester that retransmits the READ when it detects the gap.

// startRead has the device read these bytes. It returns the responses without sending them.
func (c *Conn) startRead(bytes []byte) []ib.Packet {
	c.request(0, c.ReadWR(1, len(bytes)))
	return ib.ReadResponses(c.DevicePSN(0), 1, bytes, MTU)
}

// awaitRetryFrom has the device read these bytes, sends the first n responses only, and
// waits until the device requests the rest.
func (c *Conn) awaitRetryFrom(n int, bytes []byte) {
	c.Send(c.startRead(bytes)[:n]...)
	c.expect(ib.Op(ib.OpReadRequest).WithPSN(c.DevicePSN(n)))
}

// expectReadDone fails the case unless the device's READ succeeds with these bytes.
func (c *Conn) expectReadDone(bytes []byte) {
	c.ExpectCompletion(1, verbs.WCSuccess)
	c.ExpectBytes(c.LocalMem, SinkOffset, bytes)
	c.ExpectUnchangedOutside(c.LocalMem, SinkOffset, len(bytes))
}
