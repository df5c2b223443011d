package wire

import "encoding/binary"

// LIDNone is the value of LID fields in RoCEv2, which receivers ignore.
const LIDNone uint16 = 0xFFFF

const pathLen = 44

// CMPath is a path of a connection. Local is the sender of the message.
type CMPath struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID GID
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // 5 bits: local ACK timeout, a code for CMTimeout
}

// put encodes p in the layout of REQ. LAP orders the last eight bytes differently.
func (p *CMPath) put(b []byte) {
	p.putAddrs(b)
	binary.BigEndian.PutUint32(b[36:], p.FlowLabel<<12|uint32(p.Rate&0x3F))
	b[40] = p.TrafficClass
	b[41] = p.HopLimit
	b[42] = p.SL<<4 | bit(p.SubnetLocal, 1<<3)
	b[43] = p.AckTimeout << 3
}

// get decodes a path in the layout of a REQ.
func (p *CMPath) get(b []byte) {
	p.getAddrs(b)
	p.FlowLabel = binary.BigEndian.Uint32(b[36:]) >> 12
	p.Rate = b[39] & 0x3F
	p.TrafficClass = b[40]
	p.HopLimit = b[41]
	p.SL = b[42] >> 4
	p.SubnetLocal = b[42]&8 != 0
	p.AckTimeout = b[43] >> 3
}

// putLAP encodes a path in the layout of a LAP.
func (p *CMPath) putLAP(b []byte) {
	p.putAddrs(b)
	binary.BigEndian.PutUint32(b[36:], p.FlowLabel<<12|uint32(p.TrafficClass))
	b[40] = p.HopLimit
	b[41] = p.Rate & 0x3F
	b[42] = p.SL<<4 | bit(p.SubnetLocal, 1<<3)
	b[43] = p.AckTimeout << 3
}

// getLAP decodes a path in the layout of a LAP.
func (p *CMPath) getLAP(b []byte) {
	p.getAddrs(b)
	p.FlowLabel = binary.BigEndian.Uint32(b[36:]) >> 12
	p.TrafficClass = b[39]
	p.HopLimit = b[40]
	p.Rate = b[41] & 0x3F
	p.SL = b[42] >> 4
	p.SubnetLocal = b[42]&8 != 0
	p.AckTimeout = b[43] >> 3
}

func (p *CMPath) putAddrs(b []byte) {
	binary.BigEndian.PutUint16(b, p.LocalLID)
	binary.BigEndian.PutUint16(b[2:], p.RemoteLID)
	copy(b[4:20], p.LocalGID[:])
	copy(b[20:36], p.RemoteGID[:])
}

func (p *CMPath) getAddrs(b []byte) {
	p.LocalLID = binary.BigEndian.Uint16(b)
	p.RemoteLID = binary.BigEndian.Uint16(b[2:])
	p.LocalGID = GID(b[4:20])
	p.RemoteGID = GID(b[20:36])
}
