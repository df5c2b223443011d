package wire

import "encoding/binary"

// REPPrivateLen is the length of the private data of a REP.
const REPPrivateLen = 196

// Failover says whether the alternate path of the REQ was accepted.
type Failover uint8

// Values of Failover. It is FailoverAccepted if the REQ has no alternate path.
const (
	FailoverAccepted    Failover = 0
	FailoverUnsupported Failover = 1
	FailoverRejected    Failover = 2
)

// REP accepts a REQ. Local is the sender, the passive side.
type REP struct {
	LocalCommID, RemoteCommID uint32
	VendorID                  uint32 // 24 bits, in three parts on the wire
	LocalQKey                 uint32
	LocalQPN                  uint32 // 24 bits
	LocalEECN                 uint32 // 24 bits; the QPN of an XRC target QP
	StartPSN                  uint32 // 24 bits: first PSN that the receiver must send
	RespRes                   uint8
	InitDepth                 uint8
	TargetAckDelay            uint8    // 5 bits
	Failover                  Failover // 2 bits
	E2EFlow                   bool
	RNRRetry                  uint8 // 3 bits
	SRQ                       bool
	LocalCAGUID               uint64
	PrivateData               [REPPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *REP) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.RemoteCommID)
	binary.BigEndian.PutUint32(p[8:], m.LocalQKey)
	put24(p[12:], m.LocalQPN, uint8(m.VendorID>>16))
	put24(p[16:], m.LocalEECN, uint8(m.VendorID>>8))
	put24(p[20:], m.StartPSN, uint8(m.VendorID))
	p[24], p[25] = m.RespRes, m.InitDepth
	p[26] = m.TargetAckDelay<<3 | uint8(m.Failover&3)<<1 | bit(m.E2EFlow, 1)
	p[27] = m.RNRRetry<<5 | bit(m.SRQ, 1<<4)
	binary.BigEndian.PutUint64(p[28:], m.LocalCAGUID)
	copy(p[36:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *REP) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("REP", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.RemoteCommID = binary.BigEndian.Uint32(p[4:])
	m.LocalQKey = binary.BigEndian.Uint32(p[8:])
	m.LocalQPN, m.LocalEECN, m.StartPSN = get24(p[12:]), get24(p[16:]), get24(p[20:])
	m.VendorID = uint32(p[15])<<16 | uint32(p[19])<<8 | uint32(p[23])
	m.RespRes, m.InitDepth = p[24], p[25]
	m.TargetAckDelay, m.Failover, m.E2EFlow = p[26]>>3, Failover(p[26]>>1&3), p[26]&1 != 0
	m.RNRRetry, m.SRQ = p[27]>>5, p[27]&0x10 != 0
	m.LocalCAGUID = binary.BigEndian.Uint64(p[28:])
	m.PrivateData = [REPPrivateLen]byte(p[36:])
	return rest, nil
}
