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

// SetQuirk switches a quirk on or off by its name. Devices are made by the thousand,
// with dozens of quirks each: it reads no tags.
func SetQuirk(quirks any, name string, on bool) error {
	v := reflect.ValueOf(quirks).Elem()
	field := v.FieldByName(name)
	for i := 0; i < v.NumField() && !field.IsValid(); i++ {
		if group := v.Field(i); group.Kind() == reflect.Struct {
			field = group.FieldByName(name)
		}
	}
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return &noQuirkError{name, v.Type()}
	}
	field.SetBool(on)
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

// noQuirkError is a name that no quirk has. Whoever asks several structs for the one
// that has a quirk gets it often and does not read it: what it says waits until then.
type noQuirkError struct {
	name  string
	among reflect.Type
}

func (e *noQuirkError) Error() string {
	return fmt.Sprintf("%v: no quirk %q%s", verbs.ErrNotFound, e.name, e.suggestion())
}

func (e *noQuirkError) Unwrap() error { return verbs.ErrNotFound }

// suggestion helps whoever got a name nearly right.
func (e *noQuirkError) suggestion() string {
	lower := strings.ToLower(e.name)
	near := slices.DeleteFunc(QuirkNames(reflect.New(e.among).Interface()), func(n string) bool {
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
