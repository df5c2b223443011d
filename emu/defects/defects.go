// Package defects has the deliberate defects of emulated NICs by name, for package nics and
// tests. The engines know nothing of them. There are three kinds:
//
//   - Defects of single packets and of verbs calls, in the packages below. Each has a struct
//     with a field of type bool for each defect. Tags describe the defect and name its source.
//     [All], [Set] and [On] list and set the fields by name.
//   - Defects of Linux's soft-RoCE (rxe) and soft-iWARP (siw) and of NICs that policies of the
//     engines imitate. A [Table] has the policy of each.
//   - Mutants: changes of the sources of the engines, kept as data in mutants/*.txt. Package
//     mutate builds a program with all of them, and `fabrictest conform --check-cases` checks
//     with it that cases notice them.
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
