package mpa

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Errors of Accept, Reject and Config.Validate.
var (
	// ErrState: Accept or Reject was called without a Request that waits for it.
	ErrState = errors.New("mpa: no Request waits for an answer")
	// ErrPrivateData: the private data is too long.
	ErrPrivateData = errors.New("mpa: too much private data")
)

// Values of Event.Err.
var (
	ErrNoMPA           = fmt.Errorf("mpa: the peer does not use MPA: %w", wire.ErrKey)
	ErrLongPrivateData = fmt.Errorf("mpa: %w", wire.ErrPrivateData)
	ErrTwoInitiators   = errors.New("mpa: a Request was received instead of a Reply: both sides are initiators")
	ErrUnasked         = errors.New("mpa: a Reply was received instead of a Request")
	ErrRevision        = errors.New("mpa: start-up frame of an unsupported revision")
	ErrShortEnhanced   = errors.New("mpa: start-up frame has the flag of enhanced data and is too short for it")
	ErrNotEnhanced     = errors.New("mpa: the Reply to an enhanced Request is not enhanced")
	ErrEnhanced        = errors.New("mpa: the Reply to an unenhanced Request is enhanced")
	ErrEarlyOctets     = errors.New("mpa: octets followed the Request before the Reply was sent")
	ErrTruncatedFrame  = errors.New("mpa: the stream ended inside a start-up frame")
	ErrIRD             = errors.New("mpa: the responder's ORD exceeds the IRD of this side")
	ErrModel           = errors.New("mpa: the responder did not agree to the peer-to-peer model")
	ErrNoRTR           = errors.New("mpa: none of the responder's RTRs can be sent")
	ErrMarkersUnwanted = errors.New("mpa: the peer requests markers, which are not supported")

	ErrCRC           = errors.New("mpa: CRC of an FPDU is wrong")
	ErrMarker        = errors.New("mpa: a marker and the length of an FPDU disagree about where it starts")
	ErrTruncatedFPDU = errors.New("mpa: the stream ended inside an FPDU")
	ErrStalledFPDU   = errors.New("mpa: timeout inside an FPDU: its length may be wrong")

	ErrEOF     = errors.New("mpa: the peer has closed the stream")
	ErrLost    = errors.New("mpa: the stream is lost")
	ErrTimeout = errors.New("mpa: the start-up frame did not arrive in time")
)
