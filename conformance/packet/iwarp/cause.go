package iwarp

import "fmt"

// Cause is the reason of a Terminate message: layer, error type and error code, as on the
// wire.
type Cause uint16

// Layer is the layer that reported the error: 0 RDMAP, 1 DDP, 2 MPA.
func (c Cause) Layer() uint8 { return uint8(c >> 12) }

// Type is the error type within the layer.
func (c Cause) Type() uint8 { return uint8(c>>8) & 0x0f }

// Code is the error code within the type.
func (c Cause) Code() uint8 { return uint8(c) }

// The causes of RFC 5040 section 4.8, RFC 5041 section 7.2, RFC 5044 section 8 and
// RFC 6581 section 8.
const (
	RDMAPCatastrophic           Cause = 0x0000 // any code
	RDMAPInvalidSTag            Cause = 0x0100
	RDMAPBounds                 Cause = 0x0101
	RDMAPAccess                 Cause = 0x0102
	RDMAPSTagNotAssociated      Cause = 0x0103
	RDMAPTOWrap                 Cause = 0x0104
	RDMAPCannotInvalidate       Cause = 0x0109
	RDMAPProtectionUnspecified  Cause = 0x01ff
	RDMAPInvalidVersion         Cause = 0x0205
	RDMAPUnexpectedOpcode       Cause = 0x0206
	RDMAPStreamCatastrophic     Cause = 0x0207
	RDMAPGlobalCatastrophic     Cause = 0x0208
	RDMAPCannotInvalidateRemote Cause = 0x0209 // the same error under the other type
	RDMAPRemoteUnspecified      Cause = 0x02ff
	DDPCatastrophic             Cause = 0x1000
	DDPTaggedInvalidSTag        Cause = 0x1100
	DDPTaggedBounds             Cause = 0x1101
	DDPTaggedSTagNotAssociated  Cause = 0x1102
	DDPTaggedTOWrap             Cause = 0x1103
	DDPTaggedInvalidVersion     Cause = 0x1104
	DDPUntaggedInvalidQN        Cause = 0x1201
	DDPUntaggedNoBuffer         Cause = 0x1202
	DDPUntaggedMSNRange         Cause = 0x1203
	DDPUntaggedInvalidMO        Cause = 0x1204
	DDPUntaggedTooLong          Cause = 0x1205
	DDPUntaggedInvalidVersion   Cause = 0x1206
	MPAConnectionLost           Cause = 0x2001
	MPACRC                      Cause = 0x2002
	MPAMarker                   Cause = 0x2003
	MPAStartupFrame             Cause = 0x2004
	MPAStartupCatastrophic      Cause = 0x2005
	MPAInsufficientIRD          Cause = 0x2006
	MPANoMatchingRTR            Cause = 0x2007
)

var causeNames = map[Cause]string{
	RDMAPInvalidSTag:            "invalid stag",
	RDMAPBounds:                 "base or bounds",
	RDMAPAccess:                 "access rights",
	RDMAPSTagNotAssociated:      "stag not associated with the stream",
	RDMAPTOWrap:                 "to wraps",
	RDMAPCannotInvalidate:       "stag cannot be invalidated",
	RDMAPProtectionUnspecified:  "unspecified",
	RDMAPInvalidVersion:         "invalid version",
	RDMAPUnexpectedOpcode:       "unexpected opcode",
	RDMAPStreamCatastrophic:     "catastrophic for the stream",
	RDMAPGlobalCatastrophic:     "catastrophic for all streams",
	RDMAPCannotInvalidateRemote: "stag cannot be invalidated",
	RDMAPRemoteUnspecified:      "unspecified",
	DDPCatastrophic:             "catastrophic",
	DDPTaggedInvalidSTag:        "invalid stag",
	DDPTaggedBounds:             "base or bounds",
	DDPTaggedSTagNotAssociated:  "stag not associated with the stream",
	DDPTaggedTOWrap:             "to wraps",
	DDPTaggedInvalidVersion:     "invalid version",
	DDPUntaggedInvalidQN:        "invalid qn",
	DDPUntaggedNoBuffer:         "no buffer for the msn",
	DDPUntaggedMSNRange:         "msn out of range",
	DDPUntaggedInvalidMO:        "invalid mo",
	DDPUntaggedTooLong:          "message too long for its buffer",
	DDPUntaggedInvalidVersion:   "invalid version",
	MPAConnectionLost:           "connection lost",
	MPACRC:                      "crc",
	MPAMarker:                   "marker and length disagree",
	MPAStartupFrame:             "invalid start-up frame",
	MPAStartupCatastrophic:      "catastrophic at start-up",
	MPAInsufficientIRD:          "insufficient ird",
	MPANoMatchingRTR:            "no matching rtr",
}

var typeNames = map[uint8]string{
	0x00: "rdmap/local",
	0x01: "rdmap/protection",
	0x02: "rdmap/operation",
	0x10: "ddp/local",
	0x11: "ddp/tagged",
	0x12: "ddp/untagged",
	0x13: "ddp/llp",
	0x20: "mpa",
}

// Listed reports whether an RFC lists the cause. RDMAP local errors and DDP errors of the
// lower layer have no list of codes, and all of them are valid.
func (c Cause) Listed() bool {
	_, ok := causeNames[c]
	layerAndType := uint8(c >> 8)
	return ok || layerAndType == 0x00 || layerAndType == 0x13
}

// String formats layer, type and code: "ddp/tagged invalid stag".
func (c Cause) String() string {
	typ, ok := typeNames[uint8(c>>8)]
	if !ok {
		return fmt.Sprintf("%d/%d/%02x", c.Layer(), c.Type(), c.Code())
	}
	if name, ok := causeNames[c]; ok {
		return typ + " " + name
	}
	if c.Listed() && c.Code() == 0 {
		return typ
	}
	return fmt.Sprintf("%s code 0x%02x", typ, c.Code())
}
