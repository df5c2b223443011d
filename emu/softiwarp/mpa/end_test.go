package mpa

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// A refusal is one whatever its format: a responder that does not know the
// enhanced start-up may refuse in its own.
func TestRefusalNeedNotBeEnhanced(t *testing.T) {
	refusal := reply(1, 2, 3)
	refusal.Reject = true
	_, e := initiates(t, Config{IRD: 1, ORD: 1}, refusal)
	if e.Kind != EventRejected || string(e.PrivateData) != "\x01\x02\x03" {
		t.Errorf("an enhanced Request refused without enhancements: %+v", e)
	}
	_, e = initiates(t, plainConfig(), enhance(refusal, wire.Enhanced{}))
	if e.Kind != EventRejected || len(e.PrivateData) != 3 {
		t.Errorf("a plain Request refused with enhancements: %+v", e)
	}
}

// Only an initiator can try again in another way.
func TestRespondersAreNotToldToFallBack(t *testing.T) {
	var n Counters
	c, _ := asks(t, Config{Counters: &n}, enhance(request(), wire.Enhanced{IRD: 1, ORD: 1}))
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

// A refusal may come before all of the Request has left: the rest is of no use.
func TestRefusedRequestIsNotFinished(t *testing.T) {
	c := NewInitiator(0, plainConfig())
	refusal := reply()
	refusal.Reject = true
	if e := giveOne(t, c, refusal.Append(nil)); e.Kind != EventRejected {
		t.Fatalf("%+v", e)
	}
	if b := written(c); len(b) > 0 || !over(c) {
		t.Errorf("refused, and %d octets are left; over %v", len(b), over(c))
	}
}

// What the defect holds back is not forgotten when the stream ends.
func TestStuckOctetsAreMissedAtTheEnd(t *testing.T) {
	c := responding(t, Config{Policy: Policy{FPDUPolicy: FPDUPolicy{HoldFirst: true}}}, crcOn, crcOn)
	give(c, stream(crcOn, pattern(18, 0)))
	c.InputEOF()
	failsWith(t, one(t, drain(c)), wire.TermMPAClosed, ErrTruncatedFPDU)
}

// What comes together with the first FPDU wakes a responder that has overlooked it.
func TestTwoFPDUsAtOnceAreNotStuck(t *testing.T) {
	c := responding(t, Config{Policy: Policy{FPDUPolicy: FPDUPolicy{HoldFirst: true}}}, crcOn, crcOn)
	if got := give(c, stream(crcOn, pattern(18, 0), pattern(14, 0))); len(got) != 2 {
		t.Errorf("%d events, want 2", len(got))
	}
}
