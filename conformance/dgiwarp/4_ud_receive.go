package dgiwarp

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Limits of reassembly.
const (
	maxAssemblies   = 64
	assemblyTimeout = 100 * time.Millisecond
)

// sendSegmentsOf splits a Send into segments of n octets.
func sendSegmentsOf(msn uint32, message []byte, n int) []iwarp.Segment {
	return iwarp.Send(msn, message).Segments(untaggedLen + n)
}

var udReceiveCases = []conformance.Case{{
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
	Sends:   "messages of two segments with the same MSN from two hosts and from two queue pairs of one host, first halves before second ones",
	Expects: "a receive of each message as it was sent",
	Defects: []string{"SourcesMixed"}, Run: onSetup(setup{receives: 3, recvLen: 80}, func(p *peer) {
		host, pair := p.peer(0), p.peer(0)
		host.route = p.defaultRoute(1)
		pair.qpn++
		sources := []*peer{p, host, pair}
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
	Sends:   "half a message, the rest 200 ms later, and a complete message",
	Expects: "a receive of the complete message only",
	Defects: []string{"PiecesUnbounded"}, Run: onSetup(setup{receives: 2, recvLen: 80}, func(p *peer) {
		halves := sendSegmentsOf(1, data(80), 40)
		p.sendSegments(halves[0])
		p.Sleep(2 * assemblyTimeout)
		p.sendSegments(halves[1], iwarp.Send(2, data(16)))
		p.expectRecv(1, data(16))
		p.expectNothingElse()
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
	ID: "dg/ud/shared-receives", Cite: cite("4", "dg/ud/11"), Level: conformance.May, Needs: verbs.CapSRQ,
	Title:   "UD queue pairs can use a shared receive queue",
	Sends:   "Sends to two queue pairs with one shared receive queue",
	Expects: "receives of that queue, in the order of the Sends",
	Defects: []string{"UDIgnoresSRQ"}, Run: onHost(func(h *host) {
		srq, err := h.Device.CreateSRQ(verbs.SRQInit{PD: h.PD, MaxWR: 16, MaxSGE: 1})
		h.Must("a shared receive queue", err)
		m := h.Memory(1024, verbs.AccessLocalWrite)
		for i := range 4 {
			h.PostRecv(srq, uint64(i+1), m.SGE(i*128, 128))
		}
		qs := []*deviceQP{h.newQP(setup{srq: srq}), h.newQP(setup{srq: srq})}
		for i := range 4 {
			q := qs[i%2]
			q.peer(0).sendSegments(iwarp.Send(uint32(i), data(8+i)))
			wc := h.ExpectRecv(uint64(i+1), areaLen+8+i)
			h.Check(wc.QPN == q.qp.QPN(), "a completion that names the queue pair", "%#x", uint32(wc.QPN))
			h.ExpectBytes(m, i*128+areaLen, data(8+i))
		}
	}),
}}

// expectNothingElse fails the case if earlier packets had further effects: a response, a
// completion, an event.
func (h *host) expectNothingElse() {
	h.expectIdle()
	h.ExpectNoEvent()
}
