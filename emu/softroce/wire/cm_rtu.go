package wire

import "encoding/binary"

// RTUPrivateLen is the length of the private data of an RTU.
const RTUPrivateLen = 224

// RTU (ready to use) confirms a REP.
type RTU struct {
	LocalCommID, RemoteCommID uint32
	PrivateData               [RTUPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *RTU) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteCommID)
	copy(p[8:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *RTU) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("RTU", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.RemoteCommID = binary.BigEndian.Uint32(p[4:])
	m.PrivateData = [RTUPrivateLen]byte(p[8:])
	return rest, nil
}
