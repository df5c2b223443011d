package lab

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/scenarios"
)

// What Set takes, the list and the documentation must agree.
func TestFlawsListAllThatSetTakes(t *testing.T) {
	docs, err := os.ReadFile("../docs/quirks.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := AllFlaws()
	if len(FlawNames()) != len(listed) {
		t.Fatalf("%d names, %d quirks", len(FlawNames()), len(listed))
	}
	var all Flaws
	for _, q := range listed {
		if err := all.Set(strings.Replace(q.Name, "=N", "=3", 1)); err != nil {
			t.Errorf("%s is listed and not taken: %v", q.Name, err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(q.Name, managerPrefix), "=N")
		imitates := q.Defect
		if imitates == "" {
			imitates = "–"
		}
		if want := "| `" + name + "` | " + imitates + " |"; !strings.Contains(string(docs), want) {
			t.Errorf("docs/quirks.md has no line %q", want)
		}
		if q.Does == "" {
			t.Errorf("%s: nobody says what it does", q.Name)
		}
	}
	if got := len(all.NIC.Names()) + len(managerFlaws); got != len(listed) {
		t.Errorf("%d quirks listed, %d switched on", len(listed), got)
	}
	// Every switch of the connection manager is on now.
	v := reflect.ValueOf(all.CM)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() != reflect.Struct && f.IsZero() {
			t.Errorf("cm.Quirks.%s is not listed", v.Type().Field(i).Name)
		}
	}
	if all.CM.StopAfterConns != 3 || all.CM.DetourLocal != (cm.Quirks{}).DetourLocal {
		t.Errorf("%+v", all.CM)
	}
}

func TestFlawsRefuse(t *testing.T) {
	for spec, want := range map[string]string{
		"NoSuchQuirk":         `no quirk "NoSuchQuirk"; 'fabrictest quirks' lists all`,
		"cm.NoSuchQuirk":      `no quirk "cm.NoSuchQuirk"`,
		"cm.StopAfterConns":   "it takes a number from 1 on, cm.StopAfterConns=3 say",
		"cm.StopAfterConns=0": "it takes a number from 1 on",
		"cm.LeakTimeWait=7":   "only cm.StopAfterConns takes a number",
		"AckSkipsRead=1":      "only cm.StopAfterConns takes a number",
		"cm.DetourLocal":      `no quirk "cm.DetourLocal"`,
		"":                    `no quirk ""`,
		"Memory":              `no quirk "Memory"`,
	} {
		var f Flaws
		err := f.Set(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", spec, err, want)
		}
		var unknown *UnknownFlawError
		if strings.HasPrefix(want, "no quirk") != errors.As(err, &unknown) {
			t.Errorf("%q: %T", spec, err)
		}
	}
}

func TestNICConfig(t *testing.T) {
	s := parse(t, "fabric: {kind: star, hosts: 4}\nnic: {quirks: [AckSkipsRead, cm.NoMRA], on: [\"host[12]\"], icrc: offloaded, rate_control: \"off\"}\nworkload: {kind: calls, messages: 10}\n")
	for host, flawed := range map[string]bool{"host0": false, "host1": true, "host2": true, "host3": false} {
		cfg, err := NICConfig(s, host, "ICRCWrong")
		if err != nil {
			t.Fatal(err)
		}
		if cfg.NIC.Quirks.AckSkipsRead != flawed || cfg.CM.Quirks.NoMRA != flawed || !cfg.NIC.Quirks.ICRCWrong {
			t.Errorf("%s: %v, %+v", host, cfg.NIC.Quirks.Names(), cfg.CM.Quirks)
		}
		if cfg.NIC.ICRC != engine.ICRCOffloaded || cfg.NIC.Congestion.MinRateBps < 1e12 || cfg.CM.MaxConns != callsHeld {
			t.Errorf("%s: ICRC %v, lowest rate %d, %d connections", host, cfg.NIC.ICRC, cfg.NIC.Congestion.MinRateBps, cfg.CM.MaxConns)
		}
		if err := cfg.NIC.Congestion.Validate(); err != nil {
			t.Error(err)
		}
	}
	for key, nic := range map[string]scenarios.NIC{
		"nic.provider":     {Provider: "softiwarp"},
		"nic.icrc":         {ICRC: "maybe"},
		"nic.rate_control": {RateControl: "fast"},
		"nic.quirks[1]":    {Quirks: []string{"AckSkipsRead", "NoSuchQuirk"}, On: []string{"host9"}},
	} {
		if _, err := NICConfig(&scenarios.Scenario{Name: "made", NIC: nic}, "host0"); err == nil || !strings.Contains(err.Error(), "made: "+key+": ") {
			t.Errorf("%v, want %s", err, key)
		}
	}
}
