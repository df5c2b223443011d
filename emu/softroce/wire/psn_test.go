package wire

import "testing"

// sequence is the interface of PSN and MSN.
type sequence[T any] interface {
	~uint32
	Add(n int32) T
	Next() T
	Sub(q T) int32
	Less(q T) bool
}

func TestPSNArithmeticWraps(t *testing.T) { testArithmeticWraps[PSN](t, PSNMask) }
func TestMSNArithmeticWraps(t *testing.T) { testArithmeticWraps[MSN](t, MSNMask) }

func testArithmeticWraps[T sequence[T]](t *testing.T, mask T) {
	const half = 1 << 23
	for _, tc := range []struct {
		from T
		n    int32
		to   T
	}{
		{0, 0, 0},
		{0, 1, 1},
		{0, -1, mask},
		{mask, 1, 0},
		{mask - 1, 5, 3},
		{3, -5, mask - 1},
		{100, half - 1, 100 + half - 1},
		{100, -half, 100 + half},
		{mask, -half, half - 1},
	} {
		if got := tc.from.Add(tc.n); got != tc.to {
			t.Errorf("%#x.Add(%d) = %#x, want %#x", tc.from, tc.n, got, tc.to)
		}
		if got := tc.to.Sub(tc.from); got != tc.n {
			t.Errorf("%#x.Sub(%#x) = %d, want %d", tc.to, tc.from, got, tc.n)
		}
		if got, want := tc.to.Less(tc.from), tc.n < 0; got != want {
			t.Errorf("%#x.Less(%#x) = %v, want %v", tc.to, tc.from, got, want)
		}
		if got, want := tc.from.Next(), tc.from.Add(1); got != want {
			t.Errorf("%#x.Next() = %#x, want %#x", tc.from, got, want)
		}
	}
	// Multiples of 2^24 do not change the value.
	if got := T(7).Add(1 << 24); got != 7 {
		t.Errorf("7.Add(2^24) = %#x, want 7", got)
	}
	if got := T(7).Add(-1 << 31); got != 7 {
		t.Errorf("7.Add(-2^31) = %#x, want 7", got)
	}
}
