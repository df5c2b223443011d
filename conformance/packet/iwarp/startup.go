package iwarp

import (
	"cmp"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Keys of start-up frames.
const (
	KeyRequest = "MPA ID Req Frame"
	KeyReply   = "MPA ID Rep Frame"
)

// NoNegotiation as IRD or ORD means that the value is not negotiated.
const NoNegotiation uint16 = 0x3fff

const (
	enhancedLen = 4
	revEnhanced = 2
)

// StartupFrame is an MPA Request or Reply frame (RFC 5044 section 7.1.1).
type StartupFrame struct {
	_        struct{} `size:"20"`
	Key      *string  // nil: the key of a Request
	M        *bool    `at:"16.0,1"`
	C        *bool    `at:"16.1,1" def:"1"`
	R        *bool    `at:"16.2,1"`
	S        *bool    `at:"16.3,1"` // nil: set if Enhanced is set
	Reserved *uint8   `at:"16.4,4" fmt:"%#x"`
	Rev      *uint8   `at:"17,8"` // nil: 2 if Enhanced is set, else 1
	PDLength *uint16  `at:"18,16"`
	// Enhanced is at the start of the private data (RFC 6581); nil: none, or any.
	Enhanced *Enhanced
	// PrivateData is the remaining private data; nil: none, or any.
	PrivateData []byte
}

// Enhanced is the enhanced connection data of RFC 6581 section 9.
type Enhanced struct {
	_          struct{} `size:"4"`
	PeerToPeer *bool    `at:"0.0,1"`  // A
	SendRTR    *bool    `at:"0.1,1"`  // B
	IRD        *uint16  `at:"0.2,14"` // of the sender
	WriteRTR   *bool    `at:"2.0,1"`  // C
	ReadRTR    *bool    `at:"2.1,1"`  // D
	ORD        *uint16  `at:"2.2,14"`
}

// RTR is a kind of RTR frame, the first message of a peer-to-peer connection.
type RTR uint8

// Kinds of RTR frames, with their flags.
const (
	RTRSend  RTR = 1 << iota // B
	RTRWrite                 // C
	RTRRead                  // D
)

// EnhancedFlags are flags A to D of enhanced data, as bits.
type EnhancedFlags uint8

// Flags of enhanced data: A is PeerToPeer, the others are the kinds of RTR.
const (
	FlagA EnhancedFlags = 1 << iota
	FlagB
	FlagC
	FlagD
)

// Flags returns the flags that are set.
func (e Enhanced) Flags() (f EnhancedFlags) {
	for i, flag := range []*bool{e.PeerToPeer, e.SendRTR, e.WriteRTR, e.ReadRTR} {
		if Val(flag) {
			f |= 1 << i
		}
	}
	return f
}

// String returns the letters of the flags, as in "AC".
func (f EnhancedFlags) String() string {
	s := ""
	for i, letter := range "ABCD" {
		if f>>i&1 != 0 {
			s += string(letter)
		}
	}
	return cmp.Or(s, "no flags")
}

// RTRs returns the kinds of RTR that the flags name.
func (f EnhancedFlags) RTRs() RTR { return RTR(f >> 1) }

// Request is a Request of revision 1 that requests CRCs and no markers.
func Request() StartupFrame { return StartupFrame{Key: new(KeyRequest)} }

// Reply is a Reply of revision 1 that accepts, and requests CRCs and no markers.
func Reply() StartupFrame { return StartupFrame{Key: new(KeyReply)} }

// WithKey returns a copy with this key, padded with zeros to 16 octets.
func (s StartupFrame) WithKey(key string) StartupFrame { s.Key = &key; return s }

// Markers returns a copy with this M: the sender requests markers from the peer.
func (s StartupFrame) Markers(v bool) StartupFrame { s.M = &v; return s }

// CRC returns a copy with this C: the sender requests CRCs in both directions.
func (s StartupFrame) CRC(v bool) StartupFrame { s.C = &v; return s }

// Reject returns a copy with this R: a Reply rejects the connection.
func (s StartupFrame) Reject(v bool) StartupFrame { s.R = &v; return s }

// SFlag returns a copy with this S flag, and the same enhanced data.
func (s StartupFrame) SFlag(v bool) StartupFrame { s.S = &v; return s }

// ReservedBits returns a copy with these four reserved bits after S.
func (s StartupFrame) ReservedBits(v uint8) StartupFrame { s.Reserved = &v; return s }

// Revision returns a copy with this revision.
func (s StartupFrame) Revision(v uint8) StartupFrame { s.Rev = &v; return s }

// Depths returns a copy with IRD and ORD in its enhanced data, which makes it a frame of revision
// 2.
func (s StartupFrame) Depths(ird, ord uint16) StartupFrame {
	return s.EditEnhanced(func(e *Enhanced) { e.IRD, e.ORD = &ird, &ord })
}

// PeerToPeer returns a copy with flag A in its enhanced data, and the RTR flags of the offered RTR
// frames.
func (s StartupFrame) PeerToPeer(offers RTR) StartupFrame {
	return s.EditEnhanced(func(e *Enhanced) {
		e.PeerToPeer = new(true)
		e.SendRTR, e.WriteRTR, e.ReadRTR = new(offers&RTRSend != 0), new(offers&RTRWrite != 0), new(offers&RTRRead != 0)
	})
}

// Flags returns a copy with these flags A to D in its enhanced data.
func (s StartupFrame) Flags(f EnhancedFlags) StartupFrame {
	return s.PeerToPeer(f.RTRs()).EditEnhanced(func(e *Enhanced) { e.PeerToPeer = new(f&FlagA != 0) })
}

// EditEnhanced returns a copy with its enhanced data (IRD, ORD and flags of RFC 6581) changed by
// edit. A frame without enhanced data gets it.
func (s StartupFrame) EditEnhanced(edit func(*Enhanced)) StartupFrame {
	s.Enhanced = edited(s.Enhanced, edit)
	return s
}

// Private returns a copy with this private data after the enhanced data.
func (s StartupFrame) Private(b []byte) StartupFrame {
	s.PrivateData = append([]byte{}, b...)
	return s
}

// PrivateLength returns a copy with this PD_Length field, and the same private data.
func (s StartupFrame) PrivateLength(n uint16) StartupFrame { s.PDLength = &n; return s }

// Append appends the frame. Fields that are nil have the values of a correct MPA Request Frame.
func (s StartupFrame) Append(b []byte) []byte {
	const revBasic = 1
	n, rev := len(s.PrivateData), uint8(revBasic)
	if s.Enhanced != nil {
		n, rev = n+enhancedLen, revEnhanced
	}
	key := packet.Get(s.Key, KeyRequest)
	if len(key) > len(KeyRequest) {
		panic(fmt.Sprintf("StartupFrame.Key: %q is longer than 16 octets", key))
	}
	at := len(b)
	b = packet.AppendFields(b, packet.Or(s, StartupFrame{S: new(s.Enhanced != nil), Rev: &rev, PDLength: new(uint16(n))}))
	copy(b[at:], key)
	if s.Enhanced != nil {
		b = packet.AppendFields(b, s.Enhanced)
	}
	return append(b, s.PrivateData...)
}

// ParseStartupFrame parses the start-up frame at the start of a stream, and returns the octets
// after it. If octets are missing, it returns false; s is set if only private data is missing.
func ParseStartupFrame(b []byte) (s StartupFrame, rest []byte, ok bool) {
	rest, err := packet.ParseFields(b, &s)
	if err != nil {
		return s, b, false
	}
	s.Key = new(string(b[:len(KeyRequest)]))
	n := int(*s.PDLength)
	ok = len(rest) >= n
	private := append([]byte{}, rest[:min(n, len(rest))]...)
	rest = rest[len(private):]
	if *s.S && *s.Rev >= revEnhanced {
		s.Enhanced, private = packet.ParseAs[Enhanced](private)
	}
	s.PrivateData = private
	return s, rest, ok
}

// Diff returns the fields of got that differ from the expected frame s.
func (s StartupFrame) Diff(got StartupFrame) packet.Differences {
	var d packet.Differences
	packet.DiffValue(&d, "key", "%q", s.Key, got.Key)
	packet.DiffFields(&d, "", s, got)
	packet.DiffHeader(&d, "enhanced data", "", s.Enhanced, got.Enhanced)
	packet.DiffBytes(&d, "private data", s.PrivateData, got.PrivateData)
	return d
}

// String formats the frame for a ladder diagram: "MPA REPLY rev 2 C S ird 4 ord 4 16 B".
func (s StartupFrame) String() string {
	var l packet.Line
	switch key := packet.Get(s.Key, KeyRequest); key {
	case KeyRequest:
		l.Addf("MPA REQUEST")
	case KeyReply:
		l.Addf("MPA REPLY")
	default:
		l.Addf("MPA KEY %q", key)
	}
	packet.AddField(&l, "rev %d", s.Rev)
	l.AddFlag("M", s.M)
	l.AddFlag("C", s.C)
	l.AddFlag("S", s.S)
	l.AddFlag("rejected", s.R)
	addIf(&l, Val(s.Reserved) != 0, "reserved %#x", Val(s.Reserved))
	if e := s.Enhanced; e != nil {
		packet.AddField(&l, "ird %d", e.IRD)
		packet.AddField(&l, "ord %d", e.ORD)
		l.AddFlag("p2p", e.PeerToPeer)
		l.AddFlag("rtr-send", e.SendRTR)
		l.AddFlag("rtr-write", e.WriteRTR)
		l.AddFlag("rtr-read", e.ReadRTR)
	}
	addIf(&l, len(s.PrivateData) > 0, "%d B", len(s.PrivateData))
	return l.String()
}
