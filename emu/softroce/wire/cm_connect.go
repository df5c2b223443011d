package wire

import "time"

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
func (m *REQ) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *REQ) Parse(b []byte) (rest []byte, err error) { return parseBody("REQ", b, m) }

// fields encodes or decodes the message. bitField takes a 32-bit word's offset, lowest bit, width.
func (m *REQ) fields(c bodyCodec) {
	bitField(c, 0, 0, 32, &m.LocalCommID)
	bitField(c, 4, 0, 24, &m.VendorID)
	field64(c, 8, &m.ServiceID)
	field64(c, 16, &m.LocalCAGUID)
	bitField(c, 28, 0, 32, &m.LocalQKey)
	bitField(c, 32, 8, 24, &m.LocalQPN)
	bitField(c, 32, 0, 8, &m.RespRes)
	bitField(c, 36, 8, 24, &m.LocalEECN)
	bitField(c, 36, 0, 8, &m.InitDepth)
	bitField(c, 40, 8, 24, &m.RemoteEECN)
	bitField(c, 40, 3, 5, &m.RemoteRespTimeout)
	bitField(c, 40, 1, 2, &m.Transport)
	c.flag(40, 0, &m.E2EFlow)
	bitField(c, 44, 8, 24, &m.StartPSN)
	bitField(c, 44, 3, 5, &m.LocalRespTimeout)
	bitField(c, 44, 0, 3, &m.RetryCount)
	bitField(c, 48, 16, 16, &m.PKey)
	bitField(c, 48, 12, 4, &m.MTU)
	c.flag(48, 11, &m.RDCExists)
	bitField(c, 48, 8, 3, &m.RNRRetry)
	bitField(c, 48, 4, 4, &m.MaxCMRetries)
	c.flag(48, 3, &m.SRQ)
	bitField(c, 48, 0, 3, &m.ExtTransport)
	m.Primary.fields(c, 52)
	m.Alternate.fields(c, 52+pathLen)
	c.bytes(140, m.PrivateData[:])
}

// CMTimeout returns the time that a 5-bit timeout code stands for:
// 4.096 µs times two to the power of the code.
func CMTimeout(code uint8) time.Duration { return 4096 << (code & 31) }

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
func (m *REP) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *REP) Parse(b []byte) (rest []byte, err error) { return parseBody("REP", b, m) }

// fields encodes or decodes the message. The vendor ID is in three places. bitField takes the
// offset of a 32-bit word, the lowest bit and the width.
func (m *REP) fields(c bodyCodec) {
	vendor := [3]uint8{uint8(m.VendorID >> 16), uint8(m.VendorID >> 8), uint8(m.VendorID)}
	c.commIDs(&m.LocalCommID, &m.RemoteCommID)
	bitField(c, 8, 0, 32, &m.LocalQKey)
	bitField(c, 12, 8, 24, &m.LocalQPN)
	bitField(c, 12, 0, 8, &vendor[0])
	bitField(c, 16, 8, 24, &m.LocalEECN)
	bitField(c, 16, 0, 8, &vendor[1])
	bitField(c, 20, 8, 24, &m.StartPSN)
	bitField(c, 20, 0, 8, &vendor[2])
	bitField(c, 24, 24, 8, &m.RespRes)
	bitField(c, 24, 16, 8, &m.InitDepth)
	bitField(c, 24, 11, 5, &m.TargetAckDelay)
	bitField(c, 24, 9, 2, &m.Failover)
	c.flag(24, 8, &m.E2EFlow)
	bitField(c, 24, 5, 3, &m.RNRRetry)
	c.flag(24, 4, &m.SRQ)
	field64(c, 28, &m.LocalCAGUID)
	c.bytes(36, m.PrivateData[:])
	m.VendorID = uint32(vendor[0])<<16 | uint32(vendor[1])<<8 | uint32(vendor[2])
}

// RTUPrivateLen is the length of the private data of an RTU.
const RTUPrivateLen = 224

// RTU (ready to use) confirms a REP.
type RTU struct {
	LocalCommID, RemoteCommID uint32
	PrivateData               [RTUPrivateLen]byte
}

// Append appends the encoded body of the message to b and returns the extended slice.
func (m *RTU) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *RTU) Parse(b []byte) (rest []byte, err error) { return parseBody("RTU", b, m) }

// fields implements message: it encodes or decodes each field.
func (m *RTU) fields(c bodyCodec) {
	c.commIDs(&m.LocalCommID, &m.RemoteCommID)
	c.bytes(8, m.PrivateData[:])
}

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
func (m *MRA) Append(b []byte) []byte { return appendBody(b, m) }

// Parse decodes m from the front of b and returns the bytes that follow.
func (m *MRA) Parse(b []byte) (rest []byte, err error) { return parseBody("MRA", b, m) }

// fields encodes or decodes the message. bitField takes a 32-bit word's offset, lowest bit, width.
func (m *MRA) fields(c bodyCodec) {
	c.commIDs(&m.LocalCommID, &m.RemoteCommID)
	bitField(c, 8, 30, 2, &m.About)
	bitField(c, 8, 19, 5, &m.ServiceTimeout)
	c.bytes(10, m.PrivateData[:])
}
