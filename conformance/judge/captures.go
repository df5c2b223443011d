package judge

import (
	"fmt"

	"github.com/fabrictest/fabrictest/report/conform"
)

// Captures is the cases whose packets are kept. It is the value of a flag.
type Captures string

// The values of Captures.
const (
	CaptureFailing Captures = "failing"
	CaptureAll     Captures = "all"
	CaptureNone    Captures = "none"
)

// String returns the flag's value.
func (m *Captures) String() string { return string(*m) }

// Type returns the name of the value in help texts.
func (m *Captures) Type() string { return "WHICH" }

// Set reads the flag's value.
func (m *Captures) Set(s string) error {
	switch v := Captures(s); v {
	case CaptureFailing, CaptureAll, CaptureNone:
		*m = v
		return nil
	}
	return fmt.Errorf("give failing, all or none")
}

// keeps reports whether the packets of a case with a verdict are kept.
func (m Captures) keeps(v conform.Verdict) bool {
	return m == CaptureAll || m == CaptureFailing && v.Bad()
}
