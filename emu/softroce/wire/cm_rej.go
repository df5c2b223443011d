package wire

import "encoding/binary"

// Field lengths of a REJ.
const (
	REJInfoLen    = 72
	REJPrivateLen = 148
)

// REJ rejects a message or a connection.
type REJ struct {
	LocalCommID  uint32 // 0 if the sender has none
	RemoteCommID uint32
	About        About // 2 bits
	InfoLen      uint8 // 7 bits: valid bytes of Info
	Reason       REJReason
	Info         [REJInfoLen]byte // additional reject information
	PrivateData  [REJPrivateLen]byte
}

// SetInfo sets the additional reject information.
func (m *REJ) SetInfo(info []byte) error {
	if err := FillField(m.Info[:], info); err != nil {
		return err
	}
	m.InfoLen = uint8(len(info))
	return nil
}

// AdditionalInfo returns the additional reject information. It aliases m.
func (m *REJ) AdditionalInfo() []byte { return m.Info[:min(int(m.InfoLen), REJInfoLen)] }

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *REJ) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteCommID)
	p[8] = uint8(m.About) << 6
	p[9] = m.InfoLen << 1
	binary.BigEndian.PutUint16(p[10:], uint16(m.Reason))
	copy(p[12:], m.Info[:])
	copy(p[84:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *REJ) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("REJ", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.RemoteCommID = binary.BigEndian.Uint32(p[4:])
	m.About = About(p[8] >> 6)
	m.InfoLen = p[9] >> 1
	m.Reason = REJReason(binary.BigEndian.Uint16(p[10:]))
	m.Info = [REJInfoLen]byte(p[12:])
	m.PrivateData = [REJPrivateLen]byte(p[84:])
	return rest, nil
}
