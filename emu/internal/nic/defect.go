package nic

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// The defects of an engine are a struct with fields of type bool, or of structs of bool
// such as Defects. Tags describe each defect and name its source. The functions here take
// a pointer to such a struct and ignore fields of other types.

// DefectInfo describes a defect.
type DefectInfo struct {
	Name     string // name of the field
	Imitates string // known defect or device that has it
	Does     string // behaviour of the device, in one line
}

// AllDefects lists all defects in the order of the struct.
func AllDefects(defects any) []DefectInfo {
	var all []DefectInfo
	eachDefect(defects, func(f reflect.StructField, _ reflect.Value) {
		all = append(all, DefectInfo{Name: f.Name, Imitates: f.Tag.Get("imitates"), Does: f.Tag.Get("does")})
	})
	return all
}

// DefectNames lists the names of all defects in the order of the struct.
func DefectNames(defects any) []string {
	all := AllDefects(defects)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// SetDefect enables or disables a defect by name. It is called often, so it reads
// no tags.
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

// DefectsOn lists the enabled defects.
func DefectsOn(defects any) []string {
	var names []string
	eachDefect(defects, func(f reflect.StructField, v reflect.Value) {
		if v.Bool() {
			names = append(names, f.Name)
		}
	})
	return names
}

// noDefectError is the error for an unknown defect. Callers that try several
// structs discard it often, so the text is computed on demand.
type noDefectError struct {
	name  string
	among reflect.Type
}

func (e *noDefectError) Error() string {
	return fmt.Sprintf("%v: no defect %q%s", verbs.ErrNotFound, e.name, e.suggestion())
}

func (e *noDefectError) Unwrap() error { return verbs.ErrNotFound }

// suggestion lists defects with similar names.
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

// eachDefect calls f for each defect.
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
