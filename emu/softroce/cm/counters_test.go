package cm

import (
	"reflect"
	"testing"
)

// List returns every counter once.
func TestListHasEveryCounter(t *testing.T) {
	var c Counters
	next := uint64(0)
	for i := range reflect.TypeFor[Counters]().NumField() {
		switch f := reflect.ValueOf(&c).Elem().Field(i).Addr().Interface().(type) {
		case *PerMessage:
			for j := range f {
				next++
				f[j] = next
			}
		case *uint64:
			next++
			*f = next
		}
	}
	names := map[string]bool{}
	for i, l := range c.List() {
		if l.Value != uint64(i+1) || names[l.Name] {
			t.Errorf("%d: %s %d", i, l.Name, l.Value)
		}
		names[l.Name] = true
	}
	if len(names) != int(next) {
		t.Errorf("%d of %d counters are listed", len(names), next)
	}
	if !names["cm_rcvd_sidr_req"] || !names["cm_events_full"] {
		t.Errorf("names %v", names)
	}
}
