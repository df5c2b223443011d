package dgiwarp

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxSend is the maximum length of a UD Send.
const maxSend = 65536

// path1500 is a path on which short messages need several packets.
var path1500 = conformance.Setup{Family: 6, MTU: 1500}

// maxSinglePacketSend returns the longest Send that fits into one packet.
func (h *host) maxSinglePacketSend() int {
	const ipv4, ipv6, udp = 20, 40, 8
	if h.Local[0].Is4() {
		return h.MTU - ipv4 - udp - sendOverhead
	}
	return h.MTU - ipv6 - udp - sendOverhead
}

var udSendCases = []conformance.Case{{
	ID: "dg/ud/short-message-is-one-packet", Cite: cite("4", "dg/ud/1"), Setup: path1500,
	Title:   "A message that fits into one packet is sent in one, with MO 0 and L set",
	Sends:   "nothing; the device sends 0, 1, 100 octets, and as many as fit",
	Expects: "one packet each",
	Defects: []string{"CutsAtRandom"}, Run: onPeer(func(p *peer) {
		for i, n := range []int{0, 1, 100, p.maxSinglePacketSend()} {
			p.expectSent(p.sendWR(uint64(i), 0, n), iwarp.UD(iwarp.Send(uint32(i+1), p.localMem.Buf[:n]).MO(0).Last(true)))
		}
		p.expectSilence(silencePeriod)
	}),
}, {
	ID: "dg/ud/long-message-is-cut-evenly", Cite: cite("4", "dg/ud/2"), Setup: path1500,
	Title:   "A longer message is split into segments with one MSN, in order, all but the last of the same length",
	Sends:   "nothing; the device sends one octet more than fits, several times as much, and 65,536 octets",
	Expects: "segments with the same MSN, contiguous MOs, equal lengths, L in the last only",
	Defects: []string{"CutsAtRandom"}, Run: onSetup(setup{memLen: maxSend}, func(p *peer) {
		for i, n := range []int{p.maxSinglePacketSend() + 1, 4*p.maxSinglePacketSend() - 7, 10 << 10, maxSend} {
			p.PostSend(p.qp, p.sendWR(uint64(i), 0, n))
			all := p.nextMessage()
			p.Check(len(all) > 1, "several packets", "one of %d octets", len(all[0].Segment.Payload))
			p.expectEvenSegments(uint32(i+1), all, p.localMem.Buf[:n])
			p.ExpectCompletion(uint64(i), verbs.WCSuccess)
		}
	}),
}, {
	ID: "dg/ud/longer-than-65536-is-refused", Cite: cite("4", "dg/ud/3"),
	Title:   "A Send of more than 65,536 octets is refused when it is posted",
	Sends:   "nothing; the application posts Sends of 65,537 and 131,072 octets, and one of 65,536",
	Expects: "the first two are refused and nothing of them is sent; the third is",
	Defects: []string{"LongSendsLeave"}, Run: onSetup(setup{memLen: 2 * maxSend}, func(p *peer) {
		for _, n := range []int{maxSend + 1, 2 * maxSend} {
			_, err := p.qp.PostSend([]verbs.SendWR{p.sendWR(1, 0, n)})
			p.MustFail(fmt.Sprintf("a Send of %d octets", n), err, nil)
		}
		p.expectIdle()
		p.PostSend(p.qp, p.sendWR(2, 0, maxSend))
		p.expectEvenSegments(1, p.nextMessage(), p.localMem.Buf[:maxSend])
		p.ExpectCompletion(2, verbs.WCSuccess)
	}),
}, {
	ID: "dg/ud/numbers-count-all-messages", Cite: cite("4", "dg/ud/4"),
	Title:   "MSNs count the messages of the sending queue pair, for all destinations",
	Sends:   "nothing; the device sends to three queue pairs in turn, and from another queue pair",
	Expects: "MSNs 1 to 9, and 1 from the other",
	Defects: []string{"NumbersByPeer"}, Run: onPeer(func(p *peer) {
		peers := []*peer{p, p.peer(1), p.peer(4)}
		for i := range 9 {
			to := peers[i*i%len(peers)]
			to.expectSent(to.sendWR(uint64(i), 0, 8), iwarp.UD(iwarp.Send(uint32(i+1), p.localMem.Buf[:8])))
		}
		other := p.newQP(setup{}).peer(0)
		other.expectSent(other.sendWR(9, 0, 8), iwarp.UD(iwarp.Send(1, other.localMem.Buf[:8])))
	}),
}, {
	ID: "dg/ud/completes-when-it-left", Cite: cite("4", "dg/ud/9"),
	Title:   "A request completes when the last packet of its message was sent, even if it is not received",
	Sends:   "nothing; the device sends short and long messages to a peer that never responds",
	Expects: "a completion of each, in order",
	Defects: []string{"UDWaitsForPeer"}, Run: onPeer(func(p *peer) {
		p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 16<<10), p.wr(3, verbs.OpRDMAWrite, 0, 8))
		for range 3 {
			p.nextMessage()
		}
		p.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
	}),
}, {
	ID: "dg/ud/reads-are-refused-when-posted", Cite: cite("4", "dg/ud/10"),
	Title:   "Reads, atomics and Sends with Invalidate are refused when they are posted",
	Sends:   "nothing; the application posts one of each, then a Send",
	Expects: "refusals, and nothing but the Send on the wire",
	Defects: []string{"UDReads"}, Run: onPeer(func(p *peer) {
		for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp, verbs.OpSendInv} {
			wr := p.wr(1, op, 0, 8)
			wr.InvalidateRKey = peerSTag
			_, err := p.qp.PostSend([]verbs.SendWR{wr})
			p.MustFail(op.String(), err, nil)
		}
		p.expectSent(p.sendWR(2, 0, 8), iwarp.UD(iwarp.Send(1, p.localMem.Buf[:8])))
	}),
}, {
	ID: "dg/ud/read-request-is-an-error", Cite: cite("4", "dg/ud/10", "dg/err/1"),
	Title:   "A received Read Request, Atomic Request or Send with Invalidate is an error, and is not executed",
	Sends:   "each of them, to a separate queue pair, with a valid key",
	Expects: "an error message, an event, a queue pair in the error state; memory unchanged, no response, no receive",
	Defects: []string{"UDReads"}, Run: onHost(func(h *host) {
		sink := iwarp.At(peerSTag, peerTO)
		for _, wrong := range []makeSegment{
			func(q *deviceQP) iwarp.Segment { return iwarp.ReadRequest(1, sink, 8, q.targetAddr(0)) },
			func(q *deviceQP) iwarp.Segment { return iwarp.FetchAdd(1, 7, q.targetAddr(0), 1) },
			func(q *deviceQP) iwarp.Segment { return iwarp.SendInvalidate(1, uint32(q.targetMem.RKey()), data(8)) },
			func(q *deviceQP) iwarp.Segment { return iwarp.SendSEInvalidate(1, uint32(q.targetMem.RKey()), data(8)) },
		} {
			q := h.newQP(setup{receives: 1})
			p := q.peer(0)
			p.expectErrorFor(wrong(q))
			p.expectErrorState()
			p.ExpectUnchanged(q.targetMem, 0, 0)
			p.ExpectUnchanged(q.localMem, 0, 0)
			p.ExpectCompletion(1, verbs.WCWRFlushErr)
		}
		h.expectSilence(silencePeriod)
	}),
}, {
	ID: "dg/ud/write-with-immediate-is-a-record", Cite: cite("8", "dg/verbs/3", "dg/tag/2"),
	Title:   "RDMA Write with immediate data is sent as a Write-Record",
	Sends:   "nothing; the application posts one of 32 octets",
	Expects: "a tagged segment with opcode 15, the target address, the length and the immediate data",
	Defects: []string{"RecordIsWrite"}, Run: onPeer(func(p *peer) {
		want := iwarp.Op(iwarp.OpExperimental).STag(peerSTag).TO(peerTO).WithPayload(p.localMem.Buf[:32])
		a := p.expectSent(p.writeRecordWR(1, 0, 32), iwarp.UD(want))
		p.Check(a.Record != nil, "the header of a Write-Record", "%v", a.Packet)
		p.Check(*a.Record.Immediate == immediateData, fmt.Sprintf("immediate data %#x", immediateData), "%#x", *a.Record.Immediate)
		p.expectSilence(silencePeriod)
	}),
}}

// immediateData is the immediate data of all cases.
const immediateData = 0xcafef00d

// writeRecordWR returns a Write with immediate data.
func (p *peer) writeRecordWR(id uint64, off, n int) verbs.SendWR {
	wr := p.wr(id, verbs.OpRDMAWriteImm, off, n)
	wr.Imm = immediateData
	return wr
}

// expectEvenSegments fails the case unless the packets are those of the message, split evenly.
func (h *host) expectEvenSegments(msn uint32, all []arrival, message []byte) {
	var joined []byte
	for i, a := range all {
		h.checkPacket(iwarp.UD(iwarp.Op(iwarp.OpSend).MSN(msn).MO(uint32(len(joined)))), a)
		if i < len(all)-1 {
			h.Check(len(a.Segment.Payload) == len(all[0].Segment.Payload), fmt.Sprintf("segments of %d octets but for the last", len(all[0].Segment.Payload)),
				"%d in segment %d of %d", len(a.Segment.Payload), i, len(all))
		}
		joined = append(joined, a.Segment.Payload...)
	}
	last := len(all[len(all)-1].Segment.Payload)
	h.Check(last <= len(all[0].Segment.Payload), "a last segment that is no longer than the others", "%d octets", last)
	h.Check(bytes.Equal(joined, message), fmt.Sprintf("the message of %d octets", len(message)), "%d octets, or other content", len(joined))
}

// expectErrorState fails the case unless the queue pair raises an event and is in the error state.
func (q *deviceQP) expectErrorState() {
	q.expectQPEvent()
	q.AwaitState(q.qp, verbs.QPStateErr)
}
