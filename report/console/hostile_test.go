package console

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/reporttest"
)

const escapes = "\x1b[2J\x1b]0;t\x07\u009b31m\x7f\r\u202e\xff\n"

// poison puts escapes into every string that can be reached, but for verdicts.
func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		text := v.String()
		if !slices.Contains(conform.Verdicts(), conform.Verdict(text)) && !slices.Contains(report.Verdicts(), report.Verdict(text)) {
			v.SetString(text + escapes)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				poison(v.Field(i))
			}
		}
	}
}

func TestTextsAreEscapedForTerminal(t *testing.T) {
	run, verdicts := reporttest.Run(), judged()
	poison(reflect.ValueOf(run).Elem())
	poison(reflect.ValueOf(verdicts).Elem())
	var out bytes.Buffer
	show(t, Config{Out: &out}, run)
	judge(t, Config{Out: &out}, true, verdicts)
	if i := strings.IndexFunc(out.String(), func(r rune) bool {
		return r != '\n' && (r == unicode.ReplacementChar || unicode.In(r, unicode.Cc, unicode.Cf))
	}); i >= 0 {
		t.Errorf("%q", out.String()[max(0, i-80):i+20])
	}
}
