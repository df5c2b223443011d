package dgiwarp

import (
	"bytes"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
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

// immediateData is the immediate data of all cases.
const immediateData = 0xcafef00d

// writeRecordWR returns a Write with immediate data. The device sends it as a Write-Record: it
// takes a receive at the target, which reports which octets of the Write have arrived.
func (p *peer) writeRecordWR(id uint64, n int) verbs.SendWR {
	wr := p.wr(id, verbs.OpRDMAWriteImm, 0, n)
	wr.Imm = immediateData
	return wr
}

// expectEvenSegments fails the case unless the packets have the message in segments of equal
// length, of which only the last may be shorter.
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

// Limits of reassembly.
const (
	maxAssemblies   = 64
	assemblyTimeout = 100 * time.Millisecond
)

// sendSegmentsOf returns the segments of a Send, with n octets of the message each.
func sendSegmentsOf(msn uint32, message []byte, n int) []iwarp.Segment {
	return iwarp.Send(msn, message).Segments(untaggedLen + n)
}

var udCases = []conformance.Case{{
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
			p.ExpectUntouched(q.targetMem)
			p.ExpectUntouched(q.localMem)
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
		a := p.expectSent(p.writeRecordWR(1, 32), iwarp.UD(want))
		p.Check(a.Record != nil, "the header of a Write-Record", "%v", a.Packet)
		p.Check(*a.Record.Immediate == immediateData, fmt.Sprintf("immediate data %#x", immediateData), "%#x", *a.Record.Immediate)
		p.expectSilence(silencePeriod)
	}),
}, {
	ID: "dg/ud/order-of-numbers-is-not-looked-at", Cite: cite("4", "dg/ud/4"),
	Title:   "Messages are received with any MSN",
	Sends:   "Sends with MSNs 7, 3, 1000, 4294967295, 0 and 8",
	Expects: "a receive of each, in the order of arrival",
	Defects: []string{"NumbersByPeer"}, Run: onPeer(func(p *peer) {
		for i, msn := range []uint32{7, 3, 1000, 0xffffffff, 0, 8} {
			p.expectReceived(uint64(i+1), iwarp.Send(msn, data(8+i)))
		}
	}),
}, {
	ID: "dg/ud/segments-in-any-order", Cite: cite("4", "dg/ud/5"),
	Title:   "Segments of a message are reassembled in any order",
	Sends:   "messages of three segments in all six orders",
	Expects: "a receive of each message",
	Defects: []string{"SegmentsInOrder"}, Run: onSetup(setup{receives: 6, recvLen: 100}, func(p *peer) {
		for i, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			message := rig.Pattern(100, byte(i))
			segments := sendSegmentsOf(uint32(i+1), message, 40)
			for _, k := range order {
				p.sendSegments(segments[k])
			}
			p.expectRecv(uint64(i+1), message)
		}
	}),
}, {
	ID: "dg/ud/sources-are-kept-apart", Cite: cite("4", "dg/ud/5"),
	Title:   "Segments of different sources with the same MSN are not reassembled together",
	Sends:   "messages of two segments with the same MSN from two hosts, and from two ports and two queue pairs of one host, first halves before second ones",
	Expects: "a receive of each message as it was sent",
	Defects: []string{"SourcesMixed"}, Run: onSetup(setup{receives: 4, recvLen: 80}, func(p *peer) {
		sources := p.similarSources()
		for i, from := range sources {
			from.sendSegments(sendSegmentsOf(5, rig.Pattern(80, byte(i)), 40)[0])
		}
		for i, from := range sources {
			from.sendSegments(sendSegmentsOf(5, rig.Pattern(80, byte(i)), 40)[1])
			p.expectRecv(uint64(i+1), rig.Pattern(80, byte(i)))
		}
	}),
}, {
	ID: "dg/ud/half-a-message-holds-no-receive", Cite: cite("4", "dg/ud/5"),
	Title:   "A receive is consumed only when a message is complete",
	Sends:   "halves of four messages to a queue pair with one receive, then a complete message; after another receive is posted the rest of the first",
	Expects: "a receive of the complete one, then of the first",
	Defects: []string{"ReceiveTakenWrong"}, Run: onSetup(setup{receives: 1, recvLen: 80}, func(p *peer) {
		for msn := range uint32(4) {
			p.sendSegments(sendSegmentsOf(msn, data(80), 40)[0])
		}
		p.expectReceived(1, iwarp.Send(9, data(16)))
		p.PostRecv(p.qp, 2, p.localMem.SGE(p.recvLen, p.recvLen))
		p.sendSegments(sendSegmentsOf(0, data(80), 40)[1])
		p.expectRecv(2, data(80))
	}),
}, {
	ID: "dg/ud/old-halves-are-dropped", Cite: cite("4", "dg/ud/6"),
	Title:   "A message that is not complete 100 ms after its first segment is dropped",
	Sends:   "thirds of a message, the last of them 90 ms after the first; of others 110 and 200 ms after it, and complete messages",
	Expects: "receives of the first and of the complete messages only",
	Defects: []string{"PiecesUnbounded"}, Run: onSetup(setup{receives: 4, recvLen: 80}, func(p *peer) {
		thirds := func(msn uint32, percent time.Duration) {
			s := sendSegmentsOf(msn, data(80), 30)
			p.sendSegments(s[0])
			p.Sleep(assemblyTimeout * percent / 200)
			p.sendSegments(s[1])
			p.Sleep(assemblyTimeout * percent / 200)
			p.sendSegments(s[2])
		}
		thirds(1, 90)
		p.expectRecv(1, data(80))
		for i, percent := range []time.Duration{110, 200} {
			thirds(uint32(i+2), percent)
			p.expectReceived(uint64(i+2), iwarp.Send(9, data(16)))
		}
		p.expectNothingElse()
	}),
}, {
	ID: "dg/ud/reset-drops-halves", Cite: cite("4", "dg/ud/5"),
	Title:   "A reset ends the reassembly of messages, and the MSNs and Q_Key of the queue pair",
	Sends:   "half a Send and half a Write-Record; the rest after the queue pair was reset, and given another Q_Key",
	Expects: "no receive of these, then one of a Send with the new key; Sends of the device with MSN 1 before and after",
	Defects: []string{"ResetKeepsParts", "ResetKeepsMSN"}, Run: onPeer(func(p *peer) {
		send, record := sendSegmentsOf(1, data(60), 30), p.writeRecords(2, 0, data(32), 16)
		p.expectSent(p.sendWR(9, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend).MSN(1)))
		p.sendSegments(send[0])
		p.send(record[0])
		p.syncDevice()
		p.ToState(p.qp, verbs.QPStateReset)
		p.deviceQP.key++
		p.toRTS()
		p.PostRecv(p.qp, 1, p.localMem.SGE(0, p.recvLen))
		p.sendSegments(send[1])
		p.send(iwarp.UD(iwarp.Send(3, data(8))).WithKey(deviceKey))
		p.expectNoCompletionYet()
		p.Sleep(2 * recordTimeout)
		p.expectNothingElse()
		p.expectReceived(1, iwarp.Send(4, data(8)))
		p.expectSent(p.sendWR(9, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend).MSN(1)))
	}),
}, {
	ID: "dg/ud/oldest-half-gives-way", Cite: cite("4", "dg/ud/6"),
	Title:   "If more than 64 messages are being reassembled, the oldest is dropped",
	Sends:   "65 first halves, then the second ones, that of the first message last",
	Expects: "a receive of each message but the first",
	Defects: []string{"PiecesUnbounded"}, Run: onSetup(setup{receives: maxAssemblies + 1, recvLen: 32}, func(p *peer) {
		half := func(msn, k int) { p.sendSegments(sendSegmentsOf(uint32(msn), rig.Pattern(32, byte(msn)), 16)[k]) }
		for msn := range maxAssemblies + 1 {
			half(msn, 0)
		}
		for msn := 1; msn <= maxAssemblies; msn++ {
			half(msn, 1)
			p.expectRecv(uint64(msn), rig.Pattern(32, byte(msn)))
		}
		half(0, 1)
		p.expectNothingElse()
	}),
}, {
	ID: "dg/ud/octets-twice-count-once", Cite: cite("4", "dg/ud/7"),
	Title:   "Duplicate and overlapping segments of a message are accepted",
	Sends:   "the first and the last of three segments, the first again, and one that overlaps both; another time the middle one",
	Expects: "no receive before all octets have arrived, then one",
	Defects: []string{"PiecesUnchecked"}, Run: onSetup(setup{receives: 2, recvLen: 96}, func(p *peer) {
		message := data(96)
		s := sendSegmentsOf(1, message, 32)
		p.sendSegments(s[0], s[2], s[0], s[0], s[2])
		p.expectNoCompletionYet()
		p.sendSegments(s[1])
		p.expectRecv(1, message)
		part := func(from, to int) iwarp.Segment {
			return iwarp.Send(2, message[from:to]).MO(uint32(from)).Last(to == len(message))
		}
		p.sendSegments(part(0, 40), part(20, 60), part(70, 96))
		p.expectNoCompletionYet()
		p.sendSegments(part(50, 80))
		p.expectRecv(2, message)
		p.expectNothingElse()
	}),
}, {
	ID: "dg/ud/contradiction-drops-the-message", Cite: cite("4", "dg/ud/7"),
	Title:   "A message whose segments disagree on its end or opcode is dropped",
	Sends:   "two of three segments, one with another end or opcode, then the missing one; another message",
	Expects: "no receive of the former, one of the latter",
	Defects: []string{"PiecesUnchecked"}, Run: onSetup(setup{receives: 4, recvLen: 96}, func(p *peer) {
		wrong := []func([]iwarp.Segment) iwarp.Segment{
			func(s []iwarp.Segment) iwarp.Segment { return s[1].Last(true) },             // ends before received octets
			func(s []iwarp.Segment) iwarp.Segment { return s[2].MO(96) },                 // ends after its end
			func(s []iwarp.Segment) iwarp.Segment { return s[2].Last(false).MO(96) },     // continues after its end
			func(s []iwarp.Segment) iwarp.Segment { return s[1].Opcode(iwarp.OpSendSE) }, // another opcode
		}
		for i, contradict := range wrong {
			s := sendSegmentsOf(uint32(2*i), data(96), 32)
			p.sendSegments(s[0], s[2], contradict(s), s[1])
			p.expectReceived(uint64(i+1), iwarp.Send(uint32(2*i+1), data(16)))
		}
		p.expectNothingElse()
	}),
}, {
	ID: "dg/ud/without-receive-is-lost", Cite: cite("4", "dg/ud/8"),
	Title:   "A message without a receive is dropped, and no error is reported",
	Sends:   "Sends of one and of two segments to a queue pair without receives; another after receives are posted",
	Expects: "no response, no event, the queue pair still works, and a receive of the last",
	Defects: []string{"NoReceiveIsError"}, Run: onSetup(setup{}, func(p *peer) {
		p.sendSegments(iwarp.Send(1, data(8)))
		p.sendSegments(sendSegmentsOf(2, data(32), 16)...)
		p.expectNoEffect()
		p.PostRecv(p.qp, 1, p.localMem.SGE(0, p.recvLen))
		p.expectNoCompletionYet()
		p.expectReceived(1, iwarp.Send(3, data(16)))
	}),
}, {
	ID: "dg/ud/receive-in-read-only-memory", Cite: cite("4", "dg/ud/5", "dg/ud/12"),
	Title:   "A message for which the memory of the receive must not be written completes the receive with an error, and fails the queue pair",
	Sends:   "a Send of one segment, and one of three, to queue pairs whose receive lacks local write access",
	Expects: "the receive is refused, or completes with LOC_PROT_ERR or LOC_ACCESS_ERR and moves the queue pair to ERR; its memory is unchanged, and nothing is sent",
	Defects: []string{"FailedReceiveLost", "ReceiveErrorKeepsQP"}, Run: onHost(func(h *host) {
		for _, segmentLen := range []int{100, 40} {
			var message []iwarp.Packet
			for _, s := range sendSegmentsOf(1, data(100), segmentLen) {
				message = append(message, iwarp.UD(s))
			}
			h.newQP(setup{recvLen: 100}).peer(0).expectReadOnlyReceiveFails(message...)
		}
	}),
}, {
	ID: "dg/ud/shared-receives", Cite: cite("4", "dg/ud/11"), Level: conformance.May, Needs: verbs.CapSRQ,
	Title:   "UD queue pairs can use a shared receive queue",
	Sends:   "Sends to two queue pairs with one shared receive queue",
	Expects: "receives of that queue, in the order of the Sends",
	Defects: []string{"UDIgnoresSRQ"}, Run: onHost(func(h *host) {
		srq := h.CreateSRQ(verbs.SRQInit{PD: h.PD, MaxWR: 16, MaxSGE: 1})
		m := h.Memory(1024, verbs.AccessLocalWrite)
		for i := range 4 {
			h.PostRecv(srq, uint64(i+1), m.SGE(i*128, 128))
		}
		qs := []*deviceQP{h.newQP(setup{srq: srq}), h.newQP(setup{srq: srq})}
		for i := range 4 {
			q := qs[i%2]
			q.peer(0).sendSegments(iwarp.Send(uint32(i), data(8+i)))
			wc := h.ExpectRecv(uint64(i+1), grhAreaLen+8+i)
			h.Check(wc.QPN == q.qp.QPN(), "a completion that names the queue pair", "%#x", uint32(wc.QPN))
			h.ExpectBytes(m, i*128+grhAreaLen, data(8+i))
		}
	}),
}, {
	ID: "dg/ud/solicited-raises-an-event", Cite: cite("8", "dg/verbs/1"), Level: conformance.May,
	Title:   "A Send or immediate data raises an event only with solicited event, for an application that waits for solicited events",
	Sends:   "Sends of one segment and of two, and immediate data, with and without solicited event",
	Expects: "receives of all, and events for those with solicited event",
	Defects: []string{"ImmediateUnsolicited"}, Run: onHost(func(h *host) { h.checkSolicited(false) }),
}, {
	ID: "dg/ud/solicited-is-sent", Cite: cite("8", "dg/verbs/1"), Level: conformance.May,
	Title:   "A Send or immediate data has the opcode with solicited event only if its work request says so",
	Sends:   "nothing; the device sends a Send and immediate data, with and without solicited event",
	Expects: "the four opcodes",
	Defects: []string{"ImmediateSentUnsolicited"}, Run: onPeer(func(p *peer) {
		for i, t := range []struct {
			op    verbs.WROpcode
			flags verbs.SendFlags
			want  iwarp.Opcode
		}{
			{verbs.OpSend, 0, iwarp.OpSend},
			{verbs.OpSend, verbs.SendSolicited, iwarp.OpSendSE},
			{verbs.OpSendImm, 0, iwarp.OpImmediate},
			{verbs.OpSendImm, verbs.SendSolicited, iwarp.OpImmediateSE},
		} {
			wr := p.wr(uint64(i), t.op, 0, 0)
			wr.Flags |= t.flags
			wr.Imm = immediateData
			p.expectSent(wr, iwarp.UD(iwarp.Op(t.want)))
		}
	}),
}}

// checkSolicited sends every kind of message that takes a receive to a queue pair whose application
// waits for solicited events, and fails the case unless only the messages with a solicited event
// raise an event. The messages are sent in RD packets if reliable, else in UD packets.
func (h *host) checkSolicited(reliable bool) {
	events := rig.Result(h.Device.CreateCompChannel())(h, "a completion channel")
	h.CQ = h.CreateCQ(verbs.CQInit{Depth: 64, Channel: events})
	p := h.newQP(setup{receives: 8}).peer(0)
	messages := [][]iwarp.Segment{
		{iwarp.Send(1, data(16))},
		{iwarp.SendSE(2, data(16))},
		sendSegmentsOf(3, data(16), 8), iwarp.SendSE(4, data(16)).Segments(untaggedLen + 8),
		{iwarp.Immediate(5, immediateData)},
		{iwarp.ImmediateSE(6, immediateData)},
	}
	if reliable {
		p.openFlow(zeroLengthWrite())
		if h.Caps.Has(verbs.CapMWType2 | verbs.CapSendInv) {
			for i, op := range []iwarp.Opcode{iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate} {
				key := p.BindWindow(p.qp, p.Memory(64, verbs.AccessLocalWrite|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteWrite)
				messages = append(messages, []iwarp.Segment{iwarp.SendInvalidate(uint32(i+7), uint32(key), data(16)).Opcode(op)})
			}
		}
	}
	for i, segments := range messages {
		h.Must("a CQ that can be armed", h.CQ.ReqNotify(true))
		for _, s := range segments {
			if reliable {
				p.expectDelivered(s)
			} else {
				p.sendSegments(s)
			}
		}
		h.ExpectCompletion(uint64(i+1), verbs.WCSuccess)
		h.syncDevice()
		_, err := events.Wait(0)
		op := segments[0].Op()
		solicited := op == iwarp.OpSendSE || op == iwarp.OpSendSEInvalidate || op == iwarp.OpImmediateSE
		h.Check((err == nil) == solicited, fmt.Sprintf("for %v an event of the CQ: %t", op, solicited), "%t", err == nil)
	}
}

// expectNothingElse expects no further response, completion or event.
func (h *host) expectNothingElse() {
	h.expectIdle()
	h.ExpectNoEvent()
}
