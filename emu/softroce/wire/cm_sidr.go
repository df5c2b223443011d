package wire

import "fmt"

// SIDRREQPrivateLen is how much private data a SIDR_REQ carries.
const SIDRREQPrivateLen = 216

// SIDRREQ asks which datagram queue pair serves a service.
type SIDRREQ struct {
	RequestID   uint32
	PKey        uint16
	ServiceID   ServiceID
	PrivateData [SIDRREQPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *SIDRREQ) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *SIDRREQ) Parse(b []byte) (rest []byte, err error) { return parseBody("SIDR_REQ", b, m) }

// fields encodes or decodes the message. bitField takes a 32-bit word's offset, lowest bit, width.
func (m *SIDRREQ) fields(c bodyCodec) {
	bitField(c, 0, 0, 32, &m.RequestID)
	bitField(c, 4, 16, 16, &m.PKey)
	field64(c, 8, &m.ServiceID)
	c.bytes(16, m.PrivateData[:])
}

// Field lengths of a SIDR_REP.
const (
	SIDRREPInfoLen    = 72
	SIDRREPPrivateLen = 136
)

// SIDRStatus is the status of a SIDR_REP.
type SIDRStatus uint8

// Values of SIDRStatus.
const (
	SIDRValid              SIDRStatus = 0
	SIDRUnsupportedService SIDRStatus = 1
	SIDRRejected           SIDRStatus = 2
	SIDRNoQP               SIDRStatus = 3
	SIDRRedirect           SIDRStatus = 4
	SIDRUnsupportedVersion SIDRStatus = 5
)

var sidrStatusNames = [...]string{
	"valid", "service ID not supported", "rejected by service provider", "no QP available",
	"redirect", "unsupported class version",
}

// String prints the status in words.
func (s SIDRStatus) String() string {
	if int(s) < len(sidrStatusNames) {
		return sidrStatusNames[s]
	}
	return fmt.Sprintf("SIDR status %d", uint8(s))
}

// SIDRREP answers a SIDR_REQ with the queue pair and Q_Key to send to.
type SIDRREP struct {
	RequestID   uint32
	Status      SIDRStatus
	InfoLen     uint8
	VendorID    uint32 // 24 bits, in two parts on the wire
	QPN         uint32 // 24 bits
	ServiceID   ServiceID
	QKey        uint32
	Info        [SIDRREPInfoLen]byte
	PrivateData [SIDRREPPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *SIDRREP) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *SIDRREP) Parse(b []byte) (rest []byte, err error) { return parseBody("SIDR_REP", b, m) }

// fields encodes or decodes the message. The vendor ID is in two places. bitField takes the offset
// of a 32-bit word, the lowest bit and the width.
func (m *SIDRREP) fields(c bodyCodec) {
	vendorHigh, vendorLow := uint16(m.VendorID>>8), uint8(m.VendorID)
	bitField(c, 0, 0, 32, &m.RequestID)
	bitField(c, 4, 24, 8, &m.Status)
	bitField(c, 4, 16, 8, &m.InfoLen)
	bitField(c, 4, 0, 16, &vendorHigh)
	bitField(c, 8, 8, 24, &m.QPN)
	bitField(c, 8, 0, 8, &vendorLow)
	field64(c, 12, &m.ServiceID)
	bitField(c, 20, 0, 32, &m.QKey)
	c.bytes(24, m.Info[:])
	c.bytes(96, m.PrivateData[:])
	m.VendorID = uint32(vendorHigh)<<8 | uint32(vendorLow)
}
