package iwarp

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// startupLimit is the longest time that a device may wait for a start-up frame. RFC 5044 names
// none; known stacks wait for 5 to 20 seconds.
const startupLimit = 2 * time.Minute

// onPartialRequest makes the body of a case in which the peer sends n octets of a Request only.
func onPartialRequest(n int) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		l := h.listen()
		h.dialAndSend(l, revision1Request().Append(nil)[:n]).expectEndWithin(startupLimit)
		h.expectNoConnRequest(l)
	})
}

// onPartialReply makes the body of a case in which the peer sends n octets of a Reply only.
func onPartialReply(n int) func(*conformance.Bench) error {
	return onActive(setup{}, func(hs *handshake) {
		hs.recvFrame()
		hs.write(iwarp.Reply().Append(nil)[:n])
		hs.expectEndWithin(startupLimit)
		hs.expectConnError()
	})
}

var mpaTimerCases = conformance.Group{Labels: []string{conformance.Slow}}.Cases([]conformance.Case{{
	ID: "mpa/timer/no-request", Cite: cite("rfc5044/7.1.2/12"), Level: conformance.Should,
	Title:   "A responder that receives no Request closes the stream",
	Sends:   "nothing",
	Expects: "the end of the stream within two minutes",
	Defects: []string{"NoTimers"}, Run: onPartialRequest(0),
}, {
	ID: "mpa/timer/part-of-a-request", Cite: cite("rfc5044/7.1.2/13"), Level: conformance.Should,
	Title:   "A responder that receives part of a Request closes the stream",
	Sends:   "ten octets of a Request",
	Expects: "the end of the stream within two minutes",
	Defects: []string{"TimerStopsEarly"}, Run: onPartialRequest(10),
}, {
	ID: "mpa/timer/no-reply", Cite: cite("rfc5044/7.1.2/13"), Level: conformance.Should,
	Title:   "An initiator that receives no Reply closes the stream",
	Sends:   "nothing",
	Expects: "the end of the stream within two minutes, and a connect that fails",
	Defects: []string{"NoTimers"}, Run: onPartialReply(0),
}, {
	ID: "mpa/timer/part-of-a-reply", Cite: cite("rfc5044/7.1.2/13"), Level: conformance.Should,
	Title:   "An initiator that receives part of a Reply closes the stream",
	Sends:   "ten octets of a Reply",
	Expects: "the end of the stream within two minutes, and a connect that fails",
	Defects: []string{"TimerStopsEarly"}, Run: onPartialReply(10),
}})
