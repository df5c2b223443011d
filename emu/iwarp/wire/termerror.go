package wire

import (
	"cmp"
	"fmt"
)

// Layer is the layer that found the error of a Terminate.
type Layer uint8

// The layers.
const (
	LayerRDMAP Layer = 0
	LayerDDP   Layer = 1
	LayerMPA   Layer = 2
)

// String prints the layer's name.
func (l Layer) String() string {
	if names := [...]string{"RDMAP", "DDP", "MPA"}; int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("layer %d", uint8(l))
}

// TermError is the error of a Terminate: layer, type and code.
type TermError struct {
	Layer Layer // four bits
	Type  uint8 // four bits
	Code  uint8
}

// Types of error by layer.
const (
	RDMAPLocal            uint8 = 0 // local catastrophic: the code says nothing
	RDMAPRemoteProtection uint8 = 1
	RDMAPRemoteOperation  uint8 = 2

	DDPLocal    uint8 = 0
	DDPTagged   uint8 = 1
	DDPUntagged uint8 = 2
	DDPLower    uint8 = 3 // reserved for the layer below

	MPAError uint8 = 0
)

// Codes by which GuessTerminateOrder decides.
const (
	codeRDMAPVersion       = 5
	codeRDMAPOpcode        = 6
	codeMPACRC             = 2
	codeMPAFrame           = 4
	codeMPAInsufficientIRD = 6
	codeMPANoMatchingRTR   = 7
)

// The errors that the RFCs define.
var (
	TermRDMAPLocal = TermError{LayerRDMAP, RDMAPLocal, 0}

	TermProtInvalidSTag   = TermError{LayerRDMAP, RDMAPRemoteProtection, 0x00}
	TermProtBounds        = TermError{LayerRDMAP, RDMAPRemoteProtection, 0x01}
	TermProtAccess        = TermError{LayerRDMAP, RDMAPRemoteProtection, 0x02}
	TermProtStream        = TermError{LayerRDMAP, RDMAPRemoteProtection, 0x03}
	TermProtWrap          = TermError{LayerRDMAP, RDMAPRemoteProtection, 0x04}
	TermProtNoInvalidate  = TermError{LayerRDMAP, RDMAPRemoteProtection, 0x09}
	TermProtUnspecified   = TermError{LayerRDMAP, RDMAPRemoteProtection, 0xFF}
	TermOpVersion         = TermError{LayerRDMAP, RDMAPRemoteOperation, codeRDMAPVersion}
	TermOpOpcode          = TermError{LayerRDMAP, RDMAPRemoteOperation, codeRDMAPOpcode}
	TermOpStream          = TermError{LayerRDMAP, RDMAPRemoteOperation, 0x07} // catastrophic, of this stream
	TermOpGlobal          = TermError{LayerRDMAP, RDMAPRemoteOperation, 0x08} // catastrophic, of the device
	TermOpNoInvalidate    = TermError{LayerRDMAP, RDMAPRemoteOperation, 0x09}
	TermOpUnspecified     = TermError{LayerRDMAP, RDMAPRemoteOperation, 0xFF}
	TermDDPLocal          = TermError{LayerDDP, DDPLocal, 0}
	TermTaggedSTag        = TermError{LayerDDP, DDPTagged, 0x00}
	TermTaggedBounds      = TermError{LayerDDP, DDPTagged, 0x01}
	TermTaggedStream      = TermError{LayerDDP, DDPTagged, 0x02}
	TermTaggedWrap        = TermError{LayerDDP, DDPTagged, 0x03}
	TermTaggedVersion     = TermError{LayerDDP, DDPTagged, 0x04}
	TermUntaggedQN        = TermError{LayerDDP, DDPUntagged, 0x01}
	TermUntaggedNoBuffer  = TermError{LayerDDP, DDPUntagged, 0x02}
	TermUntaggedMSN       = TermError{LayerDDP, DDPUntagged, 0x03}
	TermUntaggedMO        = TermError{LayerDDP, DDPUntagged, 0x04}
	TermUntaggedTooLong   = TermError{LayerDDP, DDPUntagged, 0x05}
	TermUntaggedVersion   = TermError{LayerDDP, DDPUntagged, 0x06}
	TermMPAClosed         = TermError{LayerMPA, MPAError, 0x01}
	TermMPACRC            = TermError{LayerMPA, MPAError, codeMPACRC}
	TermMPAMarker         = TermError{LayerMPA, MPAError, 0x03}
	TermMPAFrame          = TermError{LayerMPA, MPAError, codeMPAFrame}
	TermMPALocal          = TermError{LayerMPA, MPAError, 0x05}
	TermMPANotEnoughReads = TermError{LayerMPA, MPAError, codeMPAInsufficientIRD}
	TermMPANoRTR          = TermError{LayerMPA, MPAError, codeMPANoMatchingRTR}
)

// String returns layer, type, code, and text, as in "1/2/02 DDP: invalid MSN, no buffer".
func (e TermError) String() string {
	return fmt.Sprintf("%d/%d/%02x %v: %s", uint8(e.Layer), e.Type, e.Code, e.Layer, e.text())
}

// text returns the meaning of the error without its layer.
func (e TermError) text() string {
	if e.Layer <= LayerDDP && e.Type == RDMAPLocal { // type 0 of RDMAP and of DDP, whatever the code
		return "local catastrophic error"
	}
	return cmp.Or(termTexts[e], "unassigned error")
}

var termTexts = map[TermError]string{
	TermProtInvalidSTag:   "invalid STag",
	TermTaggedSTag:        "invalid STag",
	TermProtBounds:        "base or bounds violation",
	TermTaggedBounds:      "base or bounds violation",
	TermProtAccess:        "access rights violation",
	TermProtStream:        "STag not associated with the stream",
	TermTaggedStream:      "STag not associated with the stream",
	TermProtWrap:          "tagged offset wraps",
	TermTaggedWrap:        "tagged offset wraps",
	TermProtNoInvalidate:  "STag cannot be invalidated",
	TermOpNoInvalidate:    "STag cannot be invalidated",
	TermProtUnspecified:   "unspecified protection error",
	TermOpVersion:         "invalid RDMAP version",
	TermOpOpcode:          "unexpected opcode",
	TermOpStream:          "catastrophic error of the stream",
	TermOpGlobal:          "catastrophic error of the device",
	TermOpUnspecified:     "unspecified operation error",
	TermTaggedVersion:     "invalid DDP version",
	TermUntaggedVersion:   "invalid DDP version",
	TermUntaggedQN:        "invalid queue number",
	TermUntaggedNoBuffer:  "invalid MSN, no buffer",
	TermUntaggedMSN:       "invalid MSN, out of range",
	TermUntaggedMO:        "invalid message offset",
	TermUntaggedTooLong:   "message too long for its buffer",
	TermMPAClosed:         "TCP connection closed or lost",
	TermMPACRC:            "CRC error",
	TermMPAMarker:         "marker and ULPDU_Length disagree",
	TermMPAFrame:          "invalid start-up frame",
	TermMPALocal:          "local catastrophic error",
	TermMPANotEnoughReads: "insufficient IRD",
	TermMPANoRTR:          "no matching RTR",
}
