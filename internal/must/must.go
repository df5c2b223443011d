// Package must ends a test at the first call that fails ([Do], [Get]), and checks calls that
// must fail ([Fail]).
//
// Tests call Do and Get in the goroutine of the test or in a program of a simulated world, never in
// a goroutine that they started themselves: testing.TB.FailNow ends only the goroutine that
// calls it.
package must

import (
	"errors"
	"strings"
	"testing"
)

// Do ends the test if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns the value of a call, or ends the test if the call failed:
//
//	pd := must.Get(dev.AllocPD())(t)
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// Fail reports an error of the test unless err is of the given kind and contains the given
// texts. The test continues.
func Fail(t testing.TB, what string, err, kind error, says ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", what, err, kind)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}

// Err returns the error of a call that returns a value too.
func Err[T any](_ T, err error) error { return err }
