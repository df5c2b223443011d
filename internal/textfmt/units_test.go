package textfmt

import (
	"math"
	"testing"
	"time"
)

func TestQuantities(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"},
		{Bytes(999), "999 B"},
		{Bytes(1023), "1.0 KiB"},
		{Bytes(uint64(5_767_168)), "5.5 MiB"},
		{Bytes(int64(3) << 50), "3072.0 TiB"},
		{BitRate(0), "0 b/s"},
		{BitRate(999.7), "1.00 kb/s"},
		{BitRate(13.08e9), "13.1 Gb/s"},
		{BitRate(110e9), "110 Gb/s"},
		{SI(2_500_000, ""), "2.50 M"},
		{SI(12, ""), "12"},
		{SI(0.5, "packets/s"), "0.50 packets/s"},
		{ThreeDigits(99.99), "100"},
		{ThreeDigits(9.999), "10.0"},
		{Duration(0), "0 ns"},
		{Duration(999), "999 ns"},
		{Duration(416_100), "416 µs"},
		{Duration(999_700), "1.00 ms"},
		{Duration(3_551_000), "3.55 ms"},
		{Duration(12345 * time.Millisecond), "12.3 s"},
		{Duration(125 * time.Second), "2 min 5 s"},
		{Duration(3*time.Hour + 2*time.Minute + 40*time.Second), "3 h 3 min"},
		{Duration(-3 * time.Millisecond), "−3 ms"},
		{Duration(math.MinInt64), "−2562047 h 47 min"},
		{Count(0, " "), "0"},
		{Count(999, " "), "999"},
		{Count(1234567, " "), "1 234 567"},
		{Count(123456, ""), "123456"},
		{Percent(0, 10), "0"},
		{Percent(1, 0), "0"},
		{Percent(1, 1_000_000), "<0.01 %"},
		{Percent(49, 5000), "0.98 %"},
		{Percent(99_999, 100_000), "99.9 %"},
		{Percent(10, 10), "100 %"},
		{Plural(1, "rank"), "1 rank"},
		{Plural(64, "rank"), "64 ranks"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
