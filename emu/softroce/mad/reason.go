package mad

import "fmt"

// Reason is the reason of a REJ.
type Reason uint16

// Reject reasons. ReasonPrimaryLID and ReasonAlternateLID must not be sent on RoCEv2, which
// has no LIDs.
const (
	ReasonNoQP               Reason = 1
	ReasonNoEEC              Reason = 2
	ReasonNoResources        Reason = 3
	ReasonTimeout            Reason = 4
	ReasonUnsupported        Reason = 5
	ReasonInvalidCommID      Reason = 6
	ReasonInvalidInstance    Reason = 7
	ReasonInvalidServiceID   Reason = 8
	ReasonInvalidTransport   Reason = 9
	ReasonStale              Reason = 10
	ReasonNoRDC              Reason = 11
	ReasonPrimaryGID         Reason = 12
	ReasonPrimaryLID         Reason = 13
	ReasonPrimarySL          Reason = 14
	ReasonPrimaryTClass      Reason = 15
	ReasonPrimaryHopLimit    Reason = 16
	ReasonPrimaryRate        Reason = 17
	ReasonAlternateGID       Reason = 18
	ReasonAlternateLID       Reason = 19
	ReasonAlternateSL        Reason = 20
	ReasonAlternateTClass    Reason = 21
	ReasonAlternateHopLimit  Reason = 22
	ReasonAlternateRate      Reason = 23
	ReasonPortAndCMRedirect  Reason = 24
	ReasonPortRedirect       Reason = 25
	ReasonInvalidMTU         Reason = 26
	ReasonResponderResources Reason = 27
	ReasonConsumer           Reason = 28
	ReasonInvalidRNRRetry    Reason = 29
	ReasonDuplicateCommID    Reason = 30
	ReasonClassVersion       Reason = 31
	ReasonPrimaryFlowLabel   Reason = 32
	ReasonAlternateFlowLabel Reason = 33
	ReasonVendorOption       Reason = 35
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
func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint16(r))
}
