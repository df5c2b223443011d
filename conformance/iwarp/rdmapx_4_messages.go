package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// word returns eight octets of targetMem as an integer in the host's byte order. The RFC
// specifies the byte order on the wire only.
func (c *conn) word(off int) uint64 { return binary.NativeEndian.Uint64(c.targetMem.Buf[off:]) }

func (c *conn) setWord(off int, v uint64) {
	binary.NativeEndian.PutUint64(c.targetMem.Buf[off:], v)
	c.targetMem.Snapshot()
}

// expectWord fails the case unless the word at off is want, and the rest of targetMem is
// unchanged.
func (c *conn) expectWord(off int, want uint64) {
	// ExpectUnchanged synchronizes with the device before the word is read.
	c.ExpectUnchanged(c.targetMem, off, 8)
	c.Check(c.word(off) == want, fmt.Sprintf("%#x in the memory", want), "%#x", c.word(off))
}

// peerFetchAdd returns a FetchAdd of the peer to targetMem.
func (c *conn) peerFetchAdd(id uint32, off int, add uint64) iwarp.Segment {
	return iwarp.FetchAdd(c.nextRequestMSN(), id, c.targetAddr(off), add)
}

// peerCmpSwap returns a CmpSwap of the peer to targetMem.
func (c *conn) peerCmpSwap(id uint32, off int, compare, swap uint64) iwarp.Segment {
	return iwarp.CompareSwap(c.nextRequestMSN(), id, c.targetAddr(off), compare, swap)
}

// expectAtomicResponse fails the case unless the next message is the n-th Atomic Response, with
// the identifier of the request and the original value.
func (c *conn) expectAtomicResponse(n, id uint32, original uint64) {
	c.expect(iwarp.AtomicResponse(n, id, original))
}

var rdmapxMessageCases = []conformance.Case{{
	ID: "rdmapx/message/unsupported-is-told", Cite: cite("rfc7306/1.1/1", "rfc5040/7.2/1"),
	Title:   "A message with an unsupported operation causes a Terminate",
	Sends:   "a message of opcode 13, which is unassigned, and a FetchAdd of 0",
	Expects: "a Terminate for the first: unexpected opcode; the same for the second, or a response if the device supports atomics",
	Defects: []string{"BadSegmentsDropped"}, Run: onHost(func(h *host) {
		c := h.connect(setup{receives: 2})
		c.expectRefusal(iwarp.Send(c.nextSendMSN(), data(16)).Opcode(13), iwarp.RDMAPUnexpectedOpcode)
		c = h.connect(setup{})
		c.send(c.peerFetchAdd(1, c.wordOffset(), 0))
		if !c.Caps.Has(verbs.CapAtomics) {
			c.expectTerminateAndEnd(iwarp.RDMAPUnexpectedOpcode)
			return
		}
		c.expectAtomicResponse(1, 1, c.word(c.wordOffset()))
		c.ExpectUnchanged(c.targetMem, 0, 0)
	}),
}, {
	ID: "rdmapx/message/control-fields", Cite: cite("rfc7306/4.1/1"), Needs: verbs.CapAtomics,
	Title:   "Atomic Requests and Responses have version 1, their opcode, and an Invalidate STag of 0",
	Sends:   "a FetchAdd; the device adds too",
	Expects: "headers of queues 1 and 3 with the control octets 4a and 4b",
	Defects: []string{"RDMAPVersion0"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.fetchAddWR(1, 0, 5))
		c.expectHeaderOctets(c.nextFPDUs(1)[0], untaggedHeaderOctets(0x41, 0x4a, 1, 0))
		c.send(c.peerFetchAdd(1, c.wordOffset(), 5))
		c.expectHeaderOctets(c.nextFPDUs(1)[0], untaggedHeaderOctets(0x41, 0x4b, 3, 0))
	}),
}, {
	ID: "rdmapx/message/wrong-queue", Cite: cite("rfc7306/4.1/2", "rfc7306/8.2/1"), Needs: verbs.CapAtomics,
	Title:   "Atomics and immediate data on a wrong queue are refused",
	Sends:   "Atomic Requests on queues 0 and 4, immediate data on queue 1, and an Atomic Response on queue 1 to a request of the device",
	Expects: "a Terminate: invalid queue number; for existing queues also unexpected opcode",
	Defects: []string{"UntaggedUnchecked"}, Run: onHost(func(h *host) {
		h.expectEachRefused(wrongQueueCauses,
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, c.wordOffset(), 5).QN(0) },
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, c.wordOffset(), 5).QN(4) },
			func(c *conn) iwarp.Segment { return iwarp.Immediate(c.nextSendMSN(), 7).QN(1) })
		c := h.connect(setup{})
		request := c.deviceFetchAdd(1, 0)
		c.expectRefusal(iwarp.AtomicResponse(1, *request.AtomicRequest.ID, 7).QN(1), wrongQueueCauses...)
		c.expectNoSuccess()
	}),
}, {
	ID: "rdmapx/message/versions-and-numbers-are-checked", Cite: cite("rfc7306/8.2/1"), Needs: verbs.CapAtomics,
	Title:   "Versions, MSN and MO of Atomic Requests are checked",
	Sends:   "Atomic Requests with DV 0 and 2, with RV 0 and 2, with an MSN that is not the next, and with MO 4",
	Expects: "a Terminate with the cause of each, and memory unchanged",
	Defects: []string{"VersionsUnchecked", "UntaggedUnchecked"}, Run: onHost(func(h *host) {
		h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidVersion},
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, c.wordOffset(), 5).DV(0) },
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, c.wordOffset(), 5).DV(2) })
		h.expectEachRefused([]iwarp.Cause{iwarp.RDMAPInvalidVersion},
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, c.wordOffset(), 5).RV(0) },
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, c.wordOffset(), 5).RV(2) })
		h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedMSNRange},
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, c.wordOffset(), 5).MSN(c.nextRequestMSN() + 1) })
		h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidMO, iwarp.DDPUntaggedTooLong},
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, c.wordOffset(), 5).MO(4) })
	}),
}, {
	ID: "rdmapx/message/terminate-has-the-ddp-header", Cite: cite("rfc7306/8.1/1"), Needs: verbs.CapAtomics,
	Title:   "The Terminate of an Atomic Request quotes its DDP header, and no other",
	Sends:   "a FetchAdd to a misaligned address",
	Expects: "a Terminate with M and D set, R clear, and the DDP header",
	Defects: []string{"TermAllHeaders"}, Run: onConn(func(c *conn) {
		wrong := c.peerFetchAdd(1, c.wordOffset()+4, 5)
		c.send(wrong)
		t := c.expectTerminateAndEnd(iwarp.RDMAPStreamCatastrophic)
		c.expectQuotedDDPHeader(t, wrong)
		m, r := iwarp.Val(t.Terminate.LengthValid), iwarp.Val(t.Terminate.HasRDMAP)
		c.Check(m && !r, "M=true and R=false", "M=%t and R=%t", m, r)
	}),
}, {
	ID: "rdmapx/message/both-atomics", Cite: cite("rfc7306/5/1"), Needs: verbs.CapAtomics,
	Title:   "A device that supports atomics supports FetchAdd and CmpSwap",
	Sends:   "a FetchAdd, and a CmpSwap that compares",
	Expects: "both are executed and answered",
	Defects: []string{"NoExtensions"}, Run: onConn(func(c *conn) {
		c.setWord(c.wordOffset(), 42)
		c.expectAnswer(c.peerFetchAdd(1, c.wordOffset(), 5), iwarp.AtomicResponse(1, 1, 42))
		c.expectAnswer(c.peerCmpSwap(2, c.wordOffset(), 47, 11), iwarp.AtomicResponse(2, 2, 47))
		c.expectWord(c.wordOffset(), 11)
	}),
}}

// deviceFetchAdd makes the device post a FetchAdd of 5, and returns the Atomic Request.
func (c *conn) deviceFetchAdd(id uint64, off int) iwarp.Segment {
	c.PostSend(c.qp, c.fetchAddWR(id, off, 5))
	g := c.expect(iwarp.Op(iwarp.OpAtomicRequest))
	c.Check(g.AtomicRequest != nil, "an Atomic Request with its header", "%v", g)
	return g.Segment
}
