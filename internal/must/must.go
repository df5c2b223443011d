// Package must ends a test at the first call that fails.
//
// Tests call it in the goroutine of the test or in a program of a simulated world, never in
// a goroutine that they started themselves: testing.TB.FailNow ends only the goroutine that
// calls it.
package must

import "testing"

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
