package wire

import "encoding/binary"

// Marker stands at every 512th octet of a stream whose receiver asked for it,
// and tells where the FPDU around it began.
type Marker struct {
	Reserved uint16
	// Back is FPDUPTR: the octets of the stream from the ULPDU_Length to the
	// marker. 0 means that the marker stands before the ULPDU_Length. Senders
	// leave the low two bits 0, receivers take them as 0. In an FPDU longer than
	// MPA allows it wraps.
	Back uint16
}

var errShortMarker = shortError("marker", MarkerLen)

// Append appends m in wire order and returns the extended slice.
func (m Marker) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, m.Reserved)
	return binary.BigEndian.AppendUint16(b, m.Back)
}

// Parse decodes m from the front of b and returns the octets that follow.
func (m *Marker) Parse(b []byte) (rest []byte, err error) {
	if len(b) < MarkerLen {
		return nil, errShortMarker
	}
	m.Reserved = binary.BigEndian.Uint16(b)
	m.Back = binary.BigEndian.Uint16(b[2:])
	return b[MarkerLen:], nil
}

// toMarker is how many octets of FPDU follow position pos before the next
// marker; 0 if one stands there.
func toMarker(pos uint64) int { return int(-pos % MarkerInterval) }

// markersWithin is how many markers fall into n octets of an FPDU whose
// ULPDU_Length stands at pos. One at either end is not within: it belongs to
// the FPDU that it precedes.
func markersWithin(pos uint64, n int) int {
	const between = MarkerInterval - MarkerLen
	n -= toMarker(pos)
	if n <= 0 {
		return 0
	}
	return (n + between - 1) / between
}
