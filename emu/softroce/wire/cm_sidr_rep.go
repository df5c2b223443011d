package wire

import (
	"encoding/binary"
	"fmt"
)

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
func (m *SIDRREP) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.RequestID)
	p[4], p[5] = uint8(m.Status), m.InfoLen
	binary.BigEndian.PutUint16(p[6:], uint16(m.VendorID>>8))
	put24(p[8:], m.QPN, uint8(m.VendorID))
	binary.BigEndian.PutUint64(p[12:], uint64(m.ServiceID))
	binary.BigEndian.PutUint32(p[20:], m.QKey)
	copy(p[24:], m.Info[:])
	copy(p[96:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *SIDRREP) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("SIDR_REP", b)
	if err != nil {
		return nil, err
	}
	m.RequestID = binary.BigEndian.Uint32(p)
	m.Status, m.InfoLen = SIDRStatus(p[4]), p[5]
	m.VendorID = uint32(binary.BigEndian.Uint16(p[6:]))<<8 | uint32(p[11])
	m.QPN = get24(p[8:])
	m.ServiceID = ServiceID(binary.BigEndian.Uint64(p[12:]))
	m.QKey = binary.BigEndian.Uint32(p[20:])
	m.Info = [SIDRREPInfoLen]byte(p[24:])
	m.PrivateData = [SIDRREPPrivateLen]byte(p[96:])
	return rest, nil
}
