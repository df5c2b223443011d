package workload

import (
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/scenarios/traffic"
)

// Violation is a promise that the fabric has broken.
type Violation struct {
	Kind ViolationKind `json:"kind"`
	What string        `json:"what"`
}

// String is what was found.
func (v Violation) String() string { return v.What }

// ViolationKind says what a violation is about, so that nobody needs to read the
// sentence to know.
type ViolationKind string

// The kinds of violations.
const (
	Contents   ViolationKind = "contents"   // of messages and memory: wrong bytes, too few, or beside their place
	Delivery   ViolationKind = "delivery"   // a message lost, out of order, twice, or never sent
	Completion ViolationKind = "completion" // of requests and receives: missing, doubled, or with wrong fields
	Connection ViolationKind = "connection" // what the connection manager made of a call
	Omitted    ViolationKind = "unsaid"     // how many more there were than are told
)

// What package traffic wants where it compares bytes, and where it follows
// messages. Its violations have no kind of their own.
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

// sharedWord is where package traffic finds atomics wrong.
const sharedWord = "shared word "

// kindOf is what a violation of the random work is about.
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
