// Package defects describes deliberate defects of emulated NICs. A package that makes some of
// them has a struct with a field of type bool for each. Tags describe a defect and name its
// source. The functions here list and set them by name.
package defects

import (
	"reflect"

	"github.com/fabrictest/fabrictest/verbs"
)

// Info describes a defect.
type Info struct {
	Name     string // name of the field
	Imitates string // known defect or device that has it
	Does     string // behaviour of the device, in one line
}

// All lists all defects in the order of the struct that defects points to. It ignores fields
// that are not bool.
func All(defects any) []Info {
	var all []Info
	each(defects, func(f reflect.StructField, _ reflect.Value) {
		all = append(all, Info{Name: f.Name, Imitates: f.Tag.Get("imitates"), Does: f.Tag.Get("does")})
	})
	return all
}

// Set enables or disables a defect by name. The error for an unknown defect is
// verbs.ErrNotFound.
func Set(defects any, name string, on bool) error {
	v := reflect.ValueOf(defects).Elem()
	field := v.FieldByName(name)
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return verbs.ErrNotFound
	}
	field.SetBool(on)
	return nil
}

// On lists the enabled defects.
func On(defects any) []string {
	var names []string
	each(defects, func(f reflect.StructField, v reflect.Value) {
		if v.Bool() {
			names = append(names, f.Name)
		}
	})
	return names
}

// each calls f for each defect.
func each(defects any, f func(reflect.StructField, reflect.Value)) {
	v := reflect.ValueOf(defects).Elem()
	for i := range v.NumField() {
		if value := v.Field(i); value.Kind() == reflect.Bool {
			f(v.Type().Field(i), value)
		}
	}
}
