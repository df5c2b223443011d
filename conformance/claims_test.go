package conformance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestEveryCapabilityHasOneName(t *testing.T) {
	var all verbs.Caps
	for _, n := range capNames {
		if all&n.cap != 0 || n.cap == 0 {
			t.Errorf("%s: %#x has two names", n.name, n.cap)
		}
		all |= n.cap
	}
	if all != verbs.CapRD<<1-1 {
		t.Errorf("%#x have names, want %#x", all, verbs.CapRD<<1-1)
	}
	if got := CapNames(verbs.CapXRC | verbs.CapRC); got != "RC, XRC" {
		t.Error(got)
	}
}

func TestUnsupportedReasonDropsContext(t *testing.T) {
	wire := fmt.Errorf("a wire of UDP: %w: %s", ErrBenchCannot, "IP options")
	for want, err := range map[string]error{
		"the device does not claim XRC":   fmt.Errorf("the case: %w", &UnclaimedError{"XRC"}),
		"it asks for no CRC":              &SetupError{"it asks for no CRC"},
		"a wire of UDP: IP options":       fmt.Errorf("send psn 7: %w", wire),
		"tc is missing":                   fmt.Errorf("shake: %w", fmt.Errorf("%w: %w", ErrBenchCannot, errors.New("tc is missing"))),
		"SQD closes a connection":         fmt.Errorf("SQD closes a connection: %w", ErrBenchCannot),
		"no immediate data (unsupported)": fmt.Errorf("no immediate data (%w): %w", errors.New("unsupported"), ErrBenchCannot),
		"cannot be done on this bench":    ErrBenchCannot,
		"tc is too old":                   errors.Join(errors.New("other"), fmt.Errorf("%w: tc is too old", ErrBenchCannot)),
	} {
		if got := UnsupportedReason(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestSetupNamesSettings(t *testing.T) {
	all := Setup{Family: 6, TwoAddresses: true, Markers: true, NoCRC: true, Reliable: true, Isolate: true, MTU: 1500, Ranks: 2}
	want := "IPv6, two addresses, requests MPA markers, requests no MPA CRC, reliable datagrams, survives errors of a peer, an MTU of 1500"
	if got := all.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Setup{}).String(); got != "" {
		t.Errorf("default settings: %q", got)
	}
}
