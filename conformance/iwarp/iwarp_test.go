package iwarp

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

func TestSuiteIsWellFormed(t *testing.T) {
	for _, err := range Suite().Check() {
		t.Error(err)
	}
}

// The values are those of RFC 5044 section 4.5 for common MSS values.
func TestMULPDUFormula(t *testing.T) {
	for _, tc := range []struct {
		mss     int
		markers bool
		want    int
	}{
		{1448, false, 1442},
		{1449, false, 1442},
		{1451, false, 1442},
		{1460, false, 1454},
		{1448, true, 1430},
		{1460, true, 1442},
		{88, false, 128},
		{65495, false, 64768},
	} {
		if got := mulpdu(tc.mss, tc.markers); got != tc.want {
			t.Errorf("mulpdu(%d, %t) = %d, want %d", tc.mss, tc.markers, got, tc.want)
		}
	}
}

// The message ends at the next marker from every position in the stream.
func TestPayloadToMarkerEndsAtMarker(t *testing.T) {
	for position := uint64(0); position < 480; position += 4 {
		n := payloadToMarker(position, ddpUntaggedLen)
		if n < 0 {
			continue
		}
		f := iwarp.Framer{Markers: true, CRC: true, Position: position}
		f.Append(nil, iwarp.Send(1, data(n)))
		if f.Position != markerInterval {
			t.Errorf("from %d, %d octets end at %d", position, n, f.Position)
		}
	}
}

func TestDescribeEvent(t *testing.T) {
	plain, marked := iwarp.Framer{CRC: true}, iwarp.Framer{CRC: true, Markers: true, Position: 480}
	for _, tc := range []struct {
		event conformance.Event
		want  string
	}{
		{conformance.Event{Kind: conformance.EventNote, Text: "a note"}, "a note"},
		{conformance.Event{Kind: conformance.EventReceivedFIN, Stream: 1}, "FIN"},
		{conformance.Event{Kind: conformance.EventReset, Stream: 2}, "(stream 2) RST"},
		{conformance.Event{Kind: conformance.EventSent, Stream: 1, Data: enhancedRequest().Append(nil)}, "MPA REQUEST rev 2 C S ird 16"},
		{conformance.Event{Kind: conformance.EventSent, Stream: 1, Data: enhancedRequest().Append(nil)[:19]}, "19 octets of a start-up frame"},
		{
			conformance.Event{Kind: conformance.EventReceived, Stream: 1, Data: plain.Append(plain.Append(nil, iwarp.Send(1, data(5))), iwarp.Send(2, nil))},
			"SEND msn 1 5 B last | SEND msn 2 0 B last",
		},
		{conformance.Event{Kind: conformance.EventReceived, Stream: 1, Data: plain.Append(nil, iwarp.Send(3, nil).BadCRC())}, "wrong"},
		{conformance.Event{Kind: conformance.EventReceived, Stream: 1, Data: marked.Append(nil, iwarp.Send(1, data(100)))}, "SEND msn 1 100 B last (with markers)"},
		{conformance.Event{Kind: conformance.EventReceived, Stream: 1, Data: []byte("something else")}, "14 octets: 73 6f"},
	} {
		if got := describeEvent(&tc.event); !strings.Contains(got, tc.want) {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// The pieces of a frame join to the frame.
func TestPiecesJoinToTheFrame(t *testing.T) {
	b := data(41)
	for _, cut := range []func([]byte) [][]byte{onePiece, threePieces} {
		if got := slices.Concat(cut(b)...); !slices.Equal(got, b) {
			t.Errorf("got %d octets of %d, or other content", len(got), len(b))
		}
	}
}

func TestEnhancedFlags(t *testing.T) {
	e := enhancedOf(requestWithFlags(enhancedFlags{a: true, d: true}))
	if got := flagsOf(e); got != (enhancedFlags{a: true, d: true}) || got.String() != "AD" || !got.offersRTR() {
		t.Errorf("%v", got)
	}
	if got := offeredRTRs(e); got != iwarp.RTRRead {
		t.Errorf("offered %v", got)
	}
	if got := flagsOf(enhancedOf(revision1Request())); got.String() != "no flags" || got.offersRTR() {
		t.Errorf("%v of a frame that is not enhanced", got)
	}
}
