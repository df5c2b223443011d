package nic

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// An engine's quirks are a struct of bools, and of structs of bools such as Lax,
// with tags that say what each does and whose defect it is. The functions here
// take a pointer to one. Fields of other kinds are for their owner to read.

// QuirkInfo describes a quirk.
type QuirkInfo struct {
	Name   string // the field's, in the struct or in one of the structs in it
	Defect string // the known defect it imitates, or the device that has it
	Does   string // what the device does, in a line
}

// AllQuirks lists every quirk in the order of the struct.
func AllQuirks(quirks any) []QuirkInfo {
	var all []QuirkInfo
	eachQuirk(quirks, func(f reflect.StructField, _ reflect.Value) {
		all = append(all, QuirkInfo{Name: f.Name, Defect: f.Tag.Get("defect"), Does: f.Tag.Get("does")})
	})
	return all
}

// QuirkNames lists the names of all quirks, in the same order.
func QuirkNames(quirks any) []string {
	all := AllQuirks(quirks)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// SetQuirk switches a quirk on or off by its name.
func SetQuirk(quirks any, name string, on bool) error {
	found := false
	eachQuirk(quirks, func(f reflect.StructField, v reflect.Value) {
		if f.Name == name {
			v.SetBool(on)
			found = true
		}
	})
	if !found {
		return fmt.Errorf("%w: no quirk %q%s", verbs.ErrNotFound, name, suggestion(quirks, name))
	}
	return nil
}

// QuirksOn lists the quirks that are switched on.
func QuirksOn(quirks any) []string {
	var names []string
	eachQuirk(quirks, func(f reflect.StructField, v reflect.Value) {
		if v.Bool() {
			names = append(names, f.Name)
		}
	})
	return names
}

// suggestion helps whoever got a name nearly right.
func suggestion(quirks any, name string) string {
	lower := strings.ToLower(name)
	near := slices.DeleteFunc(QuirkNames(quirks), func(n string) bool {
		n = strings.ToLower(n)
		return len(lower) < 3 || !strings.Contains(n, lower) && !strings.Contains(lower, n)
	})
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// eachQuirk calls f for every switch.
func eachQuirk(quirks any, f func(reflect.StructField, reflect.Value)) {
	v := reflect.ValueOf(quirks).Elem()
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		switch value.Kind() {
		case reflect.Bool:
			f(field, value)
		case reflect.Struct:
			for j := range value.NumField() {
				f(value.Type().Field(j), value.Field(j))
			}
		}
	}
}
