package wire

import (
	"errors"
	"fmt"
)

// What parsing finds wrong. The errors it returns are made once, at start-up: a
// flood of bad input costs no allocation. Compare with errors.Is.
var (
	// ErrShort is a packet that ends inside a header.
	ErrShort = errors.New("too short")
	// ErrVersion is a packet of another version: nothing behind its first octet
	// has a meaning.
	ErrVersion = fmt.Errorf("not version %d of datagram-iWARP", Version)
	// ErrKind is a packet of a kind that the version does not have.
	ErrKind = errors.New("no such kind of packet")
	// ErrLong is a packet that goes on where its kind ends, or an Ack that claims
	// more SACK words than there are packets in a window.
	ErrLong = errors.New("too long")
)

func shortError(header string, need int) error {
	return fmt.Errorf("%s of %d octets: %w", header, need, ErrShort)
}
