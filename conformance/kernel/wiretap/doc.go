// Package wiretap reads the iWARP connections that pass an interface, so that a run
// against the kernel's soft-iWARP can say what was on the wire: whether a CRC was
// agreed on and is right, whether pads are zero, whether a Terminate is laid out as
// RFC 5040 says, whether a peer leaves the first frame lying.
//
// It is an observer written from the RFCs alone and shares no code with the stack
// that it watches. It is no dissector: it knows the few fields that it judges, and
// it reads no markers, which the kernel's soft-iWARP does not have.
//
// A Watch may be fed and asked by several goroutines; a Tap feeds its Watches from
// one of its own until it is closed.
package wiretap
