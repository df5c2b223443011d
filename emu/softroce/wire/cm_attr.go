package wire

import "fmt"

// Attr is the attribute ID of a MAD: its message type.
type Attr uint16

// The messages of the connection management class.
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
	AttrAPR     Attr = 0x1A

	// NumAttrs is the number of messages, from AttrREQ on.
	NumAttrs = 11
)

var attrNames = [NumAttrs]string{
	"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR",
}

// Index returns the index of a among the messages of the class; false if a is none of them.
func (a Attr) Index() (int, bool) {
	i := int(a) - int(AttrREQ)
	return i, i >= 0 && i < NumAttrs
}

// String prints the name of the CM message as the IBTA specification spells it.
func (a Attr) String() string {
	if i, ok := a.Index(); ok {
		return attrNames[i]
	}
	return fmt.Sprintf("attribute %#04x", uint16(a))
}

// About is the message that an MRA or a REJ refers to.
type About uint8

// Messages that a REJ or MRA refers to. AboutOther is a LAP in an MRA, no message in a REJ.
const (
	AboutREQ   About = 0
	AboutREP   About = 1
	AboutOther About = 2
)

var aboutNames = [...]string{AboutREQ: "REQ", AboutREP: "REP", AboutOther: "other"}

// String prints the name of the message that an MRA or REJ refers to.
func (a About) String() string {
	if int(a) < len(aboutNames) {
		return aboutNames[a]
	}
	return fmt.Sprintf("message %d", uint8(a))
}
