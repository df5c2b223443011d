// Package units writes quantities for people: sizes in the binary units of
// memory, rates and times in SI units, always with a space before the unit and
// with three or four figures that count. It is for tables, reports and
// messages, and never read back.
package units

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Bytes writes a size: "512 B", "5.5 MiB".
func Bytes[T int | int64 | uint64](n T) string {
	v, u := float64(n), 0
	names := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1000 && u < len(names)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, names[u])
}

// BitRate writes bits a second: "13.1 Gb/s".
func BitRate(bps float64) string { return SI(bps, "b/s") }

// SI writes a quantity with three figures and the prefix that suits it: "1.25 M",
// "13.1 Gb/s". Without a unit, values below 1000 are written as they are.
func SI(v float64, unit string) string {
	prefixes := [...]string{"", "k", "M", "G", "T", "P"}
	u := 0
	// 999.5 would be rounded to 1000 of the smaller prefix.
	for v >= 999.5 && u < len(prefixes)-1 {
		v, u = v/1000, u+1
	}
	text := Figures(v)
	if prefixes[u]+unit == "" {
		return text
	}
	return text + " " + prefixes[u] + unit
}

// Figures writes a number below 1000 with three figures: "0", "1.25", "13.1".
func Figures(v float64) string {
	switch {
	case v == float64(int64(v)) && v < 1000:
		return strconv.FormatInt(int64(v), 10)
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// Duration writes a time with three figures: "850 ns", "416 µs", "3.55 ms",
// "12.3 s", and in minutes and hours where nobody counts seconds any more.
func Duration(d time.Duration) string {
	if d < 0 {
		return "−" + Duration(-max(d, -math.MaxInt64)) // the least has no opposite
	}
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", int64(d))
	case d < 999500*time.Nanosecond:
		return Figures(float64(d)/1e3) + " µs"
	case d < 999500*time.Microsecond:
		return Figures(float64(d)/1e6) + " ms"
	case d < 2*time.Minute:
		return Figures(d.Seconds()) + " s"
	case d < 2*time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	default:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
}

// Count writes a whole number with its figures in groups of three, apart by sep:
// a thin space on a page, nothing where columns are counted.
func Count(n uint64, sep string) string {
	s := strconv.FormatUint(n, 10)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + sep + s[at:]
	}
	return s
}

// Share writes a part of a whole in percent: "0", "0.82 %", "<0.01 %", "100 %".
func Share(part, whole uint64) string {
	switch {
	case part == 0 || whole == 0:
		return "0"
	case part >= whole:
		return "100 %"
	}
	p := 100 * float64(part) / float64(whole)
	if p < 0.01 {
		return "<0.01 %"
	}
	return Figures(min(p, 99.9)) + " %"
}

// Plural writes a number and what is counted: "1 rank", "64 ranks".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
