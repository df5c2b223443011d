package wire

import "encoding/binary"

// LAPPrivateLen is the length of the private data of a LAP.
const LAPPrivateLen = 168

// LAP proposes an alternate path for an established connection.
type LAP struct {
	LocalCommID, RemoteCommID uint32
	RemoteQPN                 uint32 // 24 bits: the receiver's queue pair
	RemoteRespTimeout         uint8  // 5 bits
	Alternate                 CMPath
	PrivateData               [LAPPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *LAP) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteCommID)
	put24(p[12:], m.RemoteQPN, m.RemoteRespTimeout<<3)
	m.Alternate.putLAP(p[20:])
	copy(p[64:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *LAP) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("LAP", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.RemoteCommID = binary.BigEndian.Uint32(p[4:])
	m.RemoteQPN, m.RemoteRespTimeout = get24(p[12:]), p[15]>>3
	m.Alternate.getLAP(p[20:])
	m.PrivateData = [LAPPrivateLen]byte(p[64:])
	return rest, nil
}
