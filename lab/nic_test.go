package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

func TestSetupOfNICs(t *testing.T) {
	s := parse(t, "fabric: {kind: star, hosts: 4}\nnic: {quirks: [AckSkipsRead, cm.NoMRA], on: [\"host[12]\"], icrc: offloaded, rate_control: \"off\"}\nworkload: {kind: calls, messages: 10}\n")
	p, err := Provider(s)
	if err != nil || p.Name != nics.Default {
		t.Fatalf("%+v, %v", p, err)
	}
	for host, flawed := range map[string]bool{"host0": false, "host1": true, "host2": true, "host3": false} {
		got, err := setupOf(s, p, host, []string{"ICRCWrong"})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"ICRCWrong"}
		if flawed {
			want = append(want, "AckSkipsRead", "cm.NoMRA")
		}
		if !slices.Equal(got.Quirks, want) || !got.ICRCOffloaded || !got.IgnoreMarks || got.Calls != callsHeld || got.Markers {
			t.Errorf("%s: %+v", host, got)
		}
		if _, err := NICs(s, host, "ICRCWrong"); err != nil {
			t.Error(err)
		}
	}
}

func TestNICsRefuse(t *testing.T) {
	for want, nic := range map[string]scenarios.NIC{
		`nic.provider: there is no provider "dgiwarp": there are softroce, softiwarp`: {Provider: "dgiwarp"},
		"nic.icrc: ":              {ICRC: "maybe"},
		"nic.rate_control: ":      {RateControl: "fast"},
		"nic.quirks[1]: no quirk": {Quirks: []string{"AckSkipsRead", "NoSuchQuirk"}, On: []string{"host9"}},
		"nic.quirks[0]: the quirk AckSkipsRead is one of softroce": {Provider: "softiwarp", Quirks: []string{"AckSkipsRead"}},
		"nic: RoCE has no markers":                                 {Markers: true},
		"nic: iWARP has no ICRC":                                   {Provider: "softiwarp", ICRC: "offloaded"},
	} {
		if _, err := NICs(&scenarios.Scenario{Name: "made", NIC: nic}, "host0"); err == nil || !strings.Contains(err.Error(), "made: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
