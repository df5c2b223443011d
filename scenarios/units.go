package scenarios

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Percent is a probability in parts per million, written as "0.1%".
type Percent uint32

// Bytes is a size, written as 4096, "4KiB" or "2MiB".
type Bytes int64

// Rate is in bits per second, written as "25Gbit" or "100Mbit".
type Rate uint64

// MaxDuration is the longest time in a scenario.
const MaxDuration = 24 * time.Hour

// The written forms, as in the schema. Every match is a whole number of millionths, bytes
// or bits, without rounding.
const (
	percentPattern  = `^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)%$`
	bytesPattern    = `^[0-9]{1,12}(B|kB|MB|GB|KiB|MiB|GiB)?$`
	ratePattern     = `^([0-9]{1,15}bit|[0-9]{1,6}(\.[0-9]{1,3})?[kMGT]bit)$`
	durationPattern = `^([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|µs|μs|ms|s|m|h)){1,6}$`
)

var (
	tooLarge     = regexp.MustCompile(`^[1-9][0-9]{2,}(\.[0-9]*)?%$`)
	percentForm  = regexp.MustCompile(percentPattern)
	bytesForm    = regexp.MustCompile(bytesPattern)
	rateForm     = regexp.MustCompile(ratePattern)
	durationForm = regexp.MustCompile(durationPattern)
)

// unitFactor is a unit and its factor.
type unitFactor struct {
	unit   string
	factor uint64
}

var (
	byteScales = []unitFactor{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}
	rateScales = []unitFactor{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
)

const ppmPerPercent = 1e4 // parts per million

// UnmarshalText parses a percentage such as "0.1%", and sets p in parts per million.
func (p *Percent) UnmarshalText(text []byte) error {
	if !percentForm.Match(text) {
		if tooLarge.Match(text) {
			return fmt.Errorf("%s is too large: at most 100%%", quoteShort(string(text)))
		}
		return fmt.Errorf("%s is not a percentage: write a number such as 0.1%%, with at most four digits after the point", quoteShort(string(text)))
	}
	*p = Percent(parseDecimal(strings.TrimSuffix(string(text), "%"), ppmPerPercent))
	return nil
}

// MarshalText returns the percentage, for the descriptions of labs in JSON.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String returns the percentage.
func (p Percent) String() string { return formatDecimal(uint64(p), ppmPerPercent) + "%" }

// PPM returns parts per million.
func (p Percent) PPM() uint32 { return uint32(p) }

// UnmarshalText parses a size such as "4096" or "4KiB".
func (b *Bytes) UnmarshalText(text []byte) error {
	if !bytesForm.Match(text) {
		return fmt.Errorf("%s is not a size: write whole bytes, such as 4096, or a unit behind them, such as 4KiB or 2MiB", quoteShort(string(text)))
	}
	number, factor := splitUnit(string(text), byteScales)
	n, err := strconv.ParseUint(number, 10, 64)
	const maxBytes = 1 << 50
	if err != nil || n > maxBytes/factor {
		return fmt.Errorf("%s is too large a size: at most %s", quoteShort(string(text)), Bytes(maxBytes))
	}
	*b = Bytes(n * factor)
	return nil
}

// MarshalText returns the size as String does.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String returns the size in the largest binary unit that divides it.
func (b Bytes) String() string {
	for _, s := range byteScales[:3] { // the binary units
		if factor := Bytes(s.factor); b != 0 && b%factor == 0 {
			return strconv.FormatInt(int64(b/factor), 10) + s.unit
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// UnmarshalText parses a rate such as "25Gbit".
func (r *Rate) UnmarshalText(text []byte) error {
	if !rateForm.Match(text) {
		return fmt.Errorf("%s is not a rate: write bits per second with their unit, such as 25Gbit or 100Mbit", quoteShort(string(text)))
	}
	number, factor := splitUnit(string(text), rateScales)
	*r = Rate(parseDecimal(number, factor))
	return nil
}

// MarshalText returns the rate as String does.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String returns the rate in the largest unit in which it has at most three decimals.
func (r Rate) String() string {
	for _, s := range rateScales {
		if s.factor > 1 && uint64(r) >= s.factor && uint64(r)%(s.factor/1000) == 0 {
			return formatDecimal(uint64(r), s.factor) + s.unit
		}
	}
	return strconv.FormatUint(uint64(r), 10) + "bit"
}

// parseDuration parses a time such as "10ms" or "1m30s".
func parseDuration(text string) (time.Duration, error) {
	if !durationForm.MatchString(text) {
		return 0, fmt.Errorf("%s is not a time: write a number with its unit, such as 10ms or 1.5s", quoteShort(text))
	}
	d, err := time.ParseDuration(text)
	if err != nil || d > MaxDuration {
		return 0, fmt.Errorf("%s is too long: at most %s", text, formatDuration(MaxDuration))
	}
	return d, nil
}

// formatDuration returns a time as parseDuration reads it, in ASCII.
func formatDuration(d time.Duration) string {
	s := strings.Replace(d.String(), "µs", "us", 1)
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// splitUnit splits a quantity into its number and the factor of its unit.
func splitUnit(text string, scales []unitFactor) (number string, factor uint64) {
	for _, s := range scales {
		if n, ok := strings.CutSuffix(text, s.unit); ok {
			return n, s.factor
		}
	}
	return text, 1
}

// parseDecimal returns a decimal number times factor. The caller has checked that the
// result is a whole number and fits.
func parseDecimal(number string, factor uint64) uint64 {
	whole, fraction, _ := strings.Cut(number, ".")
	n, _ := strconv.ParseUint(whole, 10, 64)
	n *= factor
	for _, digit := range fraction {
		factor /= 10
		n += uint64(digit-'0') * factor
	}
	return n
}

// formatDecimal returns n/factor as a decimal number. factor is a power of ten.
func formatDecimal(n, factor uint64) string {
	whole := strconv.FormatUint(n/factor, 10)
	rest := strconv.FormatUint(factor+n%factor, 10)[1:] // with leading zeros
	if rest = strings.TrimRight(rest, "0"); rest == "" {
		return whole
	}
	return whole + "." + rest
}

// quoteShort shortens a word of the file for an error, and quotes it if it is empty or has
// special characters.
func quoteShort(text string) string {
	const maxLength = 40
	short := text
	if len(short) > maxLength {
		short = strings.ToValidUTF8(short[:maxLength], "") + "…"
	}
	if quoted := strconv.Quote(short); text == "" || strings.ContainsAny(text, " \t") || quoted[1:len(quoted)-1] != short {
		return quoted
	}
	return short
}
