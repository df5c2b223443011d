package workload

import (
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/scenarios/traffic"
)

// Violation is a guarantee that the fabric has broken.
type Violation struct {
	Kind ViolationKind `json:"kind"`
	What string        `json:"what"`
}

// String returns What.
func (v Violation) String() string { return v.What }

// ViolationKind is the category of a violation.
type ViolationKind string

// The kinds of violations.
const (
	Contents   ViolationKind = "contents"   // messages or memory: wrong bytes, wrong length, or at the wrong place
	Delivery   ViolationKind = "delivery"   // a message lost, reordered, duplicated, or never sent
	Completion ViolationKind = "completion" // requests and receives: missing, duplicate, or with wrong fields
	Connection ViolationKind = "connection" // behaviour of the connection manager
	Omitted    ViolationKind = "unsaid"     // number of violations that are not described
)

// Violation.Want of package traffic for wrong contents, and for wrong delivery. Its
// violations have no kind.
var (
	contentsWants = []string{
		"the bytes that were sent",
		"nothing but the message in the receive",
		"only the bytes asked for",
		"only bytes of this write in its place",
		"what the requests before it left there",
		"everything written before the message",
		"the memory that the requests in order make",
	}
	deliveryWants = []string{
		"each message at most once",
		"messages in order",
		"the message: the peer saw it complete",
		"all messages: the network loses none",
	}
)

// sharedWord begins Violation.Where of package traffic for wrong atomics.
const sharedWord = "shared word "

// kindOf returns the kind of a violation of random traffic.
func kindOf(v *traffic.Violation) ViolationKind {
	switch {
	case slices.Contains(contentsWants, v.Want) || strings.HasPrefix(v.Where, sharedWord):
		return Contents
	case slices.Contains(deliveryWants, v.Want):
		return Delivery
	default:
		return Completion
	}
}
