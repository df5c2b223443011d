package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// startDisconnect starts a disconnect of the application in another goroutine, since it may
// wait for posted requests.
func (c *conn) startDisconnect() conformance.Task {
	c.Note("disconnect")
	return c.Go("disconnect", c.deviceConn.Disconnect)
}

var ddpEndCases = []conformance.Case{{
	ID: "ddp/end/error-does-not-just-break-the-stream", Cite: cite("rfc5041/6.2/1"),
	Title:   "After a DDP error, RDMAP sends a Terminate before the stream ends",
	Sends:   "a Write to an unknown key",
	Expects: "a Terminate, and then the end of the stream",
	Defects: []string{"ErrorResets"}, Run: onConn(func(c *conn) {
		c.expectRefusal(iwarp.Write(unknownSTag, 0, data(16)))
	}),
}, {
	ID: "ddp/end/disconnect-sends-what-was-posted", Cite: cite("rfc5041/6.2.1/1"), Level: conformance.Should,
	Title:   "Requests posted before the application disconnects are sent",
	Sends:   "nothing, and reads nothing until the application has posted 100 Sends and disconnected",
	Expects: "the 100 Sends, then an orderly close of the stream",
	Defects: []string{"DisconnectDropsQueue"}, Run: onSetup(setup{memLen: tcpBufferBytes / 100}, func(c *conn) {
		const n, size = 100, tcpBufferBytes / 100 &^ 3
		c.postBatch(n, func(i int) verbs.SendWR { return c.sendWR(uint64(i+1), 0, size) })
		disconnecting := c.startDisconnect()
		c.waitForDevice()
		for range n {
			c.expectPayload(c.nextMessage(iwarp.OpSend), c.localMem.Buf[:size])
		}
		c.expectClose()
		c.closeWrite()
		c.Must("a disconnect", disconnecting.Wait(c.ResponseTimeout()))
		c.expectDisconnect()
	}),
}, {
	ID: "ddp/end/posts-after-disconnect-fail", Cite: cite("rfc5041/6.2.1/2"),
	Title:   "A request posted after a disconnect fails",
	Sends:   "FIN, after that of the device",
	Expects: "a request that is refused or fails, and nothing on the wire",
	Defects: []string{"FlushForgets"}, Run: onSetup(setup{}, func(c *conn) {
		disconnecting := c.startDisconnect()
		c.expectClose()
		posted, err := c.qp.PostSend([]verbs.SendWR{c.sendWR(1, 0, 16)})
		c.Note("post: %d taken, %v", posted, err)
		c.closeWrite()
		c.Must("a disconnect", disconnecting.Wait(c.ResponseTimeout()))
		c.expectDisconnect()
		c.expectFailures(posted)
		posted, err = c.qp.PostSend([]verbs.SendWR{c.sendWR(2, 0, 16)})
		c.Note("post: %d taken, %v", posted, err)
		c.expectFailures(posted)
	}),
}, {
	ID: "ddp/end/closed-with-work-outstanding-is-failed", Cite: cite("rfc5041/6.2.1/2"),
	Title:   "A queue pair whose connection is closed with outstanding requests is in the error state",
	Sends:   "FIN while the device waits for a Read Response: without, and after a disconnect of the application",
	Expects: "a queue pair in the error state, and a read that fails",
	Defects: []string{"BusyCloseIsIdle"}, Run: onEachConn(setup{}, []bool{false, true}, func(c *conn, disconnects bool) {
		c.deviceRead(1, 0, 16)
		var disconnecting conformance.Task
		if disconnects {
			disconnecting = c.startDisconnect()
			c.waitForDevice()
		}
		c.closeWrite()
		c.expectEnd()
		if disconnects {
			c.Note("disconnected: %v", disconnecting.Wait(c.ResponseTimeout()))
		}
		c.expectDisconnect()
		c.AwaitState(c.qp, verbs.QPStateErr)
		c.expectFailures(1)
	}),
}, {
	ID: "ddp/end/answers-go-on-after-fin", Cite: cite("rfc5041/6.2.1/3"), Level: conformance.Should,
	Title:   "Reads are answered after the peer has closed its direction of the stream",
	Sends:   "sixteen Read Requests for 1 MiB each and FIN, before it reads from the stream",
	Expects: "all Read Responses",
	Defects: []string{"FINDropsAnswers"}, Run: onSetup(setup{memLen: tcpBufferBytes / defaultOrd}, func(c *conn) {
		const n = tcpBufferBytes / defaultOrd
		c.sendBatch(defaultOrd, func(int) iwarp.Segment { return c.peerRead(0, n) })
		c.closeWrite()
		c.waitForDevice()
		for range defaultOrd {
			c.expectPayload(c.nextMessage(iwarp.OpReadResponse), c.targetMem.Buf[:n])
		}
		c.expectClose()
	}),
}, {
	ID: "ddp/end/outstanding-requests-fail", Cite: cite("rfc5041/6.2.2/2", "rfc5040/6.2.1/2"), Level: conformance.Should,
	Title:   "Outstanding requests and receives complete in error when the connection breaks",
	Sends:   "a reset, while four reads and four Sends of the device and two receives are outstanding",
	Expects: "ten completions in error",
	Defects: []string{"FlushForgets"}, Run: onSetup(setup{receives: 2}, func(c *conn) {
		c.postOutstanding(4, 4)
		c.reset()
		c.expectDisconnect()
		c.expectFailures(4 + 4 + 2)
	}),
}}

// postOutstanding posts reads, and Sends with a fence: none of them completes before the
// peer sends a Read Response.
func (c *conn) postOutstanding(reads, sends int) {
	c.postBatch(reads+sends, func(i int) verbs.SendWR {
		if i < reads {
			return c.readWR(uint64(100+i), 1024+16*i, 16)
		}
		wr := c.sendWR(uint64(200+i), 16*i, 16)
		wr.Flags |= verbs.SendFence
		return wr
	})
	for range reads {
		c.expect(iwarp.Op(iwarp.OpReadRequest))
	}
}
