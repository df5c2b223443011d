package interop

import (
	"encoding/binary"
	"hash/crc32"
)

// The frame with which a connection starts (RFC 5044, section 7.1).
const (
	startLen   = 20
	requestKey = "MPA ID Req Frame"
	replyKey   = "MPA ID Rep Frame"

	flagMarkers  = 0x80
	flagCRC      = 0x40
	flagRejected = 0x20
)

// start is what of a start frame matters here.
type start struct{ flags uint8 }

// readStart takes a start frame off the front of b: n octets, 0 if it is not all
// there. False means that this is another protocol.
func readStart(b []byte, key string) (s start, n int, ok bool) {
	if have := min(len(b), len(key)); string(b[:have]) != key[:have] {
		return s, 0, false
	}
	if len(b) < startLen {
		return s, 0, true
	}
	if n = startLen + int(binary.BigEndian.Uint16(b[18:])); len(b) < n {
		return s, 0, true
	}
	return start{flags: b[16]}, n, true
}

// fpdu is a frame: its DDP segment, its pad and its CRC.
type fpdu struct {
	all, ulpdu, pad []byte // all is what the CRC covers
	crc             uint32
}

// readFPDU takes a frame without markers off the front of b: n octets, 0 if it is
// not all there.
func readFPDU(b []byte) (f fpdu, n int) {
	if len(b) < 2 {
		return f, 0
	}
	length := 2 + int(binary.BigEndian.Uint16(b))
	padded := (length + 3) &^ 3
	if len(b) < padded+4 {
		return f, 0
	}
	f = fpdu{all: b[:padded], ulpdu: b[2:length], pad: b[length:padded], crc: binary.LittleEndian.Uint32(b[padded:])}
	return f, padded + 4
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (f *fpdu) crcRight() bool { return crc32.Checksum(f.all, castagnoli) == f.crc }

func (f *fpdu) padClean() bool {
	for _, b := range f.pad {
		if b != 0 {
			return false
		}
	}
	return true
}

// An untagged DDP header, and the opcode of a Terminate in RDMAP's control octet.
const (
	untaggedLen     = 18
	opcodeMask      = 0x0f
	opcodeTerminate = 7
	terminateMin    = untaggedLen + 4
)

// terminate returns the control field of a Terminate, if f is one.
func (f *fpdu) terminate() (control [4]byte, ok bool) {
	if len(f.ulpdu) < terminateMin || f.ulpdu[0]&0x80 != 0 || f.ulpdu[1]&opcodeMask != opcodeTerminate {
		return control, false
	}
	return [4]byte(f.ulpdu[untaggedLen:]), true
}

// mangled reports whether the control field of a Terminate has the bits of its
// octets in the order of a little-endian machine's compiler instead of the order
// of RFC 5040, section 4.8: layer and type changed places in the first, and the
// flags at the other end of the third. A field that reads the same both ways, or
// could be either, counts as right.
func mangled(control [4]byte) bool {
	layerType, code, flags := control[0], control[1], control[2]
	switch {
	case flags&0x07 != 0:
		return true
	case flags&0xe0 != 0:
		return false
	case layerType == 0x21: // layer 2 has one type, 0; so this is layer 1, type 2
		return true
	case layerType == 0x02: // layer 2, or layer 0 with a code that its type 2 does not have
		return code >= 2 && code <= 4
	case layerType == 0x20: // layer 0, type 2, by a code that layer 2 does not have once it runs
		return code == 5 || code == 6
	default:
		return false
	}
}
