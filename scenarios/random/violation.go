package random

import (
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
)

// Violation is a broken guarantee of the service.
type Violation struct { //nolint:errname // a finding, not a failure
	Kind  traffic.ViolationKind
	Where string // lane, direction and request
	Want  string
	Got   string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s; want %s", v.Where, v.Got, v.Want)
}

// as sets the kind of the violation.
func (v *Violation) as(kind traffic.ViolationKind) *Violation {
	v.Kind = kind
	return v
}

// violation returns a violation by completions. It names request n of a side, or only the
// direction if o is nil.
func (l *lane) violation(from Side, n int, o *op, want, got string) *Violation {
	return &Violation{Kind: traffic.Completion, Where: l.describe(from, n, o), Want: want, Got: got}
}

// incoming is the requests of the peer on a lane, and how they arrived.
type incoming struct {
	lane     *lane
	plan     plan
	want     []byte // room for an expected message
	arrivals Arrivals
}

// violation returns a Violation about request n of the peer; about no request if n is negative.
func (x *incoming) violation(n int, want, got string) *Violation {
	var o *op
	if n >= 0 {
		o = &x.plan.ops[n]
	}
	return x.lane.violation(x.lane.end.side.Peer(), n, o, want, got)
}
