// Package defects describes deliberate defects of emulated NICs. A package that makes some of
// them has a struct with a field of type bool for each. Tags describe a defect and name its
// source. The functions here list and set them by name.
package defects

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

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

// Names lists the names of all defects in the order of the struct.
func Names(defects any) []string {
	all := All(defects)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// Set enables or disables a defect by name. It is called often, so it reads
// no tags.
func Set(defects any, name string, on bool) error {
	v := reflect.ValueOf(defects).Elem()
	field := v.FieldByName(name)
	if !field.IsValid() || field.Kind() != reflect.Bool {
		return &notFoundError{name, v.Type()}
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

// notFoundError is the error for an unknown defect. Callers that try several
// structs discard it often, so the text is computed on demand.
type notFoundError struct {
	name  string
	among reflect.Type
}

func (e *notFoundError) Error() string {
	return fmt.Sprintf("%v: no defect %q%s", verbs.ErrNotFound, e.name, e.suggestion())
}

func (e *notFoundError) Unwrap() error { return verbs.ErrNotFound }

// suggestion lists defects with similar names.
func (e *notFoundError) suggestion() string {
	lower := strings.ToLower(e.name)
	near := slices.DeleteFunc(Names(reflect.New(e.among).Interface()), func(n string) bool {
		n = strings.ToLower(n)
		return len(lower) < 3 || !strings.Contains(n, lower) && !strings.Contains(lower, n)
	})
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
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
