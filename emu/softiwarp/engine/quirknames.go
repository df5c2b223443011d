package engine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// QuirkInfo describes a quirk.
type QuirkInfo struct {
	Name   string // the field of Quirks, Quirks.Queues or Quirks.Memory
	Defect string // the known defect it imitates, or the device that has it
	Does   string // what the device does, in a line
}

// AllQuirks lists every quirk in the order of the struct, those of Queues and Memory last.
func AllQuirks() []QuirkInfo {
	var all []QuirkInfo
	var q Quirks
	eachQuirk(&q, func(f reflect.StructField, _ reflect.Value) {
		all = append(all, QuirkInfo{Name: f.Name, Defect: f.Tag.Get("defect"), Does: f.Tag.Get("does")})
	})
	return all
}

// QuirkNames lists the names of all quirks, in the same order.
func QuirkNames() []string {
	all := AllQuirks()
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// Set switches a quirk on or off by its name.
func (q *Quirks) Set(name string, on bool) error {
	found := false
	eachQuirk(q, func(f reflect.StructField, v reflect.Value) {
		if f.Name == name {
			v.SetBool(on)
			found = true
		}
	})
	if !found {
		return fmt.Errorf("%w: no quirk %q%s", verbs.ErrNotFound, name, suggestion(name))
	}
	return nil
}

// Names lists the quirks that are switched on.
func (q *Quirks) Names() []string {
	var names []string
	eachQuirk(q, func(f reflect.StructField, v reflect.Value) {
		if v.Bool() {
			names = append(names, f.Name)
		}
	})
	return names
}

// suggestion helps whoever got a name nearly right.
func suggestion(name string) string {
	lower := strings.ToLower(name)
	near := slices.DeleteFunc(QuirkNames(), func(n string) bool {
		n = strings.ToLower(n)
		return len(lower) < 3 || !strings.Contains(n, lower) && !strings.Contains(lower, n)
	})
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// eachQuirk calls f for every switch.
func eachQuirk(q *Quirks, f func(reflect.StructField, reflect.Value)) {
	v := reflect.ValueOf(q).Elem()
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if value.Kind() == reflect.Bool {
			f(field, value)
			continue
		}
		for j := range value.NumField() {
			f(value.Type().Field(j), value.Field(j))
		}
	}
}
