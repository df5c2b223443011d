package wire

import "fmt"

// REJReason is the reason of a REJ.
type REJReason uint16

// Reject reasons. RoCEv2 has no LIDs: ReasonPrimaryLID and ReasonAlternateLID must not be sent.
const (
	ReasonNoQP               REJReason = 1
	ReasonNoEEC              REJReason = 2
	ReasonNoResources        REJReason = 3
	ReasonTimeout            REJReason = 4
	ReasonUnsupported        REJReason = 5
	ReasonInvalidCommID      REJReason = 6
	ReasonInvalidInstance    REJReason = 7
	ReasonInvalidServiceID   REJReason = 8
	ReasonInvalidTransport   REJReason = 9
	ReasonStale              REJReason = 10
	ReasonNoRDC              REJReason = 11
	ReasonPrimaryGID         REJReason = 12
	ReasonPrimaryLID         REJReason = 13
	ReasonPrimarySL          REJReason = 14
	ReasonPrimaryTClass      REJReason = 15
	ReasonPrimaryHopLimit    REJReason = 16
	ReasonPrimaryRate        REJReason = 17
	ReasonAlternateGID       REJReason = 18
	ReasonAlternateLID       REJReason = 19
	ReasonAlternateSL        REJReason = 20
	ReasonAlternateTClass    REJReason = 21
	ReasonAlternateHopLimit  REJReason = 22
	ReasonAlternateRate      REJReason = 23
	ReasonPortAndCMRedirect  REJReason = 24
	ReasonPortRedirect       REJReason = 25
	ReasonInvalidMTU         REJReason = 26
	ReasonResponderResources REJReason = 27
	ReasonConsumer           REJReason = 28
	ReasonInvalidRNRRetry    REJReason = 29
	ReasonDuplicateCommID    REJReason = 30
	ReasonClassVersion       REJReason = 31
	ReasonPrimaryFlowLabel   REJReason = 32
	ReasonAlternateFlowLabel REJReason = 33
	ReasonVendorOption       REJReason = 35
)

var reasonNames = [...]string{
	ReasonNoQP:               "no QP available",
	ReasonNoEEC:              "no EE context available",
	ReasonNoResources:        "no resources available",
	ReasonTimeout:            "timeout",
	ReasonUnsupported:        "unsupported request",
	ReasonInvalidCommID:      "invalid communication ID",
	ReasonInvalidInstance:    "invalid communication instance",
	ReasonInvalidServiceID:   "invalid service ID",
	ReasonInvalidTransport:   "invalid transport service type",
	ReasonStale:              "stale connection",
	ReasonNoRDC:              "RDC does not exist",
	ReasonPrimaryGID:         "primary remote port GID rejected",
	ReasonPrimaryLID:         "primary remote port LID rejected",
	ReasonPrimarySL:          "invalid primary SL",
	ReasonPrimaryTClass:      "invalid primary traffic class",
	ReasonPrimaryHopLimit:    "invalid primary hop limit",
	ReasonPrimaryRate:        "invalid primary packet rate",
	ReasonAlternateGID:       "alternate remote port GID rejected",
	ReasonAlternateLID:       "alternate remote port LID rejected",
	ReasonAlternateSL:        "invalid alternate SL",
	ReasonAlternateTClass:    "invalid alternate traffic class",
	ReasonAlternateHopLimit:  "invalid alternate hop limit",
	ReasonAlternateRate:      "invalid alternate packet rate",
	ReasonPortAndCMRedirect:  "port and CM redirection",
	ReasonPortRedirect:       "port redirection",
	ReasonInvalidMTU:         "invalid path MTU",
	ReasonResponderResources: "insufficient responder resources",
	ReasonConsumer:           "consumer reject",
	ReasonInvalidRNRRetry:    "RNR retry count reject",
	ReasonDuplicateCommID:    "duplicate local communication ID",
	ReasonClassVersion:       "unsupported class version",
	ReasonPrimaryFlowLabel:   "invalid primary flow label",
	ReasonAlternateFlowLabel: "invalid alternate flow label",
	ReasonVendorOption:       "vendor option not supported",
}

// String prints the reason in words.
func (r REJReason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint16(r))
}
