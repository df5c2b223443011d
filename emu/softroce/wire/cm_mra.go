package wire

import "encoding/binary"

// MRAPrivateLen is the length of the private data of an MRA.
const MRAPrivateLen = 222

// MRA acknowledges a message whose reply will take longer.
type MRA struct {
	LocalCommID, RemoteCommID uint32
	About                     About // 2 bits
	ServiceTimeout            uint8 // 5 bits: how long the reply may take
	PrivateData               [MRAPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *MRA) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteCommID)
	p[8] = uint8(m.About) << 6
	p[9] = m.ServiceTimeout << 3
	copy(p[10:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *MRA) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("MRA", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.RemoteCommID = binary.BigEndian.Uint32(p[4:])
	m.About = About(p[8] >> 6)
	m.ServiceTimeout = p[9] >> 3
	m.PrivateData = [MRAPrivateLen]byte(p[10:])
	return rest, nil
}
