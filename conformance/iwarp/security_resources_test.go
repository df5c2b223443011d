package iwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// Each frame must be invalid, and truncated exactly if it is marked as truncated: else a case
// fails for a correct device, or waits for a timer.
func TestInvalidFramesAreInvalid(t *testing.T) {
	for _, good := range []startupFrame{enhancedRequest(), iwarp.Reply().Depths(16, 16)} {
		for _, f := range invalidFrames(good) {
			got, rest, whole := iwarp.ParseStartupFrame(f.octets)
			switch {
			case whole == f.truncated:
				t.Errorf("%s: complete %t, truncated %t", f.what, whole, f.truncated)
			case f.truncated:
			case len(rest) > 0:
				t.Errorf("%s: %d octets after the frame", f.what, len(rest))
			case *got.Key == *good.Key && *got.PDLength <= 512 && *got.PDLength >= 4 && *got.Rev <= 2:
				t.Errorf("%s: nothing is wrong with %v", f.what, got)
			}
		}
	}
}
