package window

import "errors"

// Assert is what a program promises of an epoch.
type Assert uint8

// The promises.
const (
	NoStore Assert = 1 << iota
	NoPut
	NoPrecede
	NoSucceed
	NoCheck
)

// LockKind says who may have a lock at the same time.
type LockKind uint8

// The kinds.
const (
	Shared LockKind = iota
	Exclusive
)

// Errors of operations and epochs.
var (
	ErrArg      = errors.New("wrong argument")
	ErrType     = errors.New("no such type")
	ErrOp       = errors.New("operation does not fit")
	ErrSync     = errors.New("epoch does not allow it")
	ErrRange    = errors.New("outside of the window")
	ErrConflict = errors.New("accesses conflict")
	ErrLost     = errors.New("peer is lost")
	// ErrConfused is a peer that says what no engine says.
	ErrProtocol = errors.New("peer does not keep to the protocol")
)
