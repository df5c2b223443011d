package engine

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// No octet of a Write is placed before its FPDU is whole and its CRC was found
// right. Each of the two has a defect that forgets it; rights none forgets.
func TestNothingIsPlacedTooEarly(t *testing.T) {
	const half, whole = 20, 28 // octets of the FPDU
	for defect, want := range map[string][2]string{
		"":             {"", ""},
		"PlacesEarly":  {"ABCD", "ABCD"},
		"HandsUpFirst": {"", "ABCDEFGH"},
	} {
		for _, access := range []verbs.Access{allAccess, verbs.AccessLocalWrite} {
			h := newHost(t, func(cfg *Config, _ *QPConfig) {
				if defect != "" {
					if err := cfg.Defects.Set(defect, true); err != nil {
						t.Fatal(err)
					}
				}
			})
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
					t.Errorf("%q, access %#x: %q placed of part %d", defect, access, got, i)
				}
			}
		}
	}
}
