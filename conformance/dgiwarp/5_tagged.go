package dgiwarp

import (
	"bytes"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var taggedCases = []conformance.Case{{
	ID: "dg/write/placed-in-any-order", Cite: cite("5", "dg/tag/1"),
	Title:   "The segments of a Write are placed in any order",
	Sends:   "a Write of five segments out of order, one of them missing, and a Send after it",
	Expects: "all received segments are in memory, and nothing else",
	Defects: []string{"SegmentsInOrder"}, Run: onPeer(func(p *peer) {
		message, before := data(500), bytes.Clone(p.targetMem.Buf[1200:1300])
		segments := p.writeToTarget(1000, message).Segments(taggedLen + 100)
		for _, i := range []int{3, 0, 4, 1} {
			p.sendSegments(segments[i])
		}
		p.sendSegments(iwarp.Send(1, nil))
		p.expectRecv(1, nil)
		p.ExpectBytes(p.targetMem, 1000, message[:200])
		p.ExpectBytes(p.targetMem, 1200, before)
		p.ExpectBytes(p.targetMem, 1300, message[300:])
		p.ExpectUnchanged(p.targetMem, 1000, 500)
	}),
}, {
	ID: "dg/write/longer-than-any-send", Cite: cite("5", "dg/tag/1"),
	Title:   "A Write may be longer than the maximum UD Send",
	Sends:   "a Write of 128 KiB, in reverse order; the device sends one as long",
	Expects: "all of it in memory; all of it on the wire, each segment with its offset",
	Defects: []string{"SegmentsInOrder"}, Run: onSetup(setup{receives: 1, memLen: 2 * maxSend}, func(p *peer) {
		message := data(2 * maxSend)
		segments := p.writeToTarget(0, message).Segments(taggedLen + 4096)
		for i := range segments {
			p.sendSegments(segments[len(segments)-1-i])
		}
		p.sendSegments(iwarp.Send(1, nil))
		p.expectRecv(1, nil)
		p.ExpectBytes(p.targetMem, 0, message)
		p.PostSend(p.qp, p.wr(2, verbs.OpRDMAWrite, 0, 2*maxSend))
		at := 0
		for _, a := range p.nextMessage() {
			n := len(a.Segment.Payload)
			p.checkPacket(iwarp.UD(iwarp.Write(peerSTag, peerTO+uint64(at), p.localMem.Buf[at:at+n])), a)
			at += n
		}
		p.Check(at == 2*maxSend, "131072 octets", "%d", at)
	}),
}, {
	ID: "dg/write/nobody-is-told", Cite: cite("5", "dg/tag/1"),
	Title:   "A Write causes no completion, event or response at its target",
	Sends:   "Writes of one and of several segments to a queue pair with receives",
	Expects: "no completion, no event, no response; the data is in memory",
	Defects: []string{"WriteTakesReceive"}, Run: onPeer(func(p *peer) {
		p.sendSegments(p.writeToTarget(0, data(8)), zeroLengthWrite())
		p.sendSegments(p.writeToTarget(8, data(300)).Segments(taggedLen + 100)...)
		p.expectNothingElse()
		p.ExpectBytes(p.targetMem, 0, data(8))
		p.ExpectBytes(p.targetMem, 8, data(300))
		p.ExpectUnchanged(p.localMem, 0, 0)
	}),
}, {
	ID: "dg/write/every-segment-is-checked", Cite: cite("5", "dg/tag/8"),
	Title:   "Every segment of a Write is checked before it is placed",
	Sends:   "Writes whose first segment is valid, and whose second begins or ends out of bounds, has another key, or one without remote write access",
	Expects: "the first is in memory, and nothing of the second; an error message about it",
	Defects: []string{"FirstSegmentChecked", "RangeSlack", "RightsIgnored"}, Run: onHost(func(h *host) {
		locked := h.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
		for _, second := range []makeSegment{
			func(q *deviceQP) iwarp.Segment { return q.writeToTarget(len(q.targetMem.Buf), data(64)) },
			func(q *deviceQP) iwarp.Segment { return q.writeToTarget(len(q.targetMem.Buf)-1, data(64)) },
			func(q *deviceQP) iwarp.Segment { return q.writeToTarget(-1, data(64)) },
			func(q *deviceQP) iwarp.Segment { return q.writeToTarget(0, data(64)).STag(unknownSTag) },
			func(*deviceQP) iwarp.Segment { return writeTo(addrOf(locked, 0), data(64)) },
		} {
			q := h.newQP(setup{receives: 1})
			p := q.peer(0)
			p.expectErrorFor(q.writeToTarget(64, data(64)).Last(false), second(q))
			p.ExpectBytes(q.targetMem, 64, data(64))
			p.ExpectUnchanged(q.targetMem, 64, 64)
			p.ExpectUnchanged(locked, 0, 0)
		}
	}),
}, {
	ID: "dg/write/key-of-another-domain", Cite: cite("5", "dg/tag/8"),
	Title:   "A key is valid only for queue pairs of its protection domain",
	Sends:   "a Write with the key of a region of another domain",
	Expects: "an error message, and memory unchanged",
	Defects: []string{"IgnorePD"}, Run: onPeer(func(p *peer) {
		pd, err := p.Device.AllocPD()
		p.Must("another protection domain", err)
		foreign := p.MemoryIn(pd, 64, allAccess)
		p.expectErrorFor(writeTo(addrOf(foreign, 0), data(64)))
		p.ExpectUnchanged(foreign, 0, 0)
		p.expectErrorState()
	}),
}, {
	ID: "dg/write/closed-region", Cite: cite("5", "dg/tag/8"),
	Title:   "The key of a deregistered region is invalid",
	Sends:   "a Write, and the same after the region was deregistered",
	Expects: "an error message, and memory unchanged",
	Defects: []string{"StaleKeys"}, Run: onPeer(func(p *peer) {
		m := p.Memory(64, allAccess)
		at := addrOf(m, 0)
		p.sendSegments(writeTo(at, data(8)), iwarp.Send(1, nil))
		p.expectRecv(1, nil)
		p.ExpectBytes(m, 0, data(8))
		m.Snapshot()
		p.Must("a region that can be deregistered", m.Close())
		p.expectErrorFor(writeTo(at, make([]byte, 64)))
		p.ExpectUnchanged(m, 0, 0)
		p.expectErrorState()
	}),
}}

// taggedLen is the length of the header of a tagged segment.
const taggedLen = 14
