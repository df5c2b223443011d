package wire

import "encoding/binary"

// REQPrivateLen is the length of the private data of a REQ.
const REQPrivateLen = 92

// CMTransport is a REQ's transport service type.
type CMTransport uint8

// CMTransport service types. CMTransportExt means REQ.ExtTransport.
const (
	CMTransportRC  CMTransport = 0
	CMTransportUC  CMTransport = 1
	CMTransportRD  CMTransport = 2
	CMTransportExt CMTransport = 3
)

// ExtXRC is the extended transport type of XRC.
const ExtXRC uint8 = 1

// REQ requests a connection to a service. Local is the sender, the active side.
type REQ struct {
	LocalCommID       uint32
	VendorID          uint32 // 24 bits: vendor of the options in MADHeader.Modifier; 0 for none
	ServiceID         ServiceID
	LocalCAGUID       uint64
	LocalQKey         uint32
	LocalQPN          uint32 // 24 bits
	RespRes           uint8  // responder resources: incoming READs and atomics that the sender supports
	LocalEECN         uint32 // 24 bits
	InitDepth         uint8  // initiator depth: READs and atomics that the sender wants to have in flight
	RemoteEECN        uint32 // 24 bits
	RemoteRespTimeout uint8  // 5 bits: how long the receiver may take to reply
	Transport         CMTransport
	E2EFlow           bool
	StartPSN          uint32 // 24 bits: first PSN that the receiver must send
	LocalRespTimeout  uint8  // 5 bits: how long the sender may take to reply, round trip included
	RetryCount        uint8  // 3 bits
	PKey              uint16
	MTU               uint8 // 4 bits: 1 is 256 bytes, 5 is 4096
	RDCExists         bool
	RNRRetry          uint8 // 3 bits
	MaxCMRetries      uint8 // 4 bits: how often either side retransmits a message
	SRQ               bool
	ExtTransport      uint8 // 3 bits
	Primary           CMPath
	Alternate         CMPath // all zero for none
	PrivateData       [REQPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *REQ) Append(b []byte) []byte {
	b, p := appendBody(b)
	binary.BigEndian.PutUint32(p, m.LocalCommID)
	binary.BigEndian.PutUint32(p[4:], m.VendorID&0xFFFFFF)
	binary.BigEndian.PutUint64(p[8:], uint64(m.ServiceID))
	binary.BigEndian.PutUint64(p[16:], m.LocalCAGUID)
	binary.BigEndian.PutUint32(p[28:], m.LocalQKey)
	put24(p[32:], m.LocalQPN, m.RespRes)
	put24(p[36:], m.LocalEECN, m.InitDepth)
	put24(p[40:], m.RemoteEECN, m.RemoteRespTimeout<<3|uint8(m.Transport&3)<<1|bit(m.E2EFlow, 1))
	put24(p[44:], m.StartPSN, m.LocalRespTimeout<<3|m.RetryCount&7)
	binary.BigEndian.PutUint16(p[48:], m.PKey)
	p[50] = m.MTU<<4 | bit(m.RDCExists, 1<<3) | m.RNRRetry&7
	p[51] = m.MaxCMRetries<<4 | bit(m.SRQ, 1<<3) | m.ExtTransport&7
	m.Primary.put(p[52:])
	m.Alternate.put(p[52+pathLen:])
	copy(p[140:], m.PrivateData[:])
	return b
}

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *REQ) Parse(b []byte) (rest []byte, err error) {
	p, rest, err := splitBody("REQ", b)
	if err != nil {
		return nil, err
	}
	m.LocalCommID = binary.BigEndian.Uint32(p)
	m.VendorID = binary.BigEndian.Uint32(p[4:]) & 0xFFFFFF
	m.ServiceID = ServiceID(binary.BigEndian.Uint64(p[8:]))
	m.LocalCAGUID = binary.BigEndian.Uint64(p[16:])
	m.LocalQKey = binary.BigEndian.Uint32(p[28:])
	m.LocalQPN, m.RespRes = get24(p[32:]), p[35]
	m.LocalEECN, m.InitDepth = get24(p[36:]), p[39]
	m.RemoteEECN = get24(p[40:])
	m.RemoteRespTimeout, m.Transport, m.E2EFlow = p[43]>>3, CMTransport(p[43]>>1&3), p[43]&1 != 0
	m.StartPSN = get24(p[44:])
	m.LocalRespTimeout, m.RetryCount = p[47]>>3, p[47]&7
	m.PKey = binary.BigEndian.Uint16(p[48:])
	m.MTU, m.RDCExists, m.RNRRetry = p[50]>>4, p[50]&8 != 0, p[50]&7
	m.MaxCMRetries, m.SRQ, m.ExtTransport = p[51]>>4, p[51]&8 != 0, p[51]&7
	m.Primary.get(p[52:])
	m.Alternate.get(p[52+pathLen:])
	m.PrivateData = [REQPrivateLen]byte(p[140:])
	return rest, nil
}
