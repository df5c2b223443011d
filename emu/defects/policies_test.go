package defects

import (
	"reflect"
	"testing"

	iwarp "github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	roce "github.com/fabrictest/fabrictest/emu/softroce/engine"
)

// Each defect changes a policy, and all together use every policy.
func TestDefectsUseAllPolicies(t *testing.T) {
	var r roce.Policy
	for _, d := range append(RoCE.All(), Shared.All()...) {
		var one roce.Policy
		if !SetSoftRoCE(&one, d.Name) || one == (roce.Policy{}) || !SetSoftRoCE(&r, d.Name) {
			t.Errorf("%s changes no policy", d.Name)
		}
	}
	var i iwarp.Policy
	all := append(append(IWARP.All(), MPA.All()...), append(RDMAP.All(), Shared.All()...)...)
	for _, d := range all {
		var one iwarp.Policy
		if !SetSoftIWARP(&one, d.Name) || one == (iwarp.Policy{}) || !SetSoftIWARP(&i, d.Name) {
			t.Errorf("%s changes no policy", d.Name)
		}
	}
	i.Shared = r.Shared // BindAcrossPDs is for soft-RoCE only
	unused(t, reflect.ValueOf(r))
	unused(t, reflect.ValueOf(i))
}

// unused reports the fields of a policy that have their zero value.
func unused(t *testing.T, policy reflect.Value) {
	for i := range policy.NumField() {
		if f := policy.Field(i); f.Kind() == reflect.Struct {
			unused(t, f)
		} else if f.IsZero() {
			t.Errorf("no defect sets %v.%s", policy.Type(), policy.Type().Field(i).Name)
		}
	}
}

func TestUnknownDefectChangesNothing(t *testing.T) {
	var r roce.Policy
	var i iwarp.Policy
	var c cm.Config
	if SetSoftRoCE(&r, "NoFence") || SetSoftIWARP(&i, "JiffyTimers") || Manager.Set(&c, "IgnoreCommEst") {
		t.Error("a defect of another provider was accepted")
	}
	if !Manager.Set(&c, "cm.IgnoreCommEst") || !c.RequireRTU {
		t.Error("cm.IgnoreCommEst was not accepted")
	}
}
