package iwarp

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// solicitedOnly is the parameter of ReqNotify for solicited events.
const solicitedOnly = true

// connectArmed makes a connection with two receives. Its completion queue raises an event in the
// returned channel for the next solicited completion.
func (h *host) connectArmed() (*conn, verbs.CompChannel) {
	ch, err := h.Device.CreateCompChannel()
	h.Must("a completion channel", err)
	h.CQ = h.CreateCQ(verbs.CQInit{Depth: 64, Channel: ch})
	c := h.connect(setup{receives: 2})
	h.Must("a completion queue that can be armed", h.CQ.ReqNotify(solicitedOnly))
	return c, ch
}

// expectCQEvent fails the case unless the completion queue raises an event.
func (h *host) expectCQEvent(ch verbs.CompChannel) {
	_, err := ch.Wait(h.ResponseTimeout())
	h.Check(err == nil, "an event of the completion queue", "%v", fmt.Sprint(err))
}

// expectNoCQEvent fails the case if the completion queue has raised an event.
func (h *host) expectNoCQEvent(ch verbs.CompChannel) {
	_, err := ch.Wait(0)
	h.Check(errors.Is(err, verbs.ErrTimeout), "no event of the completion queue", "%s", errorOr(err, "one"))
}

// errorOr returns the text of an error, or success if err is nil.
func errorOr(err error, success string) string {
	if err == nil {
		return success
	}
	return err.Error()
}

// invalidateOps are the opcodes of the Sends with Invalidate.
var invalidateOps = []iwarp.Opcode{iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate}

// invalidateCauses are for an STag that cannot be invalidated: two types have the code.
var invalidateCauses = []iwarp.Cause{iwarp.RDMAPCannotInvalidate, iwarp.RDMAPCannotInvalidateRemote}

// onInvalidSTags makes the body of a case from a function that is called with an unknown STag and
// with that of another protection domain, on separate connections with receives.
func onInvalidSTags(body func(*conn, uint32)) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		body(h.connect(setup{receives: 2}), unknownSTag)
		body(h.connect(setup{receives: 2}), addrOf(h.otherPDMemory(allAccess), 0).STag)
	})
}

// expectInvalidateFails fails the case unless the receive of a Send with Invalidate fails.
func (c *conn) expectInvalidateFails(s iwarp.Segment) {
	c.send(s)
	wc := c.NextCompletion()
	c.Check(wc.Status != verbs.WCSuccess, fmt.Sprintf("a failed receive, since %#x cannot be invalidated", *s.RDMAP.InvalidateSTag), "%s", rig.Describe(&wc))
}

// checkInvalidated fails the case unless the completion of a receive has the invalidated key.
func (c *conn) checkInvalidated(wc verbs.WC, key uint32) {
	c.Check(wc.Flags&verbs.WCWithInv != 0 && uint32(wc.InvalidatedRKey) == key,
		"a receive with the invalidated key", "%s", rig.Describe(&wc))
}

var rdmapSendCases = []conformance.Case{{
	ID: "rdmap/send/one-receive-each", Cite: cite("rfc5040/5.3/2"),
	Title:   "Every Send consumes one receive, also a zero-length Send",
	Sends:   "Sends of 16, 0, 0 and 32 octets",
	Expects: "four receives",
	Defects: []string{"ZeroSendSkipsReceive"}, Run: onConn(func(c *conn) {
		for i, n := range []int{16, 0, 0, 32} {
			c.expectSendDelivered(uint64(i+1), n)
		}
		c.ExpectBytes(c.localMem, 3*64, data(32))
	}),
}, {
	ID: "rdmap/send/longer-than-the-receive", Cite: cite("rfc5040/5.3/4"),
	Title:   "A receive that is too short for its Send fails, and the stream ends",
	Sends:   "Sends of each kind of 65 and of 100 octets to receives of 64: in one segment, and in several segments, the first of which fit",
	Expects: "a Terminate, receives that fail, and no octet after the first changed",
	Defects: []string{"LongTruncated"}, Run: onHost(func(h *host) {
		for _, k := range h.sendKinds() {
			for _, t := range []struct{ n, ulpdu int }{{100, 1000}, {100, 18 + 40}, {65, 1000}, {65, 18 + 64}} {
				c := h.connect(setup{receives: 2, memLen: 1024})
				c.send(k.valid(c).WithPayload(data(t.n)).Segments(t.ulpdu)...)
				c.expectTerminateAndEnd()
				c.expectFailures(2)
				c.ExpectUnchangedOutside(c.localMem, 0, 64)
			}
		}
	}),
}, {
	ID: "rdmap/send/every-kind-and-length", Cite: cite("rfc5040/5.3/2", "rfc5040/5.3/3", "rfc5041/5.4/2", "rfc5041/5.3/3"),
	Title:   "Every kind of Send, of every length up to that of its receive, completes one receive with its data",
	Sends:   "Sends of each kind of 0 to 4, 31, 32, 63 and 64 octets to receives of 64, in one segment and in several",
	Expects: "a receive for each, with its length, its octets and the key that it has invalidated; no other octet changed",
	Defects: []string{"BufferSizeReported", "ZeroSendSkipsReceive"}, Run: onHost(func(h *host) {
		for _, k := range h.sendKinds() {
			c := h.connect(setup{receives: 18, memLen: 2048})
			c.Note("%v", k.op)
			for _, n := range []int{0, 1, 2, 3, 4, 31, 32, 63, 64} {
				for _, ulpdu := range []int{100, 18 + 16} {
					s := k.valid(c).WithPayload(data(n))
					c.send(s.Segments(ulpdu)...)
					k.expectEffect(c, s)
					c.ExpectUnchangedOutside(c.localMem, 64*int(*s.DDP.MSN-1), n)
					c.localMem.Snapshot()
				}
			}
			c.syncByRead()
			c.ExpectNoCompletion()
		}
	}),
}, {
	ID: "rdmap/send/in-order-of-posting", Cite: cite("rfc5040/5.3/7"),
	Title:   "Sends are sent in the order in which they were posted",
	Sends:   "nothing: the application posts ten Sends at once",
	Expects: "the ten in that order, with MSNs 1 to 10",
	Defects: []string{"LIFOQueue"}, Run: onConn(func(c *conn) {
		c.postBatch(10, func(i int) verbs.SendWR { return c.sendWR(uint64(i+1), 16*i, 16) })
		for i := range 10 {
			c.expect(iwarp.Send(uint32(i+1), c.localMem.Buf[16*i:][:16]))
		}
	}),
}, {
	ID: "rdmap/send/solicited-raises-an-event", Cite: cite("rfc5040/5.3/6"), Level: conformance.May,
	Title:   "A Send with solicited event raises an event",
	Sends:   "Sends with solicited event, with and without Invalidate, in one segment and in two, to an application that waits for solicited events",
	Expects: "an event for each",
	Defects: []string{"NeverSolicited", "InvalidateSilent"}, Run: onHost(func(h *host) {
		for _, k := range h.sendKinds() {
			if k.op != iwarp.OpSendSE && k.op != iwarp.OpSendSEInvalidate {
				continue
			}
			c, ch := h.connectArmed()
			for _, ulpdu := range []int{100, 18 + 8} {
				s := k.valid(c)
				h.Must("a completion queue that can be armed", h.CQ.ReqNotify(solicitedOnly))
				c.send(s.Segments(ulpdu)...)
				h.expectCQEvent(ch)
				k.expectEffect(c, s)
			}
		}
	}),
}, {
	ID: "rdmap/send/unsolicited-raises-none", Cite: cite("rfc5040/5.3/6"), Level: conformance.May,
	Title:   "A Send without solicited event raises no event for an application that waits for solicited events",
	Sends:   "Sends, with and without Invalidate, to an application that waits for solicited events",
	Expects: "receives, and no event",
	Defects: []string{"EverySendSolicited"}, Run: onHost(func(h *host) {
		for _, k := range h.sendKinds() {
			if k.op != iwarp.OpSend && k.op != iwarp.OpSendInvalidate {
				continue
			}
			c, ch := h.connectArmed()
			s := k.valid(c)
			h.Must("a completion queue that can be armed", h.CQ.ReqNotify(solicitedOnly))
			c.send(s)
			k.expectEffect(c, s)
			c.syncByRead()
			h.expectNoCQEvent(ch)
		}
	}),
}, {
	ID: "rdmap/invalidate/takes-effect", Cite: cite("rfc5040/5.3/8"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A window is invalid when the Send with its Invalidate is delivered",
	Sends:   "a Read Request to a window; a Send that invalidates it, with and without solicited event, in one segment and in two; and another Read Request",
	Expects: "a Read Response to the first Read Request; the second ends the stream",
	Defects: []string{"InvalidateIgnored", "LongInvalidateIgnored"}, Run: onHost(func(h *host) {
		for _, op := range invalidateOps {
			for _, ulpdu := range []int{100, ddpUntaggedLen + 8} {
				c := h.connect(setup{receives: 1})
				m, at := c.newWindow(verbs.AccessRemoteRead)
				c.expectAnswer(c.readFrom(at, 16), iwarp.ReadResponse(peerSTag, peerTO, m.Buf[:16]))
				c.send(iwarp.SendInvalidate(c.nextSendMSN(), at.STag, data(16)).Opcode(op).Segments(ulpdu)...)
				c.ExpectRecv(1, 16)
				c.expectRefusal(c.readFrom(at, 16), foreignReadCauses...)
			}
		}
	}),
}, {
	ID: "rdmap/invalidate/by-an-empty-send", Cite: cite("rfc5040/5.3/8", "rfc5040/5.3/2"),
	Needs:   verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A zero-length Send with Invalidate invalidates its key",
	Sends:   "zero-length Sends that invalidate a window, with and without solicited event, and a Write to the window after each",
	Expects: "a zero-length receive with the invalidated key; the Write ends the stream, and memory unchanged",
	Defects: []string{"EmptySendKeepsKey"}, Run: onEachConn(setup{receives: 1}, invalidateOps, func(c *conn, op iwarp.Opcode) {
		m, at := c.newWindow(verbs.AccessRemoteWrite)
		c.send(iwarp.SendInvalidate(c.nextSendMSN(), at.STag, nil).Opcode(op))
		c.checkInvalidated(c.ExpectRecv(1, 0), at.STag)
		c.expectRefusal(writeTo(at, data(16)), foreignKeyCauses...)
		c.ExpectUntouched(m)
	}),
}, {
	ID: "rdmap/invalidate/is-reported", Cite: cite("rfc5040/5.3/8"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "The completion of a receive has the key that its Send has invalidated",
	Sends:   "a Send that invalidates a window, and one that does not",
	Expects: "the key in the first receive, and none in the second",
	Defects: []string{"InvalidateUnreported"}, Run: onConn(func(c *conn) {
		_, at := c.newWindow(verbs.AccessRemoteWrite)
		c.send(iwarp.SendInvalidate(c.nextSendMSN(), at.STag, data(16)))
		c.checkInvalidated(c.ExpectRecv(1, 16), at.STag)
		wc := c.expectSendDelivered(2, 16)
		c.Check(wc.Flags&verbs.WCWithInv == 0, "a receive without an invalidated key", "%s", rig.Describe(&wc))
	}),
}, {
	ID: "rdmap/invalidate/unknown-key-ends-the-stream", Cite: cite("rfc5040/5.3/9", "rfc5040/7.2/3", "rfc5040/7.1/3", "rfc5042/6.1.1/1"),
	Title:   "A Send with Invalidate of an unknown key ends the stream",
	Sends:   "Sends with Invalidate, with and without solicited event, of 16 octets and of none: of an unknown key, and of one of another domain",
	Expects: "a Terminate: the STag cannot be invalidated, with the header of the Send; no receive",
	Defects: []string{"InvalidateErrorKept", "TermBareInvalidate"}, Run: onHost(func(h *host) {
		foreign := addrOf(h.otherPDMemory(allAccess), 0).STag
		for _, op := range invalidateOps {
			for _, stag := range []uint32{unknownSTag, foreign} {
				for _, n := range []int{16, 0} {
					c := h.connect(setup{receives: 2})
					wrong := iwarp.SendInvalidate(c.nextSendMSN(), stag, data(n)).Opcode(op)
					c.expectQuotedDDPHeader(c.expectRefusal(wrong, invalidateCauses...), wrong)
					c.ExpectNoSuccess()
				}
			}
		}
	}),
}, {
	ID: "rdmap/invalidate/solicited-is-checked-too", Cite: cite("rfc5040/7.2/3", "rfc5040/5.3/9"),
	Title:   "A Send with solicited event and Invalidate of an unknown key is not delivered",
	Sends:   "Sends with solicited event and Invalidate: of an unknown key, and of one of another domain",
	Expects: "receives that fail",
	Defects: []string{"SolicitedInvalidateUnchecked"}, Run: onInvalidSTags(func(c *conn, stag uint32) {
		c.expectInvalidateFails(iwarp.SendSEInvalidate(c.nextSendMSN(), stag, data(16)))
	}),
}, {
	ID: "rdmap/invalidate/window-of-another-stream", Cite: cite("rfc5040/7.2/3", "rfc5040/5.3/9", "rfc5042/6.1.1/2"),
	Needs:   verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A window of one stream cannot be invalidated through another",
	Sends:   "Sends with Invalidate, with and without solicited event, of a window that is bound to another stream of the same domain",
	Expects: "a receive that fails, a Terminate: the STag cannot be invalidated; and the window stays valid",
	Defects: []string{"ForeignInvalidate", "SolicitedForeignInvalidate", "ForeignInvalidateSilent"}, Run: onHost(func(h *host) {
		mine := h.connect(setup{})
		m, at := mine.newWindow(verbs.AccessRemoteWrite)
		for i, op := range invalidateOps {
			other := h.connect(setup{receives: 1})
			other.expectInvalidateFails(iwarp.SendInvalidate(other.nextSendMSN(), at.STag, data(16)).Opcode(op))
			other.expectTerminateAndEnd(invalidateCauses...)
			mine.sendAndSync(writeTo(at, data(16+i)))
			h.ExpectBytes(m, 0, data(16+i))
		}
	}),
}, {
	ID: "rdmap/invalidate/free-window", Cite: cite("rfc5040/7.2/3"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A window that is not bound cannot be invalidated",
	Sends:   "Sends with Invalidate, with and without solicited event, of an unbound window",
	Expects: "a receive that fails",
	Defects: []string{"UnboundInvalidate", "SolicitedFreeInvalidate"}, Run: onEachConn(setup{receives: 1}, invalidateOps, func(c *conn, op iwarp.Opcode) {
		mw, err := c.PD.AllocMW(verbs.MWType2)
		c.Must("a window", err)
		c.expectInvalidateFails(iwarp.SendInvalidate(c.nextSendMSN(), uint32(mw.RKey()), data(16)).Opcode(op))
	}),
}, {
	ID: "rdmap/invalidate/shared-region", Cite: cite("rfc5040/8.1.1/3", "rfc5042/6.4.5/1"),
	Title:   "A region cannot be invalidated by a stream",
	Sends:   "a Send with Invalidate of a region, with and without solicited event, and Writes to it on another stream",
	Expects: "receives that fail, and another stream can still write",
	Defects: []string{"InvalidateAnything"}, Run: onHost(func(h *host) {
		other, m := h.connect(setup{}), h.Memory(64, allAccess)
		other.sendAndSync(writeTo(addrOf(m, 0), data(16)))
		for i, op := range invalidateOps {
			one := h.connect(setup{receives: 1})
			one.expectInvalidateFails(iwarp.SendInvalidate(one.nextSendMSN(), addrOf(m, 0).STag, data(16)).Opcode(op))
			other.sendAndSync(writeTo(addrOf(m, 16+16*i), data(16)))
			h.ExpectBytes(m, 16+16*i, data(16))
		}
	}),
}}
