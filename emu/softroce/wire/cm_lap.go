package wire

import "fmt"

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
func (m *LAP) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *LAP) Parse(b []byte) (rest []byte, err error) { return parseBody("LAP", b, m) }

// fields encodes or decodes the message. bitField takes a 32-bit word's offset, lowest bit, width.
func (m *LAP) fields(c bodyCodec) {
	c.commIDs(&m.LocalCommID, &m.RemoteCommID)
	bitField(c, 12, 8, 24, &m.RemoteQPN)
	bitField(c, 12, 3, 5, &m.RemoteRespTimeout)
	m.Alternate.fieldsOfLAP(c, 20)
	c.bytes(64, m.PrivateData[:])
}

// Field lengths of an APR.
const (
	APRInfoLen    = 72
	APRPrivateLen = 148
)

// APStatus is an APR's answer to a proposed alternate path.
type APStatus uint8

// Answers to a LAP.
const (
	APLoaded            APStatus = 0
	APInvalidCommID     APStatus = 1
	APUnsupported       APStatus = 2
	APRejected          APStatus = 3
	APRedirect          APStatus = 4
	APDuplicatePath     APStatus = 5
	APInvalidQPN        APStatus = 6
	APInvalidLID        APStatus = 7
	APInvalidGID        APStatus = 8
	APInvalidFlowLabel  APStatus = 9
	APInvalidTClass     APStatus = 10
	APInvalidHopLimit   APStatus = 11
	APInvalidPacketRate APStatus = 12
	APInvalidSL         APStatus = 13
)

var apStatusNames = [...]string{
	"alternate path loaded", "invalid comm ID", "alternate path not supported", "path rejected", "redirect",
	"path is the current one", "invalid QPN", "invalid LID", "invalid GID", "invalid flow label",
	"invalid traffic class", "invalid hop limit", "invalid packet rate", "invalid SL",
}

// String prints the status in words.
func (s APStatus) String() string {
	if int(s) < len(apStatusNames) {
		return apStatusNames[s]
	}
	return fmt.Sprintf("AP status %d", uint8(s))
}

// APR answers a LAP.
type APR struct {
	LocalCommID, RemoteCommID uint32
	InfoLen                   uint8
	Status                    APStatus
	Info                      [APRInfoLen]byte
	PrivateData               [APRPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *APR) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *APR) Parse(b []byte) (rest []byte, err error) { return parseBody("APR", b, m) }

// fields encodes or decodes the message. bitField takes a 32-bit word's offset, lowest bit, width.
func (m *APR) fields(c bodyCodec) {
	c.commIDs(&m.LocalCommID, &m.RemoteCommID)
	bitField(c, 8, 24, 8, &m.InfoLen)
	bitField(c, 8, 16, 8, &m.Status)
	c.bytes(12, m.Info[:])
	c.bytes(84, m.PrivateData[:])
}
