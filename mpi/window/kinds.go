package window

import "errors"

// Assert is a set of promises about an epoch.
type Assert uint8

// The assertions.
const (
	NoStore Assert = 1 << iota
	NoPut
	NoPrecede
	NoSucceed
	NoCheck
)

// LockKind is the kind of a lock.
type LockKind uint8

// The kinds.
const (
	Shared LockKind = iota
	Exclusive
)

// Errors of operations and epochs.
var (
	ErrArg      = errors.New("invalid argument")
	ErrType     = errors.New("no such type")
	ErrOp       = errors.New("invalid reduction operation")
	ErrSync     = errors.New("not allowed in this epoch")
	ErrRange    = errors.New("outside the window")
	ErrConflict = errors.New("accesses conflict")
	ErrLost     = errors.New("peer is lost")
	// ErrProtocol: a peer has sent a message that the protocol does not allow.
	ErrProtocol = errors.New("peer violates the protocol")
)
