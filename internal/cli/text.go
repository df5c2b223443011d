package cli

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable escapes control characters other than newline and tab, invisible characters such as
// those that change the text direction, and invalid UTF-8. Text from encoding/json stays valid
// JSON: it has no characters that Printable escapes with \x, and JSON allows escapes with \u.
func Printable(s string) string {
	if strings.IndexFunc(s, mustEscape) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !mustEscape(r):
			b.WriteRune(r)
		case r < ' ':
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		}
		s = s[n:]
	}
	return b.String()
}

// mustEscape reports whether r is a control character other than newline and tab, an invisible
// format character, a line or paragraph separator, or a noncharacter (fffe, ffff). The zero-width
// non-joiner and joiner (200c, 200d) need no escape, because they are part of visible characters.
func mustEscape(r rune) bool {
	switch {
	case r >= ' ' && r < 0x7f || r == '\n' || r == '\t':
		return false
	case r == '\u200c' || r == '\u200d':
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == '\ufffe' || r == '\uffff'
}

// PrintableLine is like Printable, but replaces newlines and tabs by spaces.
func PrintableLine(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Printable(s))
}

// PrintableWriter writes text to W, escaped by [Printable]. It may be used from several goroutines.
type PrintableWriter struct {
	W io.Writer

	mu   sync.Mutex
	rest []byte // incomplete UTF-8 sequence at the end of the last write
}

// Write writes p escaped. It keeps an incomplete UTF-8 sequence at the end of p, which the next
// Write or Flush writes.
func (w *PrintableWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.rest, p...)
	end := len(text) - incompleteLen(text)
	w.rest = bytes.Clone(text[end:])
	if _, err := io.WriteString(w.W, Printable(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the incomplete UTF-8 sequence that Write has kept, escaped.
func (w *PrintableWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.W, Printable(string(w.rest)))
	w.rest = nil
	return err
}

// incompleteLen returns the length of the incomplete UTF-8 sequence at the end of text, or 0.
func incompleteLen(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if b := text[len(text)-n:]; utf8.RuneStart(b[0]) {
			if utf8.FullRune(b) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Bytes formats a size with at most three digits before the point, unless it is 1000 TiB or more:
// "512 B", "5.5 MiB".
func Bytes[T int | int64 | uint64](n T) string {
	v, unit := float64(n), 0
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1000 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[unit])
}

// BitRate formats bits per second: "13.1 Gb/s".
func BitRate(bps float64) string { return SI(bps, "b/s") }

// SI formats a quantity with three digits and an SI prefix before the unit: "1.25 M" if unit
// is empty, "13.1 Gb/s" if it is "b/s".
func SI(v float64, unit string) string {
	prefixes := [...]string{"", "k", "M", "G", "T", "P"}
	prefix := 0
	// 999.5 would be rounded to 1000.
	for v >= 999.5 && prefix < len(prefixes)-1 {
		v, prefix = v/1000, prefix+1
	}
	text := ThreeDigits(v)
	if prefixes[prefix]+unit == "" {
		return text
	}
	return text + " " + prefixes[prefix] + unit
}

// ThreeDigits formats a number below 1000 with three digits, but an integer without decimals:
// "0", "1.25", "13.1". The limits are 9.995 and 99.95 because these round to 10.0 and 100.
func ThreeDigits(v float64) string {
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

// Duration formats a time: "850 ns", "416 µs", "3.55 ms", "12.3 s", "2 min 5 s",
// "3 h 3 min". From 999.5 µs and 999.5 ms on it uses the next unit, because they round to 1000.
func Duration(d time.Duration) string {
	if d < 0 {
		return "−" + Duration(-max(d, -math.MaxInt64)) // -math.MinInt64 overflows
	}
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", int64(d))
	case d < 999500*time.Nanosecond:
		return ThreeDigits(float64(d)/1e3) + " µs"
	case d < 999500*time.Microsecond:
		return ThreeDigits(float64(d)/1e6) + " ms"
	case d < 2*time.Minute:
		return ThreeDigits(d.Seconds()) + " s"
	case d < 2*time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	default:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
}

// Count formats an integer with sep as the thousands separator.
func Count(n uint64, sep string) string {
	s := strconv.FormatUint(n, 10)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + sep + s[at:]
	}
	return s
}

// Percent formats part/whole: "0", "0.82 %", "<0.01 %", "100 %". Only the whole is "100 %": a
// smaller part is at most "99.9 %".
func Percent(part, whole uint64) string {
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
	return ThreeDigits(min(p, 99.9)) + " %"
}

// Plural formats a number with a noun, to which it adds an s unless n is 1: "1 rank", "64 ranks".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
