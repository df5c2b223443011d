package main

import (
	"strings"
	"testing"
)

func TestDoctorTellsOfKernelGuests(t *testing.T) {
	_, out, stderr := call(t, "doctor")
	for _, want := range []string{"kernel guests  ", "libibverbs  "} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor says nothing of %s: %s%s", want, out, stderr)
		}
	}
}
