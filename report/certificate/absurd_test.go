package certificate

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/conform"
)

// setNumbers sets every number that can be reached, and makes one element of each empty
// list.
func setNumbers(v reflect.Value, n int64) {
	switch {
	case v.CanInt():
		v.SetInt(n)
	case v.CanUint():
		v.SetUint(uint64(n))
	case v.CanFloat():
		v.SetFloat(float64(n))
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		setNumbers(v.Elem(), n)
	case v.Kind() == reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			setNumbers(v.Index(i), n)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				setNumbers(v.Field(i), n)
			}
		}
	}
}

// Verify draws what somebody else wrote: it must not panic, whatever the numbers are.
func TestVerifyHandlesExtremeNumbers(t *testing.T) {
	for _, n := range []int64{0, -1, 1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		c, dir := written(t, conform.Pass, conform.Fail)
		setNumbers(reflect.ValueOf(&c.Run).Elem(), n)
		for i := range c.Run.Devices[0].Results {
			r := &c.Run.Devices[0].Results[i]
			for j := range r.Defective {
				r.Defective[j].Verdict = conform.Fail
			}
		}
		c.Run.Version = conform.Version
		var text bytes.Buffer
		must.Do(t, c.write(&text))
		put(t, dir, File, text.String())
		again(t, dir)
		if _, err := Verify(t.Context(), dir, ""); err == nil {
			t.Errorf("%d: it holds", n)
		}
	}
}
