package runner

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
)

func TestCertificationNamesUnknownCases(t *testing.T) {
	for pattern, want := range map[string]string{
		"rc/psn":    "",
		"mpa/start": "mpa/start is no case for a device of this protocol (roce)",
		"rc/psm":    `no case is called "rc/psm"; did you mean rc/psn`,
	} {
		_, err := NewCertification(CertifyOptions{Filter: conformance.Filter{IDs: []string{pattern}}}, conformance.RoCE)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
}
