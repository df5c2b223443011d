package wire

import "encoding/binary"

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
func (m *SIDRREQ) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.RequestID)
	binary.BigEndian.PutUint16(p[4:], m.PKey)
	binary.BigEndian.PutUint64(p[8:], uint64(m.ServiceID))
	copy(p[16:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *SIDRREQ) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("SIDR_REQ", b)
	if err != nil {
		return nil, err
	}
	m.RequestID = binary.BigEndian.Uint32(p)
	m.PKey = binary.BigEndian.Uint16(p[4:])
	m.ServiceID = ServiceID(binary.BigEndian.Uint64(p[8:]))
	m.PrivateData = [SIDRREQPrivateLen]byte(p[16:])
	return rest, nil
}
