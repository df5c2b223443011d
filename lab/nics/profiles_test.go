package nics

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestProfilesAreOfQuirksThatThereAre(t *testing.T) {
	for _, p := range Profiles() {
		of, err := Find(p.Provider)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range p.Quirks {
			if err := of.CheckQuirk(q); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
			if slices.Contains(p.Quirks[:i], q) {
				t.Errorf("%s has %s twice", p.Name, q)
			}
		}
		if _, err := of.With(Setup{Quirks: p.Quirks}); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if lost := p.Claims.Without &^ of.Caps; lost != 0 {
			t.Errorf("%s takes back what was never claimed: %#x", p.Name, lost)
		}
		if found, err := FindProfile(p.Name); err != nil || found.Title != p.Title {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if _, err := FindProfile("rxe-7"); err == nil {
		t.Error("there is an rxe-7")
	}
}

// device claims all that it can.
type device struct{ verbs.Context }

func (device) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{Caps: verbs.CapRC | verbs.CapXRC | verbs.CapCredits, MaxQP: 7}, nil
}

func TestClaimsAreTakenBack(t *testing.T) {
	attr, err := Claims{Without: verbs.CapXRC | verbs.CapUD}.Of(device{}).QueryDevice()
	if err != nil || attr.Caps != verbs.CapRC|verbs.CapCredits || attr.MaxQP != 7 {
		t.Errorf("%+v, %v", attr, err)
	}
	if d := (Claims{}).Of(device{}); d != (device{}) {
		t.Errorf("a device that takes nothing back is %T", d)
	}
}
