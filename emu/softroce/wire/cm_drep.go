package wire

import "encoding/binary"

// DREPPrivateLen is the length of the private data of a DREP.
const DREPPrivateLen = 224

// DREP is the reply to a DREQ.
type DREP struct {
	LocalCommID, RemoteCommID uint32
	PrivateData               [DREPPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *DREP) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteCommID)
	copy(p[8:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *DREP) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("DREP", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.RemoteCommID = binary.BigEndian.Uint32(p[4:])
	m.PrivateData = [DREPPrivateLen]byte(p[8:])
	return rest, nil
}
