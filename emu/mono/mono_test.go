package mono

import (
	"math"
	"testing"
	"time"
)

func TestAddSaturatesAtNever(t *testing.T) {
	for _, tc := range []struct {
		at   Time
		d    time.Duration
		want Time
	}{
		{0, time.Microsecond, 1000},
		{5, -5, 0},
		{Never, time.Second, Never},
		{Never, -time.Second, Never},
		{Never - 10, 11, Never},
		{math.MaxInt64 - 1, math.MaxInt64, Never},
	} {
		if got := tc.at.Add(tc.d); got != tc.want {
			t.Errorf("%d.Add(%d) = %d, want %d", tc.at, tc.d, got, tc.want)
		}
	}
}

func TestSubAndBefore(t *testing.T) {
	if got := Time(1500).Sub(500); got != time.Microsecond {
		t.Errorf("Sub = %v, want 1µs", got)
	}
	if !Time(1).Before(2) || Time(2).Before(2) || Time(3).Before(2) {
		t.Error("Before is not a strict order")
	}
	if !Time(math.MaxInt64 - 1).Before(Never) {
		t.Error("Never is not the last time")
	}
}

func TestString(t *testing.T) {
	if got := Time(2_500_000).String(); got != "2.5ms" {
		t.Errorf("String = %q", got)
	}
	if got := Never.String(); got != "never" {
		t.Errorf("String = %q", got)
	}
}
