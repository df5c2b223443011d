package workload

import "github.com/fabrictest/fabrictest/traffic"

// Violation is a guarantee that the fabric has broken.
type Violation struct {
	Kind traffic.ViolationKind `json:"kind"`
	What string                `json:"what"`
}

// String returns What.
func (v Violation) String() string { return v.What }
