package iwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// A frame that was good after all would make its case demand the impossible, and one
// that waits for more octets than the peer sends would make it wait for a timer.
func TestHostileFramesAreWrongInTheWayTheySay(t *testing.T) {
	for _, good := range []startupFrame{enhancedRequest(), iwarp.Reply().Depths(16, 16)} {
		for _, f := range invalidFrames(good) {
			got, rest, whole := iwarp.ParseStartupFrame(f.octets)
			switch {
			case whole == f.truncated:
				t.Errorf("%s: whole %t, part %t", f.what, whole, f.truncated)
			case f.truncated:
			case len(rest) > 0:
				t.Errorf("%s: %d octets after the frame", f.what, len(rest))
			case *got.Key == *good.Key && *got.PDLength <= 512 && *got.PDLength >= 4 && *got.Rev <= 2:
				t.Errorf("%s: nothing is wrong with %v", f.what, got)
			}
		}
	}
}
