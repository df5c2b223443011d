package lab

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

func TestNICSetupFromScenario(t *testing.T) {
	s := parse(t, "fabric: {kind: star, hosts: 4}\nnic: {defects: [AckCompletesRead, cm.IgnoreCommEst], on: [\"host[12]\"], options: {icrc: false, rate_control: false}}\nworkload: {kind: calls, messages: 10}\n")
	p, err := Provider(s)
	if err != nil || p.Name != nics.Default {
		t.Fatalf("%+v, %v", p, err)
	}
	for host, defective := range map[string]bool{"host0": false, "host1": true, "host2": true, "host3": false} {
		got := must.Get(setupOf(s, p, host, []string{"FixedHopLimit"}))(t)
		want := []string{"FixedHopLimit"}
		if defective {
			want = append(want, "AckCompletesRead", "cm.IgnoreCommEst")
		}
		if !slices.Equal(got.Defects, want) || !reflect.DeepEqual(got.Options, nics.Options{"icrc": false, "rate_control": false, "max_cm_connections": maxCMConnections}) {
			t.Errorf("%s: %+v", host, got)
		}
		if _, err := NICs(s, host, "FixedHopLimit"); err != nil {
			t.Error(err)
		}
	}
}

func TestNICsRejectsInvalidSettings(t *testing.T) {
	for want, nic := range map[string]scenarios.NIC{
		`nic.provider: no provider "mlx5": there are softroce, softiwarp, dgiwarp`: {Provider: "mlx5"},
		"nic.options: datagram-iWARP has no option markers; it has reliable, ":     {Provider: "dgiwarp", Options: map[string]bool{"markers": true}},
		"nic.defects[1]: no defect":                                      {Defects: []string{"AckCompletesRead", "NoSuchDefect"}, On: []string{"host9"}},
		"nic.defects[0]: the defect AckCompletesRead is one of softroce": {Provider: "softiwarp", Defects: []string{"AckCompletesRead"}},
		"nic.options: soft-RoCE has no option markers":                   {Options: map[string]bool{"markers": true}},
		"nic.options: soft-iWARP has no option icrc":                     {Provider: "softiwarp", Options: map[string]bool{"icrc": false}},
	} {
		if _, err := NICs(&scenarios.Scenario{Name: "made", NIC: nic}, "host0"); err == nil || !strings.Contains(err.Error(), "made: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Datagram NICs are reliable if the workload uses rd, or names no service, and
// retry for the time that the workload sets.
func TestDatagramNICSetupFromScenario(t *testing.T) {
	retry := func(timeout, total, rnr time.Duration) nics.Options {
		return nics.Options{"reliable": true, "isolate_peers": true, "retry_timeout": timeout, "retry_total": total, "rnr_total": rnr}
	}
	for text, want := range map[string]nics.Options{
		"{kind: stream, services: [ud]}":                                           {},
		"{kind: stream, services: [rd]}":                                           retry(0, 0, 0),
		"{kind: stream, timeout: 8ms, retries: 1, rnr_retries: 0, rnr_timer: 1ms}": retry(8388608, 2*8388608, 1280*time.Microsecond),
		"{kind: random, services: [rc]}":                                           {}, // which is refused
	} {
		s := parse(t, "fabric: {kind: pair}\nnic: {provider: dgiwarp}\nworkload: "+text+"\n")
		p := must.Get(Provider(s))(t)
		if got, err := setupOf(s, p, "host0", nil); err != nil || !reflect.DeepEqual(got.Options, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	s := parse(t, "fabric: {kind: pair}\nworkload: {kind: stream, services: [rd]}\n")
	if p, _ := Provider(s); p != nil {
		if got, _ := setupOf(s, p, "host0", nil); len(got.Options) != 0 {
			t.Error("a RoCE NIC is asked for what it does not have")
		}
	}
}

// The schema of scenarios has every provider of the registry, in the same order.
func TestScenariosNameAllProviders(t *testing.T) {
	f, _ := reflect.TypeFor[scenarios.NIC]().FieldByName("Provider")
	if got, want := f.Tag.Get("enum"), strings.Join(nics.Names(), " "); got != want {
		t.Errorf("scenarios.NIC.Provider has the enum %q, want %q", got, want)
	}
}
