package conform

import (
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/printable"
)

// arrows show which way something went: the device is on the left, the judge on the
// right.
var arrows = map[string]string{Sent: "<--", FinSent: "<--", Came: "-->", FinCame: "-->", Reset: "-x-", Note: "   ", Gap: " : "}

// Text is the ladder as lines of text, with the device on the left.
func (l *Ladder) Text() string {
	var b strings.Builder
	for _, s := range l.Steps {
		at := Clock(s.At)
		if s.Kind == Gap {
			at = ""
		}
		fmt.Fprintf(&b, "%12s  %s  %s\n", at, arrows[s.Kind], printable.Line(s.Text))
	}
	return b.String()
}

// Clock is a time in a case, to the tenth of a microsecond: what happens within one
// must be told apart, and what happens after minutes as well.
func Clock(t time.Duration) string {
	t = t.Round(100 * time.Nanosecond)
	switch {
	case t < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(t)/1e3)
	case t < time.Second:
		return fmt.Sprintf("%.4f ms", float64(t)/1e6)
	default:
		return fmt.Sprintf("%.7f s", t.Seconds())
	}
}
