package wire

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
func (m *REJ) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *REJ) Parse(b []byte) (rest []byte, err error) { return parseBody("REJ", b, m) }

// fields encodes or decodes the message. bitField takes a 32-bit word's offset, lowest bit, width.
func (m *REJ) fields(c bodyCodec) {
	c.commIDs(&m.LocalCommID, &m.RemoteCommID)
	bitField(c, 8, 30, 2, &m.About)
	bitField(c, 8, 17, 7, &m.InfoLen)
	bitField(c, 8, 0, 16, &m.Reason)
	c.bytes(12, m.Info[:])
	c.bytes(84, m.PrivateData[:])
}
