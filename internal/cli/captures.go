package cli

import "errors"

// Captures says whose packets are kept. It is the value of the flag --capture; the zero value is
// that of CaptureNone.
type Captures string

// The values of Captures.
const (
	CaptureFailing Captures = "failing"
	CaptureAll     Captures = "all"
	CaptureNone    Captures = "none"
)

func (c *Captures) String() string { return string(*c) }

// Type returns the name of the value in help texts.
func (c *Captures) Type() string { return "WHICH" }

// Set implements pflag.Value.
func (c *Captures) Set(s string) error {
	switch v := Captures(s); v {
	case CaptureFailing, CaptureAll, CaptureNone:
		*c = v
		return nil
	}
	return errors.New("the values are failing, all and none")
}

// Any reports whether packets are captured at all.
func (c Captures) Any() bool { return c == CaptureFailing || c == CaptureAll }

// Keeps reports whether the packets of a result are kept, which is bad or not.
func (c Captures) Keeps(bad bool) bool { return c == CaptureAll || c == CaptureFailing && bad }
