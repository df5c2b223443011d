package lab

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
		`nic.provider: there is no provider "mlx5": there are softroce, softiwarp, dgiwarp`: {Provider: "mlx5"},
		"nic: datagram-iWARP has neither markers":                                           {Provider: "dgiwarp", Markers: true},
		"nic.icrc: ":              {ICRC: "maybe"},
		"nic.rate_control: ":      {RateControl: "fast"},
		"nic.quirks[1]: no quirk": {Quirks: []string{"AckSkipsRead", "NoSuchQuirk"}, On: []string{"host9"}},
		"nic.quirks[0]: the quirk AckSkipsRead is one of softroce": {Provider: "softiwarp", Quirks: []string{"AckSkipsRead"}},
		"nic: RoCE has neither markers":                            {Markers: true},
		"nic: iWARP has no ICRC":                                   {Provider: "softiwarp", ICRC: "offloaded"},
	} {
		if _, err := NICs(&scenarios.Scenario{Name: "made", NIC: nic}, "host0"); err == nil || !strings.Contains(err.Error(), "made: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// NICs of datagrams are reliable where the workload asks for rd, or names no service
// and has none other, and try for as long as it says.
func TestSetupOfDatagrams(t *testing.T) {
	for text, want := range map[string]nics.Setup{
		"{kind: stream, services: [ud]}": {},
		"{kind: stream, services: [rd]}": {Reliable: true, Isolate: true},
		"{kind: stream, timeout: 8ms, retries: 1, rnr_retries: 0, rnr_timer: 1ms}": {Reliable: true, Isolate: true, Budget: nics.Budget{
			Wait: 8388608, All: 2 * 8388608, Busy: 1280 * time.Microsecond,
		}},
		"{kind: random, services: [rc]}": {}, // which is refused
	} {
		s := parse(t, "fabric: {kind: pair}\nnic: {provider: dgiwarp}\nworkload: "+text+"\n")
		p, err := Provider(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := setupOf(s, p, "host0", nil); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	s := parse(t, "fabric: {kind: pair}\nworkload: {kind: stream, services: [rd]}\n")
	if p, _ := Provider(s); p != nil {
		if got, _ := setupOf(s, p, "host0", nil); got.Reliable {
			t.Error("a RoCE NIC is asked for what it does not have")
		}
	}
}
