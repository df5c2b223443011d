package engine

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

// No octet of a Write is placed before its FPDU is complete and its CRC is valid, unless one of two
// policies is set. No policy ignores access rights.
func TestWriteIsPlacedAfterCRCCheck(t *testing.T) {
	const half, whole = 20, 28 // octets of the FPDU
	for policy, want := range map[mpa.FPDUPolicy][2]string{
		{}:                       {"", ""},
		{DeliverPartial: true}:   {"ABCD", "ABCD"},
		{DeliverUnchecked: true}: {"", "ABCDEFGH"},
	} {
		for _, access := range []verbs.Access{allAccess, verbs.AccessLocalWrite} {
			h := newHost(t, func(cfg *Config, _ *iwarp.QueueConfig) { cfg.Policy.MPA.FPDUPolicy = policy })
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			r, mem := h.region(8, access)
			g := write(r.Key, r.Addr, []byte("ABCDEFGH"))
			b := k.framer.Append(nil, g.Append(nil))
			b[len(b)-1] ^= 1 // of the CRC
			if len(b) != whole {
				t.Fatalf("an FPDU of %d octets", len(b))
			}
			if access != allAccess {
				want = [2]string{}
			}
			for i, part := range [][]byte{b[:half], b[half:]} {
				k.give(0, part)
				if got := strings.TrimRight(string(mem), "\x00"); got != want[i] {
					t.Errorf("%+v, access %#x: %q placed of part %d", policy, access, got, i)
				}
			}
		}
	}
}
