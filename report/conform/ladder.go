package conform

import (
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// arrows are the directions of steps: the device is on the left, the peer on the right.
var arrows = map[string]string{Sent: "<--", FinSent: "<--", Came: "-->", FinCame: "-->", Reset: "-x-", Note: "   ", Gap: " : "}

// Text formats the ladder as text, with the device on the left.
func (l *Ladder) Text() string {
	var b strings.Builder
	for _, s := range l.Steps {
		at := Clock(s.At)
		if s.Kind == Gap {
			at = ""
		}
		fmt.Fprintf(&b, "%12s  %s  %s\n", at, arrows[s.Kind], textfmt.PrintableLine(s.Text))
	}
	return b.String()
}

// Clock formats a time in a case, with a resolution of 0.1 us.
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
