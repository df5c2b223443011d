package model

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// parsed returns a frame with all fields.
func parsed(f iwarp.StartupFrame) iwarp.StartupFrame {
	f, _, _ = iwarp.ParseStartupFrame(f.Append(nil))
	return f
}

func TestMPAReplyFollowsRequest(t *testing.T) {
	enhanced := iwarp.Request().Depths(3, iwarp.NoNegotiation).PeerToPeer(iwarp.RTRRead)
	for name, test := range map[string]struct {
		request iwarp.StartupFrame
		verdict MPAVerdict
		check   func(iwarp.StartupFrame) bool
	}{
		"revision 1": {iwarp.Request(), MPAAccepted, func(f iwarp.StartupFrame) bool { return *f.Rev == 1 && !*f.S && *f.PDLength == 2 }},
		"enhanced": {enhanced, MPAAccepted, func(f iwarp.StartupFrame) bool {
			return *f.Rev == 2 && *f.S && *f.PDLength == 6 && *f.Enhanced.PeerToPeer
		}},
		"no negotiation": {enhanced, MPAAccepted, func(f iwarp.StartupFrame) bool {
			return *f.Enhanced.IRD == iwarp.NoNegotiation && f.Enhanced.ORD == nil
		}},
		"a wrong key":     {iwarp.Reply(), MPAMalformed, nil},
		"revision 3":      {iwarp.Request().Revision(3), MPAMalformed, nil},
		"PD_Length 513":   {iwarp.Request().PrivateLength(513), MPAMalformed, nil},
		"reserved and R":  {iwarp.Request().ReservedBits(15).Reject(true), MPAAccepted, func(f iwarp.StartupFrame) bool { return *f.Reserved == 0 && !*f.R }},
		"RTRs without A":  {iwarp.Request().Depths(1, 1).EditEnhanced(func(e *iwarp.Enhanced) { e.ReadRTR = new(true) }), MPAAccepted, func(f iwarp.StartupFrame) bool { return !*f.Enhanced.ReadRTR }},
		"markers and CRC": {iwarp.Request().CRC(false), MPAAccepted, func(f iwarp.StartupFrame) bool { return *f.C && !*f.M }},
	} {
		d := MPA{CRC: true, Param: verbs.ConnParam{PrivateData: []byte{1, 2}}}
		f, verdict := d.Reply(parsed(test.request))
		if verdict != test.verdict || test.check != nil && !test.check(f) {
			t.Errorf("%s: verdict %d, want %d; %v", name, verdict, test.verdict, f)
		}
	}
}

func TestMPAChecksDepthsOfReply(t *testing.T) {
	d := MPA{Param: verbs.ConnParam{InitiatorDepth: 8, ResponderResources: 4}}
	request := parsed(iwarp.Request().Depths(3, 5))
	for _, test := range []struct {
		ird, ord uint16
		ok       bool
	}{{5, 3, true}, {4, 1, true}, {5, 4, false}, {6, 3, false}} {
		if err := d.CheckReply(request, parsed(iwarp.Reply().Depths(test.ird, test.ord))); (err == nil) != test.ok {
			t.Errorf("IRD %d, ORD %d: %v", test.ird, test.ord, err)
		}
	}
}
