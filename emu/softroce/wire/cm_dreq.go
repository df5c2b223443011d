package wire

import "encoding/binary"

// DREQPrivateLen is the length of the private data of a DREQ.
const DREQPrivateLen = 220

// DREQ requests to disconnect.
type DREQ struct {
	LocalCommID, RemoteCommID uint32
	RemoteQPN                 uint32 // 24 bits: the receiver's queue pair
	PrivateData               [DREQPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *DREQ) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteCommID)
	put24(p[8:], m.RemoteQPN, 0)
	copy(p[12:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *DREQ) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("DREQ", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.RemoteCommID = binary.BigEndian.Uint32(p[4:])
	m.RemoteQPN = get24(p[8:])
	m.PrivateData = [DREQPrivateLen]byte(p[12:])
	return rest, nil
}
