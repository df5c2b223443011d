package wire

import (
	"errors"
	"fmt"
)

// Errors of Parse. They are allocated once, at start-up. Compare with errors.Is.
var (
	// ErrShort: the packet ends inside a header.
	ErrShort = errors.New("too short")
	// ErrVersion: the packet is of another version.
	ErrVersion = fmt.Errorf("not version %d of datagram-iWARP", Version)
	// ErrKind: the version does not define the kind of packet.
	ErrKind = errors.New("no such kind of packet")
	// ErrLong: octets follow the last block, or an Ack has more than MaxSackWords.
	ErrLong = errors.New("too long")
)

// shortError returns an ErrShort for a header or block that takes need octets.
func shortError(header string, need int) error {
	return fmt.Errorf("%s of %d octets: %w", header, need, ErrShort)
}
