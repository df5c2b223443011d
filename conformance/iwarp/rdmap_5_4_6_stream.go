package iwarp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectQPError fails the case unless the application is notified of an error, not only of a
// disconnect: by an event of the queue pair, or by an error completion other than a flush.
func (c *conn) expectQPError() {
	if c.hasEvent(verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr) {
		return
	}
	for {
		wc, ok := c.PollCompletion(0)
		c.Check(ok, "an event of the queue pair, or a completion with its error", "neither")
		if wc.Status != verbs.WCSuccess && wc.Status != verbs.WCWRFlushErr {
			return
		}
	}
}

// hasEvent reports whether the device raises an event of one of the types. It skips others.
func (h *host) hasEvent(types ...verbs.AsyncEventType) bool {
	for {
		e, err := h.Device.WaitAsync(shortWait)
		if errors.Is(err, verbs.ErrTimeout) {
			return false
		}
		h.Must("events", err)
		h.Note("event %v", e.Type)
		if slices.Contains(types, e.Type) {
			return true
		}
	}
}

// The work request IDs of a read and of the request after it.
const (
	readID  = 11
	laterID = 12
)

// laterRequest is a request that is posted after another one.
type laterRequest struct {
	// wr returns the request, with laterID.
	wr func(*conn) verbs.SendWR
	// ops are the messages that the device sends for it.
	ops []iwarp.Opcode
}

// otherRequests returns requests of the kinds that the device supports, each with the opcodes of
// its messages: all kinds but SEND, SEND with solicited event, reads and atomics.
func (h *host) otherRequests() []laterRequest {
	requests := []laterRequest{{func(c *conn) verbs.SendWR { return c.writeWR(laterID, 0, 16) }, []iwarp.Opcode{iwarp.OpWrite}}}
	if h.Caps.Has(verbs.CapSendInv) {
		requests = append(requests, laterRequest{func(c *conn) verbs.SendWR {
			wr := c.wr(verbs.OpSendInv, laterID, 0, 16)
			wr.InvalidateRKey = peerSTag
			return wr
		}, []iwarp.Opcode{iwarp.OpSendInvalidate}})
	}
	if h.immediateError() == nil {
		requests = append(requests, laterRequest{
			func(c *conn) verbs.SendWR { return c.writeImmWR(laterID, 0, 16, 7) },
			[]iwarp.Opcode{iwarp.OpWrite, iwarp.OpImmediate},
		})
	}
	if h.Caps.Has(verbs.CapMWType2 | verbs.CapLocalInv) {
		for _, op := range []verbs.WROpcode{verbs.OpLocalInv, verbs.OpBindMW} {
			requests = append(requests, laterRequest{wr: func(c *conn) verbs.SendWR {
				_, _, wr := c.fencedWindowWR(op)
				wr.Flags &^= verbs.SendFence
				return wr
			}})
		}
	}
	return requests
}

// expectCompletesAfterRead fails the case if a request completes before a read that was posted
// before it.
func (h *host) expectCompletesAfterRead(after laterRequest) {
	c := h.connect(setup{})
	wr := after.wr(c)
	c.Note("%v", wr.Opcode)
	c.PostSend(c.qp, c.readWR(readID, 64, 16), wr)
	request := c.expect(iwarp.Op(iwarp.OpReadRequest))
	for _, op := range after.ops {
		c.expect(iwarp.Op(op))
	}
	c.expectIdle()
	c.send(iwarp.ReadResponseTo(request.Segment, data(16)))
	c.ExpectCompletions(verbs.WCSuccess, readID, laterID)
}

// expectTruncatedFailed sends a part of a message of this kind and FIN, and fails the case unless the
// device reports an error. A positive octets is how many octets of the FPDU it sends, a negative
// one how many it leaves out; if octets is 0, it sends the first of two segments.
func (h *host) expectTruncatedFailed(k messageKind, octets int) {
	c := h.connect(setup{receives: 1, recvLen: 64})
	message, causes := k.valid(c), []iwarp.Cause{iwarp.MPAConnectionLost}
	h.Note("%d octets of %v", octets, message)
	switch b := c.encode(message); {
	case octets > 0:
		c.write(b[:octets])
	case octets < 0:
		c.write(b[:len(b)+octets])
	default:
		c.framer.Position -= uint64(len(b)) // that FPDU is not sent
		if message.IsTagged() {
			c.send(message.Segments(ddpTaggedLen + kindLen/2)[0])
		} else {
			c.send(splitMessage(message, kindLen/4)[0])
		}
		causes = nil // the FPDU is complete: the device may report another cause
	}
	c.closeWrite()
	c.expectTerminateAndEnd(causes...)
	c.expectDisconnect()
	c.AwaitState(c.qp, verbs.QPStateErr)
	c.expectQPError()
	c.Completions() // those of the next connection are counted separately
}

var rdmapStreamCases = []conformance.Case{{
	ID: "rdmap/terminate/queue-and-number", Cite: cite("rfc5040/5.4/1", "rfc5040/3.1/1"),
	Title:   "A Terminate has queue 2 and MSN 1",
	Sends:   "a Send and a Read Request, and then a Write to an unknown key",
	Expects: "a Terminate with T=0, L=1, queue 2, MSN 1 and MO 0",
	Defects: []string{"TermOtherQueue"}, Run: onConn(func(c *conn) {
		c.sendAndSync(iwarp.Send(c.nextSendMSN(), data(16)))
		c.send(iwarp.Write(unknownSTag, 0, data(16)))
		c.expectHeaderOctets(c.nextFPDUs(1)[0], untaggedHeaderOctets(0x41, 0x47, 2, 0))
	}),
}, {
	ID: "rdmap/terminate/nothing-follows", Cite: cite("rfc5040/5.4/2"),
	Title:   "Nothing is sent after a Terminate, even if requests are pending",
	Sends:   "a Write to an unknown key, while Sends of the device wait for a fence; the application posts more after the Terminate",
	Expects: "a Terminate, and after it the end of the stream",
	Defects: []string{"TalksAfterTerminate"}, Run: onSetup(setup{}, func(c *conn) {
		c.postOutstanding(1, 4)
		c.send(iwarp.Write(unknownSTag, 0, data(16)))
		c.expectTerminate()
		n, err := c.qp.PostSend([]verbs.SendWR{c.writeWR(1, 0, 16)})
		c.Note("post: %d accepted, %v", n, err)
		c.expectEnd()
	}),
}, {
	ID: "rdmap/terminate/received-is-reported", Cite: cite("rfc5040/5.4/3"),
	Title:   "A received Terminate is reported to the application",
	Sends:   "Terminates with causes of RDMAP, DDP and MPA, with and without the headers of a message of the device",
	Expects: "an event of the queue pair, or an error completion other than a flush",
	Defects: []string{"TerminateUnreported"}, Run: onEachConn(setup{receives: 4}, []iwarp.Segment{
		iwarp.Terminate(iwarp.RDMAPStreamCatastrophic),
		iwarp.Terminate(iwarp.RDMAPInvalidSTag).About(iwarp.ReadRequest(1, iwarp.At(1, 2), 3, iwarp.At(4, 5))),
		iwarp.Terminate(iwarp.DDPTaggedBounds).About(iwarp.Write(peerSTag, peerTO, data(16))),
		iwarp.Terminate(iwarp.DDPUntaggedNoBuffer).About(iwarp.Send(1, data(16))),
		iwarp.Terminate(iwarp.MPACRC),
	}, func(c *conn, terminate iwarp.Segment) {
		c.expectAbortBy(terminate)
		c.expectDisconnect()
		c.expectQPError()
		c.Completions() // those of the next connection are counted separately
	}),
}, {
	ID: "rdmap/terminate/received-on-another-queue", Cite: cite("rfc5040/5.4/4"),
	Title:   "A Terminate on another queue than 2, or with another MSN than 1, ends the stream, and so do two Terminates",
	Sends:   "Terminates on queues 0, 1, 3 and 4, one with MSN 2, one with MO 4, and two in one TCP segment",
	Expects: "the end of the stream, and no receive",
	Defects: []string{"StrangeTerminateIgnored"}, Run: onEachConn(setup{receives: 2}, [][]iwarp.Segment{
		{iwarp.Terminate(iwarp.RDMAPRemoteUnspecified).QN(0)},
		{iwarp.Terminate(iwarp.RDMAPRemoteUnspecified).QN(1)},
		{iwarp.Terminate(iwarp.RDMAPRemoteUnspecified).QN(3)},
		{iwarp.Terminate(iwarp.RDMAPRemoteUnspecified).QN(4)},
		{iwarp.Terminate(iwarp.RDMAPRemoteUnspecified).MSN(2)},
		{iwarp.Terminate(iwarp.RDMAPRemoteUnspecified).MO(4)},
		{iwarp.Terminate(iwarp.RDMAPRemoteUnspecified), iwarp.Terminate(iwarp.RDMAPRemoteUnspecified).MSN(2)},
	}, func(c *conn, odd []iwarp.Segment) {
		c.sendCoalesced(odd...)
		c.expectAbort()
		c.expectFailures(2)
	}),
}, {
	ID: "rdmap/terminate/outstanding-work-fails", Cite: cite("rfc5040/5.4/5", "rfc5040/6.2.1/2"),
	Title:   "Outstanding requests and receives complete in error after a Terminate",
	Sends:   "a Terminate, while four reads, four Sends with a fence and two receives are outstanding",
	Expects: "ten error completions",
	Defects: []string{"FlushForgets"}, Run: onSetup(setup{receives: 2}, func(c *conn) {
		c.postOutstanding(4, 4)
		c.send(iwarp.Terminate(iwarp.RDMAPRemoteUnspecified))
		c.expectEnd()
		c.expectFailures(4 + 4 + 2)
	}),
}, {
	ID: "rdmap/terminate/is-not-answered", Cite: cite("rfc5040/5.4/6"), Level: conformance.May,
	Title:   "A device closes the stream after a received Terminate, without a message",
	Sends:   "a Terminate, while Sends of the device wait for a fence",
	Expects: "the end of the stream",
	Defects: []string{"TerminateAnswered"}, Run: onSetup(setup{}, func(c *conn) {
		c.postOutstanding(1, 2)
		c.send(iwarp.Terminate(iwarp.DDPTaggedInvalidSTag))
		c.expectEnd()
	}),
}, {
	ID: "rdmap/terminate/graceful-close-behind-it", Cite: cite("rfc5040/6.2.1/3"), Level: conformance.Should,
	Title:   "The stream is closed with FIN after a Terminate, not reset",
	Sends:   "errors of every layer, each on a separate connection",
	Expects: "a Terminate, and then FIN",
	Defects: []string{"ErrorResets"}, Run: onEachConn(setup{receives: 4}, slices.Concat(layerFaults, []peerFault{opcodeFault}), func(c *conn, f peerFault) {
		c.Note("%s", f.name)
		c.send(f.frame(c))
		c.expectTerminate()
		c.expectClose()
	}),
}, {
	ID: "rdmap/order/sends-wait-for-delivery", Cite: cite("rfc5040/5.5/1"),
	Title:   "Sends after an incomplete Send are delivered after it",
	Sends:   "four Sends and a part of the fifth, which ends inside an FPDU; later the rest, and three more Sends",
	Expects: "four receives, then nothing, and then the others in order",
	Defects: []string{"DeliversFirstSegment"}, Run: onSetup(setup{receives: 8}, func(c *conn) {
		c.sendSends(16, 16, 16, 16)
		parts := iwarp.Send(c.nextSendMSN(), data(64)).Segments(18 + 32)
		b := c.encode(parts[0], parts[1])
		cut := len(b) - 20
		c.write(b[:cut])
		c.expectRecvs(16, 16, 16, 16)
		c.expectIdle()
		c.write(b[cut:])
		c.sendSends(16, 16, 16)
		for i, n := range []int{64, 16, 16, 16} {
			c.ExpectRecv(uint64(i+5), n)
		}
	}),
}, {
	ID: "rdmap/order/reads-complete-in-order", Cite: cite("rfc5040/5.5/2"),
	Title:   "Reads complete in the order in which they were posted, whatever their size",
	Sends:   "responses to three outstanding reads, the first of them in several segments",
	Expects: "three completions in that order",
	Defects: []string{"LongDeliveredLate"}, Run: onConn(func(c *conn) {
		sizes := []int{64, 16, 4}
		c.postBatch(len(sizes), func(i int) verbs.SendWR { return c.readWR(uint64(11+i), 1024+64*i, sizes[i]) })
		for i, g := range c.nextFPDUs(len(sizes)) {
			c.checkFPDU(iwarp.Op(iwarp.OpReadRequest), g)
			c.send(iwarp.ReadResponseTo(g.Segment, data(sizes[i])).Segments(ddpTaggedLen + 16)...)
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
			c.sendCoalesced(append(c.peerWrite(128*i, b).Segments(14+32), c.peerRead(128*i, len(b)))...)
			c.expect(iwarp.ReadResponse(peerSTag, peerTO, b))
		}
	}),
}, {
	ID: "rdmap/order/completion-waits-for-the-transport", Cite: cite("rfc5040/5.5/5"),
	Title:   "A Write or a Send does not complete before TCP has accepted all of it",
	Sends:   "nothing, and does not read at first: the device writes, and then sends, more than TCP buffers",
	Expects: "no completion until the peer reads, and then one",
	Defects: []string{"CompletesEarly"}, Run: onHost(func(h *host) {
		n := h.moreThanTCPBuffers()
		c := h.connect(setup{memLen: n})
		for _, t := range []struct {
			wr verbs.SendWR
			op iwarp.Opcode
		}{
			{c.writeWR(1, 0, n), iwarp.OpWrite},
			{c.sendWR(2, 0, n), iwarp.OpSend},
		} {
			c.PostSend(c.qp, t.wr)
			c.waitForDevice()
			c.ExpectNoCompletion()
			c.expectPayload(c.nextMessage(t.op), c.localMem.Buf)
			c.ExpectCompletion(t.wr.WRID, verbs.WCSuccess)
		}
	}),
}, {
	ID: "rdmap/order/completions-in-post-order", Cite: cite("rfc5040/5.5/6"),
	Title:   "A Send after a read completes after it",
	Sends:   "a delayed Read Response",
	Expects: "no completion of the Send before that of the read",
	Defects: []string{"SendsOvertake"}, Run: onHost(func(h *host) {
		h.expectCompletesAfterRead(laterRequest{func(c *conn) verbs.SendWR { return c.sendWR(12, 0, 16) }, []iwarp.Opcode{iwarp.OpSend}})
	}),
}, {
	ID: "rdmap/order/write-behind-a-read-completes-after", Cite: cite("rfc5040/5.5/6"),
	Title:   "A Write after a read completes after it, and so does a request of another kind",
	Sends:   "a delayed Read Response; the application posts a read, and a Write, a Send with Invalidate, a Write with immediate data, a local invalidate or a bind",
	Expects: "no completion before that of the read",
	Defects: []string{"SendsOvertake", "LocalCompletesEarly"}, Run: onHost(func(h *host) {
		for _, r := range h.otherRequests() {
			h.expectCompletesAfterRead(r)
		}
	}),
}, {
	ID: "rdmap/order/every-request-after-an-atomic", Cite: cite("rfc5040/5.5/6"), Needs: verbs.CapAtomics,
	Title:   "Requests of every kind after an atomic complete after it",
	Sends:   "a delayed Atomic Response; the application posts an atomic, a Send, a Write and a read",
	Expects: "no completion before that of the atomic",
	Defects: []string{"SendsOvertake"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.fetchAddWR(11, 64, 5), c.sendWR(12, 0, 16), c.writeWR(13, 0, 16), c.readWR(14, 128, 16))
		id := *c.expect(iwarp.Op(iwarp.OpAtomicRequest)).AtomicRequest.ID
		c.expect(iwarp.Op(iwarp.OpSend))
		c.expect(iwarp.Op(iwarp.OpWrite))
		read := c.expect(iwarp.Op(iwarp.OpReadRequest))
		c.expectIdle()
		c.send(iwarp.AtomicResponse(1, id, 7))
		c.ExpectCompletions(verbs.WCSuccess, 11, 12, 13)
		c.expectIdle()
		c.send(iwarp.ReadResponseTo(read.Segment, data(16)))
		c.ExpectCompletion(14, verbs.WCSuccess)
	}),
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
	Title:   "A request with a fence is not sent before earlier reads are answered",
	Sends:   "delayed responses to two reads; each kind of Send, a Write or a read with a fence is posted after them",
	Expects: "no request with a fence before both have been answered, and all after them",
	Defects: []string{"FenceIgnored", "FenceOfSendsOnly"}, Run: onConn(func(c *conn) {
		fenced, ops := c.everySendWR(16)
		fenced = append(fenced, c.writeWR(5, 0, 16), c.readWR(6, 192, 16))
		for i, op := range append(ops, iwarp.OpWrite, iwarp.OpReadRequest) {
			wr := fenced[i]
			wr.Flags |= verbs.SendFence
			c.PostSend(c.qp, c.readWR(11, 64, 16), c.readWR(12, 128, 16), wr)
			for _, g := range c.nextFPDUs(2) {
				c.expectSilence(silencePeriod)
				c.send(iwarp.ReadResponseTo(g.Segment, data(16)))
			}
			if g := c.expect(iwarp.Op(op)); op == iwarp.OpReadRequest {
				c.send(iwarp.ReadResponseTo(g.Segment, data(16)))
			}
			c.ExpectCompletions(verbs.WCSuccess, 11, 12, wr.WRID)
		}
	}),
}, {
	ID: "rdmap/order/fence-holds-local-requests", Cite: cite("rfc5040/5.5/10"), Level: conformance.Should, Needs: verbs.CapMWType2 | verbs.CapLocalInv,
	Title:   "A local invalidate or a bind with a fence takes effect only after earlier reads are answered",
	Sends:   "a delayed response to a read; before it and after it, a Read Request through a window whose invalidate or bind has a fence",
	Expects: "a window that is valid before the response and invalid after it, or the reverse for a bind",
	Defects: []string{"FenceIgnored", "FenceOfSendsOnly"}, Run: onHost(func(h *host) {
		for _, op := range []verbs.WROpcode{verbs.OpLocalInv, verbs.OpBindMW} {
			for _, answered := range []bool{true, false} {
				c := h.connect(setup{})
				m, at, wr := c.fencedWindowWR(op)
				c.PostSend(c.qp, c.readWR(readID, 64, 16), wr)
				request := c.expect(iwarp.Op(iwarp.OpReadRequest))
				c.expectSilence(silencePeriod)
				if answered {
					c.send(iwarp.ReadResponseTo(request.Segment, data(16)))
					c.ExpectCompletions(verbs.WCSuccess, readID, wr.WRID)
				}
				if answered == (op == verbs.OpBindMW) {
					c.expectAnswer(c.readFrom(at, 16), iwarp.Op(iwarp.OpReadResponse).WithPayload(m.Buf[:16]))
				} else {
					c.expectRefusal(c.readFrom(at, 16), iwarp.RDMAPInvalidSTag, iwarp.RDMAPSTagNotAssociated)
				}
			}
		}
	}),
}, {
	ID: "rdmap/order/fence-waits-for-atomics", Cite: cite("rfc5040/5.5/10"), Level: conformance.Should, Needs: verbs.CapAtomics,
	Title:   "A Send with a fence is not sent before an earlier atomic is answered, and an atomic with a fence not before a read",
	Sends:   "a delayed Atomic Response, and a delayed Read Response",
	Expects: "the requests with a fence only after the responses",
	Defects: []string{"FenceIgnored", "FenceOfSendsOnly"}, Run: onConn(func(c *conn) {
		fenced, atomic := c.sendWR(12, 0, 16), c.fetchAddWR(14, 72, 5)
		fenced.Flags |= verbs.SendFence
		atomic.Flags |= verbs.SendFence
		c.PostSend(c.qp, c.fetchAddWR(11, 64, 5), fenced)
		id := *c.expect(iwarp.Op(iwarp.OpAtomicRequest)).AtomicRequest.ID
		c.expectSilence(silencePeriod)
		c.expectAnswer(iwarp.AtomicResponse(1, id, 7), iwarp.Op(iwarp.OpSend))
		c.ExpectCompletions(verbs.WCSuccess, 11, 12)
		c.PostSend(c.qp, c.readWR(13, 128, 16), atomic)
		read := c.expect(iwarp.Op(iwarp.OpReadRequest))
		c.expectSilence(silencePeriod)
		c.expectAnswer(iwarp.ReadResponseTo(read.Segment, data(16)), iwarp.Op(iwarp.OpAtomicRequest))
		c.ExpectCompletion(13, verbs.WCSuccess)
	}),
}, {
	ID: "rdmap/stream/garbage-ends-it", Cite: cite("rfc5040/6.1/1"),
	Title:   "Octets that are no RDMA message end the stream",
	Sends:   "40 zeros, and a valid Send after them",
	Expects: "the end of the stream, and no receive",
	Defects: []string{"SkipsGarbage"}, Run: onConn(func(c *conn) {
		c.write(append(make([]byte, 40), c.encode(iwarp.Send(c.nextSendMSN(), data(16)))...))
		c.expectAbort()
		c.ExpectNoSuccess()
	}),
}, {
	ID:      "rdmap/stream/ready-only-by-connection",
	Cite:    citeSection("libibverbs", "ibv_query_qp(3)", "verbs/modify/4", "verbs/modify/2"),
	Title:   "A queue pair is in RTR only if the modify has succeeded",
	Sends:   "nothing: the application modifies a queue pair without a connection, and one with a connection, to RTR",
	Expects: "a modify that is refused, or a queue pair in RTR",
	Defects: []string{"RTRIgnored", "RTSToRTRIgnored"}, Run: onHost(func(h *host) {
		for _, c := range []*conn{h.newConn(&setup{}), h.connect(setup{})} {
			want := h.QueryQP(c.qp).State
			err := c.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState)
			c.Note("modify from %v to RTR: %s", want, errorOr(err, "one"))
			if err == nil {
				want = verbs.QPStateRTR
			}
			c.ExpectState(c.qp, want)
		}
	}),
}, {
	ID:      "rdmap/stream/draining-is-reported",
	Cite:    citeSection("libibverbs", "ibv_query_qp(3)", "verbs/modify/4"),
	Title:   "A queue pair in SQD reports draining while a request is outstanding, and not after it",
	Sends:   "a Read Response after the application has disconnected",
	Expects: "a queue pair in SQD with sq_draining before the response, and without it after the response",
	Defects: []string{"DrainingUnreported", "DrainingForEver"}, Run: onConn(func(c *conn) {
		read := c.deviceRead(1, 64, 16)
		disconnecting := c.startDisconnect()
		c.waitForDevice()
		before := c.QueryQP(c.qp)
		c.send(iwarp.ReadResponseTo(read, data(16)))
		c.PollCompletion(c.endTimeout()) // a device may have failed the read
		c.expectEnd()
		after := c.QueryQP(c.qp)
		c.closeWrite()
		c.Must("a disconnect", disconnecting.Wait(c.ResponseTimeout()))
		require(before.State == verbs.QPStateSQD, "a disconnect does not take the queue pair to SQD")
		c.Check(before.SQDraining, "a queue pair that drains", "one that does not")
		c.Check(after.State != verbs.QPStateSQD || !after.SQDraining, "a queue pair that has drained", "one that drains")
	}),
}, {
	ID:      "rdmap/stream/full-send-queue",
	Cite:    citeSection("libibverbs", "ibv_post_send(3)", "verbs/post/5"),
	Title:   "Posting to a full send queue fails, and succeeds again when its requests are complete",
	Sends:   "Read Responses for reads that the application posts with as many fenced Sends as the queue has room for, three times",
	Expects: "ENOMEM for one Send more; completions in the order of posting",
	Defects: []string{"SendQueueTakesMore", "UnsignaledStay"}, Run: onConn(func(c *conn) {
		room := c.QueryQP(c.qp).Caps.MaxSendWR
		for range 3 {
			read := c.deviceRead(1, 0, 16)
			wrs := make([]verbs.SendWR, room)
			for i := range wrs {
				wrs[i] = c.sendWR(2, 64, 16)
				wrs[i].Flags = verbs.SendFence
			}
			wrs[room-2].Flags |= verbs.SendSignaled // the last that there is room for
			n, err := c.qp.PostSend(wrs)
			c.MustFail("one request too many", err, verbs.ErrNoMemory)
			c.Check(n == room-1, fmt.Sprintf("%d requests posted", room-1), "%d", n)
			c.send(iwarp.ReadResponseTo(read, data(16)))
			for range n {
				c.expect(iwarp.Op(iwarp.OpSend))
			}
			c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		}
	}),
}, {
	ID: "rdmap/stream/reads-under-way-are-limited", Cite: cite("rfc5040/6.1/2", "rfc5040/5.5/4"),
	Title:   "No more reads are outstanding than the peer's IRD",
	Sends:   "a Request with IRD 3; the application posts eight reads, of 16 octets or of none, and a Send",
	Expects: "three Read Requests, another one for each that is answered, and the Send after the last",
	Defects: []string{"ORDRoundedUp", "AlwaysFenced", "EmptyReadsUncounted", "BlockedReadOvertaken"},
	Run: onEachConn(setup{frame: withDepths(3, defaultOrd)}, []int{16, 0}, func(c *conn, n int) {
		const limit, all = 3, 8
		c.postBatch(all+1, func(i int) verbs.SendWR {
			if i == all {
				return c.sendWR(all+1, 0, 16)
			}
			return c.readWR(uint64(i+1), 16*i, n)
		})
		open := c.nextFPDUs(limit)
		for i := range all {
			c.expectSilence(silencePeriod)
			c.send(iwarp.ReadResponseTo(open[i].Segment, data(n)))
			if i+limit < all {
				open = append(open, c.expect(iwarp.Op(iwarp.OpReadRequest)))
			}
			if i+limit == all-1 {
				c.expect(iwarp.Op(iwarp.OpSend))
			}
			c.ExpectCompletion(uint64(i+1), verbs.WCSuccess)
		}
		c.ExpectCompletion(all+1, verbs.WCSuccess)
	}),
}, {
	ID: "rdmap/stream/reads-taken-are-limited", Cite: cite("rfc5040/6.1/3"),
	Title:   "One more outstanding read than the IRD ends the stream",
	Sends:   "one more Read Request than the IRD at once, without reading the responses; the last ones for 16 octets or for none",
	Expects: "a Terminate",
	Defects: []string{"IRDRoundedUp", "EmptyReadsUnlimited"}, Run: onEachConn(threeReads, []int{16, 0}, func(c *conn, n int) {
		c.sendReadsUnread(c.grantedIRD()+1, n)
		c.expectTerminateAfter(iwarp.OpReadResponse)
	}),
}, {
	ID: "rdmap/stream/flood-of-reads-is-refused", Cite: cite("rfc5040/8.1.1/4", "rfc5040/6.1/3"),
	Labels:  []string{conformance.Dangerous},
	Title:   "A thousand outstanding reads end the stream",
	Sends:   "a thousand Read Requests at once, without reading the responses",
	Expects: "a Terminate",
	Defects: []string{"IRDUnlimited"}, Run: onSetup(threeReads, func(c *conn) {
		c.sendReadsUnread(1000, 16)
		c.expectTerminateAfter(iwarp.OpReadResponse)
	}),
}, {
	ID: "rdmap/stream/opcode-change-is-terminated", Cite: cite("rfc5040/6.2.1/1", "rfc5040/4.8/2"), Level: conformance.Should,
	Title:   "A message whose opcode changes between segments causes a Terminate",
	Sends:   "Sends of each kind whose second segment has the opcode of another kind; Immediate Data with the MSN of a Send, and with the next, after its first segment; a Read Request whose first segment has the opcode of an Atomic Request",
	Expects: "a Terminate with any listed cause, no receive and no Read Response",
	Defects: []string{"OpcodeChangeSilent", "ImmediateWithinSend", "SolicitedMayChange", "UnlistedCodes", "ControlOpcodeMayChange"}, Run: onHost(func(h *host) {
		expectChangeRefused := func(k messageKind, second func(part iwarp.Segment, msn uint32) iwarp.Segment) {
			c := h.connect(setup{receives: 2, memLen: 1024})
			s := k.valid(c)
			parts := s.Segments(18 + kindLen/2)
			c.send(parts[0], second(parts[1], *s.DDP.MSN))
			c.expectTerminateAndEnd()
			c.ExpectNoSuccess()
		}
		kinds := h.sendKinds()
		for _, k := range kinds {
			for _, other := range kinds {
				if other.op != k.op {
					expectChangeRefused(k, func(part iwarp.Segment, _ uint32) iwarp.Segment { return part.Opcode(other.op) })
				}
			}
		}
		expectChangeRefused(kinds[0], func(_ iwarp.Segment, msn uint32) iwarp.Segment { return iwarp.Immediate(msn, doubled(1)) })
		expectChangeRefused(kinds[0], func(_ iwarp.Segment, msn uint32) iwarp.Segment { return iwarp.ImmediateSE(msn+1, doubled(1)) })
		if h.Caps.Has(verbs.CapAtomics) {
			c := h.connect(setup{})
			parts := splitMessage(c.peerRead(0, 16), 14)
			c.send(parts[0].Opcode(iwarp.OpAtomicRequest), parts[1])
			c.expectTerminateAndEnd()
		}
	}),
}, {
	ID: "rdmap/stream/error-amid-a-message-is-terminated", Cite: cite("rfc5040/6.2.1/1"), Level: conformance.Should,
	Title:   "An error causes a Terminate also while the device is sending a message",
	Sends:   "a Write to an unknown key, without reading, while the device writes more than TCP buffers, and while it answers a read of as much",
	Expects: "a part of the message, and a Terminate",
	Defects: []string{"TermSkipped"}, Run: onHost(func(h *host) {
		n := h.moreThanTCPBuffers()
		for _, op := range []iwarp.Opcode{iwarp.OpWrite, iwarp.OpReadResponse} {
			c := h.connect(setup{memLen: n})
			if op == iwarp.OpWrite {
				c.PostSend(c.qp, c.writeWR(1, 0, n))
			} else {
				c.send(c.peerRead(0, n))
			}
			c.waitForDevice()
			c.send(iwarp.Write(unknownSTag, 0, data(16)))
			c.waitForDevice()
			c.expectTerminateAfter(op, iwarp.DDPTaggedInvalidSTag)
		}
	}),
}, {
	ID: "rdmap/stream/truncated-is-an-error", Cite: cite("rfc5040/6.2.1/1", "rfc5040/7.1/1", "rfc5044/8/1"), Level: conformance.Should,
	Title:   "A FIN inside an FPDU or a message is an error, which is reported to both sides",
	Sends:   "parts of the FPDU of a Send, a Write, a Read Response, and a Read Request; the first of two segments of each; and FIN",
	Expects: "a Terminate, which says that TCP was closed if an FPDU is incomplete; an event of the queue pair, or a completion with its error",
	Defects: []string{"TruncatedIsOrderly", "PartialIsOrderly", "PartialRequestIsOrderly"}, Run: onHost(func(h *host) {
		for _, k := range []messageKind{sendKind(iwarp.OpSend, false), writeKind, responseKind, readKind} {
			for _, octets := range []int{1, 2, 10, 30, -5, -1, 0} {
				h.expectTruncatedFailed(k, octets)
			}
		}
	}),
}, {
	ID: "rdmap/stream/errors-reach-the-program", Cite: cite("rfc5040/7.1/1", "rfc5041/6.2.2/1"),
	Title:   "The application is notified of an error of its queue pair",
	Sends:   "errors of every layer, each on a separate connection",
	Expects: "a disconnect, a queue pair in the error state, and receives that fail",
	Defects: []string{"EndUnreported"},
	Run: onEachConn(setup{receives: 2}, append(layerFaults, opcodeFault), func(c *conn, f peerFault) {
		c.expectAbortBy(f.frame(c))
		c.Note("%s", f.name)
		c.expectDisconnect()
		c.AwaitState(c.qp, verbs.QPStateErr)
		c.expectFailures(2)
	}),
}}

// fencedWindowWR returns a request with a fence and laterID that invalidates a bound window or binds
// a new one, with the memory and the address of the window.
func (c *conn) fencedWindowWR(op verbs.WROpcode) (*rig.Memory, iwarp.Addr, verbs.SendWR) {
	const flags = verbs.SendFence | verbs.SendSignaled
	if op == verbs.OpLocalInv {
		m, at := c.newWindow(verbs.AccessRemoteRead)
		return m, at, verbs.SendWR{WRID: laterID, Opcode: op, Flags: flags, InvalidateRKey: verbs.RKey(at.STag)}
	}
	m := c.Memory(64, bindableAccess)
	mw := rig.Result(c.PD.AllocMW(verbs.MWType2))(c.Rig, "a window")
	key := verbs.NextRKey(mw.RKey())
	return m, iwarp.At(uint32(key), m.Addr()), verbs.SendWR{WRID: laterID, Opcode: op, Flags: flags, Bind: verbs.Bind{
		MW: mw, RKey: key, Info: verbs.BindInfo{MR: m.MR, Addr: m.Addr(), Length: 64, Access: verbs.AccessRemoteRead},
	}}
}
