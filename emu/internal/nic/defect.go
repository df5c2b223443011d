package nic

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// An engine's defects are a struct of bools, and of structs of bools such as Defects,
// with tags that say what each does and whose defect it is. The functions here
// take a pointer to one. Fields of other kinds are for their owner to read.

// DefectInfo describes a defect.
type DefectInfo struct {
	Name     string // the field's, in the struct or in one of the structs in it
	Imitates string // the known defect it imitates, or the device that has it
	Does     string // what the device does, in a line
}

// AllDefects lists every defect in the order of the struct.
func AllDefects(defects any) []DefectInfo {
	var all []DefectInfo
	eachDefect(defects, func(f reflect.StructField, _ reflect.Value) {
		all = append(all, DefectInfo{Name: f.Name, Imitates: f.Tag.Get("imitates"), Does: f.Tag.Get("does")})
	})
	return all
}

// DefectNames lists the names of all defects, in the same order.
func DefectNames(defects any) []string {
	all := AllDefects(defects)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// SetDefect switches a defect on or off by its name. Devices are made by the thousand,
// with dozens of defects each: it reads no tags.
func SetDefect(defects any, name string, on bool) error {
	v := reflect.ValueOf(defects).Elem()
	field := v.FieldByName(name)
	for i := 0; i < v.NumField() && !field.IsValid(); i++ {
		if group := v.Field(i); group.Kind() == reflect.Struct {
			field = group.FieldByName(name)
		}
	}
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return &noDefectError{name, v.Type()}
	}
	field.SetBool(on)
	return nil
}

// DefectsOn lists the defects that are switched on.
func DefectsOn(defects any) []string {
	var names []string
	eachDefect(defects, func(f reflect.StructField, v reflect.Value) {
		if v.Bool() {
			names = append(names, f.Name)
		}
	})
	return names
}

// noDefectError is a name that no defect has. Whoever asks several structs for the one
// that has a defect gets it often and does not read it: what it says waits until then.
type noDefectError struct {
	name  string
	among reflect.Type
}

func (e *noDefectError) Error() string {
	return fmt.Sprintf("%v: no defect %q%s", verbs.ErrNotFound, e.name, e.suggestion())
}

func (e *noDefectError) Unwrap() error { return verbs.ErrNotFound }

// suggestion helps whoever got a name nearly right.
func (e *noDefectError) suggestion() string {
	lower := strings.ToLower(e.name)
	near := slices.DeleteFunc(DefectNames(reflect.New(e.among).Interface()), func(n string) bool {
		n = strings.ToLower(n)
		return len(lower) < 3 || !strings.Contains(n, lower) && !strings.Contains(lower, n)
	})
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// eachDefect calls f for every switch.
func eachDefect(defects any, f func(reflect.StructField, reflect.Value)) {
	v := reflect.ValueOf(defects).Elem()
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
