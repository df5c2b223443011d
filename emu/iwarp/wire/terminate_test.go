package wire

import (
	"strings"
	"testing"
)

// siw on a little-endian machine has its own order of bit fields. A few Terminates are valid in
// both orders: they mean one error during start-up, and another in operation.
func TestGuessTerminateOrder(t *testing.T) {
	for _, tc := range []struct {
		bytes     string
		operation TermError // after start-up
		startup   TermError
		siw       [2]bool
	}{
		{"20020000", TermMPACRC, TermMPACRC, [2]bool{false, false}},
		{"02020000", TermMPACRC, TermMPACRC, [2]bool{true, true}},
		{"02030000", TermMPAMarker, TermMPAMarker, [2]bool{true, true}},
		{"02040000", TermMPAFrame, TermMPAFrame, [2]bool{true, true}},
		{"02050000", TermOpVersion, TermOpVersion, [2]bool{false, false}},
		{"02060000", TermOpOpcode, TermMPANotEnoughReads, [2]bool{false, true}},
		{"02070000", TermOpStream, TermMPANoRTR, [2]bool{false, true}},
		{"02080000", TermOpGlobal, TermOpGlobal, [2]bool{false, false}},
		{"02ff0000", TermOpUnspecified, TermOpUnspecified, [2]bool{false, false}},
		{"20050000", TermOpVersion, TermMPALocal, [2]bool{true, false}},
		{"20060000", TermOpOpcode, TermMPANotEnoughReads, [2]bool{true, false}},
		{"20070000", TermMPANoRTR, TermMPANoRTR, [2]bool{false, false}},
		{"12060000", TermUntaggedVersion, TermUntaggedVersion, [2]bool{false, false}},
		{"21060000", TermUntaggedVersion, TermUntaggedVersion, [2]bool{true, true}},
		{"11000000", TermTaggedSTag, TermTaggedSTag, [2]bool{false, false}},
		{"2007" + "0300" + "0000" + "414100000000000000010000000100000000", TermOpStream, TermOpStream, [2]bool{true, true}},
		{"0207" + "c000" + "0012" + "414100000000000000010000000100000000", TermOpStream, TermOpStream, [2]bool{false, false}},
	} {
		b := fromHex(t, tc.bytes)
		for i, want := range []TermError{tc.operation, tc.startup} {
			order := GuessTerminateOrder(b, i == 0)
			var got Terminate
			if rest, err := got.ParseWithOrder(b, order); err != nil || len(rest) != 0 {
				t.Errorf("%s: %d octets left, %v", tc.bytes, len(rest), err)
				continue
			}
			if got.Error != want || (order == OrderSiw) != tc.siw[i] {
				t.Errorf("%s, in operation %v: %v in the order of %v; want %v, siw %v", tc.bytes, i == 0, got.Error, order, want, tc.siw[i])
			}
		}
	}
}

func TestTermErrorString(t *testing.T) {
	for e, want := range map[TermError]string{
		TermUntaggedNoBuffer: "1/2/02 DDP: invalid MSN, no buffer",
		TermMPACRC:           "2/0/02 MPA: CRC error",
		TermProtUnspecified:  "0/1/ff RDMAP: unspecified protection error",
		{LayerRDMAP, 0, 77}:  "0/0/4d RDMAP: local catastrophic error",
		{LayerDDP, 0, 0}:     "1/0/00 DDP: local catastrophic error",
		{LayerDDP, 2, 0}:     "1/2/00 DDP: unassigned error",
		{3, 0, 0}:            "3/0/00 layer 3: unassigned error",
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, e := range []TermError{TermOpVersion, TermOpStream, TermTaggedVersion, TermUntaggedTooLong, TermMPAClosed, TermMPANoRTR} {
		if strings.Contains(e.String(), "unassigned") {
			t.Errorf("%v has no text", e)
		}
	}
}
