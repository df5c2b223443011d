package dgiwarp

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// establishedPeer returns a peer of a new queue pair with two receives of 64 octets, with flows in
// both directions.
func (h *host) establishedPeer() *peer {
	p := h.newQP(setup{receives: 2}).peer(0)
	p.openFlow(zeroLengthWrite())
	p.establishDeviceFlow()
	return p
}

// expectSegmentError sends segments, the last of them invalid, and fails the case unless the
// device reports one of the causes, the queue pair is in the error state, and no request or
// receive succeeds.
func (p *peer) expectSegmentError(causes []iwarp.Cause, segments ...iwarp.Segment) {
	for _, s := range segments {
		p.send(p.nextDataPacket(s))
	}
	a, wrong := p.expectData(p.fromDeviceFlow.next), segments[len(segments)-1]
	p.Check(slices.ContainsFunc(causes, func(c iwarp.Cause) bool {
		return iwarp.AnyPacket().With(iwarp.Terminate(c).Quoting(wrong).QN(2)).Matches(a.ReceivedPacket)
	}), fmt.Sprintf("a Terminate for %v about %v", causes, wrong), "%v", a.Packet)
	p.ackAll()
	p.drain(0) // retransmissions that crossed with the Ack
	p.expectErrorState()
	for {
		wc, ok := p.PollCompletion(0)
		if !ok {
			return
		}
		p.Check(wc.Status != verbs.WCSuccess, "no successful completion", "%s", rig.Describe(&wc))
	}
}

// expectSecondSegmentRefused sends a Send of two segments, the second of them changed, and fails
// the case unless the second is an error with one of the causes.
func (h *host) expectSecondSegmentRefused(causes []iwarp.Cause, change func(second iwarp.Segment) iwarp.Segment) {
	const first = 16
	p := h.establishedPeer()
	parts := sendSegmentsOf(1, data(2*first), first)
	p.expectSegmentError(causes, parts[0], change(parts[1]))
	p.ExpectUnchanged(p.localMem, 0, areaLen+first)
}

// expectResponseRefused answers a read with a changed Read Response, and fails the case unless it
// is an error with the cause and is not placed.
func (h *host) expectResponseRefused(cause iwarp.Cause, change func(iwarp.Segment) iwarp.Segment) {
	p := h.establishedPeer()
	request := p.expectRequest(p.wr(9, verbs.OpRDMARead, 1024, 16), iwarp.Op(iwarp.OpReadRequest))
	p.ackAll()
	p.expectSegmentError([]iwarp.Cause{cause}, change(iwarp.ReadResponseTo(*request.Segment, data(16))))
	p.ExpectUnchanged(p.localMem, 0, 0)
}

// A flow is delivered in order, like a TCP stream: missing octets cannot arrive later.
var flowCheckCases = overRD.Cases([]conformance.Case{{
	ID: "dg/rdmap/offset-of-a-later-segment", Cite: cite("7.7", "dg/err/1", "dg/rdmap/2"),
	Title:   "A second segment of a Send that does not follow the first is an error",
	Sends:   "Sends of two segments of 16 octets, the second with MOs 0, 12 and 20",
	Expects: "an error message: invalid MO; an event, the error state, and no receive",
	Defects: []string{"SecondSegmentOffset"}, Run: onHost(func(h *host) {
		for _, mo := range []uint32{0, 12, 20} {
			h.expectSecondSegmentRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidMO}, func(s iwarp.Segment) iwarp.Segment { return s.MO(mo) })
		}
	}),
}, {
	ID: "dg/rdmap/number-of-a-later-segment", Cite: cite("7.7", "dg/rdmap/1", "dg/err/1"),
	Title:   "A second segment of a Send with another MSN than the first is an error",
	Sends:   "Sends of two segments, the second with the previous MSN, and with the next",
	Expects: "an error message: MSN out of range; for the next MSN also invalid MO, since that message begins at 16",
	Defects: []string{"SecondSegmentNumber"}, Run: onHost(func(h *host) {
		causes := []iwarp.Cause{iwarp.DDPUntaggedMSNRange, iwarp.DDPUntaggedInvalidMO}
		h.expectSecondSegmentRefused(causes[:1], func(s iwarp.Segment) iwarp.Segment { return s.MSN(0) })
		h.expectSecondSegmentRefused(causes, func(s iwarp.Segment) iwarp.Segment { return s.MSN(2) })
	}),
}, {
	ID: "dg/rdmap/number-of-an-atomic-response", Cite: cite("7.7", "dg/rdmap/1", "dg/err/1"), Needs: verbs.CapAtomics,
	Title:   "An Atomic Response with another MSN than the next is an error",
	Sends:   "first Atomic Responses of a flow with MSNs 0 and 2",
	Expects: "an error message: MSN out of range; the atomic fails, and nothing is placed",
	Defects: []string{"AnswerNumberUnchecked"}, Run: onHost(func(h *host) {
		for _, number := range []uint32{0, 2} {
			p := h.establishedPeer()
			request := p.expectRequest(p.wr(9, verbs.OpAtomicFetchAdd, 1024, 8), iwarp.Op(iwarp.OpAtomicRequest))
			p.ackAll()
			p.expectSegmentError([]iwarp.Cause{iwarp.DDPUntaggedMSNRange}, iwarp.AtomicResponse(number, *request.Segment.AtomicRequest.ID, 7))
			p.ExpectUnchanged(p.localMem, 0, 0)
		}
	}),
}, {
	ID: "dg/rdmap/number-of-immediate-data", Cite: cite("7.7", "dg/rdmap/1", "dg/err/1"),
	Title:   "Immediate data with another MSN than the next is an error",
	Sends:   "immediate data as the first message of a flow to queue 0, with MSNs 0 and 2",
	Expects: "an error message: MSN out of range, and no receive",
	Defects: []string{"AnswerNumberUnchecked"}, Run: onHost(func(h *host) {
		for _, number := range []uint32{0, 2} {
			h.establishedPeer().expectSegmentError([]iwarp.Cause{iwarp.DDPUntaggedMSNRange}, iwarp.Immediate(number, immediateData))
		}
	}),
}, {
	ID: "dg/rdmap/version-of-tagged-messages", Cite: cite("7.7", "dg/err/1", "dg/rdmap/2"),
	Title:   "A Write or a Read Response with another RDMAP version is an error",
	Sends:   "Writes, and responses to reads of the device, with RDMAP versions 0 and 2",
	Expects: "an error message: invalid version; nothing is placed, and the reads fail",
	Defects: []string{"TaggedVersionUnchecked"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2} {
			p := h.establishedPeer()
			p.expectSegmentError([]iwarp.Cause{iwarp.RDMAPInvalidVersion}, p.writeToTarget(0, data(16)).RV(v))
			p.ExpectUnchanged(p.targetMem, 0, 0)
			h.expectResponseRefused(iwarp.RDMAPInvalidVersion, func(s iwarp.Segment) iwarp.Segment { return s.RV(v) })
		}
	}),
}, {
	ID: "dg/rdmap/ddp-version-of-a-read-response", Cite: cite("7.7", "dg/err/1", "dg/rdmap/2"),
	Title:   "A Read Response with another DDP version is an error",
	Sends:   "responses to reads of the device with DDP versions 0 and 2",
	Expects: "an error message: invalid version of a tagged segment; nothing is placed, and the reads fail",
	Defects: []string{"ReadResponseDDPVersion"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2} {
			h.expectResponseRefused(iwarp.DDPTaggedInvalidVersion, func(s iwarp.Segment) iwarp.Segment { return s.DV(v) })
		}
	}),
}, {
	ID: "dg/rdmap/every-segment-of-a-write-is-checked", Cite: cite("7.7", "dg/tag/8", "dg/err/1"),
	Title:   "Every segment of a Write in a flow is checked",
	Sends:   "Writes whose first segment is valid, and whose second has an unknown key, that of memory without remote write access, or ends out of bounds",
	Expects: "an error message about the second; the first is placed, and nothing of the second",
	Defects: []string{"SecondSegmentRights"}, Run: onHost(func(h *host) {
		locked := h.Memory(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
		for _, t := range []struct {
			second func(*peer) iwarp.Segment
			causes []iwarp.Cause
		}{
			{func(*peer) iwarp.Segment { return writeTo(addrOf(locked, 0), data(16)) }, []iwarp.Cause{iwarp.RDMAPAccess, iwarp.DDPTaggedInvalidSTag}},
			{func(p *peer) iwarp.Segment { return p.writeToTarget(80, data(16)).STag(unknownSTag) }, []iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidSTag}},
			{func(p *peer) iwarp.Segment { return p.writeToTarget(len(p.targetMem.Buf)-8, data(16)) }, []iwarp.Cause{iwarp.DDPTaggedBounds, iwarp.RDMAPBounds}},
		} {
			p := h.establishedPeer()
			p.expectSegmentError(t.causes, p.writeToTarget(64, data(16)).Last(false), t.second(p))
			p.ExpectBytes(p.targetMem, 64, data(16))
			p.ExpectUnchanged(p.targetMem, 64, 16)
		}
		h.ExpectUnchanged(locked, 0, 0)
	}),
}, {
	ID: "dg/rdmap/empty-send-invalidates", Cite: cite("7.7", "dg/rdmap/2", "dg/tag/8"),
	Needs:   verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A zero-length Send with Invalidate invalidates its key",
	Sends:   "a Write to a window, a zero-length Send that invalidates it, and another Write",
	Expects: "a zero-length receive with the invalidated key; the second Write is an error, and changes nothing",
	Defects: []string{"EmptySendKeepsKey"}, Run: onHost(func(h *host) {
		p, m := h.establishedPeer(), h.Memory(64, verbs.AccessLocalWrite|verbs.AccessMWBind)
		key := p.bindWindow(m, verbs.AccessRemoteWrite)
		at := iwarp.At(uint32(key), m.Addr())
		p.expectDelivered(writeTo(at, data(16)))
		p.ExpectBytes(m, 0, data(16))
		m.Snapshot()
		p.expectDelivered(iwarp.SendInvalidate(1, at.STag, nil))
		wc := p.expectRecv(1, nil)
		p.Check(wc.Flags&verbs.WCWithInv != 0 && wc.InvalidatedRKey == key, "a receive with the invalidated key", "%s", rig.Describe(&wc))
		p.expectSegmentError([]iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPInvalidSTag}, writeTo(at, data(32)))
		p.ExpectUnchanged(m, 0, 0)
	}),
}})

// bindWindow binds a window of type 2 to all of m, and returns its key.
func (q *deviceQP) bindWindow(m *rig.Memory, access verbs.Access) verbs.RKey {
	const id = 0xb1d
	mw, err := q.PD.AllocMW(verbs.MWType2)
	q.Must("a window", err)
	key := verbs.NextRKey(mw.RKey())
	q.PostSend(q.qp, verbs.SendWR{
		WRID: id, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled,
		Bind: verbs.Bind{MW: mw, RKey: key, Info: verbs.BindInfo{MR: m.MR, Addr: m.Addr(), Length: uint64(len(m.Buf)), Access: access}},
	})
	q.ExpectCompletion(id, verbs.WCSuccess)
	return key
}
