package iwarp

import (
	"bytes"
	"encoding/hex"
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
		n := payloadToMarker(position)
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
		{conformance.Event{Kind: conformance.EventReceived, Stream: 1, Data: []byte("no frame at all")}, "15 octets: 6e 6f"},
	} {
		if got := describeEvent(&tc.event); !strings.Contains(got, tc.want) {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestPiecesJoinToFrame(t *testing.T) {
	b := data(41)
	for _, cut := range []func([]byte) [][]byte{onePiece, threePieces} {
		if got := slices.Concat(cut(b)...); !slices.Equal(got, b) {
			t.Errorf("got %d octets of %d, or the content differs", len(got), len(b))
		}
	}
}

func TestEnhancedFlags(t *testing.T) {
	e := iwarp.Val(requestWithFlags(flagA | flagD).Enhanced)
	if got := flagsOf(e); got != flagA|flagD || got.String() != "AD" || !got.offersRTR() {
		t.Errorf("%v", got)
	}
	if got := flagsOf(e).rtrs(); got != iwarp.RTRRead {
		t.Errorf("offered %v", got)
	}
	if got := flagsOf(iwarp.Val(revision1Request().Enhanced)); got.String() != "no flags" || got.offersRTR() {
		t.Errorf("%v of a frame that is not enhanced", got)
	}
}

// The expected headers are from frames of Linux's siw.
func TestHeaderOctetsMatchSiw(t *testing.T) {
	for want, got := range map[string][]byte{
		"c140f13a5300000055c99661b010":         taggedHeader(0x40, 0xf13a5300, 0x55c99661b010),
		"414300000000000000000000000100000000": untaggedHeaderOctets(0x41, 0x43, 0, 0),
		"414100000000000000010000000100000000": untaggedHeaderOctets(0x41, 0x41, 1, 0),
	} {
		if hex.EncodeToString(got) != want {
			t.Errorf("got %x, want %s", got, want)
		}
	}
}

// Header helpers and packet/iwarp build the same octets.
func TestHeaderOctetsMatchPacketModel(t *testing.T) {
	for _, c := range []struct {
		octets []byte
		frame  iwarp.Segment
	}{
		{taggedHeader(0x42, peerSTag, peerTO), iwarp.ReadResponse(peerSTag, peerTO, nil)},
		{untaggedHeaderOctets(0x01, 0x43, 0, 32), iwarp.Send(1, nil).MO(32).Last(false)},
		{untaggedHeaderOctets(0x41, 0x4b, 3, 0), iwarp.AtomicResponse(1, 0, 0)},
	} {
		if got := c.frame.Append(nil); !bytes.HasPrefix(got, c.octets) {
			t.Errorf("%v is % x, want % x", c.frame, got, c.octets)
		}
	}
}

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
		if n := terminateContentLen((&conn{}).parseTerminate(got).Terminate); n != c.want {
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
	if _, rest := terminateControl(got); len(rest) == terminateContentLen((&conn{}).parseTerminate(got).Terminate) {
		t.Errorf("%d octets follow, as a flag without its header announces", len(rest))
	}
}

// Each frame must be invalid, and truncated exactly if it is marked as truncated: else a case
// fails for a correct device, or waits for a timer.
func TestInvalidFramesAreInvalid(t *testing.T) {
	for _, good := range []startupFrame{enhancedRequest(), iwarp.Reply().Depths(16, 16)} {
		for _, f := range invalidFrames(good) {
			got, rest, whole := iwarp.ParseStartupFrame(f.octets)
			switch {
			case whole == f.truncated:
				t.Errorf("%s: complete %t, truncated %t", f.name, whole, f.truncated)
			case f.truncated:
			case len(rest) > 0:
				t.Errorf("%s: %d octets after the frame", f.name, len(rest))
			case *got.Key == *good.Key && *got.PDLength <= 512 && *got.PDLength >= 4 && *got.Rev <= 2:
				t.Errorf("%s: %v is valid", f.name, got)
			}
		}
	}
}
