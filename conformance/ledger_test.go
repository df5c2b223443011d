package conformance_test

import (
	"testing"
	"testing/fstest"

	"github.com/fabrictest/fabrictest/conformance"
)

// The public IDs of a row have one of the forms that the specifications use, and none is repeated.
func TestLedgerChecksPublicIDs(t *testing.T) {
	for ids, valid := range map[string]bool{
		"[C9-88, CA17-24, o10-37.2.30, oA19-2, V1C09-027#05, v1c07-007#01.02]": true,
		"[C9-88, C9-88]":     false,
		"[Table 45]":         false,
		"[9.7.5]":            false,
		"[V1C09-027]":        false,
		"[\"C9-88, C9-89\"]": false,
	} {
		text := "title: t\nsections:\n  - title: s\n    rows:\n      - id: a/1\n        level: MUST\n        ids: " + ids + "\n        text: It works.\n"
		if _, err := conformance.ReadLedger(fstest.MapFS{"a.yaml": {Data: []byte(text)}}); (err == nil) != valid {
			t.Errorf("%s: %v", ids, err)
		}
	}
}
