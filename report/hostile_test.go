package report_test

import (
	"reflect"

	"github.com/fabrictest/fabrictest/report"
)

// hostile is what someone might call a scenario who wishes the reader ill.
const hostile = `</script></style></pre></title>--><script>alert(1)</script><img src=x onerror=alert(2)>` +
	"\"'`{{.}}${1}]]>&amp; javascript:alert(3) \x1b[2J\x1b]0;x\x07\x00\xff\u202egnp.exe\u2028"

// hostileRun is a run whose every string is hostile.
func hostileRun() *report.Run {
	run := sampleRun()
	poison(reflect.ValueOf(run).Elem())
	for i := range run.Scenarios {
		run.Scenarios[i].Verdict = report.Verdicts()[i%4]
	}
	return run
}

// poison replaces every string that can be reached.
func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		for it := v.MapRange(); it.Next(); {
			m.SetMapIndex(reflect.ValueOf(hostile+it.Key().String()), it.Value())
		}
		if v.Len() > 0 {
			v.Set(m)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				poison(v.Field(i))
			}
		}
	}
}
