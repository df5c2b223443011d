package mpa

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// A rejection need not be enhanced: a responder without enhanced start-up uses its own format.
func TestRejectionNeedNotBeEnhanced(t *testing.T) {
	refusal := reply(1, 2, 3)
	refusal.Reject = true
	_, e := initiates(t, Config{IRD: 1, ORD: 1}, refusal)
	if e.Kind != EventRejected || string(e.PrivateData) != "\x01\x02\x03" {
		t.Errorf("an enhanced Request rejected without enhancements: %+v", e)
	}
	_, e = initiates(t, plainConfig(), enhance(refusal, wire.Enhanced{}))
	if e.Kind != EventRejected || len(e.PrivateData) != 3 {
		t.Errorf("a plain Request rejected with enhancements: %+v", e)
	}
}

// Only an initiator can fall back to another revision.
func TestResponderErrorsHaveNoFallback(t *testing.T) {
	var n Counters
	c, _ := receivesRequest(t, Config{Counters: &n}, enhance(request(), wire.Enhanced{IRD: 1, ORD: 1}))
	c.InputEOF()
	if e := one(t, drain(c)); e.Kind != EventEOF || e.Fallback || n.Fallbacks != 0 {
		t.Errorf("%+v, %d fallbacks", e, n.Fallbacks)
	}
	c = responding(t, Config{Counters: &n}, crcOn, crcOn)
	c.Lost()
	if e := one(t, drain(c)); e.Fallback || n.Fallbacks != 0 {
		t.Errorf("%+v, %d fallbacks", e, n.Fallbacks)
	}
}

// A rejection may arrive before all of the Request is sent: the rest is discarded.
func TestRejectedRequestIsDiscarded(t *testing.T) {
	c := NewInitiator(0, plainConfig())
	refusal := reply()
	refusal.Reject = true
	if e := giveOne(t, c, refusal.Append(nil)); e.Kind != EventRejected {
		t.Fatalf("%+v", e)
	}
	if b := written(c); len(b) > 0 || !over(c) {
		t.Errorf("rejected, %d octets to send; over %v", len(b), over(c))
	}
}

// Octets that HoldFirst holds back are reported as truncated when the stream ends.
func TestEOFReportsHeldFPDU(t *testing.T) {
	c := responding(t, Config{Policy: Policy{FPDUPolicy: FPDUPolicy{HoldFirst: true}}}, crcOn, crcOn)
	give(c, stream(crcOn, pattern(18, 0)))
	c.InputEOF()
	failsWith(t, one(t, drain(c)), wire.TermMPAClosed, ErrTruncatedFPDU)
}

// More input with the first FPDU releases an FPDU that HoldFirst holds back.
func TestSecondFPDUReleasesHeldFPDU(t *testing.T) {
	c := responding(t, Config{Policy: Policy{FPDUPolicy: FPDUPolicy{HoldFirst: true}}}, crcOn, crcOn)
	if got := give(c, stream(crcOn, pattern(18, 0), pattern(14, 0))); len(got) != 2 {
		t.Errorf("%d events, want 2", len(got))
	}
}
