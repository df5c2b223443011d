package ib

import "fmt"

// Message is a CM message: REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDRREQ, SIDRREP, LAP or
// APR, as a value. A nil field has the value that Linux sends.
type Message interface{ attr() Attr }

// Attr is the attribute ID of a MAD, which names the message.
type Attr uint16

// The messages.
const (
	AttrREQ     Attr = 0x10
	AttrMRA     Attr = 0x11
	AttrREJ     Attr = 0x12
	AttrREP     Attr = 0x13
	AttrRTU     Attr = 0x14
	AttrDREQ    Attr = 0x15
	AttrDREP    Attr = 0x16
	AttrSIDRREQ Attr = 0x17
	AttrSIDRREP Attr = 0x18
	AttrLAP     Attr = 0x19
	AttrAPR     Attr = 0x1a
)

// String is the name of the message.
func (a Attr) String() string {
	names := []string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"}
	if i := int(a) - int(AttrREQ); i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("attribute %#04x", uint16(a))
}

// AttrOf returns the attribute ID of a message.
func AttrOf(m Message) Attr { return m.attr() }

func (REQ) attr() Attr     { return AttrREQ }
func (MRA) attr() Attr     { return AttrMRA }
func (REJ) attr() Attr     { return AttrREJ }
func (REP) attr() Attr     { return AttrREP }
func (RTU) attr() Attr     { return AttrRTU }
func (DREQ) attr() Attr    { return AttrDREQ }
func (DREP) attr() Attr    { return AttrDREP }
func (SIDRREQ) attr() Attr { return AttrSIDRREQ }
func (SIDRREP) attr() Attr { return AttrSIDRREP }
func (LAP) attr() Attr     { return AttrLAP }
func (APR) attr() Attr     { return AttrAPR }

// messages has a message of each type, in the order of their attribute IDs.
var messages = [...]Message{REQ{}, MRA{}, REJ{}, REP{}, RTU{}, DREQ{}, DREP{}, SIDRREQ{}, SIDRREP{}, LAP{}, APR{}}

// Reason is the reason of a REJ.
type Reason uint16

// Reasons of a REJ. Those about LIDs (13, 19) do not exist on RoCEv2.
const (
	RejNoQP                 Reason = 1
	RejNoResources          Reason = 3
	RejTimeout              Reason = 4
	RejUnsupported          Reason = 5
	RejInvalidCommID        Reason = 6
	RejInvalidCommInstance  Reason = 7
	RejInvalidServiceID     Reason = 8
	RejInvalidTransport     Reason = 9
	RejStaleConnection      Reason = 10
	RejInvalidGID           Reason = 12
	RejInvalidLID           Reason = 13
	RejInvalidSL            Reason = 14
	RejInvalidTrafficClass  Reason = 15
	RejInvalidHopLimit      Reason = 16
	RejInvalidAltLID        Reason = 19
	RejPortRedirect         Reason = 24
	RejRedirect             Reason = 25
	RejInvalidMTU           Reason = 26
	RejInsufficientResp     Reason = 27
	RejConsumer             Reason = 28
	RejRNRRetry             Reason = 29
	RejDuplicateLocalCommID Reason = 30
	RejClassVersion         Reason = 31
	RejInvalidFlowLabel     Reason = 32
	RejVendorOption         Reason = 35
)

var reasonNames = map[Reason]string{
	RejNoQP: "no QP", RejNoResources: "no resources", RejTimeout: "timeout", RejUnsupported: "unsupported request",
	RejInvalidCommID: "invalid communication id", RejInvalidCommInstance: "invalid communication instance",
	RejInvalidServiceID: "invalid service id", RejInvalidTransport: "invalid transport", RejStaleConnection: "stale connection",
	RejInvalidGID: "invalid GID", RejInvalidLID: "invalid LID", RejInvalidSL: "invalid SL", RejInvalidTrafficClass: "invalid traffic class",
	RejInvalidHopLimit: "invalid hop limit", RejInvalidAltLID: "invalid alternate LID", RejPortRedirect: "port redirect",
	RejRedirect: "redirect", RejInvalidMTU: "invalid MTU", RejInsufficientResp: "insufficient responder resources",
	RejConsumer: "consumer reject", RejRNRRetry: "RNR retry count", RejDuplicateLocalCommID: "duplicate local communication id",
	RejClassVersion: "class version", RejInvalidFlowLabel: "invalid flow label", RejVendorOption: "vendor option",
}

// String returns the number and the name of the reason.
func (r Reason) String() string {
	if name, ok := reasonNames[r]; ok {
		return fmt.Sprintf("%d (%s)", uint16(r), name)
	}
	return fmt.Sprintf("%d", uint16(r))
}

// Message numbers in an MRA or a REJ.
const (
	AboutREQ   = 0
	AboutREP   = 1
	AboutOther = 2
)

// Status values of a SIDR_REP.
const (
	SIDRValid       = 0
	SIDRUnsupported = 1
)
