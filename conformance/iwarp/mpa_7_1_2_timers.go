package iwarp

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// startupLimit is when start-up with a peer that says nothing must have been given up.
// RFC 5044 names no time; known stacks have 5 to 20 seconds.
const startupLimit = 2 * time.Minute

// onPartialRequest makes a case of a peer that sends n octets of a Request and no more.
func onPartialRequest(n int) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		l := h.listen()
		h.dialAndSend(l, revision1Request().Append(nil)[:n]).expectEndWithin(startupLimit)
		h.expectNoConnRequest(l)
	})
}

// onPartialReply makes a case of a peer that sends n octets of a Reply and no more.
func onPartialReply(n int) func(*conformance.Bench) error {
	return onActive(setup{}, func(hs *handshake) {
		hs.recvFrame()
		hs.write(iwarp.Reply().Append(nil)[:n])
		hs.expectEndWithin(startupLimit)
		hs.expectConnError()
	})
}

var mpaTimerCases = []conformance.Case{
	{
		ID:    "mpa/timer/no-request",
		Title: "A responder that hears no Request gives up in time",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/12"), Level: conformance.Should, Needs: needsConn,
		Labels:  []string{conformance.Slow},
		Sends:   "nothing",
		Expects: "the end of the stream within two minutes",
		Defects: []string{"NoTimers"},
		Run:     onPartialRequest(0),
	},
	{
		ID:    "mpa/timer/part-of-a-request",
		Title: "A responder that hears part of a Request gives up in time",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/13"), Level: conformance.Should, Needs: needsConn,
		Labels:  []string{conformance.Slow},
		Sends:   "ten octets of a Request",
		Expects: "the end of the stream within two minutes",
		Defects: []string{"TimerStopsEarly"},
		Run:     onPartialRequest(10),
	},
	{
		ID:    "mpa/timer/no-reply",
		Title: "An initiator that hears no Reply gives up in time",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/13"), Level: conformance.Should, Needs: needsConn,
		Labels:  []string{conformance.Slow},
		Sends:   "nothing",
		Expects: "the end of the stream within two minutes, and a connect that fails",
		Defects: []string{"NoTimers"},
		Run:     onPartialReply(0),
	},
	{
		ID:    "mpa/timer/part-of-a-reply",
		Title: "An initiator that hears part of a Reply gives up in time",
		Cite:  cite(rfc5044, "7.1.2", "rfc5044/7.1.2/13"), Level: conformance.Should, Needs: needsConn,
		Labels:  []string{conformance.Slow},
		Sends:   "ten octets of a Reply",
		Expects: "the end of the stream within two minutes, and a connect that fails",
		Defects: []string{"TimerStopsEarly"},
		Run:     onPartialReply(10),
	},
}
