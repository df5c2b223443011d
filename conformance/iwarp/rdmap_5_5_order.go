package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// onRequestAfterRead makes the body of a case that fails if a request that was posted after a
// read completes before it.
func onRequestAfterRead(after func(c *conn) verbs.SendWR, op iwarp.Opcode) func(*conformance.Bench) error {
	return onConn(func(c *conn) {
		c.PostSend(c.qp, c.readWR(11, 64, 16), after(c))
		request := c.expect(iwarp.Op(iwarp.OpReadRequest))
		c.expect(iwarp.Op(op))
		c.expectIdle()
		c.send(iwarp.ReadResponseTo(request.Segment, data(16)))
		c.ExpectCompletion(11, verbs.WCSuccess)
		c.ExpectCompletion(12, verbs.WCSuccess)
	})
}

var rdmapOrderCases = []conformance.Case{{
	ID: "rdmap/order/sends-wait-for-delivery", Cite: cite("rfc5040/5.5/1"),
	Title:   "Sends after an incomplete Send are delivered after it",
	Sends:   "four Sends and a part of the fifth, which ends inside an FPDU; later the rest, and three more Sends",
	Expects: "four receives, then nothing, and then the others in order",
	Defects: []string{"DeliversFirstSegment"}, Run: onSetup(setup{receives: 8}, func(c *conn) {
		for range 4 {
			c.send(iwarp.Send(c.nextSendMSN(), data(16)))
		}
		parts := iwarp.Send(c.nextSendMSN(), data(64)).Segments(18 + 32)
		b := c.encode(parts[0], parts[1])
		cut := len(b) - 20
		c.write(b[:cut])
		for id := range uint64(4) {
			c.ExpectRecv(id+1, 16)
		}
		c.expectIdle()
		c.write(b[cut:])
		for range 3 {
			c.send(iwarp.Send(c.nextSendMSN(), data(16)))
		}
		c.ExpectRecv(5, 64)
		for id := range uint64(3) {
			c.ExpectRecv(id+6, 16)
		}
	}),
}, {
	ID: "rdmap/order/reads-complete-in-order", Cite: cite("rfc5040/5.5/2"),
	Title:   "Reads complete in the order in which they were posted, whatever their size",
	Sends:   "responses to three outstanding reads, the first of them in several segments",
	Expects: "three completions in that order",
	Defects: []string{"LongDeliveredLate"}, Run: onConn(func(c *conn) {
		sizes := []int{64, 16, 4}
		var reads []verbs.SendWR
		for i, n := range sizes {
			reads = append(reads, c.readWR(uint64(11+i), 1024+64*i, n))
		}
		c.PostSend(c.qp, reads...)
		requests := c.nextFPDUs(len(reads))
		for i, g := range requests {
			c.checkFPDU(iwarp.Op(iwarp.OpReadRequest), g)
			c.sendSegments(iwarp.ReadResponseTo(g.Segment, data(sizes[i])).Segments(ddpTaggedLen + 16))
		}
		for i, n := range sizes {
			c.ExpectCompletion(uint64(11+i), verbs.WCSuccess)
			c.ExpectBytes(c.localMem, 1024+64*i, data(n))
		}
	}),
}, {
	ID: "rdmap/order/read-sees-earlier-writes", Cite: cite("rfc5040/5.5/3"),
	Title:   "A read returns the data of earlier Writes",
	Sends:   "a Write of several segments and a Read Request for the same memory, at once; three times",
	Expects: "the written data",
	Defects: []string{"WritesPlacedLate"}, Run: onConn(func(c *conn) {
		for i := range 3 {
			b := data(64 + 16*i)
			var frames []iwarp.Frame
			for _, part := range c.peerWrite(128*i, b).Segments(14 + 32) {
				frames = append(frames, part)
			}
			c.sendCoalesced(append(frames, c.peerRead(128*i, len(b)))...)
			c.expect(iwarp.ReadResponse(peerSTag, peerTO, b))
		}
	}),
}, {
	ID: "rdmap/order/completion-waits-for-the-transport", Cite: cite("rfc5040/5.5/5"),
	Title:   "A Write does not complete before TCP has accepted all of it",
	Sends:   "nothing, and does not read at first: the device writes more than TCP buffers",
	Expects: "no completion until the peer reads, and then one",
	Defects: []string{"CompletesEarly"}, Run: onSetup(setup{memLen: tcpBufferBytes}, func(c *conn) {
		c.PostSend(c.qp, c.writeWR(1, 0, tcpBufferBytes))
		c.waitForDevice()
		c.ExpectNoCompletion()
		c.expectPayload(c.nextMessage(iwarp.OpWrite), c.localMem.Buf)
		c.ExpectCompletion(1, verbs.WCSuccess)
	}),
}, {
	ID: "rdmap/order/completions-in-post-order", Cite: cite("rfc5040/5.5/6"),
	Title:   "A Send after a read completes after it",
	Sends:   "a delayed Read Response",
	Expects: "no completion of the Send before that of the read",
	Defects: []string{"SendsOvertake"},
	Run:     onRequestAfterRead(func(c *conn) verbs.SendWR { return c.sendWR(12, 0, 16) }, iwarp.OpSend),
}, {
	ID: "rdmap/order/write-behind-a-read-completes-after", Cite: cite("rfc5040/5.5/6"),
	Title:   "A Write after a read completes after it",
	Sends:   "a delayed Read Response",
	Expects: "no completion of the Write before that of the read",
	Defects: []string{"SendsOvertake"},
	Run:     onRequestAfterRead(func(c *conn) verbs.SendWR { return c.writeWR(12, 0, 16) }, iwarp.OpWrite),
}, {
	ID: "rdmap/order/read-completes-with-its-response", Cite: cite("rfc5040/5.5/7"),
	Title:   "A read does not complete before it is answered",
	Sends:   "a delayed Read Response",
	Expects: "no completion before the Read Response, and one after it",
	Defects: []string{"CompletesEarly"}, Run: onConn(func(c *conn) {
		request := c.deviceRead(11, 64, 16)
		c.expectIdle()
		c.send(iwarp.ReadResponseTo(request, data(16)))
		c.ExpectCompletion(11, verbs.WCSuccess)
		c.ExpectBytes(c.localMem, 64, data(16))
	}),
}, {
	ID: "rdmap/order/fence-waits-for-reads", Cite: cite("rfc5040/5.5/10"), Level: conformance.Should,
	Title:   "A Send with a fence is not sent before earlier reads are answered",
	Sends:   "delayed responses to two reads",
	Expects: "no Send before both have been answered, and one after them",
	Defects: []string{"FenceIgnored"}, Run: onConn(func(c *conn) {
		fenced := c.sendWR(13, 0, 16)
		fenced.Flags |= verbs.SendFence
		c.PostSend(c.qp, c.readWR(11, 64, 16), c.readWR(12, 128, 16), fenced)
		for _, g := range c.nextFPDUs(2) {
			c.expectSilence(silencePeriod)
			c.send(iwarp.ReadResponseTo(g.Segment, data(16)))
		}
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
		for id := range uint64(3) {
			c.ExpectCompletion(11+id, verbs.WCSuccess)
		}
	}),
}}
