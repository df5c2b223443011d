package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var rdmapStreamCases = []conformance.Case{{
	ID: "rdmap/stream/garbage-ends-it", Cite: cite("rfc5040/6.1/1"),
	Title:   "Octets that are no RDMA message end the stream",
	Sends:   "40 zeros, and a valid Send after them",
	Expects: "the end of the stream, and no receive",
	Defects: []string{"SkipsGarbage"}, Run: onConn(func(c *conn) {
		c.write(append(make([]byte, 40), c.encode(iwarp.Send(c.nextSendMSN(), data(16)))...))
		c.expectAbort()
		c.expectNoSuccess()
	}),
}, {
	ID: "rdmap/stream/ready-only-by-connection", Cite: cite("rfc5040/6.1/1"),
	Title:   "A queue pair is in RTR only if the modify has succeeded",
	Sends:   "nothing: the application modifies a queue pair without a connection to RTR",
	Expects: "a modify that is refused, or a queue pair in RTR",
	Defects: []string{"RTRIgnored"}, Run: onHost(func(h *host) {
		c := h.newConn(&setup{})
		err := c.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState)
		c.Note("modify to RTR: %s", eventOrError(err))
		if err != nil {
			c.ExpectState(c.qp, verbs.QPStateInit)
			return
		}
		c.ExpectState(c.qp, verbs.QPStateRTR)
	}),
}, {
	ID: "rdmap/stream/reads-under-way-are-limited", Cite: cite("rfc5040/6.1/2"),
	Title:   "No more reads are outstanding than the peer's IRD",
	Sends:   "a Request with IRD 3; the application posts eight reads",
	Expects: "three Read Requests, and another one for each that is answered",
	Defects: []string{"ORDRoundedUp", "AlwaysFenced"},
	Run: onSetup(setup{frame: withDepths(3, defaultOrd)}, func(c *conn) {
		const limit, all = 3, 8
		wrs := make([]verbs.SendWR, all)
		for i := range wrs {
			wrs[i] = c.readWR(uint64(i+1), 16*i, 16)
		}
		c.PostSend(c.qp, wrs...)
		open := c.nextFPDUs(limit)
		for i := range all {
			c.expectSilence(silencePeriod)
			c.send(iwarp.ReadResponseTo(open[i].Segment, data(16)))
			if i+limit < all {
				open = append(open, c.expect(iwarp.Op(iwarp.OpReadRequest)))
			}
			c.ExpectCompletion(uint64(i+1), verbs.WCSuccess)
		}
	}),
}, {
	ID: "rdmap/stream/reads-taken-are-limited", Cite: cite("rfc5040/6.1/3"),
	Title:   "One more outstanding read than the IRD ends the stream",
	Sends:   "one more Read Request than the IRD at once, without reading the responses",
	Expects: "a Terminate",
	Defects: []string{"IRDRoundedUp"}, Run: onSetup(threeReads, func(c *conn) {
		c.sendReadsUnread(c.grantedIRD() + 1)
		c.expectTerminateAfter(iwarp.OpReadResponse)
	}),
}, {
	ID: "rdmap/stream/flood-of-reads-is-refused", Cite: cite("rfc5040/8.1.1/4", "rfc5040/6.1/3"),
	Labels:  []string{conformance.Dangerous},
	Title:   "A thousand outstanding reads end the stream",
	Sends:   "a thousand Read Requests at once, without reading the responses",
	Expects: "a Terminate",
	Defects: []string{"IRDUnlimited"}, Run: onSetup(threeReads, func(c *conn) {
		c.sendReadsUnread(1000)
		c.expectTerminateAfter(iwarp.OpReadResponse)
	}),
}, {
	ID: "rdmap/stream/opcode-change-is-terminated", Cite: cite("rfc5040/6.2.1/1"), Level: conformance.Should,
	Title:   "A message whose opcode changes between segments causes a Terminate",
	Sends:   "a Send whose second segment has the opcode of a Send with solicited event",
	Expects: "a Terminate with any cause, and no receive",
	Defects: []string{"OpcodeChangeSilent"}, Run: onConn(func(c *conn) {
		parts := iwarp.Send(c.nextSendMSN(), data(32)).Segments(18 + 16)
		c.send(parts[0], parts[1].Opcode(iwarp.OpSendSE))
		c.expectTerminateAndEnd()
		c.expectNoSuccess()
	}),
}, {
	ID: "rdmap/stream/error-amid-a-message-is-terminated", Cite: cite("rfc5040/6.2.1/1"), Level: conformance.Should,
	Title:   "An error causes a Terminate also while the device is sending a message",
	Sends:   "a Write to an unknown key, without reading, while the device writes more than TCP buffers",
	Expects: "a part of the Write, and a Terminate",
	Defects: []string{"TermSkipped"}, Run: onSetup(setup{memLen: tcpBufferBytes}, func(c *conn) {
		c.PostSend(c.qp, c.writeWR(1, 0, tcpBufferBytes))
		c.waitForDevice()
		c.send(iwarp.Write(unknownSTag, 0, data(16)))
		c.waitForDevice()
		c.expectTerminateAfter(iwarp.OpWrite, iwarp.DDPTaggedInvalidSTag)
	}),
}, {
	ID: "rdmap/stream/errors-reach-the-program", Cite: cite("rfc5040/7.1/1"),
	Title:   "The application is notified of an error of its queue pair",
	Sends:   "errors of every layer, each on a separate connection",
	Expects: "a disconnect, a queue pair in the error state, and receives that fail",
	Defects: []string{"EndUnreported"}, Run: onHost(func(h *host) {
		for _, f := range []peerFault{crcFault, taggedFault, untaggedFault, readFault, opcodeFault} {
			c := h.connect(setup{receives: 2})
			c.expectAbortBy(f.frame(c))
			c.Note("%s", f.name)
			c.expectDisconnect()
			c.AwaitState(c.qp, verbs.QPStateErr)
			c.expectFailures(2)
		}
	}),
}}
