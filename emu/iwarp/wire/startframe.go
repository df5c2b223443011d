package wire

import "encoding/binary"

// StartFrame is an MPA start-up frame: the initiator's request or the responder's reply.
//
//	0-15 key | 16 M C R S resv(4) | 17 revision | 18-19 PD_Length | private data
type StartFrame struct {
	Reply    bool  // reply key, else request key
	Markers  bool  // M: the sender of this frame requests to receive markers
	CRC      bool  // C: the sender requests CRCs, which enables them in both directions
	Reject   bool  // R: the connection is rejected; ignored in a request
	Enhanced bool  // S: private data begins with Enhanced; reserved before revision 2
	Reserved uint8 // four bits
	Revision uint8 // 0 RDMA Consortium, 1 RFC 5044, 2 RFC 6581
	// PrivateData aliases the input of Parse. It includes enhanced data.
	PrivateData []byte
}

// Revisions of MPA.
const (
	RevisionConsortium uint8 = 0
	RevisionRFC5044    uint8 = 1
	RevisionEnhanced   uint8 = 2
)

// Keys of the start-up frames. They differ in one octet.
const (
	RequestKey = "MPA ID Req Frame"
	ReplyKey   = "MPA ID Rep Frame"
)

const (
	frameMarkers  = 0x80
	frameCRC      = 0x40
	frameReject   = 0x20
	frameEnhanced = 0x10
)

var (
	errShortKey         = shortError("key of an MPA start-up frame", len(RequestKey))
	errShortStartFrame  = shortError("MPA start-up frame", StartFrameLen)
	errShortPrivateData = shortError("private data of an MPA start-up frame, at most", MaxPrivateData)
)

// Append appends f in wire order and returns the extended slice. It panics if the private
// data is longer than 65535 octets. More than MaxPrivateData is encoded, but not valid.
func (f *StartFrame) Append(b []byte) []byte {
	if len(f.PrivateData) > 0xFFFF {
		panic("wire: private data longer than its length field can say")
	}
	key := RequestKey
	if f.Reply {
		key = ReplyKey
	}
	b = append(b, key...)
	b = append(b, bit(f.Markers, frameMarkers)|bit(f.CRC, frameCRC)|bit(f.Reject, frameReject)|
		bit(f.Enhanced, frameEnhanced)|f.Reserved&0x0F, f.Revision)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.PrivateData)))
	return append(b, f.PrivateData...)
}

// Parse decodes f from the front of b and returns the octets that follow. ErrShort means
// that more octets are needed. ErrKey means that the stream is not MPA, and is returned at the
// first wrong octet. If there are more than MaxPrivateData octets of private data, Parse returns
// ErrPrivateData, with all fields but PrivateData set.
func (f *StartFrame) Parse(b []byte) (rest []byte, err error) {
	*f = StartFrame{}
	n := min(len(b), len(RequestKey))
	switch string(b[:n]) { // no copy: only compared
	case RequestKey[:n]:
	case ReplyKey[:n]:
		f.Reply = true
	default:
		return nil, ErrKey
	}
	if n < len(RequestKey) {
		return nil, errShortKey
	}
	if len(b) < StartFrameLen {
		return nil, errShortStartFrame
	}
	f.Markers = b[16]&frameMarkers != 0
	f.CRC = b[16]&frameCRC != 0
	f.Reject = b[16]&frameReject != 0
	f.Enhanced = b[16]&frameEnhanced != 0
	f.Reserved = b[16] & 0x0F
	f.Revision = b[17]
	end := StartFrameLen + int(binary.BigEndian.Uint16(b[18:]))
	if end > StartFrameLen+MaxPrivateData {
		return nil, ErrPrivateData
	}
	if len(b) < end {
		return nil, errShortPrivateData
	}
	f.PrivateData = b[StartFrameLen:end:end]
	return b[end:], nil
}

// bit returns mask if v is true, else 0.
func bit(v bool, mask uint8) uint8 {
	if v {
		return mask
	}
	return 0
}
