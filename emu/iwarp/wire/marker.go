package wire

import "encoding/binary"

// Marker is inserted at every 512th octet of a stream whose receiver requests markers. It
// points to the start of its FPDU.
type Marker struct {
	Reserved uint16
	// Back is FPDUPTR: the number of octets from the ULPDU_Length to the marker, 0 for a marker
	// before it. The low two bits are 0. It wraps in an FPDU longer than MPA allows.
	Back uint16
}

// Append appends m in wire order and returns the extended slice.
func (m Marker) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, m.Reserved)
	return binary.BigEndian.AppendUint16(b, m.Back)
}

// octetsToMarker returns the number of octets from stream offset pos to the next multiple of
// MarkerInterval, where a marker is; 0 if pos is one.
func octetsToMarker(pos uint64) int { return int(-pos % MarkerInterval) }

// markersWithin returns the number of markers inside an FPDU of n octets (without markers) whose
// ULPDU_Length is at stream offset pos. A marker right after its end belongs to the next FPDU.
func markersWithin(pos uint64, n int) int {
	const betweenMarkers = MarkerInterval - MarkerLen
	n -= octetsToMarker(pos)
	if n <= 0 {
		return 0
	}
	return (n + betweenMarkers - 1) / betweenMarkers
}
