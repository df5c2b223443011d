// Package defects has the deliberate defects of emulated NICs by name, for package nics and
// tests. The engines know nothing of them. There are three kinds:
//
//   - Defects of verbs calls ([VerbDefects]), and of single packets of soft-RoCE (package
//     rocewire). Each has a struct with a field of type bool for each defect. Tags describe the
//     defect and name its source. [All] and [Set] list and set the fields by name.
//   - Defects of Linux's soft-RoCE (rxe) and soft-iWARP (siw) and of NICs that policies of the
//     engines imitate. A [Table] has the policy of each.
//   - Mutants: changes of the sources of the engines, kept as data in mutants/*.txt. Package
//     mutant builds a program with all of them, and `fabrictest conform --check-cases` checks
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

// All describes the defects of the struct that defects points to: its fields of type bool, with
// their tags, in the order of the struct.
func All(defects any) []Info {
	var all []Info
	for _, f := range reflect.VisibleFields(reflect.TypeOf(defects).Elem()) {
		if f.Type.Kind() == reflect.Bool {
			all = append(all, Info{Name: f.Name, Imitates: f.Tag.Get("imitates"), Does: f.Tag.Get("does")})
		}
	}
	return all
}

// Set enables or disables a defect of the struct that defects points to, by name. It returns
// verbs.ErrNotFound if the struct has no such defect.
func Set(defects any, name string, on bool) error {
	v := reflect.ValueOf(defects).Elem()
	field := v.FieldByName(name)
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return verbs.ErrNotFound
	}
	field.SetBool(on)
	return nil
}
