package wire

import (
	"encoding/binary"
	"fmt"
)

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
func (m *APR) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteCommID)
	p[8], p[9] = m.InfoLen, uint8(m.Status)
	copy(p[12:], m.Info[:])
	copy(p[84:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *APR) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("APR", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.RemoteCommID = binary.BigEndian.Uint32(p[4:])
	m.InfoLen, m.Status = p[8], APStatus(p[9])
	m.Info = [APRInfoLen]byte(p[12:])
	m.PrivateData = [APRPrivateLen]byte(p[84:])
	return rest, nil
}
