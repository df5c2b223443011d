// Package must ends a test at the first call that fails ([Do], [Get]), and checks calls that
// must fail ([Fail]).
//
// Tests call Do and Get in the goroutine of the test or in a program of a simulated world, never in
// a goroutine that they started themselves: testing.TB.FailNow ends only its own goroutine.
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

// Get returns the value of a call, or ends the test if the call failed. The test is the argument of
// a second call, because Go passes on several results only if there is no other argument:
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

// Fail checks the error of a call that must fail: errors.Is(err, want) holds, and the message
// contains all texts. Otherwise Fail reports an error, with call as the name of the call, and the
// test goes on.
func Fail(t testing.TB, call string, err, want error, texts ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", call, err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error %q does not contain %q", call, err, text)
		}
	}
}

// Err returns the error of a call and drops its value: must.Err(dev.AllocPD()).
func Err[T any](_ T, err error) error { return err }
