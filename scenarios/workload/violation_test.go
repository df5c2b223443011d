package workload

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/scenarios/traffic"
)

func TestKindOfTrafficViolations(t *testing.T) {
	for _, tc := range []struct {
		v    traffic.Violation
		want ViolationKind
	}{
		{traffic.Violation{Want: "the bytes that were sent", Got: "byte 7 is 0x00"}, Contents},
		{traffic.Violation{Where: "shared word 3", Want: "each value changed once"}, Contents},
		{traffic.Violation{Want: "messages in order"}, Delivery},
		// Bytes that a completion counts are not corrupted bytes.
		{traffic.Violation{Want: "512 bytes", Got: "completion with 511 bytes"}, Completion},
		{traffic.Violation{Want: "no completion of an unsignaled request", Got: "one"}, Completion},
	} {
		if got := kindOf(&tc.v); got != tc.want {
			t.Errorf("%v: %s, want %s", &tc.v, got, tc.want)
		}
	}
}

// The texts that kindOf compares are those of package traffic.
func TestKindOfTextsMatchPackageTraffic(t *testing.T) {
	files, err := filepath.Glob("../traffic/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, w := range slices.Concat(contentsWants, deliveryWants, []string{sharedWord}) {
		if !strings.Contains(source.String(), `"`+w) {
			t.Errorf("%q is not in package traffic: did the text change?", w)
		}
	}
}
