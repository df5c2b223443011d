package iwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// Terminates have the sizes of RFC 5040 section 4.8 in either bit order: 22 octets without
// quoted headers.
func TestTerminateContentLenMatchesEncoding(t *testing.T) {
	for _, c := range []struct {
		about iwarp.Segment
		want  int
	}{
		{iwarp.Write(1, 2, data(16)), 38 - 22},
		{iwarp.Send(1, data(16)), 42 - 22},
		{iwarp.ReadRequest(1, iwarp.At(1, 2), 3, iwarp.At(4, 5)), 70 - 22},
	} {
		sent := iwarp.Terminate(iwarp.DDPCatastrophic).About(c.about).Append(nil)
		got := iwarp.ReceivedFPDU{Segment: iwarp.ParseSegment(sent), ULPDU: sent}
		if n := terminateContentLen(parseTerminate(got).Terminate); n != c.want {
			t.Errorf("about %v: %d octets, want %d", c.about, n, c.want)
		}
		if word, rest := terminateControl(got); len(word) != 4 || len(rest) != c.want {
			t.Errorf("about %v: %d and %d octets, want 4 and %d", c.about, len(word), len(rest), c.want)
		}
	}
}

// A flag without its header changes the expected length.
func TestTerminateContentLenCountsMissingHeaders(t *testing.T) {
	h := iwarp.Terminate(iwarp.RDMAPCannotInvalidate).About(iwarp.Send(1, nil)).Terminate
	h.HasRDMAP = new(true)
	sent := iwarp.Segment{Terminate: h}.Opcode(iwarp.OpTerminate).Append(nil)
	got := iwarp.ReceivedFPDU{Segment: iwarp.ParseSegment(sent), ULPDU: sent}
	if _, rest := terminateControl(got); len(rest) == terminateContentLen(parseTerminate(got).Terminate) {
		t.Errorf("%d octets follow, as a flag without its header announces", len(rest))
	}
}
