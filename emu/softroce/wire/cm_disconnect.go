package wire

// DREQPrivateLen is the length of the private data of a DREQ.
const DREQPrivateLen = 220

// DREQ requests to disconnect.
type DREQ struct {
	LocalCommID, RemoteCommID uint32
	RemoteQPN                 uint32 // 24 bits: the receiver's queue pair
	PrivateData               [DREQPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *DREQ) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *DREQ) Parse(b []byte) (rest []byte, err error) { return parseBody("DREQ", b, m) }

// fields encodes or decodes the message. bitField takes a 32-bit word's offset, lowest bit, width.
func (m *DREQ) fields(c bodyCodec) {
	c.commIDs(&m.LocalCommID, &m.RemoteCommID)
	bitField(c, 8, 8, 24, &m.RemoteQPN)
	c.bytes(12, m.PrivateData[:])
}

// DREPPrivateLen is the length of the private data of a DREP.
const DREPPrivateLen = 224

// DREP is the reply to a DREQ.
type DREP struct {
	LocalCommID, RemoteCommID uint32
	PrivateData               [DREPPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *DREP) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *DREP) Parse(b []byte) (rest []byte, err error) { return parseBody("DREP", b, m) }

// fields implements message: it encodes or decodes each field.
func (m *DREP) fields(c bodyCodec) {
	c.commIDs(&m.LocalCommID, &m.RemoteCommID)
	c.bytes(8, m.PrivateData[:])
}
