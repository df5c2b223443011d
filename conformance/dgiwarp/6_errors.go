package dgiwarp

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// setupIsolated makes queue pairs of the device survive errors of a peer.
var setupIsolated = conformance.Setup{Isolate: true}

// Limits of error messages.
const (
	errorBurst     = 16
	errorRate      = 100
	maxErrorGrowth = 30 // octets
)

var errorCases = []conformance.Case{{
	ID: "dg/error/stops-the-queue-pair-and-is-told", Cite: cite("6", "dg/err/1"),
	Title:   "An invalid segment raises an event, and moves the queue pair to the error state",
	Sends:   "a Write with an unknown key, to one of two queue pairs",
	Expects: "an event, the error state, and flushed receives; the other queue pair still works",
	Defects: []string{"ErrorsSilent"}, Run: onHost(func(h *host) {
		q, other := h.newQP(setup{receives: 2}), h.newQP(setup{receives: 2})
		q.peer(0).sendSegments(unknownKeyWrite())
		q.expectErrorState()
		q.ExpectCompletions(verbs.WCWRFlushErr, 1, 2)
		other.peer(0).sendSegments(iwarp.Send(1, data(8)))
		other.expectRecv(1, data(8))
	}),
}, {
	ID: "dg/error/every-kind-is-an-error", Cite: cite("6", "dg/err/1", "dg/addr/2", "dg/err/3"),
	Title:   "Every error of DDP and RDMAP is detected, and reported to the peer with its code",
	Sends:   "segments with each kind of error, each to a separate queue pair",
	Expects: "an error message with the cause, an event, the error state, and nothing delivered",
	Defects: []string{"QueueNumberIgnored", "ErrorsSilent"}, Run: onHost(func(h *host) {
		for _, m := range peerErrors {
			h.Note("%s", m.name)
			q := h.newQP(setup{receives: 1})
			p := q.peer(0)
			wrong := m.segment(q)
			p.sendSegments(wrong)
			p.expectErrorMessage(wrong, m.causes...)
			p.expectErrorState()
			p.expectFailure(1)
			p.ExpectUnchanged(q.targetMem, 0, 0)
		}
	}),
}, {
	ID: "dg/error/can-be-isolated", Cite: cite("6", "dg/err/2"), Level: conformance.Should, Setup: setupIsolated,
	Title:   "A queue pair can be configured so that an error affects its message only",
	Sends:   "each kind of error to one queue pair, and a Send after each",
	Expects: "an error message for each, and a receive of every Send",
	Defects: []string{"IsolationIgnored"}, Run: onSetup(setup{receives: 16}, func(p *peer) {
		id := uint64(1)
		for _, m := range peerErrors {
			if m.consumesReceive {
				continue // the document does not specify whether this error consumes a receive
			}
			wrong := m.segment(p.deviceQP)
			p.sendSegments(wrong)
			p.expectErrorMessage(wrong, m.causes...)
			p.expectReceived(id, iwarp.Send(uint32(id+1), data(8)))
			id++
		}
		p.ExpectState(p.qp, verbs.QPStateRTS)
		p.PostSend(p.qp, p.sendWR(99, 0, 8))
		p.expect(iwarp.UD(iwarp.Send(1, p.localMem.Buf[:8])))
	}),
}, {
	ID: "dg/error/message-names-the-offender", Cite: cite("6", "dg/err/3"),
	Title:   "An error message is a Terminate on queue 2 with the DDP header of the invalid segment, in a UD packet",
	Sends:   "a Send with MSN 77 that is longer than the receive, and a Write with an unknown key",
	Expects: "a Terminate with length and DDP header of the segment",
	Defects: []string{"ErrorWithoutHeader"}, Run: onHost(func(h *host) {
		reported := func(wrong iwarp.Segment, cause iwarp.Cause) {
			p := h.newQP(setup{receives: 1}).peer(0)
			p.sendSegments(wrong)
			p.expect(iwarp.UD(iwarp.Terminate(cause).About(wrong).QN(2).MO(0).Last(true)))
		}
		reported(iwarp.Send(77, data(65)), iwarp.DDPUntaggedTooLong)
		reported(unknownKeyWrite(), iwarp.DDPTaggedInvalidSTag)
	}),
}, {
	ID: "dg/error/message-is-sent-once", Cite: cite("6", "dg/err/4"),
	Title:   "An error message on UD is sent once",
	Sends:   "a Write with an unknown key, and nothing for a minute",
	Expects: "one error message",
	Defects: []string{"ErrorsFlood"}, Run: onPeer(func(p *peer) {
		p.expectErrorFor(unknownKeyWrite())
		p.expectSilence(time.Minute)
	}),
}, {
	ID: "dg/error/messages-are-limited", Cite: cite("6", "dg/err/5"),
	Title:   "At most 16 error messages are sent at once, and 100 per second",
	Sends:   "an invalid segment to each of 200 queue pairs: 50 at once, the others over a second",
	Expects: "some error messages: 16 at most at first, and 116 in all",
	Defects: []string{"ErrorsFlood"}, Run: onHost(func(h *host) {
		const all, first = 200, 50
		var peers []*peer
		for range all {
			peers = append(peers, h.newQP(setup{memLen: 64}).peer(0))
		}
		h.syncDevice()
		begun := h.Now()
		for _, p := range peers[:first] {
			p.sendSegments(unknownKeyWrite())
		}
		sent := len(h.drain(0))
		may := errorBurst + int((h.Now()-begun)*errorRate/time.Second) + 1
		h.Check(sent > 0 && sent <= may, fmt.Sprintf("1 to %d error messages", may), "%d", sent)
		for _, p := range peers[first:] {
			p.sendSegments(unknownKeyWrite())
			h.Sleep(time.Second / (all - first))
		}
		sent += len(h.drain(0))
		may = errorBurst + int((h.Now()-begun)*errorRate/time.Second) + 1
		h.Check(sent <= may, fmt.Sprintf("at most %d error messages in %v", may, h.Now()-begun), "%d", sent)
	}),
}, {
	ID: "dg/error/message-is-no-amplifier", Cite: cite("6", "dg/err/5"),
	Title:   "An error message is at most 30 octets longer than the packet it reports",
	Sends:   "segments with each kind of error, of minimum length",
	Expects: "error messages that are at most 30 octets longer",
	Defects: []string{"ErrorsFlood"}, Run: onHost(func(h *host) {
		for _, wrong := range []iwarp.Segment{
			iwarp.Write(unknownSTag, 0, data(1)),
			iwarp.Send(1, nil).QN(9),
			iwarp.Send(1, nil).DV(2),
			iwarp.Op(iwarp.OpReadRequest),
			iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, iwarp.At(unknownSTag, 0)),
		} {
			p := h.newQP(setup{receives: 1}).peer(0)
			octets := len(iwarp.UD(wrong).Append(nil))
			p.sendSegments(wrong)
			a := p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate)))
			p.Check(len(a.Raw) <= octets+maxErrorGrowth, fmt.Sprintf("at most %d octets in response to %d", octets+maxErrorGrowth, octets), "%d", len(a.Raw))
		}
	}),
}, {
	ID: "dg/error/message-is-not-answered", Cite: cite("6", "dg/err/5", "dg/err/6"),
	Title:   "Invalid error messages are not answered with error messages",
	Sends:   "error messages, one without a header, of other versions, with an offset, with octets after, cut short",
	Expects: "no packet",
	Defects: []string{"ErrorsFlood"}, Run: onHost(func(h *host) {
		good := iwarp.Terminate(iwarp.DDPUntaggedTooLong).About(iwarp.Send(1, data(8)))
		for _, s := range []iwarp.Segment{
			good, iwarp.Terminate(iwarp.RDMAPInvalidSTag), good.DV(2), good.RV(2), good.MO(8),
			good.WithPayload(data(8)), iwarp.Op(iwarp.OpTerminate),
		} {
			h.newQP(setup{receives: 1}).peer(0).sendSegments(s)
			h.expectSilence(silencePeriod)
		}
	}),
}, {
	ID: "dg/error/message-changes-no-state", Cite: cite("6", "dg/err/6"),
	Title:   "A received UD error message raises an event, and changes no state",
	Sends:   "error messages about segments of the device, and a Send",
	Expects: "an event for each, the queue pair still works, a receive, and no error completion",
	Defects: []string{"ErrorMessageStops"}, Run: onPeer(func(p *peer) {
		sent := p.expectSent(p.sendWR(9, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
		for range 3 {
			p.send(terminateAbout(*sent.Segment))
			p.expectQPEvent()
			p.ExpectState(p.qp, verbs.QPStateRTS)
		}
		p.expectReceived(1, iwarp.Send(1, data(8)))
		p.expectSent(p.sendWR(10, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
	}),
}, {
	ID: "dg/error/failed-queue-pair-sends-nothing", Cite: cite("6", "dg/err/8"),
	Title:   "A queue pair in the error state receives and sends nothing",
	Sends:   "an invalid segment; then a Send and a Write, and the application posts a Send",
	Expects: "an error message, then nothing: memory unchanged, no packet, the Send flushed",
	Defects: []string{"ErrorQPGoesOn"}, Run: onSetup(setup{receives: 2}, func(p *peer) {
		p.expectErrorFor(unknownKeyWrite())
		p.expectErrorState()
		p.ExpectCompletions(verbs.WCWRFlushErr, 1, 2)
		if n, err := p.qp.PostSend([]verbs.SendWR{p.sendWR(3, 0, 8)}); err == nil && n == 1 {
			p.ExpectCompletion(3, verbs.WCWRFlushErr)
		}
		p.sendSegments(iwarp.Send(1, data(8)), p.writeToTarget(0, data(8)))
		p.expectNothingElse()
		p.ExpectUnchanged(p.targetMem, 0, 0)
		p.ExpectUnchanged(p.localMem, 0, 0)
	}),
}}

// expectErrorMessage fails the case unless the next packet is an error message about a segment
// with one of the causes.
func (p *peer) expectErrorMessage(wrong iwarp.Segment, causes ...iwarp.Cause) {
	a := p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate)))
	p.Check(slices.ContainsFunc(causes, func(c iwarp.Cause) bool {
		return iwarp.UD(iwarp.Terminate(c).Quoting(wrong)).Matches(a.ReceivedPacket)
	}), fmt.Sprintf("a Terminate for %v about %v", causes, wrong), "%v", a.Packet)
}
