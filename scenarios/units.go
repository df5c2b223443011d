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

// Rate is in bits a second, written as "25Gbit" or "100Mbit".
type Rate uint64

// MaxDuration is the longest time that a scenario may name.
const MaxDuration = 24 * time.Hour

// The written forms, as the schema has them. They leave nothing to rounding:
// what matches is a whole number of millionths, bytes or bits.
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

// scale is a unit and its worth.
type scale struct {
	unit  string
	worth uint64
}

var (
	byteScales = []scale{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}
	rateScales = []scale{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
)

// UnmarshalText reads a share such as "0.1%".
func (p *Percent) UnmarshalText(text []byte) error {
	if !percentForm.Match(text) {
		if tooLarge.Match(text) {
			return fmt.Errorf("%s is more than there is: at most 100%%", shown(string(text)))
		}
		return fmt.Errorf("%s is not a share: write a percentage such as 0.1%%, with at most four digits after the point", shown(string(text)))
	}
	*p = Percent(decimal(strings.TrimSuffix(string(text), "%"), 1e4))
	return nil
}

// MarshalText is the share as a percentage.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String is the share as a percentage.
func (p Percent) String() string { return fraction(uint64(p), 1e4) + "%" }

// PPM is the share in parts per million.
func (p Percent) PPM() uint32 { return uint32(p) }

// UnmarshalText reads a size such as "4096" or "4KiB".
func (b *Bytes) UnmarshalText(text []byte) error {
	if !bytesForm.Match(text) {
		return fmt.Errorf("%s is not a size: write whole bytes, such as 4096, or a unit behind them, such as 4KiB or 2MiB", shown(string(text)))
	}
	number, worth := split(string(text), byteScales)
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > 1<<50/worth {
		return fmt.Errorf("%s is too large a size", text)
	}
	*b = Bytes(n * worth)
	return nil
}

// MarshalText is the size in the largest unit that it is a whole number of.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String is the size in the largest binary unit that it is a whole number of.
func (b Bytes) String() string {
	for _, s := range byteScales[:3] {
		if worth := Bytes(s.worth); b != 0 && b%worth == 0 {
			return strconv.FormatInt(int64(b/worth), 10) + s.unit
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// UnmarshalText reads a rate such as "25Gbit".
func (r *Rate) UnmarshalText(text []byte) error {
	if !rateForm.Match(text) {
		return fmt.Errorf("%s is not a rate: write bits a second with their unit, such as 25Gbit or 100Mbit", shown(string(text)))
	}
	number, worth := split(string(text), rateScales)
	*r = Rate(decimal(number, worth))
	return nil
}

// MarshalText is the rate in the largest unit that is not longer to write.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String is the rate in the largest unit that it can be written in exactly.
func (r Rate) String() string {
	for _, s := range rateScales {
		if s.worth > 1 && uint64(r) >= s.worth && uint64(r)%(s.worth/1000) == 0 {
			return fraction(uint64(r), s.worth) + s.unit
		}
	}
	return strconv.FormatUint(uint64(r), 10) + "bit"
}

// parseDuration reads a time such as "10ms" or "1m30s".
func parseDuration(text string) (time.Duration, error) {
	if !durationForm.MatchString(text) {
		return 0, fmt.Errorf("%s is not a time: write a number with its unit, such as 10ms or 1.5s", shown(text))
	}
	d, err := time.ParseDuration(text)
	if err != nil || d > MaxDuration {
		return 0, fmt.Errorf("%s is too long: at most %s", text, formatDuration(MaxDuration))
	}
	return d, nil
}

// formatDuration is what parseDuration reads, in letters that every keyboard has.
func formatDuration(d time.Duration) string {
	s := strings.Replace(d.String(), "µs", "us", 1)
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// split cuts a quantity into its number and the worth of its unit.
func split(text string, scales []scale) (number string, worth uint64) {
	for _, s := range scales {
		if n, ok := strings.CutSuffix(text, s.unit); ok {
			return n, s.worth
		}
	}
	return text, 1
}

// decimal is a number with a few digits after the point, times worth. The
// patterns above see to it that the result is whole and fits.
func decimal(number string, worth uint64) uint64 {
	whole, part, _ := strings.Cut(number, ".")
	n, _ := strconv.ParseUint(whole, 10, 64)
	n *= worth
	for _, digit := range part {
		worth /= 10
		n += uint64(digit-'0') * worth
	}
	return n
}

// fraction is n/worth in decimal, worth being a power of ten.
func fraction(n, worth uint64) string {
	whole := strconv.FormatUint(n/worth, 10)
	rest := strconv.FormatUint(worth+n%worth, 10)[1:] // with its leading zeros
	if rest = strings.TrimRight(rest, "0"); rest == "" {
		return whole
	}
	return whole + "." + rest
}

// shown is a word of the file as an error shows it: short, and visible even if
// it is empty or has odd letters.
func shown(text string) string {
	const most = 40
	short := text
	if len(short) > most {
		short = strings.ToValidUTF8(short[:most], "") + "…"
	}
	if quoted := strconv.Quote(short); text == "" || strings.ContainsAny(text, " \t") || quoted[1:len(quoted)-1] != short {
		return quoted
	}
	return short
}
