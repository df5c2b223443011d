package defects

import (
	"reflect"
	"strings"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	iwarp "github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	roce "github.com/fabrictest/fabrictest/emu/softroce/engine"
)

// Table has the defects that a policy P can imitate: for each, a field of P and its value.
type Table[P any] []struct {
	name, imitates, does string
	field                string // with the names of fields that contain it
	value                any
}

// All describes the defects of the table, in its order.
func (t Table[P]) All() []Info {
	all := make([]Info, len(t))
	for i, d := range t {
		all[i] = Info{Name: d.name, Imitates: d.imitates, Does: d.does}
	}
	return all
}

// Set gives policy the named defect: it sets the field that the defect changes to the defect's
// value. If two defects set one field, a number, the larger value stays, in whichever order they
// are set. Set returns false if the table lacks the defect.
func (t Table[P]) Set(policy *P, name string) bool {
	for _, d := range t {
		if d.name != name {
			continue
		}
		field, value := reflect.ValueOf(policy).Elem(), reflect.ValueOf(d.value)
		for fieldName := range strings.SplitSeq(d.field, ".") { // a path through nested structs
			field = field.FieldByName(fieldName)
		}
		if isLarger := field.CanUint() && field.Uint() > value.Uint(); !isLarger {
			field.Set(value)
		}
		return true
	}
	return false
}

// SetSoftRoCE changes the policy of a soft-RoCE NIC so that it has the named defect. It reports
// whether there is such a defect.
func SetSoftRoCE(p *roce.Policy, name string) bool {
	return RoCE.Set(p, name) || Shared.Set(&p.Shared, name)
}

// SetSoftIWARP changes the policy of a soft-iWARP NIC so that it has the named defect. It reports
// whether there is such a defect.
func SetSoftIWARP(p *iwarp.Policy, name string) bool {
	return IWARP.Set(p, name) || MPA.Set(&p.MPA, name) || RDMAP.Set(&p.Stream, name) || Shared.Set(&p.Shared, name)
}

// Shared are the defects of memory and completion queues, which all NICs can have.
var Shared = Table[nic.Policy]{
	{"CQErrRepeats", "rxe", "every completion lost by an overrun CQ raises an event", "RepeatOverrun", true},
	{"WindowBounds", "R21", "a window gives access to all of its region", "WindowCoversRegion", true},
	{"ForeignInvalidate", "R24, irdma", "any QP may invalidate a type 2 window", "InvalidateFromAnyQP", true},
	{"InvalidateAnything", "rc/inv/4", "the keys of regions and type 1 windows can be invalidated", "InvalidateAnyKey", true},
}
